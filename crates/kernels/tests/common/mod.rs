//! Shared by the behaviour tests: devices, a toy Llama, running one node as it is planned.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::HashMap;
use tapml_device::{Binding, BufferId, Command, Device, Features, Limits, null::NullDevice};
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_graph::op::{
    Add, AddRmsNorm, Append, Attention, Embedding, GatedLinear, LastRow, Linear, RmsNorm, Rope, RopeAngles,
};
use tapml_graph::{Builder, Bytes, DType, Graph, Op, Result, Symbols, Tensor, TensorType, ValueId};
use tapml_kernels::{Arg, KernelCache, NodePlan, Overrides, Phase, Scratch, plan_node, symbol_bytes};
use tapml_wgpu::WgpuDevice;

/// The devices of this machine: the emulator with all checks and as devices with other arithmetic, and Vulkan if there
/// is an adapter.
pub fn devices() -> Vec<Box<dyn Device>> {
    let queries = ["check=all", "profile=mobile-webgpu", "profile=strict-f32", "profile=fast-math"];
    let mut devices: Vec<Box<dyn Device>> = Vec::new();
    for query in queries {
        devices.push(Box::new(emulator(query)));
    }
    match WgpuDevice::open("vulkan", 0, "") {
        Ok(device) => devices.push(Box::new(device)),
        Err(e) => tapml_testing::skip("vulkan", &e.to_string()),
    }
    devices
}

/// A device that runs nothing, with f16 or without.
pub fn null(f16: bool) -> NullDevice {
    let features = Features {
        f16,
        subgroups: None,
        cuda: None,
        matrices: false,
        device_barriers: false,
        processors: None,
    };
    NullDevice::new(Limits::WEBGPU, features)
}

pub fn emulator(query: &str) -> Emulator {
    Emulator::new(EmulatorOptions::parse(query).unwrap()).unwrap()
}

/// Allocates at least 4 bytes and writes `bytes` padded to whole words.
fn upload(device: &mut dyn Device, bytes: &[u8]) -> BufferId {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().max(4).next_multiple_of(4), 0);
    let buffer = device.create_buffer("test", padded.len() as u64).unwrap();
    device.write(buffer, 0, &padded).unwrap();
    buffer
}

/// Runs one call as its plan says, every input and output in a buffer of its own.
pub fn run_call(
    device: &mut dyn Device,
    cache: &mut KernelCache,
    op: &Op,
    types: &[TensorType],
    symbols: &Symbols,
    inputs: &[Tensor],
) -> Result<(NodePlan, Vec<Tensor>)> {
    let plan = plan_node(op, types, Phase::of_run(symbols), device.info(), &Overrides::default())?;
    let outputs = run_plan(device, cache, &plan, op, types, symbols, inputs)?;
    Ok((plan, outputs))
}

/// Runs one call as this plan says.
pub fn run_plan(
    device: &mut dyn Device,
    cache: &mut KernelCache,
    plan: &NodePlan,
    op: &Op,
    types: &[TensorType],
    symbols: &Symbols,
    inputs: &[Tensor],
) -> Result<Vec<Tensor>> {
    let given: Vec<BufferId> = inputs.iter().map(|t| upload(device, t.bytes())).collect();
    let outputs = op.infer_bound(types, symbols)?;
    let sizes: Vec<usize> = outputs
        .iter()
        .map(|t| Ok(t.sizes(symbols)?.iter().product::<usize>() * t.dtype.size()))
        .collect::<Result<_>>()?;
    let made: Vec<BufferId> = sizes
        .iter()
        .map(|&size| device.create_buffer("out", (size as u64).max(4).next_multiple_of(4)))
        .collect::<Result<_>>()?;
    let constants: Vec<BufferId> = plan.constants.iter().map(|bytes| upload(device, bytes)).collect();
    let scratch: Vec<BufferId> = plan
        .scratch
        .iter()
        .map(|wanted| {
            let bytes = wanted.bytes().eval(symbols)?.max(4).next_multiple_of(4);
            let buffer = device.create_buffer("scratch", bytes)?;
            if let Scratch::Kept(_) = wanted {
                device.write(buffer, 0, &vec![0; bytes as usize])?;
            }
            Ok(buffer)
        })
        .collect::<Result<_>>()?;
    let uniform = upload(device, &symbol_bytes(symbols)?);
    let mut commands = Vec::new();
    for launch in &plan.launches {
        let bind = |arg: &Arg| match *arg {
            Arg::Input { index, offset, len } => Binding { buffer: given[index], offset, size: len },
            Arg::Output(index) => Binding::whole(made[index]),
            Arg::Constant(index) => Binding::whole(constants[index]),
            Arg::Scratch(index) => Binding::whole(scratch[index]),
            Arg::Symbols => Binding::whole(uniform),
        };
        commands.push(Command::Dispatch {
            label: op.name().into(),
            kernel: cache.get(device, &launch.desc)?,
            bindings: launch.args.iter().map(bind).collect(),
            groups: launch.groups.clone(),
        });
    }
    let list = device.record(&commands)?;
    device.replay(list, symbols)?;
    let mut results = Vec::new();
    for ((buffer, ty), size) in made.iter().zip(&outputs).zip(sizes) {
        let mut bytes = vec![0; size.next_multiple_of(4)];
        device.read(*buffer, 0, &mut bytes)?;
        bytes.truncate(size);
        results.push(Tensor::new(ty.dtype, ty.sizes(symbols)?, Bytes::new(bytes))?);
    }
    device.destroy_list(list)?;
    let all = given.into_iter().chain(made).chain(constants).chain(scratch).chain([uniform]);
    all.into_iter().try_for_each(|b| device.destroy_buffer(b))?;
    Ok(results)
}

pub const VOCAB: u64 = 37;
const HIDDEN: u64 = 24;
const MIDDLE: u64 = 20;
const HEADS: u32 = 4;
const KV_HEADS: u32 = 2;
const HEAD_DIM: u32 = 6;

pub fn tensor_type(dtype: DType, shape: &str) -> TensorType {
    TensorType { dtype, shape: shape.split(',').map(|d| d.parse().unwrap()).collect() }
}

/// A Llama of two layers with tied embeddings and fused operators; activations of this dtype.
pub fn toy_llama(act: DType) -> Graph {
    let mut b = Builder::new("toy");
    let ids = b.input("ids", tensor_type(DType::U32, "n")).unwrap();
    let table = b.weight("embed", tensor_type(DType::BF16, &format!("{VOCAB},{HIDDEN}"))).unwrap();
    let mut x = b.node("embedding", Embedding { dtype: act }, &[ids, table]).unwrap();
    let angles = b.node("angles", RopeAngles::new(vec![1.0, 0.1, 0.01], 1.0), &[]).unwrap();
    for layer in 0..2 {
        x = layer_of(&mut b, layer, x, angles, act).unwrap();
    }
    let weight = b.weight("norm.w", tensor_type(DType::F32, &HIDDEN.to_string())).unwrap();
    let x = b.node("norm", RmsNorm::new(1e-5), &[x, weight]).unwrap();
    let last = b.node("last", LastRow {}, &[x]).unwrap();
    let logits = b.node("head", Linear { dtype: Some(DType::F32) }, &[last, table]).unwrap();
    b.output("logits", logits);
    b.output("hidden", x);
    b.finish().unwrap()
}

fn linear(b: &mut Builder, name: &str, x: ValueId, inputs: u64, outputs: u64) -> Result<ValueId> {
    let weight = b.weight(format!("{name}.w"), tensor_type(DType::BF16, &format!("{outputs},{inputs}")))?;
    let bias = b.weight(format!("{name}.b"), tensor_type(DType::F16, &outputs.to_string()))?;
    b.node(name, Linear::default(), &[x, weight, bias])
}

fn layer_of(b: &mut Builder, layer: usize, x: ValueId, angles: ValueId, act: DType) -> Result<ValueId> {
    let name = |part: &str| format!("layer{layer}.{part}");
    let (kv, wide) = (u64::from(KV_HEADS * HEAD_DIM), u64::from(HEADS * HEAD_DIM));
    let rope = Rope { head_dim: HEAD_DIM, rotary_dim: HEAD_DIM, interleaved: false };
    let weight = b.weight(name("norm.w"), tensor_type(DType::BF16, &HIDDEN.to_string()))?;
    let normed = b.node(name("norm"), RmsNorm::new(1e-5), &[x, weight])?;
    let q = linear(b, &name("q"), normed, HIDDEN, wide)?;
    let k = linear(b, &name("k"), normed, HIDDEN, kv)?;
    let v = linear(b, &name("v"), normed, HIDDEN, kv)?;
    let q = b.node(name("q_rope"), rope.clone(), &[q, angles])?;
    let k = b.node(name("k_rope"), rope, &[k, angles])?;
    let mut cached = Vec::new();
    for (part, new) in [("k_cache", k), ("v_cache", v)] {
        let cache = b.state(name(part), tensor_type(act, &format!("p,{kv}")))?;
        let all = b.node(name(&format!("{part}_all")), Append {}, &[cache, new])?;
        b.set_state(cache, all)?;
        cached.push(all);
    }
    let attention = Attention::causal(HEADS, KV_HEADS, HEAD_DIM, 0.4);
    let y = b.node(name("attention"), attention, &[q, cached[0], cached[1]])?;
    let y = linear(b, &name("o"), y, wide, HIDDEN)?;
    let weight = b.weight(name("norm2.w"), tensor_type(DType::BF16, &HIDDEN.to_string()))?;
    let outputs = [name("sum"), name("normed")];
    let pair = b.node_multi(name("norm2"), AddRmsNorm::new(1e-5), &[x, y, weight], &outputs)?;
    let gate = b.weight(name("gate.w"), tensor_type(DType::BF16, &format!("{MIDDLE},{HIDDEN}")))?;
    let up = b.weight(name("up.w"), tensor_type(DType::BF16, &format!("{MIDDLE},{HIDDEN}")))?;
    let y = b.node(name("gated"), GatedLinear {}, &[pair[1], gate, up])?;
    let y = linear(b, &name("down"), y, MIDDLE, HIDDEN)?;
    b.node(name("residual"), Add {}, &[pair[0], y])
}

/// Weights for a graph, reproducible, of a size that keeps activations near 1.
pub fn weights(graph: &Graph) -> HashMap<String, Tensor> {
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as f64 / (1u64 << 31) as f64 - 0.5
    };
    let mut all = HashMap::new();
    for (_, value) in graph.weights().filter(|(_, value)| value.ty.dtype.packing().is_none()) {
        let shape = value.ty.sizes(&Symbols::new()).unwrap();
        let count: usize = shape.iter().product();
        let mean = if value.name.contains("norm") { 1.0 } else { 0.0 };
        let values: Vec<f64> = (0..count).map(|_| mean + 0.8 * uniform()).collect();
        all.insert(value.name.clone(), Tensor::from_f64(value.ty.dtype, shape, &values).unwrap());
    }
    all
}
