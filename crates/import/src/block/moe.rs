//! Sparse feed-forward layers: a router chooses a few experts for each position.
//!
//! Every expert has the form of a gated feed-forward layer. The graph has one node per product for all
//! experts (`ExpertLinear`), whose weight is a stack `[experts, outputs, inputs]`; the router's choice is
//! one of its inputs.

use super::activation::ActivationOp;
use super::linear::{Projection, linear};
use super::mlp::Mlp;
use crate::config::Section;
use crate::net::{Net, Path};
use crate::source::Source;
use tapml_graph::op::{Add, Columns, Combine, ExpertLinear, Mul, Route, Sigmoid};
use tapml_graph::{Result, ValueId};

/// How the checkpoint holds the matrices of the experts.
///
/// Either way the graph's weight is the same stack; see [`Source`].
#[derive(Clone, Copy, Debug)]
pub enum Experts {
    /// `experts.{i}.{name}.weight` for the gate, up and down projections, each `[outputs, inputs]`.
    Listed {
        /// Names of `gate`, `up` and `down`.
        names: [&'static str; 3],
    },
    /// `experts.gate_up_proj: [experts, hidden, 2·intermediate]`, gate first, and
    /// `experts.down_proj: [experts, intermediate, hidden]`: transposed (Llama-4).
    Stacked,
}

/// A dense layer that all positions take beside their experts.
#[derive(Clone, Debug)]
pub struct SharedExpert {
    /// Its name.
    pub name: &'static str,
    /// The layer.
    pub mlp: Mlp,
    /// Name of a projection to one column whose sigmoid the layer's result is multiplied by.
    pub gate: Option<&'static str>,
}

/// A sparse feed-forward layer. Shazeer et al., "Outrageously Large Neural Networks", 2017; Jiang et al., "Mixtral of
/// Experts", 2024; DeepSeek-AI, "DeepSeekMoE", 2024 (shared experts).
#[derive(Clone, Debug)]
pub struct Moe {
    /// Columns of input and output.
    pub hidden: u32,
    /// Columns within one expert.
    pub intermediate: u32,
    /// Number of experts.
    pub experts: u32,
    /// Name of the router, a projection to one column per expert.
    pub router: &'static str,
    /// Name of a vector of the router that takes part in choosing only.
    pub choice_bias: Option<&'static str>,
    /// How experts are chosen and weighed.
    pub route: Route,
    /// Whether the weights multiply what enters the experts instead of what leaves them; only for one expert each.
    pub weigh_inputs: bool,
    /// Activation of the gate.
    pub activation: ActivationOp,
    /// Where the matrices are.
    pub layout: Experts,
    /// Dense layer beside the experts.
    pub shared: Option<SharedExpert>,
}

impl Moe {
    /// The layer's result for `x: [n, hidden]`: `[n, hidden]`.
    /// The sum over the chosen experts is one node, `Combine`.
    pub fn apply(&self, net: &mut Net, at: &Path, x: ValueId) -> Result<ValueId> {
        let [experts, weights] = self.choose(net, at, x)?;
        let entering =
            if self.weigh_inputs { net.node(&at.child("weigh"), Mul {}, &[x, weights])? } else { x };
        let y = self.run(net, &at.child("experts"), entering, experts)?;
        // Weights that have multiplied the inputs must not multiply the results again.
        let inputs = if self.weigh_inputs { vec![y] } else { vec![y, weights] };
        let y = net.node(&at.child("combine"), Combine { k: self.route.k }, &inputs)?;
        let Some(SharedExpert { name, mlp, gate }) = &self.shared else { return Ok(y) };
        let mut dense = mlp.apply(net, &at.child(name), x)?;
        if let Some(gate) = gate {
            let share = linear(net, &at.child(gate), x, Projection::new(self.hidden, 1, false))?;
            let share = net.node(&at.child("shared_share"), Sigmoid {}, &[share])?;
            dense = net.node(&at.child("shared_gated"), Mul {}, &[dense, share])?;
        }
        net.node(&at.child("add_shared"), Add {}, &[y, dense])
    }

    /// Chosen experts and their weights: `u32[n, k]` and `[n, k]`.
    /// `router`: a projection without bias to one logit per expert.
    fn choose(&self, net: &mut Net, at: &Path, x: ValueId) -> Result<[ValueId; 2]> {
        let router = at.child(self.router);
        let logits = linear(net, &router, x, Projection::new(self.hidden, self.experts, false))?;
        let mut inputs = vec![logits];
        if let Some(bias) = self.choice_bias {
            inputs.push(net.weight(&router.child(bias), &[self.experts])?);
        }
        route(net, at, &self.route, &inputs)
    }

    /// `[n, k·hidden]`: what the chosen experts make of `x: [n, hidden]`.
    fn run(&self, net: &mut Net, at: &Path, x: ValueId, experts: ValueId) -> Result<ValueId> {
        let (width, hidden) = (self.intermediate, self.hidden);
        let apply = |net: &mut Net, name: &str, x, weight| {
            net.node(&at.child(name), ExpertLinear {}, &[x, weight, experts])
        };
        let (gate, up, down) = match self.layout {
            Experts::Listed { names } => {
                let [gate, up, down] = names;
                let into = self.stack(net, at, gate, [width, hidden])?;
                let gate = apply(net, gate, x, into)?;
                let into = self.stack(net, at, up, [width, hidden])?;
                let up = apply(net, up, x, into)?;
                (gate, up, (down, self.stack(net, at, down, [hidden, width])?))
            }
            Experts::Stacked => {
                let both = self.transposed_stack(net, at, "gate_up_proj", [2 * width, hidden])?;
                let both = apply(net, "gate_up_proj", x, both)?;
                let part = |first| Columns { group: 2 * width, first, count: width };
                let gate = net.node(&at.child("gate"), part(0), &[both])?;
                let up = net.node(&at.child("up"), part(width), &[both])?;
                (gate, up, ("down_proj", self.transposed_stack(net, at, "down_proj", [hidden, width])?))
            }
        };
        let gate = self.activation.apply(net, &at.child("act_fn"), gate)?;
        let product = net.node(&at.child("mul"), Mul {}, &[gate, up])?;
        apply(net, down.0, product, down.1)
    }

    /// The matrices of one projection of all experts: `[experts, outputs, inputs]`.
    fn stack(&self, net: &mut Net, at: &Path, name: &str, [outputs, inputs]: [u32; 2]) -> Result<ValueId> {
        // The experts of one layer become one weight when they are loaded.
        let names = (0..self.experts).map(|expert| at.child(expert).child(name).child("weight").to_string());
        let source = Source::Stacked(names.collect());
        net.derive(&at.child(name).child("weight"), &[self.experts, outputs, inputs], source)
    }

    /// As [`Moe::stack`] of a tensor that holds each matrix transposed.
    fn transposed_stack(
        &self,
        net: &mut Net,
        at: &Path,
        name: &str,
        [outputs, inputs]: [u32; 2],
    ) -> Result<ValueId> {
        let source = Source::EachTransposed(at.child(name).to_string());
        net.derive(&at.child(name).child("transposed"), &[self.experts, outputs, inputs], source)
    }
}

/// For each layer whether it is sparse: every `decoder_sparse_step`th one that `mlp_only_layers` does not list.
///
/// The keys are those of Qwen2-MoE and Qwen3-MoE in Transformers. `mlp_only_layers` counts from 0, the step
/// from 1.
pub fn sparse_layers(json: &Section, layers: u32) -> Result<Vec<bool>> {
    let step = json.size_or("decoder_sparse_step", 1, 1..=1 << 12)?;
    let dense = json.ids("mlp_only_layers", layers as usize)?;
    Ok((0..layers).map(|index| (index + 1).is_multiple_of(step) && !dense.contains(&index)).collect())
}

/// Experts and weights that a router chooses by `inputs`: logits and, where there is one, a bias.
pub fn route(net: &mut Net, at: &Path, route: &Route, inputs: &[ValueId]) -> Result<[ValueId; 2]> {
    let chosen = net.node_multi(&at.child("route"), route.clone(), inputs, &["experts", "weights"])?;
    match chosen.as_slice() {
        [experts, weights] => Ok([*experts, *weights]),
        _ => Err(tapml_graph::Error::bug("route has two outputs")),
    }
}
