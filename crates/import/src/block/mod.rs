//! Parts that architectures are put together from. Each adds nodes and weights under the path it is given.

pub mod activation;
pub mod attention;
pub mod embed;
pub mod linear;
pub mod mlp;
pub mod norm;
pub mod rope;
