//! Self-attention over a cache.

use super::linear::{Projection, linear};
use crate::net::{Net, Path};
use tapml_graph::op::{Append, Attention, Columns, Rope};
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
    /// Elements of a head that are rotated.
    pub rotary_dim: u32,
    /// Positions seen, the query's own included; all if absent.
    pub window: Option<u32>,
    /// Whether the projections add biases.
    pub bias: bool,
    /// Name of the projection of the result.
    pub output: &'static str,
}

/// Causal attention of `x: [n, hidden]` with grouped query heads and rotary positions (`angles: [n, rotary_dim]`).
/// Keys are cached after the rotation, in the states `k` and `v`: `[p, kv_heads·head_dim]`.
pub fn rotary(net: &mut Net, at: &Path, x: ValueId, angles: ValueId, size: SelfAttention) -> Result<ValueId> {
    let SelfAttention { hidden, heads, kv_heads, head_dim, bias, .. } = size;
    let (q_width, kv_width) = (heads * head_dim, kv_heads * head_dim);
    let into = |outputs| Projection { inputs: hidden, outputs, bias };

    let q = linear(net, &at.at("q_proj"), x, into(q_width))?;
    let k = linear(net, &at.at("k_proj"), x, into(kv_width))?;
    let v = linear(net, &at.at("v_proj"), x, into(kv_width))?;
    attend(net, at, [q, k, v], angles, size)
}

/// As [`rotary`] for as many key/value heads as query heads, whose projections are one, `query_key_value`: each head's
/// query, key and value lie one after another.
pub fn rotary_fused(
    net: &mut Net,
    at: &Path,
    x: ValueId,
    angles: ValueId,
    size: SelfAttention,
) -> Result<ValueId> {
    let SelfAttention { hidden, heads, head_dim: count, bias, .. } = size;
    let group = 3 * count;
    let fused = Projection { inputs: hidden, outputs: heads * group, bias };
    let fused = linear(net, &at.at("query_key_value"), x, fused)?;
    let q = net.node(&at.at("query"), Columns { group, first: 0, count }, &[fused])?;
    let k = net.node(&at.at("key"), Columns { group, first: count, count }, &[fused])?;
    let v = net.node(&at.at("value"), Columns { group, first: 2 * count, count }, &[fused])?;
    attend(net, at, [q, k, v], angles, size)
}

/// Attention of projected queries, keys and values, which are rotated and cached here, and the projection of the result.
fn attend(
    net: &mut Net,
    at: &Path,
    qkv: [ValueId; 3],
    angles: ValueId,
    size: SelfAttention,
) -> Result<ValueId> {
    let SelfAttention { hidden, heads, kv_heads, head_dim, rotary_dim, window, bias, output } = size;
    let (q_width, kv_width) = (heads * head_dim, kv_heads * head_dim);
    let rope = Rope { head_dim, rotary_dim, interleaved: false };
    let [q, k, v] = qkv;
    let q = net.node(&at.at("rope_q"), rope.clone(), &[q, angles])?;
    let k = net.node(&at.at("rope_k"), rope, &[k, angles])?;
    let k = cached(net, at, "k", k, kv_width)?;
    let v = cached(net, at, "v", v, kv_width)?;
    let scale = f64::from(head_dim).sqrt().recip() as f32;
    let attention = Attention { heads, kv_heads, head_dim, scale, window, softcap: None };
    let y = net.node(&at.at("attention"), attention, &[q, k, v])?;
    linear(net, &at.at(output), y, Projection { inputs: q_width, outputs: hidden, bias })
}

/// Adds the rows `new: [n, columns]` to the state `name`; gives all rows: `[n+p, columns]`.
fn cached(net: &mut Net, at: &Path, name: &str, new: ValueId, columns: u32) -> Result<ValueId> {
    let before = net.cache(&at.at(name), columns)?;
    let after = net.node(&at.at(format!("{name}_cache")), Append {}, &[before, new])?;
    net.set_cache(before, after)?;
    Ok(after)
}
