//! The sizes that the configuration of nearly every decoder gives.
//!
//! The bounds keep every product of two sizes within u32 or, for whole tensors, within u64. They are far
//! above all published models.

use crate::config::Section;
use tapml_graph::Result;

/// Sizes of a decoder.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Token ids lie below this.
    pub vocab: u32,
    /// Columns of the residual stream.
    pub hidden: u32,
    /// Columns within a feed-forward layer.
    pub intermediate: u32,
    /// Layers.
    pub layers: u32,
    /// Query heads.
    pub heads: u32,
    /// Key/value heads; divides `heads`.
    pub kv_heads: u32,
    /// Elements of one head.
    pub head_dim: u32,
    /// Most positions the model was made for.
    pub context: u32,
}

/// What Transformers takes for keys that are absent.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Key/value heads; as many as query heads if none.
    pub kv_heads: Option<u32>,
    /// Columns within a feed-forward layer as a multiple of `hidden`; the key must be there if none.
    pub intermediate: Option<u32>,
    /// Elements of one head; `hidden / heads` if none.
    pub head_dim: Option<u32>,
    /// Most positions.
    pub context: u32,
}

impl Defaults {
    /// Those of Llama.
    pub const LLAMA: Defaults =
        Defaults { kv_heads: None, intermediate: None, head_dim: None, context: 2048 };
}

impl Sizes {
    /// Reads the sizes.
    ///
    /// # Errors
    /// If a key is missing or out of bounds, `heads` is no multiple of `kv_heads`, or `head_dim` is absent
    /// and no whole number.
    pub fn read(json: &Section, defaults: &Defaults) -> Result<Sizes> {
        let hidden = json.size("hidden_size", 1..=1 << 17)?;
        let heads = json.size("num_attention_heads", 1..=1 << 12)?;
        let heads_key = json.spelling("num_attention_heads");
        // An own `head_dim` wins: several families have heads that are wider than their share.
        let head_dim = match (json.get("head_dim"), defaults.head_dim) {
            (Some(_), _) => json.size("head_dim", 1..=1 << 12)?,
            (None, Some(size)) => size,
            (None, None) if hidden.is_multiple_of(heads) => hidden / heads,
            (None, None) => {
                let expected =
                    format!("a multiple of `{heads_key}`, which is {heads}, as there is no `head_dim`");
                return Err(json.expected_error("hidden_size", &expected));
            }
        };
        let kv_heads = json.size_or("num_key_value_heads", defaults.kv_heads.unwrap_or(heads), 1..=heads)?;
        if !heads.is_multiple_of(kv_heads) {
            let expected = format!("a divisor of `{heads_key}`, which is {heads}");
            return Err(json.expected_error("num_key_value_heads", &expected));
        }
        let intermediate = match defaults.intermediate {
            Some(factor) => json.size_or("intermediate_size", factor.saturating_mul(hidden), 1..=1 << 20)?,
            None => json.size("intermediate_size", 1..=1 << 20)?,
        };
        Ok(Sizes {
            vocab: json.size("vocab_size", 1..=1 << 24)?,
            hidden,
            intermediate,
            layers: json.size("num_hidden_layers", 1..=1 << 12)?,
            heads,
            kv_heads,
            head_dim,
            context: json.size_or("max_position_embeddings", defaults.context, 1..=1 << 26)?,
        })
    }
}
