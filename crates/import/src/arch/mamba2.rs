//! Mamba-2: layers of one block each, a gated state space behind a short convolution, without attention.
//!
//! One projection gives gate, convolution input and time steps side by side. The state is `[heads·state,
//! head_dim]` in f32, the convolution keeps its last `taps − 1` rows.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::decoder::ModelFrame;
use crate::block::linear::{Projection, linear};
use crate::block::norm::Norm;
use crate::block::rwkv::{UNBOUNDED, stateful};
use crate::block::sizes::Sizes;
use crate::config::Section;
use crate::net::{Net, Path};
use serde_json::Value;
use tapml_graph::op::{Add, CausalConv, Clamp, Columns, Mul, RmsNorm, SelectiveScan, Silu, Softplus};
use tapml_graph::{Result, ValueId};

/// Dao and Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State Space
/// Duality", 2024, section 7.
pub const MAMBA2: Architecture = Architecture { model_types: &["mamba2"], build };

/// A layer's mixer.
struct Mixer {
    /// Columns of the residual stream.
    hidden: u32,
    scan: SelectiveScan,
    /// Rows that the convolution spans.
    taps: u32,
    conv_bias: bool,
    /// Whether the projections add biases.
    bias: bool,
    /// Activation behind the convolution.
    activation: ActivationOp,
    /// Bounds of the time steps.
    steps: Clamp,
    /// Norm of the gated result, by group.
    norm: RmsNorm,
}

impl Mixer {
    /// `config.json`, with the defaults of Transformers for absent keys.
    fn read(json: &Section) -> Result<Mixer> {
        let hidden = json.size_or("hidden_size", 4096, 1..=1 << 17)?;
        let scan = SelectiveScan {
            heads: json.size_or("num_heads", 128, 1..=1 << 14)?,
            head_dim: json.size_or("head_dim", 64, 1..=1 << 12)?,
            groups: json.size_or("n_groups", 8, 1..=1 << 14)?,
            state: json.size_or("state_size", 128, 1..=1 << 12)?,
        };
        // Does not overflow: 2¹⁴ heads of 2¹² elements at most.
        let (inner, expand) = (scan.heads * scan.head_dim, json.size_or("expand", 2, 1..=64)?);
        if u64::from(hidden) * u64::from(expand) != u64::from(inner) {
            let expected = format!("`hidden_size` · `expand` / `head_dim`, as the heads have {inner} columns");
            return Err(json.expected_error("num_heads", &expected));
        }
        if !scan.heads.is_multiple_of(scan.groups) {
            return Err(json.expected_error("n_groups", &format!("a divisor of `num_heads`, which is {}", scan.heads)));
        }
        let eps = json.number_or("layer_norm_epsilon", 1e-5, 0.0..=1.0)? as f32;
        let group = (scan.groups > 1).then_some(inner / scan.groups);
        Ok(Mixer {
            hidden,
            taps: json.size_or("conv_kernel", 4, 2..=64)?,
            conv_bias: json.flag_or("use_conv_bias", true)?,
            bias: json.flag_or("use_bias", false)?,
            activation: ActivationOp::read(json, "hidden_act", "silu")?,
            steps: step_bounds(json)?,
            norm: RmsNorm { eps, group, ..RmsNorm::default() },
            scan,
        })
    }

    /// The mixer's result for `x: [n, hidden]`: `[n, hidden]`.
    fn apply(&self, net: &mut Net, at: &Path, x: ValueId) -> Result<ValueId> {
        let SelectiveScan { heads, head_dim, groups, state } = self.scan;
        let (inner, shared) = (heads * head_dim, groups * state);
        // x, B and C pass the convolution together; dt and the gate do not.
        let convolved = inner + 2 * shared;
        let all = inner + convolved + heads;
        let y = linear(net, &at.child("in_proj"), x, Projection::new(self.hidden, all, self.bias))?;
        let mut cut = |name: &str, y, group, first, count| {
            net.node(&at.child(name), Columns { group, first, count }, &[y])
        };
        let gate = cut("gate", y, all, 0, inner)?;
        let rows = cut("conv_input", y, all, inner, convolved)?;
        let dt = cut("dt", y, all, inner + convolved, heads)?;

        let rows = self.convolve(net, &at.child("conv1d"), rows, convolved)?;
        let mut cut = |name: &str, first, count| {
            net.node(&at.child(name), Columns { group: convolved, first, count }, &[rows])
        };
        let (x, b) = (cut("x", 0, inner)?, cut("b", inner, shared)?);
        let c = cut("c", inner + shared, shared)?;
        let dt = self.time_steps(net, at, dt)?;
        let a_log = net.weight(&at.child("A_log"), &[heads])?;
        let d = net.weight(&at.child("D"), &[heads])?;
        let states = net.state(&at.child("state"), &[heads * state, head_dim])?;
        let inputs = [x, dt, a_log, b, c, d, states];
        let [y, after] = stateful(net, &at.child("scan"), self.scan.clone(), &inputs)?;
        net.set_cache(states, after)?;

        let gate = net.node(&at.child("gate.act"), Silu {}, &[gate])?;
        let y = net.node(&at.child("gated"), Mul {}, &[y, gate])?;
        let weight = net.weight(&at.child("norm.weight"), &[inner])?;
        // The gate is applied before the norm (`norm_before_gate = False` of the authors' code).
        let y = net.node(&at.child("norm"), self.norm.clone(), &[y, weight])?;
        linear(net, &at.child("out_proj"), y, Projection::new(inner, self.hidden, self.bias))
    }

    /// The convolution of `rows: [n, columns]` and its activation.
    fn convolve(&self, net: &mut Net, at: &Path, rows: ValueId, columns: u32) -> Result<ValueId> {
        let weight = net.weight(&at.child("weight"), &[columns, 1, self.taps])?;
        let state = net.state(&at.child("state"), &[self.taps - 1, columns])?;
        let mut inputs = vec![rows, weight, state];
        if self.conv_bias {
            inputs.push(net.weight(&at.child("bias"), &[columns])?);
        }
        let [rows, after] = stateful(net, at, CausalConv {}, &inputs)?;
        net.set_cache(state, after)?;
        self.activation.apply(net, &at.child("act"), rows)
    }

    /// `softplus(dt + dt_bias)` within the bounds, for `dt: [n, heads]`.
    fn time_steps(&self, net: &mut Net, at: &Path, dt: ValueId) -> Result<ValueId> {
        let bias = net.weight(&at.child("dt_bias"), &[self.scan.heads])?;
        let dt = net.node(&at.child("dt.biased"), Add {}, &[dt, bias])?;
        let dt = net.node(&at.child("dt.softplus"), Softplus {}, &[dt])?;
        // A clamp without bounds would be a node that does nothing.
        if self.steps == Clamp::default() { Ok(dt) } else { net.node(&at.child("dt.clamped"), self.steps.clone(), &[dt]) }
    }
}

/// `time_step_limit`, two numbers. A bound that softplus keeps anyway, at 0 or below, or that is no finite number, is none:
/// files hold the infinity that means it in several spellings.
fn step_bounds(json: &Section) -> Result<Clamp> {
    const KEY: &str = "time_step_limit";
    let Some(value) = json.get(KEY) else { return Ok(Clamp::default()) };
    let pair = value.as_array().filter(|pair| pair.len() == 2);
    let pair = pair.ok_or_else(|| json.expected_error(KEY, "a list of two numbers"))?;
    let finite = |value: &Value| value.as_f64().map(|v| v as f32).filter(|v| v.is_finite());
    let bounds = Clamp { min: finite(&pair[0]).filter(|&v| v > 0.0), max: finite(&pair[1]) };
    let ordered = bounds.max.is_none_or(|max| max >= bounds.min.unwrap_or(0.0));
    if ordered { Ok(bounds) } else { Err(json.expected_error(KEY, "the smaller number first, none below 0")) }
}

/// One norm and one mixer for each layer; `Sizes` is filled in for the frame's sake.
fn build(json: &Section<'_>, net: Net<'_>) -> Result<Decoder> {
    let mixer = Mixer::read(json)?;
    let sizes = Sizes {
        vocab: json.size_or("vocab_size", 32768, 1..=1 << 24)?,
        hidden: mixer.hidden,
        intermediate: mixer.scan.heads * mixer.scan.head_dim,
        layers: json.size_or("num_hidden_layers", 64, 1..=1 << 12)?,
        heads: mixer.scan.heads,
        kv_heads: mixer.scan.heads,
        head_dim: mixer.scan.head_dim,
        context: json.size_or("max_position_embeddings", UNBOUNDED, 1..=1 << 26)?,
    };
    let norm = Norm::rms(json, "layer_norm_epsilon", 1e-5)?;
    let names = ["backbone.embeddings", "backbone.layers", "backbone.norm_f", "lm_head"];
    ModelFrame::with_names(json, &norm, false, names)?.build(net, &sizes, |net, at, _, x| {
        let y = norm.apply(net, &at.child("norm"), x, mixer.hidden)?;
        let y = mixer.apply(net, &at.child("mixer"), y)?;
        net.node(&at.child("add"), Add {}, &[x, y])
    })
}
