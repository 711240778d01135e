//! A toy language model, and a platform that computes like the CPU but can be told to err.
#![allow(dead_code, clippy::unwrap_used)]

pub mod forms;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tapml_exec::{
    Accumulate, Call, CpuPlatform, KernelChoice, Loaded, Observer, Phase, Platform, PlatformInfo, Sink,
};
use tapml_graph::op::{
    Add, Append, Attention, Combine, Embedding, ExpertLinear, Linear, Mul, RmsNorm, Rope, RopeAngles, Route,
    Scores, Silu,
};
use tapml_graph::{
    Builder, DType, Dim, Error, ErrorKind, Graph, Model, Op, Origin, Result, Symbol, Symbols, Tensor,
    TensorType, ValueId,
};
use tapml_migrate::{ModelIdentity, PromptInput};

pub const WIDTH: usize = 24;
pub const VOCAB: usize = 50;
const HEADS: u32 = 4;
const KV_HEADS: u32 = 2;
const HEAD: u32 = 6;
const HIDDEN: usize = 40;

fn rows(columns: usize) -> TensorType {
    TensorType::new(DType::F32, [Dim::symbol(Symbol::N), Dim::from(columns)])
}

/// A Llama of two layers with random bf16 weights made from `seed`.
pub fn toy(seed: u64) -> Model {
    llama(seed, 0)
}

/// As [`toy`], with feed-forward layers of 5 experts of which each row uses 2.
pub fn sparse(seed: u64) -> Model {
    llama(seed, 5)
}

fn llama(seed: u64, experts: usize) -> Model {
    let mut b = Builder::new("toy");
    let mut types: Vec<(String, TensorType)> = Vec::new();
    let ids = b.input("ids", TensorType::new(DType::U32, [Dim::symbol(Symbol::N)])).unwrap();
    let mut weight = |b: &mut Builder, name: &str, shape: &[usize]| {
        let ty = TensorType::new(DType::BF16, shape.iter().copied());
        types.push((name.to_string(), ty.clone()));
        b.weight(name, ty).unwrap()
    };
    let table = weight(&mut b, "embed.weight", &[VOCAB, WIDTH]);
    let mut x = b.node("embed", Embedding { dtype: DType::F32 }, &[ids, table]).unwrap();
    let inv_freq = (0..HEAD / 2).map(|j| 100f32.powf(-(j as f32) / 3.0)).collect();
    let angles = b.node("angles", RopeAngles::new(inv_freq, 1.0), &[]).unwrap();
    for layer in 0..2 {
        let name = |part: &str| format!("layers.{layer}.{part}");
        let norm = weight(&mut b, &name("norm.weight"), &[WIDTH]);
        let h = b.node(name("norm"), RmsNorm::new(1e-5), &[x, norm]).unwrap();
        let kv = (KV_HEADS * HEAD) as usize;
        let mut project = |b: &mut Builder, part: &str, x: ValueId, outputs: usize, inputs: usize| {
            let w = weight(b, &name(&format!("{part}.weight")), &[outputs, inputs]);
            b.node(name(part), Linear::default(), &[x, w]).unwrap()
        };
        let q = project(&mut b, "q", h, WIDTH, WIDTH);
        let k = project(&mut b, "k", h, kv, WIDTH);
        let v = project(&mut b, "v", h, kv, WIDTH);
        let rope = Rope { head_dim: HEAD, rotary_dim: HEAD, interleaved: false };
        let q = b.node(name("q_rope"), rope.clone(), &[q, angles]).unwrap();
        let k = b.node(name("k_rope"), rope, &[k, angles]).unwrap();
        let cached = TensorType::new(DType::F32, [Dim::symbol(Symbol::P), Dim::from(kv)]);
        let cache_k = b.state(name("cache_k"), cached.clone()).unwrap();
        let cache_v = b.state(name("cache_v"), cached).unwrap();
        let keys = b.node(name("keys"), Append {}, &[cache_k, k]).unwrap();
        let values = b.node(name("values"), Append {}, &[cache_v, v]).unwrap();
        b.set_state(cache_k, keys).unwrap();
        b.set_state(cache_v, values).unwrap();
        let attention = Attention::causal(HEADS, KV_HEADS, HEAD, (HEAD as f32).powf(-0.5));
        let a = b.node(name("attention"), attention, &[q, keys, values]).unwrap();
        let o = project(&mut b, "o", a, WIDTH, WIDTH);
        x = b.node(name("residual"), Add {}, &[x, o]).unwrap();
        let down = match experts {
            0 => {
                let gate = project(&mut b, "gate", x, HIDDEN, WIDTH);
                let up = project(&mut b, "up", x, HIDDEN, WIDTH);
                let gate = b.node(name("silu"), Silu {}, &[gate]).unwrap();
                let both = b.node(name("gated"), Mul {}, &[gate, up]).unwrap();
                project(&mut b, "down", both, WIDTH, HIDDEN)
            }
            _ => {
                let scores = project(&mut b, "router", x, experts, WIDTH);
                let op = Route { k: 2, scores: Scores::Softmax, normalize: false, scale: 1.0, groups: None };
                let names = [name("experts"), name("shares")];
                let chosen = b.node_multi(name("route"), op, &[scores], &names).unwrap();
                let mut stacked = |b: &mut Builder, part: &str, x: ValueId, outputs: usize, inputs: usize| {
                    let w = weight(b, &name(&format!("{part}.weight")), &[experts, outputs, inputs]);
                    b.node(name(part), ExpertLinear {}, &[x, w, chosen[0]]).unwrap()
                };
                let gate = stacked(&mut b, "gates", x, HIDDEN, WIDTH);
                let up = stacked(&mut b, "ups", x, HIDDEN, WIDTH);
                let gate = b.node(name("silu"), Silu {}, &[gate]).unwrap();
                let both = b.node(name("gated"), Mul {}, &[gate, up]).unwrap();
                let down = stacked(&mut b, "downs", both, WIDTH, HIDDEN);
                b.node(name("combine"), Combine { k: 2 }, &[down, chosen[1]]).unwrap()
            }
        };
        x = b.node(name("residual2"), Add {}, &[x, down]).unwrap();
    }
    let logits = b.node("head", Linear::default(), &[x, table]).unwrap();
    assert_eq!(b.ty(logits), &rows(VOCAB));
    b.output("logits", logits);
    random_model(b.finish().unwrap(), types, seed)
}

/// The model of this graph with random weights of these types made from `seed`.
fn random_model(graph: Graph, types: Vec<(String, TensorType)>, seed: u64) -> Model {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut weights = HashMap::new();
    for (name, ty) in types {
        let sizes = ty.sizes(&Symbols::new()).unwrap();
        let count = sizes.iter().product();
        let (mean, spread) = if sizes.len() == 1 { (1.0, 0.3) } else { (0.0, 0.6) };
        let values: Vec<f64> = (0..count).map(|_| mean + spread * (random.f64() * 2.0 - 1.0)).collect();
        weights.insert(name, Tensor::from_f64(ty.dtype, sizes, &values).unwrap());
    }
    Model::new(graph, weights).unwrap()
}

pub fn identity() -> ModelIdentity {
    ModelIdentity { name: "toy".into(), path: "models/toy".into(), ..ModelIdentity::default() }
}

pub fn prompts() -> Vec<PromptInput> {
    vec![
        PromptInput { text: "first".into(), ids: vec![3, 14, 15, 9, 26, 5], image: None, most_steps: None },
        PromptInput { text: "second".into(), ids: vec![41, 7, 7, 30], image: None, most_steps: None },
    ]
}

/// Ids as words.
pub fn decode(ids: &[u32]) -> String {
    ids.iter().map(|id| format!("t{id}")).collect::<Vec<_>>().join(" ")
}

/// How an operator errs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Twist {
    /// Every value multiplied by this.
    Scale(f32),
    /// The last column zero.
    LastColumnZero,
    /// Every value multiplied by this, but only in a whole model, never alone.
    ScaleInModel(f32),
    /// One NaN.
    Nan,
    /// There is no kernel.
    Unsupported,
    /// Every call fails.
    Fails,
    /// Calls of more than one row are refused when they are run.
    DecodeOnly,
    /// The device is lost.
    Lost,
}

/// Computes in f32 like the CPU, with twists by operator name. Cloning shares the counters.
#[derive(Clone, Default)]
pub struct Twisted {
    pub twists: HashMap<&'static str, Twist>,
    /// Part of every kernel's hash, so that a test can change a kernel.
    pub version: HashMap<&'static str, u32>,
    /// Calls replayed.
    pub replayed: Arc<AtomicU64>,
    /// Steps run in hybrid models.
    pub runs: Arc<AtomicU64>,
}

impl Twisted {
    pub fn from_twists(twists: &[(&'static str, Twist)]) -> Twisted {
        Twisted { twists: twists.iter().copied().collect(), ..Twisted::default() }
    }

    fn twist(&self, op: &Op, in_model: bool, outputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let twist = self.twists.get(op.name());
        outputs.into_iter().map(|tensor| twist_tensor(twist, in_model, tensor)).collect()
    }
}

fn twist_tensor(twist: Option<&Twist>, in_model: bool, tensor: Tensor) -> Result<Tensor> {
    let mut values = tensor.to_f32().into_owned();
    match twist {
        Some(Twist::Scale(factor)) => values.iter_mut().for_each(|v| *v *= factor),
        Some(Twist::ScaleInModel(factor)) if in_model => values.iter_mut().for_each(|v| *v *= factor),
        Some(Twist::LastColumnZero) => {
            let width = tensor.row_len();
            values.iter_mut().skip(width - 1).step_by(width).for_each(|v| *v = 0.0);
        }
        Some(Twist::Nan) => values[0] = f32::NAN,
        Some(Twist::Lost) => return Err(Error::new(ErrorKind::DeviceLost, "the device is lost")),
        Some(Twist::DecodeOnly) if tensor.shape()[0] > 1 => {
            return Err(Error::unsupported("more than one row"));
        }
        Some(Twist::Fails) => return Err(Error::new(ErrorKind::Compile, "line 3: unknown name `x`")),
        _ => return Ok(tensor),
    }
    Tensor::from_f32_as(tensor.dtype(), tensor.shape().to_vec(), values)
}

impl Platform for Twisted {
    fn word(&self) -> &str {
        "twisted"
    }

    fn describe(&self) -> PlatformInfo {
        PlatformInfo { platform: "twisted".into(), device: "test".into(), driver: "1".into() }
    }

    fn kernel_for(&self, op: &Op, inputs: &[TensorType], _phase: Phase) -> Result<KernelChoice> {
        op.infer(inputs)?;
        if self.twists.get(op.name()) == Some(&Twist::Unsupported) {
            return Err(Error::unsupported(format!("no kernel for `{}`", op.name())));
        }
        let version = self.version.get(op.name()).copied().unwrap_or(0);
        Ok(KernelChoice {
            name: format!("{}/twisted", op.name()),
            hash: format!("{}-{version}", op.name()),
            accumulate: Accumulate::new(DType::F32, Dim::from(64u64)),
            regimes: Vec::new(),
        })
    }

    fn replay(&mut self, calls: &[Call], sink: &mut Sink<'_>) -> Result<()> {
        let mut results = Vec::new();
        CpuPlatform::new().replay(calls, &mut |i, outputs| results.push((i, outputs)))?;
        self.replayed.fetch_add(calls.len() as u64, Ordering::Relaxed);
        for (i, outputs) in results {
            sink(i, outputs.and_then(|o| self.twist(&calls[i].op, false, o)));
        }
        Ok(())
    }

    fn load(&mut self, model: &Model, _capacity: &Symbols) -> Result<Box<dyn Loaded>> {
        for node in model.graph().nodes() {
            self.kernel_for(&node.op, &model.graph().input_types(node), Phase::Prefill)?;
        }
        Ok(Box::new(Interpreter { platform: self.clone(), model: model.clone(), states: HashMap::new() }))
    }

    fn take_findings(&mut self) -> Vec<tapml_device::Finding> {
        Vec::new()
    }

    fn memory(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// A graph run node by node, each twisted.
struct Interpreter {
    platform: Twisted,
    model: Model,
    states: HashMap<ValueId, Tensor>,
}

impl Interpreter {
    fn value(&self, values: &HashMap<ValueId, Tensor>, id: ValueId) -> Result<Tensor> {
        let value = self.model.graph().value(id);
        match (values.get(&id), value.origin) {
            (Some(tensor), _) => Ok(tensor.clone()),
            (None, Origin::Weight) => self.model.weight(&value.name),
            (None, Origin::State(_)) => match self.states.get(&id) {
                Some(tensor) => Ok(tensor.clone()),
                None => {
                    let sizes = value.ty.sizes(&Symbols::np(0, 0))?;
                    let zeros = vec![0.0; sizes.iter().product()];
                    Tensor::from_f64(value.ty.dtype, sizes, &zeros)
                }
            },
            _ => Err(Error::invalid(format!("input `{}` is missing", value.name))),
        }
    }
}

impl Loaded for Interpreter {
    fn run(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        _observer: Option<&mut dyn Observer>,
    ) -> Result<HashMap<String, Tensor>> {
        self.platform.runs.fetch_add(1, Ordering::Relaxed);
        let model = self.model.clone();
        let graph = model.graph();
        let mut values: HashMap<ValueId, Tensor> = HashMap::new();
        for (name, tensor) in inputs {
            values.insert(graph.find_value(name).unwrap(), tensor.clone());
        }
        for node in graph.nodes() {
            let given = node.inputs.iter().map(|&id| self.value(&values, id)).collect::<Result<Vec<_>>>()?;
            let dtypes: Vec<DType> = node.outputs.iter().map(|&id| graph.value(id).ty.dtype).collect();
            let outputs = tapml_reference::run_node(&node.op, symbols, &given, &dtypes)?;
            let outputs = self.platform.twist(&node.op, true, outputs)?;
            values.extend(node.outputs.iter().copied().zip(outputs));
        }
        for state in graph.states() {
            let after = self.value(&values, state.output)?;
            self.states.insert(state.input, after);
        }
        graph.outputs().iter().map(|o| Ok((o.name.clone(), self.value(&values, o.value)?))).collect()
    }

    fn reset(&mut self) -> Result<()> {
        self.states.clear();
        Ok(())
    }
}
