//! Sparse layers in programs for a device that takes CUDA kernels: what runs of one row and of many launch.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "common/hopper.rs"]
mod on_hopper;

use on_hopper::{hopper, list_dispatches};
use tapml_graph::op::{
    Add, AddRmsNorm, Combine, ExpertGatedLinear, ExpertLinear, GatedLinear, Linear, Mul, RmsNorm, Route,
    Scores, Sigmoid, Silu,
};
use tapml_graph::{Builder, DType, Graph, Symbols, TensorType, ValueId};
use tapml_kernels::{CompileOptions, Program, compile};

const HIDDEN: u64 = 256;
const EXPERTS: u64 = 10;
const SLOTS: u32 = 2;
const WIDTH: u64 = 128;
const LAYERS: usize = 2;

/// A stack of sparse layers in f16, each with a dense layer of so many experts' width, behind two projections.
fn model(dense: u64) -> Graph {
    let mut b = Builder::new("sparse");
    let rows = TensorType { dtype: DType::F16, shape: vec!["n".parse().unwrap(), HIDDEN.into()] };
    let x = b.input("x", rows).unwrap();
    let norm = weight(&mut b, "norm.w", &[HIDDEN]);
    let y = b.node("norm", RmsNorm::new(1e-5), &[x, norm]).unwrap();
    let (_, y) = (0..LAYERS).fold((x, y), |stream, layer| layer_of(&mut b, layer, stream, dense));
    let last = product(&mut b, "head", y, HIDDEN, 64);
    b.output("logits", last);
    b.finish().unwrap()
}

fn weight(b: &mut Builder, name: &str, shape: &[u64]) -> ValueId {
    let shape = shape.iter().map(|&size| size.into()).collect();
    b.weight(name, TensorType { dtype: DType::F16, shape }).unwrap()
}

fn product(b: &mut Builder, name: &str, x: ValueId, inputs: u64, outputs: u64) -> ValueId {
    let w = weight(b, &format!("{name}.w"), &[outputs, inputs]);
    b.node(name, Linear::default(), &[x, w]).unwrap()
}

fn layer_of(b: &mut Builder, layer: usize, (x, y): (ValueId, ValueId), dense: u64) -> (ValueId, ValueId) {
    let name = |part: &str| format!("{layer}.{part}");
    let add_norm = |b: &mut Builder, part: &str, a, c| {
        let w = weight(b, &format!("{}.w", name(part)), &[HIDDEN]);
        let names = [name(part) + ".sum", name(part) + ".y"];
        let both = b.node_multi(name(part), AddRmsNorm::new(1e-5), &[a, c, w], &names).unwrap();
        (both[0], both[1])
    };
    let first = product(b, &name("in"), y, HIDDEN, HIDDEN);
    let first = b.node(name("silu"), Silu {}, &[first]).unwrap();
    let first = product(b, &name("out"), first, HIDDEN, HIDDEN);
    let (x, y) = add_norm(b, "norm_mlp", x, first);

    let logits = product(b, &name("router"), y, HIDDEN, EXPERTS);
    let route = Route { k: SLOTS, scores: Scores::Softmax, normalize: false, scale: 1.0, groups: None };
    let names = [name("chosen"), name("weights")];
    let routed = b.node_multi(name("route"), route, &[logits], &names).unwrap();
    let [gate, up] = ["gate", "up"].map(|part| weight(b, &name(part), &[EXPERTS, WIDTH, HIDDEN]));
    let h = b.node(name("experts"), ExpertGatedLinear {}, &[y, gate, up, routed[0]]).unwrap();
    let down = weight(b, &name("down"), &[EXPERTS, HIDDEN, WIDTH]);
    let h = b.node(name("experts_down"), ExpertLinear {}, &[h, down, routed[0]]).unwrap();
    let sparse = b.node(name("combine"), Combine { k: SLOTS }, &[h, routed[1]]).unwrap();
    let [gate, up] = ["dense.gate", "dense.up"].map(|part| weight(b, &name(part), &[dense, HIDDEN]));
    let d = b.node(name("dense"), GatedLinear {}, &[y, gate, up]).unwrap();
    let d = product(b, &name("dense_down"), d, dense, HIDDEN);
    let share = product(b, &name("share"), y, HIDDEN, 1);
    let share = b.node(name("sigmoid"), Sigmoid {}, &[share]).unwrap();
    let d = b.node(name("shared"), Mul {}, &[d, share]).unwrap();
    let sum = b.node(name("sum"), Add {}, &[sparse, d]).unwrap();
    add_norm(b, "norm_next", x, sum)
}

fn compile_model(dense: u64) -> Program {
    compile(&model(dense), &hopper(), &CompileOptions::new(Symbols::np(8, 0))).unwrap()
}

#[test]
fn one_row_takes_three_launches_a_sparse_layer() {
    let program = compile_model(2 * WIDTH);
    let parts = [
        ("in.norm_linear", "norm_linear/gemv_cuda"),
        ("silu", "silu/portable"),
        ("norm_mlp.sum.linear_add", "linear_add/gemv_cuda"),
        ("sigmoid.moe_router", "moe_router/cluster_cuda"),
        ("dense.moe_gated_linear", "moe_gated_linear/gemv_cuda"),
        ("norm_next.sum.moe_down", "moe_down/gemv_cuda"),
    ];
    let layers = (0..LAYERS).flat_map(|l| parts.map(|(part, kernel)| (format!("{l}.{part}"), kernel)));
    let mut expected: Vec<(String, &str)> = layers.collect();
    expected.push(("head.norm_linear".into(), "norm_linear/gemv_cuda"));
    let found: Vec<(String, &str)> =
        list_dispatches(&program, 1).into_iter().map(|(node, kernel)| (node.into(), kernel)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_dense_layer_of_another_width_stays_apart() {
    let program = compile_model(WIDTH + 64);
    let found = list_dispatches(&program, 1);
    let of = |node: &str| found.iter().filter(|(name, _)| *name == node).map(|(_, k)| *k).collect::<Vec<_>>();
    assert_eq!(of("0.dense.moe_gated_linear"), ["moe_gated_linear/gemv_cuda"]);
    assert_eq!(of("0.experts_down"), ["expert_linear/gemv_cuda"]);
    assert_eq!(of("0.dense_down"), ["linear/gemv_cuda"]);
    assert_eq!(of("0.combine").len(), 1);
}

#[test]
fn many_rows_are_gathered_by_experts() {
    let program = compile_model(2 * WIDTH);
    let found = list_dispatches(&program, 5);
    for (node, kernel) in [("0.experts", "expert_gated_linear"), ("0.experts_down", "expert_linear")] {
        let kernels: Vec<&str> = found.iter().filter(|(name, _)| *name == node).map(|(_, k)| *k).collect();
        assert_eq!(kernels, ["moe_permute/cuda", &format!("{kernel}/grouped_gemm_cuda")]);
    }
    assert!(found.iter().all(|(_, kernel)| !kernel.starts_with("moe_router/")));
    for (node, kernel) in [
        ("0.router", "linear/skinny_gemm_cuda"),
        ("1.share", "linear/skinny_gemm_cuda"),
        ("1.sum.moe_combine", "moe_combine/rows_cuda"),
    ] {
        assert!(found.contains(&(node, kernel)), "{found:?}");
    }
    for node in ["0.combine", "0.sigmoid", "0.shared"] {
        assert!(found.iter().all(|(name, _)| *name != node), "{node}: {found:?}");
    }
}
