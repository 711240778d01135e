//! Shared by the behaviour tests: a toy Llama, random graphs, and the meaning of a graph as expressions.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(dead_code, reason = "each test file uses a part")]

use proptest::prelude::*;
use std::collections::HashMap;
use tapml_graph::op::{
    Add, AddRmsNorm, Append, Attention, Embedding, GatedLinear, LastRow, Linear, Mul, RmsNorm, Rope,
    RopeAngles, Silu,
};
use tapml_graph::{Builder, DType, Dim, Graph, Op, Origin, Result, Symbol, TensorType, ValueId};

pub const HIDDEN: u64 = 16;
const HEADS: u32 = 4;
const KV_HEADS: u32 = 2;
const HEAD_DIM: u32 = 4;
const MIDDLE: u64 = 24;
const VOCAB: u64 = 32;

pub fn f32s(shape: &str) -> TensorType {
    tensor_type(DType::F32, shape)
}

pub fn tensor_type(dtype: DType, shape: &str) -> TensorType {
    TensorType { dtype, shape: shape.split(',').map(|d| d.parse().unwrap()).collect() }
}

/// A Llama of this many layers, in plain operators and checkpoint names.
pub fn toy_llama(layers: usize) -> Result<Graph> {
    let mut b = Builder::new("toy_llama");
    let ids = b.input("ids", tensor_type(DType::U32, "n"))?;
    let table =
        b.weight("model.embed_tokens.weight", tensor_type(DType::BF16, &format!("{VOCAB},{HIDDEN}")))?;
    let mut x = b.node("model.embed_tokens", Embedding { dtype: DType::F32 }, &[ids, table])?;
    let angles = b.node("model.rotary_emb", RopeAngles::new(vec![1.0, 0.01], 1.0), &[])?;
    for layer in 0..layers {
        x = toy_layer(&mut b, &format!("model.layers.{layer}"), x, angles)?;
    }
    let x = norm(&mut b, "model.norm", x)?;
    let last = b.node("last", LastRow {}, &[x])?;
    let logits = b.node("lm_head", Linear::default(), &[last, table])?;
    b.output("logits", logits);
    b.finish()
}

fn norm(b: &mut Builder, name: &str, x: ValueId) -> Result<ValueId> {
    let weight = b.weight(format!("{name}.weight"), tensor_type(DType::BF16, &HIDDEN.to_string()))?;
    b.node(name, RmsNorm::new(1e-5), &[x, weight])
}

fn linear(b: &mut Builder, name: &str, x: ValueId, inputs: u64, outputs: u64) -> Result<ValueId> {
    let weight =
        b.weight(format!("{name}.weight"), tensor_type(DType::BF16, &format!("{outputs},{inputs}")))?;
    b.node(name, Linear::default(), &[x, weight])
}

fn toy_layer(b: &mut Builder, name: &str, x: ValueId, angles: ValueId) -> Result<ValueId> {
    let kv = u64::from(KV_HEADS * HEAD_DIM);
    let rope = Rope { head_dim: HEAD_DIM, rotary_dim: HEAD_DIM, interleaved: false };
    let normed = norm(b, &format!("{name}.input_layernorm"), x)?;
    let q = linear(b, &format!("{name}.self_attn.q_proj"), normed, HIDDEN, HIDDEN)?;
    let k = linear(b, &format!("{name}.self_attn.k_proj"), normed, HIDDEN, kv)?;
    let v = linear(b, &format!("{name}.self_attn.v_proj"), normed, HIDDEN, kv)?;
    let q = b.node(format!("{name}.self_attn.q_rope"), rope.clone(), &[q, angles])?;
    let k = b.node(format!("{name}.self_attn.k_rope"), rope, &[k, angles])?;
    let mut cached = Vec::new();
    for (part, new) in [("k", k), ("v", v)] {
        let cache = b.state(format!("{name}.{part}"), f32s(&format!("p,{kv}")))?;
        let all = b.node(format!("{name}.{part}_cache"), Append {}, &[cache, new])?;
        b.set_state(cache, all)?;
        cached.push(all);
    }
    let (heads, kv_heads, head_dim) = (HEADS, KV_HEADS, HEAD_DIM);
    let attention = Attention::causal(heads, kv_heads, head_dim, 0.5);
    let y = b.node(format!("{name}.self_attn"), attention, &[q, cached[0], cached[1]])?;
    let y = linear(b, &format!("{name}.self_attn.o_proj"), y, HIDDEN, HIDDEN)?;
    let x = b.node(format!("{name}.self_attn.residual"), Add {}, &[x, y])?;
    let normed = norm(b, &format!("{name}.post_attention_layernorm"), x)?;
    let gate = linear(b, &format!("{name}.mlp.gate_proj"), normed, HIDDEN, MIDDLE)?;
    let up = linear(b, &format!("{name}.mlp.up_proj"), normed, HIDDEN, MIDDLE)?;
    let act = b.node(format!("{name}.mlp.act_fn"), Silu {}, &[gate])?;
    let product = b.node(format!("{name}.mlp.product"), Mul {}, &[act, up])?;
    let y = linear(b, &format!("{name}.mlp.down_proj"), product, MIDDLE, HIDDEN)?;
    b.node(format!("{name}.mlp.residual"), Add {}, &[x, y])
}

/// Expressions, each stored once; equal ids mean equal computations.
#[derive(Default)]
pub struct Meanings {
    ids: HashMap<(String, Vec<usize>), usize>,
}

impl Meanings {
    fn id(&mut self, what: String, of: Vec<usize>) -> usize {
        let next = self.ids.len();
        *self.ids.entry((what, of)).or_insert(next)
    }

    /// What each value of a graph means, by name; inputs mean what `given` says, else themselves.
    pub fn find_values(&mut self, graph: &Graph, given: &HashMap<String, usize>) -> HashMap<String, usize> {
        let mut values: Vec<usize> = Vec::new();
        for value in graph.values() {
            let id = match value.origin {
                Origin::Node { node, output } => {
                    let node = graph.node(node);
                    let inputs: Vec<usize> = node.inputs.iter().map(|v| values[v.0 as usize]).collect();
                    let types = graph.input_types(node);
                    self.call(&node.op, &types, &inputs)[output as usize]
                }
                _ => {
                    let leaf = || format!("leaf {}: {}", value.name, value.ty);
                    given.get(&value.name).copied().unwrap_or_else(|| self.id(leaf(), Vec::new()))
                }
            };
            values.push(id);
        }
        graph.values().iter().map(|v| v.name.clone()).zip(values).collect()
    }

    /// What the outputs of one call mean; a fused operator means its definition.
    fn call(&mut self, op: &Op, types: &[TensorType], inputs: &[usize]) -> Vec<usize> {
        if let Some(definition) = op.definition(types) {
            let definition = definition.unwrap();
            let given =
                definition.inputs().map(|(_, v)| v.name.clone()).zip(inputs.iter().copied()).collect();
            let inner = self.find_values(&definition, &given);
            return definition.outputs().iter().map(|o| inner[&definition.value(o.value).name]).collect();
        }
        let mut op = op.clone();
        if let Op::Linear(linear) = &mut op {
            linear.dtype = linear.dtype.filter(|&d| d != types[0].dtype);
        }
        let mut inputs = inputs.to_vec();
        if matches!(op, Op::Mul(_) | Op::Add(_)) {
            inputs.sort_unstable();
        }
        let call = format!("{} {} {types:?}", op.name(), op.attributes_text());
        let count = op.infer(types).unwrap().len();
        (0..count).map(|i| self.id(format!("{call}.{i}"), inputs.clone())).collect()
    }
}

/// What results and states after the run mean, by name.
pub fn results(meanings: &mut Meanings, graph: &Graph) -> Vec<(String, usize)> {
    let values = meanings.find_values(graph, &HashMap::new());
    let of = |v: ValueId| values[&graph.value(v).name];
    let outputs = graph.outputs().iter().map(|o| (format!("output {}", o.name), of(o.value)));
    let states = graph.states().iter().map(|s| (format!("state {}", s.name), of(s.output)));
    outputs.chain(states).collect()
}

/// What a random graph is made from: one step per entry.
#[derive(Clone, Debug)]
pub struct Step {
    kind: u8,
    pick: [u8; 3],
    number: f32,
    name: String,
    result: bool,
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = prop_oneof![
        4 => "[a-z]{1,3}(\\.[0-9]{1,2})?".boxed(),
        1 => any::<String>().boxed(),
        1 => "(graph|input|weight|state|output|as|->|#|\"|a->b|-)".boxed(),
    ];
    let number = any::<f32>().prop_filter("finite", |x| x.is_finite());
    let step = (any::<u8>(), any::<[u8; 3]>(), number, name, prop::bool::weighted(0.15));
    let step = step.prop_map(|(kind, pick, number, name, result)| Step { kind, pick, number, name, result });
    prop::collection::vec(step, 0..24)
}

/// A valid graph made from these steps.
pub fn random_graph(steps: &[Step]) -> Graph {
    let mut made = Made { b: Builder::new("random"), pool: Vec::new(), open: Vec::new(), count: 0 };
    let first = made.b.input("x", f32s("n,8")).unwrap();
    made.pool.push(first);
    for step in steps {
        made.step(step);
    }
    for (before, after) in made.open {
        made.b.set_state(before, after).unwrap();
    }
    made.b.finish().unwrap()
}

struct Made {
    b: Builder,
    /// Matrices `[n, k]` of floats.
    pool: Vec<ValueId>,
    open: Vec<(ValueId, ValueId)>,
    count: usize,
}

impl Made {
    fn name(&mut self, step: &Step) -> String {
        self.count += 1;
        let mut short: String = step.name.chars().take(60).collect();
        short.push_str(&format!("_{}", self.count));
        short
    }

    fn weight(&mut self, step: &Step, shape: &[u64]) -> ValueId {
        let name = self.name(step);
        let dtype = [DType::F32, DType::BF16, DType::F16][step.pick[2] as usize % 3];
        self.b.weight(name, TensorType::new(dtype, shape.iter().copied())).unwrap()
    }

    fn node(&mut self, step: &Step, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let name = self.name(step);
        self.b.node(name, op, inputs).unwrap()
    }

    fn columns(&self, x: ValueId) -> u64 {
        self.b.ty(x).shape[1].as_const().unwrap()
    }

    /// Another matrix of the same type as `x`, or `x` itself.
    fn twin(&self, x: ValueId, pick: u8) -> ValueId {
        let same: Vec<ValueId> =
            self.pool.iter().copied().filter(|&v| self.b.ty(v) == self.b.ty(x)).collect();
        same[pick as usize % same.len()]
    }

    fn step(&mut self, step: &Step) {
        let x = self.pool[step.pick[0] as usize % self.pool.len()];
        let y = self.twin(x, step.pick[1]);
        let k = self.columns(x);
        let wide = [8, 12, 20][step.pick[1] as usize % 3];
        let made = match step.kind % 12 {
            0 => self.node(step, Add {}, &[x, y]),
            1 => self.node(step, Mul {}, &[x, y]),
            2 => self.node(step, Silu {}, &[x]),
            3 => self.norm(step, x, k),
            4 => {
                let (w, bias) = (self.weight(step, &[wide, k]), self.weight(step, &[wide]));
                let inputs = [x, w, bias];
                self.node(step, Linear::default(), &inputs[..2 + step.pick[2] as usize % 2])
            }
            5 => {
                let (gate, up) = (self.weight(step, &[wide, k]), self.weight(step, &[wide, k]));
                self.node(step, GatedLinear {}, &[x, gate, up])
            }
            6 => self.add_gated(step, x, k, wide),
            7 => {
                let sum = self.node(step, Add {}, &[x, y]);
                self.pool.push(sum);
                self.norm(step, sum, k)
            }
            8 => {
                let w = self.weight(step, &[k]);
                let names = [self.name(step), self.name(step)];
                let node = self.name(step);
                let both = self.b.node_multi(node, AddRmsNorm::new(step.number), &[x, y, w], &names).unwrap();
                self.pool.push(both[0]);
                both[1]
            }
            9 => {
                let name = self.name(step);
                let dtype = self.b.ty(x).dtype;
                let ty = TensorType::new(dtype, [Dim::symbol(Symbol::P), Dim::from(k)]);
                let before = self.b.state(name, ty).unwrap();
                let after = self.node(step, Append {}, &[before, x]);
                self.open.push((before, after));
                x
            }
            10 => {
                let attributes = RopeAngles::new(vec![step.number % 1.0, 0.5], step.number);
                self.node(step, attributes, &[])
            }
            _ => {
                let name = self.name(step);
                self.b.input(name, f32s("n,12")).unwrap()
            }
        };
        self.pool.push(made);
        if step.result {
            let name = self.name(step);
            self.b.output(name, made);
        }
    }

    /// A norm with or without weight, offset and groups.
    fn norm(&mut self, step: &Step, x: ValueId, k: u64) -> ValueId {
        let (weighted, group) =
            (!step.pick[1].is_multiple_of(3), step.pick[2].is_multiple_of(3).then_some(4));
        let offset = if weighted && step.pick[2] > 100 { 1.0 } else { 0.0 };
        let op = RmsNorm { eps: step.number, offset, group };
        if weighted {
            let w = self.weight(step, &[k]);
            self.node(step, op, &[x, w])
        } else {
            self.node(step, op, &[x])
        }
    }

    /// Gate, up, SiLU and product, sometimes with a user between that forbids fusing.
    fn add_gated(&mut self, step: &Step, x: ValueId, k: u64, wide: u64) -> ValueId {
        let (gate, up) = (self.weight(step, &[wide, k]), self.weight(step, &[wide, k]));
        let dtype = (step.pick[1] > 128).then_some(self.b.ty(x).dtype);
        let gate = self.node(step, Linear { dtype }, &[x, gate]);
        let up = self.node(step, Linear::default(), &[x, up]);
        let act = self.node(step, Silu {}, &[gate]);
        match step.pick[0] % 4 {
            0 => self.pool.push(gate),
            1 => self.pool.push(up),
            2 => self.pool.push(act),
            _ => {}
        }
        let factors = if step.pick[2].is_multiple_of(2) { [act, up] } else { [up, act] };
        self.node(step, Mul {}, &factors)
    }
}

/// The graph with this text behind its first line.
pub fn parse(body: &str) -> Graph {
    Graph::parse(&format!("graph g\n{body}")).unwrap()
}
