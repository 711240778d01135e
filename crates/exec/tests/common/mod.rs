//! A toy Llama made by the graph builder, with every operator of the list in use.
#![allow(dead_code, clippy::unwrap_used)]

pub mod recurrent;
pub mod silu;

use std::collections::HashMap;
use tapml_graph::op::{
    Add, AddRmsNorm, Append, Attention, Combine, Embedding, ExpertGatedLinear, ExpertLinear, GatedLinear,
    LastRow, Linear, Mul, RmsNorm, Rope, RopeAngles, Route, Scores, Silu,
};
use tapml_graph::{Builder, DType, Dim, Model, Op, Symbol, Tensor, TensorType, ValueId};

pub const VOCAB: usize = 29;
const LAYERS: usize = 2;
const HIDDEN: usize = 16;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD: usize = 4;
const INNER: usize = 24;
const EXPERTS: usize = 6;
const CHOSEN: usize = 2;

/// Choices of a toy.
#[derive(Clone, Copy)]
pub struct Toy {
    /// Use the fused operators.
    pub fused: bool,
    /// Feed-forward layers of a few experts for each row.
    pub sparse: bool,
    /// Logits of the last row only.
    pub last_row: bool,
    /// Dtype of activations.
    pub dtype: DType,
    /// Dtype of weights.
    pub weights: DType,
}

pub const PLAIN: Toy =
    Toy { fused: false, sparse: false, last_row: false, dtype: DType::F32, weights: DType::F32 };
pub const FUSED: Toy = Toy { fused: true, weights: DType::BF16, ..PLAIN };
pub const SPARSE: Toy = Toy { sparse: true, ..FUSED };

struct Net {
    b: Builder,
    toy: Toy,
    angles: ValueId,
}

impl Net {
    fn weight(&mut self, name: &str, shape: &[usize]) -> ValueId {
        self.b.weight(name, TensorType::new(self.toy.weights, shape.iter().copied())).unwrap()
    }

    fn node(&mut self, name: String, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.b.node(name, op, inputs).unwrap()
    }

    fn linear(&mut self, name: String, x: ValueId, outputs: usize, inputs: usize) -> ValueId {
        let w = self.weight(&format!("{name}.weight"), &[outputs, inputs]);
        self.node(name, Linear::default(), &[x, w])
    }

    fn norm(&mut self, name: String, x: ValueId) -> ValueId {
        let w = self.weight(&format!("{name}.weight"), &[HIDDEN]);
        self.node(name, RmsNorm::new(1e-5), &[x, w])
    }

    /// `sum = a + b` and its norm.
    fn add_norm(&mut self, add: String, norm: String, a: ValueId, b: ValueId) -> (ValueId, ValueId) {
        if self.toy.fused {
            let w = self.weight(&format!("{norm}.weight"), &[HIDDEN]);
            let outputs = [add, norm.clone()];
            let both = self.b.node_multi(format!("{norm}.add"), AddRmsNorm::new(1e-5), &[a, b, w], &outputs);
            let both = both.unwrap();
            return (both[0], both[1]);
        }
        let sum = self.node(add, Add {}, &[a, b]);
        (sum, self.norm(norm, sum))
    }

    fn cache(&mut self, name: String, new: ValueId) -> ValueId {
        let rows = Dim::symbol(Symbol::P);
        let ty = TensorType::new(self.toy.dtype, [rows, Dim::from(KV_HEADS * HEAD)]);
        let old = self.b.state(name.clone(), ty).unwrap();
        let all = self.node(format!("{name}.append"), Append {}, &[old, new]);
        self.b.set_state(old, all).unwrap();
        all
    }

    fn attention(&mut self, layer: &str, x: ValueId) -> ValueId {
        let rope = Rope { head_dim: HEAD as u32, rotary_dim: HEAD as u32, interleaved: false };
        let q = self.linear(format!("{layer}.q"), x, HEADS * HEAD, HIDDEN);
        let k = self.linear(format!("{layer}.k"), x, KV_HEADS * HEAD, HIDDEN);
        let v = self.linear(format!("{layer}.v"), x, KV_HEADS * HEAD, HIDDEN);
        let q = self.node(format!("{layer}.q.rope"), rope.clone(), &[q, self.angles]);
        let k = self.node(format!("{layer}.k.rope"), rope, &[k, self.angles]);
        let k = self.cache(format!("{layer}.keys"), k);
        let v = self.cache(format!("{layer}.values"), v);
        let op = Attention::causal(HEADS as u32, KV_HEADS as u32, HEAD as u32, 0.5);
        let y = self.node(format!("{layer}.attention"), op, &[q, k, v]);
        self.linear(format!("{layer}.o"), y, HIDDEN, HEADS * HEAD)
    }

    fn mlp(&mut self, layer: &str, x: ValueId) -> ValueId {
        if self.toy.sparse {
            return self.experts(layer, x);
        }
        let (gate, up) = (format!("{layer}.gate"), format!("{layer}.up"));
        let inner = if self.toy.fused {
            let gate = self.weight(&format!("{gate}.weight"), &[INNER, HIDDEN]);
            let up = self.weight(&format!("{up}.weight"), &[INNER, HIDDEN]);
            self.node(format!("{layer}.gated"), GatedLinear {}, &[x, gate, up])
        } else {
            let gate = self.linear(gate, x, INNER, HIDDEN);
            let up = self.linear(up, x, INNER, HIDDEN);
            let gate = self.node(format!("{layer}.silu"), Silu {}, &[gate]);
            self.node(format!("{layer}.mul"), Mul {}, &[gate, up])
        };
        self.linear(format!("{layer}.down"), inner, HIDDEN, INNER)
    }
}

impl Net {
    fn experts(&mut self, layer: &str, x: ValueId) -> ValueId {
        let logits = self.linear(format!("{layer}.router"), x, EXPERTS, HIDDEN);
        let k = CHOSEN as u32;
        let op = Route { k, scores: Scores::Softmax, normalize: true, scale: 1.0, groups: None };
        let outputs = ["experts", "shares"].map(|name| format!("{layer}.{name}"));
        let chosen = self.b.node_multi(format!("{layer}.route"), op, &[logits], &outputs).unwrap();
        let gates = self.weight(&format!("{layer}.gates.weight"), &[EXPERTS, INNER, HIDDEN]);
        let ups = self.weight(&format!("{layer}.ups.weight"), &[EXPERTS, INNER, HIDDEN]);
        let downs = self.weight(&format!("{layer}.downs.weight"), &[EXPERTS, HIDDEN, INNER]);
        let inner = if self.toy.fused {
            self.node(format!("{layer}.gated"), ExpertGatedLinear {}, &[x, gates, ups, chosen[0]])
        } else {
            let gate = self.node(format!("{layer}.gates"), ExpertLinear {}, &[x, gates, chosen[0]]);
            let up = self.node(format!("{layer}.ups"), ExpertLinear {}, &[x, ups, chosen[0]]);
            let gate = self.node(format!("{layer}.silu"), Silu {}, &[gate]);
            self.node(format!("{layer}.mul"), Mul {}, &[gate, up])
        };
        let y = self.node(format!("{layer}.downs"), ExpertLinear {}, &[inner, downs, chosen[0]]);
        self.node(format!("{layer}.combine"), Combine { k }, &[y, chosen[1]])
    }
}

/// The toy with weights that depend on nothing but their names.
pub fn model(toy: Toy) -> Model {
    let mut b = Builder::new("toy");
    let n = Dim::symbol(Symbol::N);
    let ids = b.input("ids", TensorType::new(DType::U32, [n])).unwrap();
    let table = b.weight("embed", TensorType::new(toy.weights, [VOCAB, HIDDEN])).unwrap();
    let mut x = b.node("embedding", Embedding { dtype: toy.dtype }, &[ids, table]).unwrap();
    let angles = b.node("angles", RopeAngles::new(vec![1.0, 0.01], 1.0), &[]).unwrap();
    let mut net = Net { b, toy, angles };
    let mut y = net.norm("0.input_norm".into(), x);
    for layer in 0..LAYERS {
        let attention = net.attention(&layer.to_string(), y);
        let post = format!("{layer}.post_norm");
        (x, y) = net.add_norm(format!("{layer}.after_attention"), post, x, attention);
        let mlp = net.mlp(&layer.to_string(), y);
        let next = if layer + 1 < LAYERS { format!("{}.input_norm", layer + 1) } else { "norm".into() };
        (x, y) = net.add_norm(format!("{layer}.after_mlp"), next, x, mlp);
    }
    if toy.last_row {
        y = net.node("last".into(), LastRow {}, &[y]);
    }
    let head = Linear { dtype: (toy.dtype != DType::F32).then_some(DType::F32) };
    let logits = net.node("lm_head".into(), head, &[y, table]);
    net.b.output("logits", logits);
    let graph = net.b.finish().unwrap();
    let weights = graph.weights().map(|(_, v)| (v.name.clone(), weight(&v.name, &v.ty))).collect();
    Model::new(graph, weights).unwrap()
}

fn weight(name: &str, ty: &TensorType) -> Tensor {
    let shape: Vec<usize> = ty.shape.iter().map(|d| d.as_const().unwrap() as usize).collect();
    let seed = name.bytes().fold(7u64, |h, b| h.wrapping_mul(0x100_0000_01b3) ^ u64::from(b));
    let values = noise(seed, shape.iter().product());
    let norm = name.contains("norm");
    let values = values.iter().map(|v| if norm { 1.0 + 0.2 * v } else { 0.6 * v }).collect();
    Tensor::from_f32_as(ty.dtype, shape, values).unwrap()
}

/// Values between -1 and 1.
pub fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed | 1;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(next).collect()
}

pub fn ids(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (i * 7 + 3) % VOCAB as u32).collect()
}

pub fn floats(outputs: &HashMap<String, Tensor>) -> Vec<f32> {
    outputs["logits"].to_f32().into_owned()
}

/// The largest difference relative to the largest value.
pub fn distance(a: &Tensor, b: &Tensor) -> f32 {
    assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()));
    let (a, b) = (a.to_f32(), b.to_f32());
    let scale = b.iter().fold(1e-30f32, |m, v| m.max(v.abs()));
    let worst = a.iter().zip(b.iter()).fold(0f32, |m, (x, y)| if x == y { m } else { m.max((x - y).abs()) });
    assert!(a.iter().all(|v| v.is_finite()), "not finite");
    worst / scale
}
