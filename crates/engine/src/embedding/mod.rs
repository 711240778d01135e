//! Vectors of texts: an encoder runs over a whole text, and its hidden states become one vector as the checkpoint says.
//!
//! One thread ([`EmbeddingModel`]) runs texts one after another, so that a text's vector has the same bits alone and among
//! others.

mod encoder;
mod model;
mod options;
mod pooling;

pub use encoder::{EncoderLimits, PlatformEncoder, TextEncoder};
pub use model::{EmbeddingModel, EmbeddingStats};
pub use options::EmbeddingOptions;
pub use pooling::PoolingMode;
