//! What the generations of RWKV share: the mix of a token with the one before it, products of two thin matrices, and the
//! frame of RWKV-5 and RWKV-6.
//!
//! States are f32 and start as zeros: one row for the token before (`token_shift`), one matrix per head for
//! the recurrence. Neither grows with the text.

use super::activation::ActivationOp;
use super::decoder::ModelFrame;
use super::linear::{Projection, linear};
use super::norm::Norm;
use super::sizes::Sizes;
use crate::arch::Decoder;
use crate::config::Section;
use crate::net::{Net, Path};
use crate::source::Source;
use tapml_graph::op::{Add, LayerNorm, Lerp, Linear, Mul, ReluSquared, Sigmoid, Silu, TokenShift, Wkv};
use tapml_graph::{Error, Op, Result, ValueId};

/// Positions of a model whose state has no end and whose configuration names none.
///
/// A bound of the importer alone: it keeps the context a number that later sizes can be made of.
pub const UNBOUNDED: u32 = 1 << 20;

/// A node with two outputs, named `rows` and `after` below it: those of an operator with a state.
pub fn stateful(net: &mut Net, at: &Path, op: impl Into<Op>, inputs: &[ValueId]) -> Result<[ValueId; 2]> {
    let outputs = net.node_multi(at, op, inputs, &["rows", "after"])?;
    <[ValueId; 2]>::try_from(outputs).map_err(|_| Error::bug(format!("node `{at}` has not two outputs")))
}

/// For each row of `x: [n, width]` the one before it, over the steps too; zeros before the first.
///
/// Peng et al., "RWKV: Reinventing RNNs for the Transformer Era", 2023, call it token shift.
pub fn previous_rows(net: &mut Net, at: &Path, x: ValueId, width: u32) -> Result<ValueId> {
    let state = net.state(&at.child("before"), &[1, width])?;
    let [rows, after] = stateful(net, &at.child("token_shift"), TokenShift {}, &[x, state])?;
    net.set_cache(state, after)?;
    Ok(rows)
}

/// A weight of `width` elements as a vector, whatever its shape in the checkpoint.
pub fn vector(net: &mut Net, at: &Path, width: u32) -> Result<ValueId> {
    net.derive(&at.child("vector"), &[width], Source::Reshaped(at.to_string()))
}

/// `a + (b − a)·share` with the vector of weights `share`.
pub fn mix_rows(net: &mut Net, share: &Path, [a, b]: [ValueId; 2], width: u32) -> Result<ValueId> {
    let t = vector(net, share, width)?;
    net.node(&share.child("mixed"), Lerp {}, &[a, b, t])
}

/// The product with a matrix that is stored as `[inputs, outputs]` under this very name.
///
/// The checkpoint holds such a matrix as a parameter of its own, without `.weight`.
pub fn times(net: &mut Net, at: &Path, x: ValueId, [inputs, outputs]: [u32; 2]) -> Result<ValueId> {
    let source = Source::Transposed(at.to_string());
    let weight = net.derive(&at.child("transposed"), &[outputs, inputs], source)?;
    net.node(&at.child("product"), Linear::default(), &[x, weight])
}

/// As [`times`], plus the vector `bias`.
pub fn times_plus(
    net: &mut Net,
    at: &Path,
    x: ValueId,
    [inputs, outputs]: [u32; 2],
    bias: &Path,
) -> Result<ValueId> {
    let source = Source::Transposed(at.to_string());
    let weight = net.derive(&at.child("transposed"), &[outputs, inputs], source)?;
    let bias = vector(net, bias, outputs)?;
    net.node(&at.child("product"), Linear::default(), &[x, weight, bias])
}

/// A projection without bias.
pub fn project(net: &mut Net, at: &Path, x: ValueId, [inputs, outputs]: [u32; 2]) -> Result<ValueId> {
    linear(net, at, x, Projection::new(inputs, outputs, false))
}

/// `y: [n, width]`, each head of `head_dim` columns normalised on its own by the module `at`.
pub fn norm_heads(
    net: &mut Net,
    at: &Path,
    y: ValueId,
    [width, head_dim]: [u32; 2],
    eps: f32,
) -> Result<ValueId> {
    let inputs = [y, net.weight(&at.child("weight"), &[width])?, net.weight(&at.child("bias"), &[width])?];
    net.node(at, LayerNorm { group: Some(head_dim), ..LayerNorm::new(eps) }, &inputs)
}

/// Sizes of RWKV-5 and RWKV-6.
#[derive(Clone, Copy, Debug)]
pub struct Older {
    /// Columns of the residual stream, and of all heads together.
    pub width: u32,
    /// Columns of a head.
    pub head_dim: u32,
    /// Columns within channel mixing.
    pub inner: u32,
    /// Epsilon of the norm over each head.
    eps: f32,
}

impl Older {
    /// The whole decoder. `attention` and `channels` treat the normalised input of a layer; they are given the module.
    pub fn build(
        json: &Section<'_>,
        net: Net<'_>,
        attention: impl Fn(&Older, &mut Net, &Path, ValueId) -> Result<ValueId>,
        channels: impl Fn(&Older, &mut Net, &Path, ValueId) -> Result<ValueId>,
    ) -> Result<Decoder> {
        let (older, sizes) = Older::read(json)?;
        let norm = Norm::layer(json, "layer_norm_epsilon", 1e-5)?;
        let names = ["rwkv.embeddings", "rwkv.blocks", "rwkv.ln_out", "head"];
        ModelFrame::with_names(json, &norm, false, names)?.build(net, &sizes, |net, at, index, x| {
            // The embedding is normalised once, by a norm that is stored in the first layer.
            let x = if index > 0 { x } else { norm.apply(net, &at.child("pre_ln"), x, older.width)? };
            let y = norm.apply(net, &at.child("ln1"), x, older.width)?;
            let y = attention(&older, net, &at.child("attention"), y)?;
            let x = net.node(&at.child("add_attention"), Add {}, &[x, y])?;
            let y = norm.apply(net, &at.child("ln2"), x, older.width)?;
            let y = channels(&older, net, &at.child("feed_forward"), y)?;
            net.node(&at.child("add_feed_forward"), Add {}, &[x, y])
        })
    }

    /// The keys of the published configurations. `num_attention_heads` is not read: some of them give the size of a head
    /// there. `rescale_every` changes nothing but the range of numbers in f16.
    fn read(json: &Section) -> Result<(Older, Sizes)> {
        let width = json.size("hidden_size", 1..=1 << 17)?;
        let head_dim = json.size_or("head_size", 64, 1..=1 << 12)?;
        if !width.is_multiple_of(head_dim) {
            return Err(json
                .expected_error("hidden_size", &format!("a multiple of `head_size`, which is {head_dim}")));
        }
        // Weights are read as square matrices below, so another width cannot be served.
        let attention = json.size_or("attention_hidden_size", width, 1..=1 << 17)?;
        if attention != width {
            let text =
                format!("heads of {attention} columns beside a `hidden_size` of {width} are not supported");
            return Err(json.unsupported("attention_hidden_size", &text));
        }
        // Seven halves, rounded down to a multiple of 32.
        let inner = (u64::from(width) * 7 / 2 / 32 * 32) as u32;
        let inner = json.size_or("intermediate_size", inner, 1..=1 << 20)?;
        let divisor = json.number_or("head_size_divisor", 8.0, 1e-3..=1e3)?;
        // Dividing what is normed by a number is the same as multiplying the epsilon by its square.
        let eps = json.number_or("layer_norm_epsilon", 1e-5, 0.0..=1.0)? * divisor * divisor;
        let sizes = Sizes {
            vocab: json.size("vocab_size", 1..=1 << 24)?,
            hidden: width,
            intermediate: inner,
            layers: json.size("num_hidden_layers", 1..=1 << 12)?,
            heads: width / head_dim,
            kv_heads: width / head_dim,
            head_dim,
            context: json.size_or("max_position_embeddings", UNBOUNDED, 1..=1 << 26)?,
        };
        Ok((Older { width, head_dim, inner, eps: eps as f32 }, sizes))
    }

    /// The recurrence over receptance, key and value with the decays `w`, then the norm over each head, the gate and the
    /// output projection.
    pub fn recur(
        &self,
        net: &mut Net,
        at: &Path,
        [r, k, v]: [ValueId; 3],
        w: ValueId,
        gate: ValueId,
    ) -> Result<ValueId> {
        let width = self.width;
        let bonus = vector(net, &at.child("time_faaaa"), width)?;
        let state = net.state(&at.child("state"), &[width, self.head_dim])?;
        let op = Wkv { head_dim: self.head_dim };
        let [y, after] = stateful(net, &at.child("wkv"), op, &[r, k, v, w, bonus, state])?;
        net.set_cache(state, after)?;
        let y = norm_heads(net, &at.child("ln_x"), y, [width, self.head_dim], self.eps)?;
        let gate = net.node(&at.child("gate.act"), Silu {}, &[gate])?;
        let y = net.node(&at.child("gated"), Mul {}, &[y, gate])?;
        project(net, &at.child("output"), y, [width, width])
    }

    /// Channel mixing: `σ(receptance(r)) · value(relu(key(k))²)`.
    pub fn mix_channels(&self, net: &mut Net, at: &Path, k: ValueId, r: ValueId) -> Result<ValueId> {
        let (width, inner) = (self.width, self.inner);
        let k = project(net, &at.child("key"), k, [width, inner])?;
        let k = net.node(&at.child("key.act"), ReluSquared {}, &[k])?;
        let v = project(net, &at.child("value"), k, [inner, width])?;
        let r = project(net, &at.child("receptance"), r, [width, width])?;
        let r = net.node(&at.child("receptance.act"), Sigmoid {}, &[r])?;
        net.node(&at.child("gated"), Mul {}, &[r, v])
    }
}

/// `second(act(first(x)))`, two thin matrices of the module `at` as `nn.Sequential` names them, with a bias at the end if
/// there is one.
///
/// Names: `lora.0`, `lora.1` (the activation) and `lora.2`.
pub fn low_rank(
    net: &mut Net,
    at: &Path,
    x: ValueId,
    [width, rank]: [u32; 2],
    act: Option<&ActivationOp>,
    bias: bool,
) -> Result<ValueId> {
    let y = project(net, &at.child("lora.0"), x, [width, rank])?;
    let y = match act {
        Some(act) => act.apply(net, &at.child("lora.1"), y)?,
        None => y,
    };
    linear(net, &at.child("lora.2"), y, Projection::new(rank, width, bias))
}
