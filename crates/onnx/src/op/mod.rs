//! The operators by families: functions only, which [`crate::list`] names.

pub mod attention;
pub mod conv;
pub mod einsum;
pub mod elementwise;
pub mod matmul;
pub mod movement;
pub mod norm;
pub mod pool;
pub mod recurrent;
pub mod resize;
pub mod softmax;
