//! The operators by families: functions only, which [`crate::list`] names.

pub mod attention;
pub mod binary;
pub mod boxes;
pub mod cast;
pub mod conv;
pub mod einsum;
pub mod elementwise;
pub mod gelu;
pub mod index;
pub mod loss;
pub mod matmul;
pub mod movement;
pub mod norm;
pub mod order;
pub mod pool;
pub mod quantize;
pub mod quantized;
pub mod recurrent;
pub mod reduce;
pub mod resize;
pub mod sampling;
pub mod shape;
pub mod slice;
pub mod softmax;
pub mod spectrum;
pub mod unary;
