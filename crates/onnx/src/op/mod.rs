//! The operators by families: functions only, which [`crate::list`] names.

pub mod elementwise;
pub mod matmul;
pub mod movement;
