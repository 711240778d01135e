//! The operators by families: functions only, which [`crate::list`] names.

pub mod binary;
pub mod cast;
pub mod conv;
pub mod elementwise;
pub mod index;
pub mod matmul;
pub mod movement;
pub mod order;
pub mod pool;
pub mod quantize;
pub mod reduce;
pub mod shape;
pub mod slice;
pub mod unary;
