//! Fused WGSL kernels give what the nodes alone give, on every device of this machine that has subgroups.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{emulator, tensor_type};
use std::collections::HashMap;
use tapml_device::{AdapterKind, Device, DeviceInfo, Features};
use tapml_graph::op::{
    AddRmsNorm, Append, Attention, Embedding, GatedLinear, LastRow, Linear, RmsNorm, Rope, RopeAngles,
};
use tapml_graph::packing::Code;
use tapml_graph::{Builder, DType, Graph, Packing, Symbols, Tensor, ValueId};
use tapml_kernels::{
    CompileOptions, Instance, KernelCache, OutputRows, Phase, Program, ProgramStep, compile, is_built_in,
};
use tapml_wgpu::WgpuDevice;

const HIDDEN: u64 = 96;
const MIDDLE: u64 = 160;
const VOCAB: u64 = 70;
const HEAD: u32 = 32;
const HEADS: u32 = 6;
const KV_HEADS: u32 = 2;

/// How the weights of products are stored, and whether they have biases.
#[derive(Clone, Copy, Debug)]
struct Weights {
    packing: Option<Packing>,
    bias: bool,
}

struct Maker {
    b: Builder,
    weights: Weights,
}

impl Maker {
    fn weight(&mut self, name: &str, o: u64, k: u64) -> ValueId {
        let dtype = self.weights.packing.map_or(DType::BF16, DType::Packed);
        self.b.weight(name, tensor_type(dtype, &format!("{o},{k}"))).unwrap()
    }

    fn linear(&mut self, name: &str, x: ValueId, k: u64, o: u64, dtype: Option<DType>) -> ValueId {
        let mut inputs = vec![x, self.weight(&format!("{name}.w"), o, k)];
        if self.weights.bias {
            inputs.push(self.b.weight(format!("{name}.b"), tensor_type(DType::F16, &o.to_string())).unwrap());
        }
        self.b.node(name, Linear { dtype }, &inputs).unwrap()
    }

    fn add_gated(&mut self, name: &str, x: ValueId) -> ValueId {
        let gate = self.weight(&format!("{name}.gate"), MIDDLE, HIDDEN);
        let up = self.weight(&format!("{name}.up"), MIDDLE, HIDDEN);
        self.b.node(name, GatedLinear {}, &[x, gate, up]).unwrap()
    }

    fn add_norm(&mut self, name: &str, a: ValueId, b: ValueId, dtype: DType) -> (ValueId, ValueId) {
        let w = self.b.weight(format!("{name}.w"), tensor_type(dtype, &HIDDEN.to_string())).unwrap();
        let names = [format!("{name}.sum"), format!("{name}.y")];
        let both = self.b.node_multi(name, AddRmsNorm::new(1e-5), &[a, b, w], &names).unwrap();
        (both[0], both[1])
    }
}

fn llama(act: DType, weights: Weights) -> Graph {
    let mut m = Maker { b: Builder::new("llama"), weights };
    let ids = m.b.input("ids", tensor_type(DType::U32, "n")).unwrap();
    let table = m.b.weight("embed", tensor_type(DType::BF16, &format!("{VOCAB},{HIDDEN}"))).unwrap();
    let mut x = m.b.node("embedding", Embedding { dtype: act }, &[ids, table]).unwrap();
    let frequencies = (0..HEAD / 2).map(|i| (0.5f32).powi(i as i32)).collect();
    let angles = m.b.node("angles", RopeAngles::new(frequencies, 1.0), &[]).unwrap();
    let weight = m.b.weight("norm.w", tensor_type(DType::BF16, &HIDDEN.to_string())).unwrap();
    let mut y = m.b.node("norm", RmsNorm::new(1e-5), &[x, weight]).unwrap();
    for l in 0..2 {
        let name = |part: &str| format!("{l}.{part}");
        let (wide, kv) = (u64::from(HEADS * HEAD), u64::from(KV_HEADS * HEAD));
        let rope = Rope { head_dim: HEAD, rotary_dim: HEAD, interleaved: false };
        let [q, k, v] =
            [("q", wide), ("k", kv), ("v", kv)].map(|(p, o)| m.linear(&name(p), y, HIDDEN, o, None));
        let q = m.b.node(name("q_rope"), rope.clone(), &[q, angles]).unwrap();
        let k = m.b.node(name("k_rope"), rope, &[k, angles]).unwrap();
        let cached = [("k_cache", k), ("v_cache", v)].map(|(part, new)| {
            let cache = m.b.state(name(part), tensor_type(act, &format!("p,{kv}"))).unwrap();
            let all = m.b.node(name(part) + "_all", Append {}, &[cache, new]).unwrap();
            m.b.set_state(cache, all).unwrap();
            all
        });
        let attention = Attention::causal(HEADS, KV_HEADS, HEAD, 0.2);
        let a = m.b.node(name("attention"), attention, &[q, cached[0], cached[1]]).unwrap();
        let a = m.linear(&name("o"), a, wide, HIDDEN, None);
        (x, y) = m.add_norm(&name("norm_mlp"), x, a, DType::F32);
        let gated = m.add_gated(&name("gated"), y);
        let down = m.linear(&name("down"), gated, MIDDLE, HIDDEN, None);
        (x, y) = m.add_norm(&name("norm_next"), x, down, DType::F16);
    }
    let last = m.b.node("last", LastRow {}, &[y]).unwrap();
    let logits = m.linear("head", last, HIDDEN, VOCAB, Some(DType::F32));
    m.b.output("logits", logits);
    m.b.output("stream", x);
    m.b.finish().unwrap()
}

/// Reproducible contents, of a size that keeps activations near 1.
fn contents(graph: &Graph) -> HashMap<String, Tensor> {
    let mut all = common::weights(graph);
    let mut state = 7u32;
    for (_, value) in graph.weights() {
        let DType::Packed(packing) = value.ty.dtype else { continue };
        let shape = value.ty.sizes(&Symbols::new()).unwrap();
        let sections = packing.sections(&shape).unwrap();
        let words = (0..sections[0].len / 4).flat_map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state ^ state >> 13).to_le_bytes()
        });
        let words: Vec<u8> = words.collect();
        let size = match packing.code {
            Code::E4m3 => 0.07,
            Code::Int8 => 4e-4,
            _ => 6e-3,
        };
        let scales: Vec<f64> = (0..sections[1].len / 2).map(|i| (1.0 + (i % 7) as f64) * size).collect();
        let scales = Tensor::from_f64(DType::F16, vec![scales.len()], &scales).unwrap();
        let tensor = Tensor::from_packed(packing, shape, &[&words, scales.bytes()]).unwrap();
        all.insert(value.name.clone(), tensor);
    }
    all
}

/// The same device as one whose variants are preferred.
fn as_gpu(info: &DeviceInfo) -> DeviceInfo {
    DeviceInfo { kind: AdapterKind::Discrete, ..info.clone() }
}

/// Kernels of the dispatches of one row.
fn kernels_of_one_row(program: &Program) -> Vec<&str> {
    let symbols = Symbols::np(1, 3);
    let steps = program.steps.iter().filter(|step| step.runs_in(Phase::of_run(&symbols)));
    steps
        .filter_map(|step| match step {
            ProgramStep::Dispatch { kernel, .. } => Some(program.kernels[*kernel as usize].name.as_str()),
            _ => None,
        })
        .collect()
}

/// A prompt of three rows and four rows behind it: rows and what is cached before each run.
const SHORT: [(u64, u64); 5] = [(3, 0), (1, 3), (1, 4), (1, 5), (1, 6)];
/// Keys that make one part, two and three, where a part has at least 128.
const LONG: [(u64, u64); 4] = [(1, 127), (1, 128), (1, 129), (1, 280)];

/// Logits and residual streams of these runs. What is cached before a run and was not fed is made up.
fn outputs(
    device: &mut dyn Device,
    program: &Program,
    weights: &HashMap<String, Tensor>,
    runs: &[(u64, u64)],
) -> Vec<f64> {
    let give = |name: &str| Ok(weights[name].clone());
    let mut cache = KernelCache::new();
    let mut instance = Instance::load_with(device, &mut cache, program, &give).unwrap();
    let mut all = Vec::new();
    let mut held = 0;
    for &(n, p) in runs {
        if p != held {
            write_caches(device, &mut instance, p as usize);
        }
        held = p + n;
        let ids: Vec<u32> = (0..n).map(|i| ((7 * (p + i) + 3) % VOCAB) as u32).collect();
        let ids = Tensor::from_u32(vec![n as usize], ids).unwrap();
        let found = instance
            .step(device, &Symbols::np(n, p), &[("ids", &ids)], &["logits", "stream"].map(OutputRows::whole))
            .unwrap();
        all.extend(found.iter().flat_map(Tensor::to_f64));
    }
    let findings = device.take_findings();
    assert!(findings.is_empty(), "{}: {:?}", device.info().name, findings.first());
    instance.unload(device).unwrap();
    cache.clear(device).unwrap();
    all
}

/// Fills all caches with so many rows.
fn write_caches(device: &mut dyn Device, instance: &mut Instance, rows: usize) {
    let states = instance.program().states.clone();
    for (at, state) in states.iter().enumerate() {
        let width = (KV_HEADS * HEAD) as usize;
        let value = |i: usize| ((i * 37 + at * 11) % 64) as f64 / 32.0 - 1.0;
        let values: Vec<f64> = (0..rows * width).map(value).collect();
        let tensor = Tensor::from_f64(state.ty.dtype, vec![rows, width], &values).unwrap();
        instance.write_state(device, &state.name, &tensor).unwrap();
    }
}

/// Emulators with subgroups of two sizes, and Vulkan if there is an adapter whose subgroups are large enough, where kernels
/// run as built-in ones do.
fn able() -> Vec<Box<dyn Device>> {
    let small = emulator("check=all").with_subgroup_size(16).unwrap();
    let mut all: Vec<Box<dyn Device>> = vec![Box::new(emulator("check=all")), Box::new(small)];
    match WgpuDevice::open("vulkan", 0, "") {
        Ok(device) if device.info().features.subgroups.is_some_and(|(_, most)| most >= 16) => {
            all.push(Box::new(device.trust_kernels(is_built_in)));
        }
        Ok(device) => tapml_testing::skip("vulkan", &format!("{}: subgroups below 16", device.info().name)),
        Err(e) => tapml_testing::skip("vulkan", &e.to_string()),
    }
    all
}

/// Fails unless one row's fused kernels give in these runs what its nodes alone give; returns the kernels of one row.
fn expect_the_same(
    device: &mut dyn Device,
    info: &DeviceInfo,
    (act, weights): (DType, Weights),
    runs: &[(u64, u64)],
) -> Vec<String> {
    let graph = llama(act, weights);
    let contents = contents(&graph);
    let most = runs.iter().fold((0, 0), |most, run| (run.0.max(most.0), run.1.max(most.1)));
    let options = || CompileOptions::new(Symbols::np(most.0, most.1 + 74));
    let joined = compile(&graph, info, &options()).unwrap();
    // Memory that is looked into is planned node by node.
    let poisoned = CompileOptions { poison: true, ..options() };
    let alone = compile(&graph, info, &poisoned).unwrap();
    let few = kernels_of_one_row(&joined);
    assert!(few.len() <= 24 && kernels_of_one_row(&alone).len() > 30, "{few:?}");
    assert!(joined.kernels.iter().all(is_built_in), "{few:?}");
    let found = outputs(device, &joined, &contents, runs);
    let expected = outputs(device, &alone, &contents, runs);
    let most = expected.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let allowed = if act == DType::F16 { 4e-3 } else { 4e-6 } * most;
    assert!(most > 0.1 && most < 100.0, "{most}");
    for (i, (a, b)) in found.iter().zip(&expected).enumerate() {
        let label = format!("{act} {weights:?} on {}: {i}", info.name);
        assert!((a - b).abs() <= allowed, "{label}: {a} instead of {b} ± {allowed}");
    }
    few.into_iter().map(String::from).collect()
}

#[test]
fn fused_kernels_give_what_nodes_alone_give() {
    let packed = |bits| Some(Packing::integers(bits, 32, false));
    let numbers = Some(Packing::floats(32));
    let cases = [(None, false), (None, true), (packed(4), false), (packed(8), true), (numbers, true)];
    for mut device in able() {
        let info = as_gpu(device.info());
        for act in [DType::F32, DType::F16] {
            for (packing, bias) in cases {
                let case = (act, Weights { packing, bias });
                let few = expect_the_same(device.as_mut(), &info, case, &SHORT);
                let of = |name: &str| few.iter().filter(|k| *k == name).count();
                assert_eq!(
                    (of("rope_append_attention/gemv"), of("attention/split_merge")),
                    (2, 0),
                    "{few:?}"
                );
            }
        }
    }
}

#[test]
fn parts_of_the_keys_are_brought_together() {
    let weights = Weights { packing: Some(Packing::integers(4, 32, false)), bias: false };
    for mut device in able() {
        let info = as_gpu(device.info());
        for act in [DType::F32, DType::F16] {
            expect_the_same(device.as_mut(), &info, (act, weights), &LONG);
        }
    }
}

#[test]
fn devices_that_cannot_bring_parts_together_merge_them() {
    let case = (DType::F16, Weights { packing: None, bias: false });
    let mut device = emulator("check=all");
    let info = as_gpu(device.info());
    // No workgroup sees what others leave; subgroups are smaller than a team.
    let apart = Features { device_barriers: false, ..info.features.clone() };
    let elsewhere = DeviceInfo { features: apart, ..info.clone() };
    let narrow = Features { subgroups: Some((2, 32)), ..info.features };
    let narrow = DeviceInfo { features: narrow, ..info };
    for (info, attention) in
        [(elsewhere, "rope_append_attention/gemv"), (narrow, "rope_append_attention/split")]
    {
        let few = expect_the_same(&mut device, &info, case, &LONG);
        let of = |name: &str| few.iter().filter(|k| *k == name).count();
        assert_eq!((of(attention), of("attention/split_merge")), (2, 2), "{few:?}");
    }
}
