//! Self-attention over a cache.

use super::linear::{Projection, linear};
use crate::net::{Net, Path};
use tapml_graph::op::{Append, Attention, Rope};
use tapml_graph::{Result, ValueId};

/// Sizes of a self-attention layer.
#[derive(Clone, Copy, Debug)]
pub struct SelfAttention {
    /// Columns of input and output.
    pub hidden: u32,
    /// Query heads.
    pub heads: u32,
    /// Key/value heads; divides `heads`.
    pub kv_heads: u32,
    /// Elements of one head.
    pub head_dim: u32,
    /// Whether the projections add biases.
    pub bias: bool,
}

/// Causal attention of `x: [n, hidden]` with grouped query heads and rotary positions (`angles: [n, head_dim]`).
/// Keys are cached after the rotation, in the states `k` and `v`: `[p, kv_heads·head_dim]`.
pub fn rotary(net: &mut Net, at: &Path, x: ValueId, angles: ValueId, size: SelfAttention) -> Result<ValueId> {
    let SelfAttention { hidden, heads, kv_heads, head_dim, bias } = size;
    let (q_width, kv_width) = (heads * head_dim, kv_heads * head_dim);
    let rope = Rope { head_dim, rotary_dim: head_dim, interleaved: false };
    let into = |outputs| Projection { inputs: hidden, outputs, bias };

    let q = linear(net, &at.at("q_proj"), x, into(q_width))?;
    let k = linear(net, &at.at("k_proj"), x, into(kv_width))?;
    let v = linear(net, &at.at("v_proj"), x, into(kv_width))?;
    let q = net.node(&at.at("rope_q"), rope.clone(), &[q, angles])?;
    let k = net.node(&at.at("rope_k"), rope, &[k, angles])?;
    let k = cached(net, at, "k", k, kv_width)?;
    let v = cached(net, at, "v", v, kv_width)?;
    let scale = f64::from(head_dim).sqrt().recip() as f32;
    let attention = Attention { heads, kv_heads, head_dim, scale, window: None, softcap: None };
    let y = net.node(&at.at("attention"), attention, &[q, k, v])?;
    linear(net, &at.at("o_proj"), y, Projection { inputs: q_width, outputs: hidden, bias })
}

/// Adds the rows `new: [n, columns]` to the state `name`; gives all rows: `[n+p, columns]`.
fn cached(net: &mut Net, at: &Path, name: &str, new: ValueId, columns: u32) -> Result<ValueId> {
    let before = net.cache(&at.at(name), columns)?;
    let after = net.node(&at.at(format!("{name}_cache")), Append {}, &[before, new])?;
    net.set_cache(before, after)?;
    Ok(after)
}
