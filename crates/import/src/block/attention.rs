//! Self-attention over a cache.

use super::linear::{Projection, linear};
use super::norm::Norm;
use super::sizes::Sizes;
use crate::net::{Net, Path};
use tapml_graph::op::{Append, Attention, Columns, Rope};
use tapml_graph::{Result, ValueId};

/// How queries, keys and values are projected.
#[derive(Clone, Copy, Debug)]
pub enum Projections {
    /// One projection each.
    Split {
        /// Names of the projections of queries, keys and values.
        names: [&'static str; 3],
    },
    /// One projection of all queries, then all keys, then all values.
    Fused {
        /// Its name.
        name: &'static str,
    },
    /// One projection of, for each key/value head, its queries, its key and its value.
    Grouped {
        /// Its name.
        name: &'static str,
    },
}

/// A normalisation of queries and keys.
#[derive(Clone, Debug)]
pub struct QueryKeyNorm {
    /// Names of the norms of queries and keys.
    pub names: [&'static str; 2],
    /// The norm, over all columns.
    pub norm: Norm,
}

/// A self-attention layer.
#[derive(Clone, Debug)]
pub struct SelfAttention {
    /// Columns of input and output.
    pub hidden: u32,
    /// Structure and names of the projections of queries, keys and values.
    pub projections: Projections,
    /// Whether these add biases.
    pub bias: bool,
    /// Name of the projection of the result.
    pub output: &'static str,
    /// Whether that adds a bias.
    pub output_bias: bool,
    /// Whether the checkpoint holds the matrices as `[inputs, outputs]`.
    pub transposed: bool,
    /// Normalisation of queries and keys before they are rotated.
    pub norm: Option<QueryKeyNorm>,
    /// Whether rotated pairs are neighbours instead of halves apart.
    pub interleaved: bool,
    /// Heads, scale and mask.
    pub scores: Attention,
}

impl SelfAttention {
    /// Llama's: split projections without biases, scores over the square root of the size of heads.
    pub fn new(sizes: &Sizes) -> SelfAttention {
        let Sizes { heads, kv_heads, head_dim, .. } = *sizes;
        let scale = f64::from(head_dim).sqrt().recip() as f32;
        SelfAttention {
            hidden: sizes.hidden,
            projections: Projections::Split { names: ["q_proj", "k_proj", "v_proj"] },
            bias: false,
            output: "o_proj",
            output_bias: false,
            transposed: false,
            norm: None,
            interleaved: false,
            scores: Attention::causal(heads, kv_heads, head_dim, scale),
        }
    }

    /// Causal attention of `x: [n, hidden]`, rotated by `angles: [n, rotary_dim]` if there are some. Keys are cached
    /// after the rotation, in the states `k` and `v`: `[p, kv_heads·head_dim]`.
    pub fn apply(&self, net: &mut Net, at: &Path, x: ValueId, angles: Option<ValueId>) -> Result<ValueId> {
        let [mut q, mut k, v] = self.project(net, at, x)?;
        if let Some(QueryKeyNorm { names: [of_q, of_k], norm }) = &self.norm {
            let [q_width, k_width, _] = self.widths();
            q = norm.apply(net, &at.at(of_q), q, q_width)?;
            k = norm.apply(net, &at.at(of_k), k, k_width)?;
        }
        if let Some(angles) = angles {
            q = self.rotate(net, &at.at("rope_q"), q, angles)?;
            k = self.rotate(net, &at.at("rope_k"), k, angles)?;
        }
        let k = cached(net, at, "k", k)?;
        let v = cached(net, at, "v", v)?;
        let y = net.node(&at.at("attention"), self.scores.clone(), &[q, k, v])?;
        let [q_width, ..] = self.widths();
        let out = Projection {
            transposed: self.transposed,
            ..Projection::new(q_width, self.hidden, self.output_bias)
        };
        linear(net, &at.at(self.output), y, out)
    }

    /// Columns of queries, keys and values.
    fn widths(&self) -> [u32; 3] {
        let Attention { heads, kv_heads, head_dim, .. } = self.scores;
        [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
    }

    fn project(&self, net: &mut Net, at: &Path, x: ValueId) -> Result<[ValueId; 3]> {
        let widths = self.widths();
        let into = |outputs| Projection {
            transposed: self.transposed,
            ..Projection::new(self.hidden, outputs, self.bias)
        };
        match self.projections {
            Projections::Split { names: [q, k, v] } => Ok([
                linear(net, &at.at(q), x, into(widths[0]))?,
                linear(net, &at.at(k), x, into(widths[1]))?,
                linear(net, &at.at(v), x, into(widths[2]))?,
            ]),
            Projections::Fused { name } => {
                let fused = linear(net, &at.at(name), x, into(widths.iter().sum()))?;
                split(net, at, fused, widths)
            }
            Projections::Grouped { name } => {
                let fused = linear(net, &at.at(name), x, into(widths.iter().sum()))?;
                split(net, at, fused, widths.map(|width| width / self.scores.kv_heads))
            }
        }
    }

    fn rotate(&self, net: &mut Net, at: &Path, x: ValueId, angles: ValueId) -> Result<ValueId> {
        let rotary_dim = net.ty(angles).shape.get(1).and_then(|size| size.as_const()).unwrap_or(0) as u32;
        let rope = Rope { head_dim: self.scores.head_dim, rotary_dim, interleaved: self.interleaved };
        net.node(at, rope, &[x, angles])
    }
}

/// Queries, keys and values of `fused`, in which each group of columns holds `widths` of them.
fn split(net: &mut Net, at: &Path, fused: ValueId, widths: [u32; 3]) -> Result<[ValueId; 3]> {
    let group = widths.iter().sum();
    let [q, k, v] = widths;
    Ok([
        net.node(&at.at("query"), Columns { group, first: 0, count: q }, &[fused])?,
        net.node(&at.at("key"), Columns { group, first: q, count: k }, &[fused])?,
        net.node(&at.at("value"), Columns { group, first: q + k, count: v }, &[fused])?,
    ])
}

/// Adds the rows `new: [n, columns]` to the state `name`; gives all rows: `[n+p, columns]`.
pub fn cached(net: &mut Net, at: &Path, name: &str, new: ValueId) -> Result<ValueId> {
    let columns = net.ty(new).shape.get(1).and_then(|size| size.as_const()).unwrap_or(0) as u32;
    let before = net.cache(&at.at(name), columns)?;
    let after = net.node(&at.at(format!("{name}_cache")), Append {}, &[before, new])?;
    net.set_cache(before, after)?;
    Ok(after)
}
