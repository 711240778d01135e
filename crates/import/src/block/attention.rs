//! Self-attention, over a cache or within a text.
//!
//! The order of steps is: projections, clip, norms, rotation (norms behind it for some families), factor on
//! queries, cache, scores, output projection. A family differs only in the fields of `SelfAttention`.

use super::linear::{Projection, linear};
use super::norm::{HeadWeights, Norm};
use super::sizes::Sizes;
use crate::net::{Net, Path};
use tapml_graph::op::{Append, Attention, Clamp, Columns, PositionScale, Rope};
use tapml_graph::{Result, ValueId};

/// How queries, keys and values are projected.
///
/// All three orders give the same columns in the graph; cutting costs a `Columns` node each.
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
///
/// Values are never normalised.
#[derive(Clone, Debug)]
pub struct QueryKeyNorm {
    /// Names of the norms of queries and keys.
    pub names: [&'static str; 2],
    /// The norm.
    pub norm: Norm,
    /// The weights if each head is normalised on its own; over all columns if none.
    pub heads: Option<HeadWeights>,
    /// Whether rotation comes first.
    pub after_rotation: bool,
}

impl QueryKeyNorm {
    /// A norm of each head, before the rotation.
    pub fn of_heads(names: [&'static str; 2], norm: &Norm, weights: HeadWeights) -> QueryKeyNorm {
        QueryKeyNorm { names, norm: norm.clone(), heads: Some(weights), after_rotation: false }
    }

    /// A norm over all columns, before the rotation.
    pub fn of_all(names: [&'static str; 2], norm: &Norm) -> QueryKeyNorm {
        QueryKeyNorm { names, norm: norm.clone(), heads: None, after_rotation: false }
    }
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
    /// Queries, keys and values are held within this distance of 0.
    pub clip: Option<f32>,
    /// Normalisation of queries and keys.
    pub norm: Option<QueryKeyNorm>,
    /// Whether rotated pairs are neighbours instead of halves apart.
    pub interleaved: bool,
    /// Factor on queries that depends on their position.
    pub query_scale: Option<PositionScale>,
    /// Name of a weight `[heads]`: a score of each head that takes a share of the softmax and gives nothing.
    pub sinks: Option<&'static str>,
    /// Heads, scale and mask.
    pub scores: Attention,
}

impl SelfAttention {
    /// Llama's: split projections without biases, scores over the square root of the size of heads.
    ///
    /// Scores are divided by the root of `head_dim`: Vaswani et al., "Attention Is All You Need", 2017,
    /// section 3.2.1.
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
            clip: None,
            norm: None,
            interleaved: false,
            query_scale: None,
            sinks: None,
            scores: Attention::causal(heads, kv_heads, head_dim, scale),
        }
    }

    /// Attention of `x: [n, hidden]`, rotated by `angles: [n, rotary_dim]` if there are some. If it is causal, keys are
    /// cached after the rotation, in the states `k` and `v`: `[p, kv_heads·head_dim]`; else there is no cache.
    ///
    /// Positions are those of this step: `p` to `p + n`. The result is `[n, hidden]`.
    pub fn apply(&self, net: &mut Net, at: &Path, x: ValueId, angles: Option<ValueId>) -> Result<ValueId> {
        let [q, k, v] = self.project(net, at, x)?;
        // At most one of the two is there.
        let early = self.norm.as_ref().filter(|norm| !norm.after_rotation);
        let late = self.norm.as_ref().filter(|norm| norm.after_rotation);
        let [q, k] = self.normalise(net, at, [q, k], early)?;
        let [q, k] = match angles {
            Some(angles) => [
                self.rotate(net, &at.child("rope_q"), q, angles)?,
                self.rotate(net, &at.child("rope_k"), k, angles)?,
            ],
            None => [q, k],
        };
        let [q, k] = self.normalise(net, at, [q, k], late)?;
        let q = match &self.query_scale {
            Some(scale) => net.node(&at.child("query_scale"), scale.clone(), &[q])?,
            None => q,
        };
        // Keys are cached rotated and normalised, so that a step treats only its own rows. An encoder sees
        // its whole text at once and needs no cache.
        let [k, v] = if self.scores.causal {
            [add_state(net, at, "k", k)?, add_state(net, at, "v", v)?]
        } else {
            [k, v]
        };
        // Sinks are a fourth input.
        let mut inputs = vec![q, k, v];
        if let Some(sinks) = self.sinks {
            inputs.push(net.weight(&at.child(sinks), &[self.scores.heads])?);
        }
        let y = net.node(&at.child("attention"), self.scores.clone(), &inputs)?;
        let [q_width, ..] = self.widths();
        let out = Projection {
            transposed: self.transposed,
            ..Projection::new(q_width, self.hidden, self.output_bias)
        };
        linear(net, &at.child(self.output), y, out)
    }

    /// Queries and keys after the norm, or as they are if there is none.
    fn normalise(
        &self,
        net: &mut Net,
        at: &Path,
        qk: [ValueId; 2],
        norm: Option<&QueryKeyNorm>,
    ) -> Result<[ValueId; 2]> {
        let Some(QueryKeyNorm { names, norm, heads, .. }) = norm else { return Ok(qk) };
        let Attention { heads: q_heads, kv_heads, head_dim, .. } = self.scores;
        let mut apply = |name: &str, x, count| match heads {
            Some(weights) => norm.apply_to_heads(net, &at.child(name), x, [count, head_dim], *weights),
            None => norm.apply(net, &at.child(name), x, count * head_dim),
        };
        Ok([apply(names[0], qk[0], q_heads)?, apply(names[1], qk[1], kv_heads)?])
    }

    /// Columns of queries, keys and values.
    fn widths(&self) -> [u32; 3] {
        let Attention { heads, kv_heads, head_dim, .. } = self.scores;
        [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
    }

    /// Queries, keys and values, clipped.
    fn project(&self, net: &mut Net, at: &Path, x: ValueId) -> Result<[ValueId; 3]> {
        let [q, k, v] = self.project_unclipped(net, at, x)?;
        let Some(clip) = self.clip else { return Ok([q, k, v]) };
        let mut held =
            |name: &str, x| net.node(&at.child(name), Clamp { min: Some(-clip), max: Some(clip) }, &[x]);
        Ok([held("clip_q", q)?, held("clip_k", k)?, held("clip_v", v)?])
    }

    /// Queries, keys and values as the projections give them: `[n, heads·head_dim]`, then twice `[n,
    /// kv_heads·head_dim]`.
    fn project_unclipped(&self, net: &mut Net, at: &Path, x: ValueId) -> Result<[ValueId; 3]> {
        let widths = self.widths();
        let into = |outputs| Projection {
            transposed: self.transposed,
            ..Projection::new(self.hidden, outputs, self.bias)
        };
        match self.projections {
            Projections::Split { names: [q, k, v] } => Ok([
                linear(net, &at.child(q), x, into(widths[0]))?,
                linear(net, &at.child(k), x, into(widths[1]))?,
                linear(net, &at.child(v), x, into(widths[2]))?,
            ]),
            Projections::Fused { name } => {
                let fused = linear(net, &at.child(name), x, into(widths.iter().sum()))?;
                split(net, at, fused, widths)
            }
            Projections::Grouped { name } => {
                let fused = linear(net, &at.child(name), x, into(widths.iter().sum()))?;
                // Each key/value head has a group of columns: its queries, its key, its value.
                split(net, at, fused, widths.map(|width| width / self.scores.kv_heads))
            }
        }
    }

    /// `x` with the first `rotary_dim` elements of each head rotated. The angles' columns say how many that
    /// are.
    fn rotate(&self, net: &mut Net, at: &Path, x: ValueId, angles: ValueId) -> Result<ValueId> {
        // A model may rotate a part of each head only.
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
        net.node(&at.child("query"), Columns { group, first: 0, count: q }, &[fused])?,
        net.node(&at.child("key"), Columns { group, first: q, count: k }, &[fused])?,
        net.node(&at.child("value"), Columns { group, first: q + k, count: v }, &[fused])?,
    ])
}

/// Adds the rows `new: [n, columns]` to the state `name`; gives all rows: `[n+p, columns]`.
pub fn add_state(net: &mut Net, at: &Path, name: &str, new: ValueId) -> Result<ValueId> {
    let columns = net.ty(new).shape.get(1).and_then(|size| size.as_const()).unwrap_or(0) as u32;
    let before = net.cache(&at.child(name), columns)?;
    let after = net.node(&at.child(format!("{name}_cache")), Append {}, &[before, new])?;
    net.set_cache(before, after)?;
    Ok(after)
}
