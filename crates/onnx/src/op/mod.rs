//! The operators by families: functions only, which [`crate::list`] names.

pub mod conv;
pub mod elementwise;
pub mod matmul;
pub mod movement;
pub mod norm;
pub mod pool;
pub mod resize;
pub mod softmax;
