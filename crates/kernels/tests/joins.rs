//! Programs for a device that takes CUDA kernels: which launches a run of one row performs, and that values still lie where
//! they are looked for.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "common/hopper.rs"]
mod on_hopper;

use on_hopper::{hopper, list_dispatches};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use tapml_device::BindingKind;
use tapml_graph::op::{
    Add, AddRmsNorm, Append, Attention, Embedding, GatedLinear, LastRow, Linear, RmsNorm, Rope, RopeAngles,
};
use tapml_graph::{Builder, DType, Graph, Symbol, Symbols, TensorType, ValueId};
use tapml_kernels::{CompileOptions, Phase, Program, ProgramStep, any_device, compile};

const HIDDEN: u64 = 256;
const KV: u64 = 128;
const MIDDLE: u64 = 512;
const LAYERS: usize = 3;

fn tensor_type(dtype: DType, shape: &str) -> TensorType {
    TensorType { dtype, shape: shape.split(',').map(|d| d.parse().unwrap()).collect() }
}

/// A Llama with grouped heads of 64, f16 throughout, whose residual additions are fused.
fn llama() -> Graph {
    let mut b = Builder::new("llama");
    let ids = b.input("ids", tensor_type(DType::U32, "n")).unwrap();
    let table = b.weight("embed", tensor_type(DType::F16, &format!("64,{HIDDEN}"))).unwrap();
    let mut x = b.node("embedding", Embedding { dtype: DType::F16 }, &[ids, table]).unwrap();
    let angles = b.node("angles", RopeAngles::new(vec![0.5; 32], 1.0), &[]).unwrap();
    let weight = b.weight("norm.w", tensor_type(DType::BF16, &HIDDEN.to_string())).unwrap();
    let mut y = b.node("norm", RmsNorm::new(1e-5), &[x, weight]).unwrap();
    for layer in 0..LAYERS {
        (x, y) = layer_of(&mut b, layer, [x, y, angles]);
    }
    let last = b.node("last", LastRow {}, &[y]).unwrap();
    let logits = b.node("head", Linear { dtype: Some(DType::F32) }, &[last, table]).unwrap();
    b.output("logits", logits);
    b.finish().unwrap()
}

fn layer_of(b: &mut Builder, layer: usize, [x, y, angles]: [ValueId; 3]) -> (ValueId, ValueId) {
    let name = |part: &str| format!("{layer}.{part}");
    let linear = |b: &mut Builder, part: &str, x, inputs, outputs| {
        let weight =
            b.weight(name(part) + ".w", tensor_type(DType::F16, &format!("{outputs},{inputs}"))).unwrap();
        b.node(name(part), Linear::default(), &[x, weight]).unwrap()
    };
    let norm = |b: &mut Builder, part: &str, a, c| {
        let weight = b.weight(name(part) + ".w", tensor_type(DType::BF16, &HIDDEN.to_string())).unwrap();
        let names = [name(part) + ".sum", name(part) + ".y"];
        let both = b.node_multi(name(part), AddRmsNorm::new(1e-5), &[a, c, weight], &names).unwrap();
        (both[0], both[1])
    };
    let rope = Rope { head_dim: 64, rotary_dim: 64, interleaved: false };
    let q = linear(b, "q", y, HIDDEN, HIDDEN);
    let q = b.node(name("q_rope"), rope.clone(), &[q, angles]).unwrap();
    let k = linear(b, "k", y, HIDDEN, KV);
    let k = b.node(name("k_rope"), rope, &[k, angles]).unwrap();
    let v = linear(b, "v", y, HIDDEN, KV);
    let cached = [("k_cache", k), ("v_cache", v)].map(|(part, new)| {
        let cache = b.state(name(part), tensor_type(DType::F16, &format!("p,{KV}"))).unwrap();
        let all = b.node(name(part) + "_all", Append {}, &[cache, new]).unwrap();
        b.set_state(cache, all).unwrap();
        all
    });
    let attention = Attention::causal(4, 2, 64, 0.125);
    let a = b.node(name("attention"), attention, &[q, cached[0], cached[1]]).unwrap();
    let a = linear(b, "o", a, HIDDEN, HIDDEN);
    let (x, y) = norm(b, "norm_mlp", x, a);
    let [gate, up] = ["gate.w", "up.w"]
        .map(|part| b.weight(name(part), tensor_type(DType::F16, &format!("{MIDDLE},{HIDDEN}"))).unwrap());
    let y = b.node(name("gated"), GatedLinear {}, &[y, gate, up]).unwrap();
    let y = linear(b, "down", y, MIDDLE, HIDDEN);
    norm(b, "norm_next", x, y)
}

fn options() -> CompileOptions {
    CompileOptions::new(Symbols::np(8, 64))
}

#[test]
fn one_row_takes_five_launches_a_layer() {
    let program = compile(&llama(), &hopper(), &options()).unwrap();
    let mut expected = vec![("embedding", "embedding/portable"), ("angles", "rope_angles/portable")];
    let parts = [
        ("v.norm_linear", "norm_linear/gemv_cuda"),
        ("attention.rope_append_attention", "rope_append_attention/flash_decode_cuda"),
        ("norm_mlp.sum.linear_add", "linear_add/gemv_cuda"),
        ("gated.norm_linear", "norm_linear/gemv_cuda"),
        ("norm_next.sum.linear_add", "linear_add/gemv_cuda"),
    ];
    let layers = (0..LAYERS).flat_map(|l| parts.map(|(part, kernel)| (format!("{l}.{part}"), kernel)));
    let layers: Vec<(String, &str)> = layers.collect();
    expected.extend(layers.iter().map(|(node, kernel)| (node.as_str(), *kernel)));
    expected.push(("head.norm_linear", "norm_linear/gemv_cuda"));
    assert_eq!(list_dispatches(&program, 1), expected);
    let overlapping = program.kernels.iter().filter(|kernel| kernel.name.contains("_cuda"));
    assert!(
        overlapping.clone().count() >= 5 && overlapping.into_iter().all(|kernel| kernel.dependent_launch)
    );
}

#[test]
fn many_rows_take_eight_launches_a_layer() {
    let program = compile(&llama(), &hopper(), &options()).unwrap();
    let parts = [
        ("v.linears", "linears/gemm_hopper"),
        ("v_cache_all.rope_append", "rope_append/rows_cuda"),
        ("attention.rope_attention", "rope_attention/flash_prefill_hopper"),
        ("o", "linear/gemm_hopper"),
        ("norm_mlp", "add_rms_norm/rows_cuda"),
        ("gated", "gated_linear/gemm_hopper"),
        ("down", "linear/gemm_hopper"),
        ("norm_next", "add_rms_norm/rows_cuda"),
    ];
    let layers =
        (0..LAYERS).flat_map(|l| parts.map(|(part, kernel)| (format!("{l}.{part}"), kernel.to_string())));
    let named = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(node, kernel)| (node.to_string(), kernel.to_string())).collect()
    };
    let mut expected = named(&[
        ("embedding", "embedding/portable"),
        ("angles", "rope_angles/portable"),
        ("norm", "rms_norm/rows_cuda"),
    ]);
    expected.extend(layers);
    // There is never more than one row of logits.
    expected.extend(named(&[("last", "last_row/portable"), ("head", "linear/gemv_cuda")]));
    assert_eq!(named(&list_dispatches(&program, 5)), expected);
}

#[test]
fn other_chips_take_every_nodes_own_kernel_for_many_rows() {
    let graph = llama();
    let mut info = hopper();
    info.features.cuda = Some(75);
    let program = compile(&graph, &info, &options()).unwrap();
    let plain = compile(&graph, &any_device(), &options()).unwrap();
    assert_eq!(list_dispatches(&program, 5), list_dispatches(&plain, 5));
    assert!(plain.steps.iter().all(|step| step.phase().is_none()));
}

#[test]
fn products_with_computed_weights_do_not_overlap() {
    for computed in [false, true] {
        let mut b = Builder::new("product");
        let x = b.input("x", tensor_type(DType::F16, "n,256")).unwrap();
        let mut w = b.weight("w", tensor_type(DType::F16, "64,256")).unwrap();
        if computed {
            w = b.node("sum", Add {}, &[w, w]).unwrap();
        }
        let y = b.node("y", Linear::default(), &[x, w]).unwrap();
        b.output("y", y);
        let program = compile(&b.finish().unwrap(), &hopper(), &options()).unwrap();
        for (n, name) in [(1, "linear/gemv_cuda"), (5, "linear/gemm_hopper")] {
            assert_eq!(list_dispatches(&program, n).last(), Some(&("y", name)));
        }
        let products = program.kernels.iter().filter(|kernel| kernel.name.starts_with("linear/g"));
        assert!(
            products.clone().count() == 2 && products.into_iter().all(|k| k.dependent_launch != computed)
        );
    }
}

#[test]
fn norms_with_computed_weights_do_not_overlap() {
    for computed in [false, true] {
        let mut b = Builder::new("norm");
        let x = b.input("x", tensor_type(DType::F16, "n,256")).unwrap();
        let mut w = b.weight("w", tensor_type(DType::F16, "256")).unwrap();
        if computed {
            w = b.node("sum", Add {}, &[w, w]).unwrap();
        }
        let y = b.node("y", RmsNorm::new(1e-5), &[x, w]).unwrap();
        b.output("y", y);
        let program = compile(&b.finish().unwrap(), &hopper(), &options()).unwrap();
        let norm = program.kernels.iter().find(|kernel| kernel.name.starts_with("rms_norm/")).unwrap();
        assert_eq!(norm.dependent_launch, !computed, "{}", norm.name);
    }
}

#[test]
fn watched_programs_fuse_nothing() {
    let graph = llama();
    for options in [
        CompileOptions { poison: true, ..options() },
        CompileOptions { trace: ["0.q".to_string()].into(), ..options() },
    ] {
        let program = compile(&graph, &hopper(), &options).unwrap();
        let names: Vec<&str> = list_dispatches(&program, 1).into_iter().map(|(node, _)| node).collect();
        assert!(graph.nodes().iter().all(|node| names.contains(&node.name.as_str())));
    }
}

/// What the outputs are computed of at this number of rows, as a hash of all launches and what they read, memory by memory.
fn lineage(program: &Program, n: u64) -> Vec<u64> {
    let mut held: Vec<u64> = program
        .buffers
        .iter()
        .map(|buffer| {
            let mut hasher = DefaultHasher::new();
            buffer.name.hash(&mut hasher);
            let lasting = !matches!(buffer.content, tapml_kernels::Content::Activation);
            if lasting { hasher.finish() } else { 0 }
        })
        .collect();
    let symbols = Symbols::np(n, 3);
    for step in program.steps.iter().filter(|step| step.runs_in(Phase::of_run(&symbols))) {
        let ProgramStep::Dispatch { node, kernel, bindings, .. } = step else { continue };
        let desc = &program.kernels[*kernel as usize];
        let mut hasher = DefaultHasher::new();
        (node, &desc.name).hash(&mut hasher);
        for (slice, kind) in bindings.iter().zip(&desc.bindings) {
            if *kind != BindingKind::ReadWrite
                || matches!(program.buffers[slice.buffer as usize].content, tapml_kernels::Content::State)
            {
                held[slice.buffer as usize].hash(&mut hasher);
            }
        }
        for (k, (slice, kind)) in bindings.iter().zip(&desc.bindings).enumerate() {
            if *kind == BindingKind::ReadWrite {
                let mut written = hasher.clone();
                k.hash(&mut written);
                held[slice.buffer as usize] = written.finish();
            }
        }
    }
    let ports = program.outputs.iter().map(|port| port.buffer);
    ports.chain(program.states.iter().map(|state| state.buffer)).map(|b| held[b as usize]).collect()
}

#[test]
fn fused_kernels_find_their_values_in_reused_memory() {
    let graph = llama();
    let reused = compile(&graph, &hopper(), &options()).unwrap();
    let apart = compile(&graph, &hopper(), &CompileOptions { reuse_memory: false, ..options() }).unwrap();
    assert!(reused.buffers.len() < apart.buffers.len());
    for n in [1, 4] {
        assert_eq!(lineage(&reused, n), lineage(&apart, n), "{n} rows");
    }
    assert_eq!(reused.capacity.get(Symbol::N), Some(8));
    // One layer more takes no more memory for activations: fused kernels keep nothing for good.
    let plain = compile(&graph, &any_device(), &options()).unwrap();
    assert!(reused.memory().activations <= plain.memory().activations * 2);
}
