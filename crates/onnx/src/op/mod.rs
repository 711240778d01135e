//! The operators by families: functions only, which [`crate::list`] names.

pub mod attention;
pub mod boxes;
pub mod conv;
pub mod einsum;
pub mod elementwise;
pub mod gelu;
pub mod loss;
pub mod matmul;
pub mod movement;
pub mod norm;
pub mod pool;
pub mod quantized;
pub mod recurrent;
pub mod resize;
pub mod sampling;
pub mod softmax;
pub mod spectrum;
