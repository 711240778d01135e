//! gpt-oss: sparse decoder whose heads have a learned sink, whose every other layer sees a sliding window, and whose experts
//! have biases and a clamped gate.
//!
//! The scores have one more column per head, a learned number, whose share of the softmax is dropped.
//! Layers alternate, the first with a window.

use super::{Architecture, Decoder};
use crate::block::attention::SelfAttention;
use crate::block::decoder::ModelFrame;
use crate::block::layer::Layer;
use crate::block::linear::{Projection, linear};
use crate::block::moe::route;
use crate::block::norm::Norm;
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::block::windows;
use crate::config::Section;
use crate::net::{Net, Path};
use crate::source::Source;
use tapml_graph::op::{Add, Clamp, Columns, Combine, ExpertLinear, Mul, Route, Scale, Scores, Sigmoid};
use tapml_graph::{Result, ValueId};

/// OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025, section 2. Experts may be stored in MXFP4.
pub const GPT_OSS: Architecture = Architecture { model_types: &["gpt_oss"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let defaults =
        Defaults { kv_heads: Some(8), head_dim: Some(64), context: 1 << 17, ..Defaults::LLAMA };
    let sizes = Sizes::read(json, &defaults)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-5)?;
    let bias = json.flag_or("attention_bias", true)?;
    let mut attention =
        SelfAttention { bias, output_bias: bias, sinks: Some("sinks"), ..SelfAttention::new(&sizes) };
    let window = json.size_or("sliding_window", 128, 1..=1 << 26)?;
    let local = windows::local_layers(json, sizes.layers, |index| index.is_multiple_of(2))?;
    let experts = ClampedExperts::read(json, &sizes)?;
    let layer = Layer::new(sizes.hidden, &norm);
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, false)?.build(net, &sizes, |net, at, index, x| {
        attention.scores.window = local[index as usize].then_some(window);
        let attend = |net: &mut Net, at: &Path, x| attention.apply(net, at, x, Some(angles));
        layer.apply(net, at, x, attend, |net, at, x| experts.apply(net, at, x))
    })
}

/// The sparse feed-forward layer: `(clamp(up) + 1) · g · sigmoid(alpha·g)` with `g = min(gate, limit)`, whose gate and up
/// columns alternate.
struct ClampedExperts {
    /// Columns of input and output.
    hidden: u32,
    /// Columns within one expert.
    intermediate: u32,
    /// Experts.
    count: u32,
    route: Route,
    /// Steepness of the sigmoid; 1.702 makes `g·sigmoid(alpha·g)` close to GELU.
    alpha: f32,
    /// Gate and up are clamped to this; the gate from above only.
    limit: f32,
}

impl ClampedExperts {
    /// Defaults of absent keys are those of gpt-oss-120b.
    fn read(json: &Section, sizes: &Sizes) -> Result<ClampedExperts> {
        let count = json.size_or("num_local_experts", 128, 1..=1 << 12)?;
        let k = json.size_or("num_experts_per_tok", 4, 1..=count)?;
        Ok(ClampedExperts {
            hidden: sizes.hidden,
            intermediate: sizes.intermediate,
            count,
            route: Route { k, scores: Scores::SoftmaxOfTop, normalize: false, scale: 1.0, groups: None },
            alpha: json.number_or("swiglu_alpha", 1.702, 1e-3..=1e3)? as f32,
            limit: json.number_or("swiglu_limit", 7.0, 1e-3..=1e6)? as f32,
        })
    }

    /// Router, both projections and the weighted sum for `x: [n, hidden]`.
    fn apply(&self, net: &mut Net, at: &Path, x: ValueId) -> Result<ValueId> {
        let logits = linear(net, &at.child("router"), x, Projection::new(self.hidden, self.count, true))?;
        let [experts, weights] = route(net, at, &self.route, &[logits])?;
        let at = at.child("experts");
        let between = self.intermediate;
        let both = self.expert_linear(net, &at, "gate_up_proj", x, experts, [2 * between, self.hidden])?;
        // Even columns are the gate, odd ones up.
        let gate = net.node(&at.child("gate"), Columns { group: 2, first: 0, count: 1 }, &[both])?;
        let up = net.node(&at.child("up"), Columns { group: 2, first: 1, count: 1 }, &[both])?;
        let gated = self.gate_experts(net, &at, gate, up)?;
        let y = self.expert_linear(net, &at, "down_proj", gated, experts, [self.hidden, between])?;
        net.node(&at.child("combine"), Combine { k: self.route.k }, &[y, weights])
    }

    /// `g·sigmoid(alpha·g)` plus its product with the clamped up columns.
    fn gate_experts(&self, net: &mut Net, at: &Path, gate: ValueId, up: ValueId) -> Result<ValueId> {
        let gate = net.node(&at.child("clamp_gate"), Clamp { min: None, max: Some(self.limit) }, &[gate])?;
        let up =
            net.node(&at.child("clamp_up"), Clamp { min: Some(-self.limit), max: Some(self.limit) }, &[up])?;
        let steep = net.node(&at.child("scale_gate"), Scale { factor: self.alpha }, &[gate])?;
        let share = net.node(&at.child("act_fn"), Sigmoid {}, &[steep])?;
        let gate = net.node(&at.child("glu"), Mul {}, &[gate, share])?;
        let product = net.node(&at.child("mul"), Mul {}, &[gate, up])?;
        // `(up + 1)·glu` as `up·glu + glu`: no constant is needed.
        net.node(&at.child("add_glu"), Add {}, &[product, gate])
    }

    /// Stored as `[experts, inputs, outputs]`, turned when it is loaded.
    fn expert_linear(
        &self,
        net: &mut Net,
        at: &Path,
        name: &str,
        x: ValueId,
        experts: ValueId,
        [outputs, inputs]: [u32; 2],
    ) -> Result<ValueId> {
        let source = Source::EachTransposed(at.child(name).to_string());
        let shape = [self.count, outputs, inputs];
        let weight = net.derive(&at.child(name).child("transposed"), &shape, source)?;
        let bias = net.weight(&at.child(format!("{name}_bias")), &[self.count, outputs])?;
        net.node(&at.child(name), ExpertLinear {}, &[x, weight, experts, bias])
    }
}
