//! The operators by families: functions only, which [`crate::list`] names.
//!
//! A function takes a [`crate::call::Call`] and gives outputs at their places. It is written for clarity, not for speed: it is
//! what targets are judged by. Names, attributes and defaults are those of ONNX's Operators.md, or of ONNX Runtime's
//! ContribOperators.md for the domain `com.microsoft`.

pub mod attention;
pub mod binary;
pub mod boxes;
pub mod cast;
pub mod control;
pub mod conv;
pub mod einsum;
pub mod elementwise;
pub mod fused;
pub mod gelu;
pub mod grouped;
pub mod index;
pub mod loss;
pub mod matmul;
pub mod movement;
pub mod multi_head;
pub mod nbits;
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
