//! Parts that architectures are put together from. Each adds nodes and weights under the path it is given.
//!
//! An architecture reads `config.json` and fills in the fields of parts; some parts read their own keys. So
//! what a family does differently stands in its own file.
//! Parts know nothing of devices and of packed weights.

pub mod activation;
pub mod alibi;
pub mod attention;
pub mod decoder;
pub mod latent;
pub mod layer;
pub mod linear;
pub mod mlp;
pub mod moe;
pub mod norm;
pub mod rope;
pub mod rwkv;
pub mod sizes;
pub mod vision;
pub mod windows;
