//! Multi-head latent attention: keys and values of all heads follow from one short row per position, which is cached.
//!
//! The cache holds the latent and one rotated key, not keys and values of each head. Keys and values of all
//! cached positions are projected again in each step.

use super::attention::add_state;
use super::linear::{Projection, linear};
use super::norm::Norm;
use crate::net::{Net, Path};
use tapml_graph::op::{Attention, Columns, Concat, Rope};
use tapml_graph::{Result, ValueId};

/// A latent attention layer. DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1.
///
/// The form is the paper's without absorbing `kv_b_proj` into other matrices; a recorded call shows each
/// product.
#[derive(Clone, Debug)]
pub struct LatentAttention {
    /// Columns of input and output.
    pub hidden: u32,
    /// Heads.
    pub heads: u32,
    /// Columns of the latent of queries; queries are projected at once if none.
    pub q_rank: Option<u32>,
    /// Columns of the latent of keys and values.
    pub kv_rank: u32,
    /// Elements of a head's query and key that are not rotated.
    pub plain_dim: u32,
    /// Elements of a head's query that are rotated, and of the one rotated key that all heads share.
    pub rotary_dim: u32,
    /// Elements of a head's value.
    pub value_dim: u32,
    /// Whether the projections into the latents and of the result add biases.
    pub bias: bool,
    /// The norm of the latents.
    pub latent_norm: Norm,
    /// Whether rotated pairs are neighbours instead of halves apart.
    pub interleaved: bool,
    /// Factor on the scores.
    pub scale: f32,
}

impl LatentAttention {
    /// Causal attention of `x: [n, hidden]`, rotated by `angles: [n, rotary_dim]`. States: `latent: [p, kv_rank]` and
    /// `rotated_key: [p, rotary_dim]`.
    pub fn apply(&self, net: &mut Net, at: &Path, x: ValueId, angles: ValueId) -> Result<ValueId> {
        let q = self.queries(net, at, x, angles)?;
        let (k, v) = self.keys_and_values(net, at, x, angles)?;
        let head_dim = self.plain_dim + self.rotary_dim;
        let scores = Attention {
            value_dim: Some(self.value_dim),
            ..Attention::causal(self.heads, self.heads, head_dim, self.scale)
        };
        let y = net.node(&at.child("attention"), scores, &[q, k, v])?;
        linear(
            net,
            &at.child("o_proj"),
            y,
            Projection::new(self.heads * self.value_dim, self.hidden, self.bias),
        )
    }

    /// `[n, heads·(plain_dim + rotary_dim)]`.
    fn queries(&self, net: &mut Net, at: &Path, x: ValueId, angles: ValueId) -> Result<ValueId> {
        let width = self.heads * (self.plain_dim + self.rotary_dim);
        let q = match self.q_rank {
            None => linear(net, &at.child("q_proj"), x, Projection::new(self.hidden, width, false))?,
            Some(rank) => {
                let latent = Projection::new(self.hidden, rank, self.bias);
                let latent = linear(net, &at.child("q_a_proj"), x, latent)?;
                let latent = self.latent_norm.apply(net, &at.child("q_a_layernorm"), latent, rank)?;
                linear(net, &at.child("q_b_proj"), latent, Projection::new(rank, width, false))?
            }
        };
        let [plain, rotated] = split(net, at, ["q_plain", "q_rotary"], q, [self.plain_dim, self.rotary_dim])?;
        let rotated = self.rotate(net, &at.child("rope_q"), rotated, angles)?;
        net.node(&at.child("q"), Concat { groups: self.heads, shared: false }, &[plain, rotated])
    }

    /// `[n+p, heads·(plain_dim + rotary_dim)]` and `[n+p, heads·value_dim]`.
    fn keys_and_values(
        &self,
        net: &mut Net,
        at: &Path,
        x: ValueId,
        angles: ValueId,
    ) -> Result<(ValueId, ValueId)> {
        let into = Projection::new(self.hidden, self.kv_rank + self.rotary_dim, self.bias);
        let both = linear(net, &at.child("kv_a_proj_with_mqa"), x, into)?;
        let [latent, rotated] =
            split(net, at, ["kv_latent", "k_rotary"], both, [self.kv_rank, self.rotary_dim])?;
        let latent = self.latent_norm.apply(net, &at.child("kv_a_layernorm"), latent, self.kv_rank)?;
        let latent = add_state(net, at, "latent", latent)?;
        let rotated = self.rotate(net, &at.child("rope_k"), rotated, angles)?;
        // The rotated key is cached after the rotation, like the keys of other families.
        let rotated = add_state(net, at, "rotated_key", rotated)?;

        let out = Projection::new(self.kv_rank, self.heads * (self.plain_dim + self.value_dim), false);
        let kv = linear(net, &at.child("kv_b_proj"), latent, out)?;
        let [plain, v] = split(net, at, ["k_plain", "value"], kv, [self.plain_dim, self.value_dim])?;
        // `shared`: the one rotated key is put behind the plain part of every head.
        Ok((net.node(&at.child("key"), Concat { groups: self.heads, shared: true }, &[plain, rotated])?, v))
    }

    /// Whole heads of `rotary_dim` elements: the part that is rotated has been cut out.
    fn rotate(&self, net: &mut Net, at: &Path, x: ValueId, angles: ValueId) -> Result<ValueId> {
        let Self { rotary_dim, interleaved, .. } = *self;
        net.node(at, Rope { head_dim: rotary_dim, rotary_dim, interleaved }, &[x, angles])
    }
}

/// The two parts of each group of columns.
fn split(
    net: &mut Net,
    at: &Path,
    names: [&str; 2],
    x: ValueId,
    [left, right]: [u32; 2],
) -> Result<[ValueId; 2]> {
    let group = left + right;
    Ok([
        net.node(&at.child(names[0]), Columns { group, first: 0, count: left }, &[x])?,
        net.node(&at.child(names[1]), Columns { group, first: left, count: right }, &[x])?,
    ])
}
