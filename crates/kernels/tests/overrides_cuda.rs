//! Kernels in CUDA C++ that a user brings, on devices that are described and not there.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;
#[path = "common/hopper.rs"]
#[expect(dead_code, reason = "a part of what it offers is used")]
mod on_hopper;

use on_hopper::hopper;
use std::path::Path;
use tapml_device::{DeviceInfo, Language};
use tapml_graph::{DType, ErrorKind, Graph, Result};
use tapml_kernels::{
    BuiltIn, DeclaredChain, Fusing, Overrides, Phase, Planner, any_device, lower, plan_node,
};

/// The kernels of this name in the place of the built-in one.
fn give_kernel(name: &str, text: &str) -> Result<Overrides> {
    let mut overrides = Overrides::default();
    overrides.add_text(name, Path::new("mine.cu"), text)?;
    Ok(overrides)
}

fn text(name: &str) -> String {
    BuiltIn::find(name, DType::F32, &any_device()).unwrap().text().unwrap()
}

#[test]
fn every_printed_kernel_in_cuda_serves_in_its_place() {
    let mut seen = 0;
    for one in BuiltIn::all(&any_device()).unwrap() {
        if one.desc().unwrap().source.language != Language::Cuda {
            continue;
        }
        let own = give_kernel(&one.kernel, &one.text().unwrap()).unwrap();
        let (types, phase) = (one.sample.types(), Phase::of_run(&one.sample.symbols));
        let info = one.device(&any_device());
        let plan = plan_node(&one.sample.op, &types, phase, &info, &own).unwrap();
        assert_eq!(plan.kernel, format!("{}/mine.cu", one.op));
        for (mine, built_in) in plan.launches.iter().zip(&one.plan.launches) {
            let (mine_desc, desc) = (&mine.desc, &built_in.desc);
            assert_eq!((&mine.args, &mine.groups), (&built_in.args, &built_in.groups), "{}", one.kernel);
            assert_eq!(mine_desc.constants, desc.constants, "{}", one.kernel);
            assert_eq!(mine_desc.workgroup_memory, desc.workgroup_memory, "{}", one.kernel);
            assert_eq!(mine_desc.source.prelude, desc.source.prelude, "{}", one.kernel);
            if desc.name == one.kernel {
                assert_eq!((mine_desc.source.file.as_str(), &mine_desc.entry), ("mine.cu", &desc.entry));
                assert!(mine_desc.source.text.ends_with(desc.source.text.trim_start()), "{}", one.kernel);
            } else {
                assert_eq!(mine_desc, desc, "other launches stay");
            }
        }
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn a_text_without_clusters_keeps_its_grid() {
    let name = "paged_attention/flash_cuda";
    let one = BuiltIn::all(&any_device()).unwrap().into_iter().find(|one| one.kernel == name).unwrap();
    let (types, phase) = (one.sample.types(), Phase::of_run(&one.sample.symbols));
    let clusters = |text: &str| {
        let own = give_kernel(name, text).unwrap();
        let plan = plan_node(&one.sample.op, &types, phase, &hopper(), &own).unwrap();
        plan.launches[0].desc.constants.iter().any(|(constant, _)| constant == "CLUSTER_ROWS")
    };
    let text = one.text().unwrap();
    assert!(clusters(&text));
    let plain: String =
        text.lines().filter(|line| !line.starts_with("//")).map(|line| format!("{line}\n")).collect();
    assert!(!clusters(&plain.replace("CLUSTER", "1")));
}

#[test]
fn an_interface_that_does_not_fit_is_told() {
    let right = text("argmax/cluster_cuda");
    let told = |from: &str, to: &str| {
        assert!(right.contains(from), "{from}");
        give_kernel("argmax/cluster_cuda", &right.replace(from, to)).unwrap_err()
    };
    for (from, to, words) in [
        (
            "argmax(\n",
            "greatest(\n",
            "expected an entry point `extern \"C\" __global__ void argmax(…)`, found [greatest]",
        ),
        (
            "u32* next, ",
            "",
            "expected 4 pointers as parameters of `argmax`, or one structure of them, found 3",
        ),
        (
            "u32* next,",
            "const u32* next,",
            "parameter 1: expected a pointer to what is written, found `const u32* next`",
        ),
        ("const volatile float*", "volatile float*", "parameter 0: expected a pointer to `const`"),
        ("pipeline.cuh", "pipes.cuh", "expected a header of TapML, found `#include \"pipes.cuh\"`"),
        ("#define SPLITS 8", "// accumulate: f64 serial", "mine.cu:"),
    ] {
        let error = told(from, to);
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    let error = Overrides::default().add("argmax/cluster_cuda=mine.hip").unwrap_err();
    assert!(error.to_string().contains("expected WGSL (`.wgsl`) or CUDA C++ (`.cu`)"), "{error}");
}

#[test]
fn what_is_said_of_sums_is_taken_and_devices_without_cuda_refuse() {
    let own = give_kernel(
        "rms_norm/row_cuda",
        &format!("// accumulate: f32 chain=48\n{}", text("rms_norm/row_cuda")),
    );
    let own = own.unwrap();
    assert_eq!(own.sums("rms_norm/mine.cu").unwrap().chain, DeclaredChain::Longest(48));
    own.expect_taken(&hopper()).unwrap();
    let error = own.expect_taken(&any_device()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("mine.cu is in CUDA C++, which `any`"), "{error}");
    assert!(error.hint().unwrap().contains("rms_norm/row_cuda"));
}

/// The lowered graph on a device and the kernel of each of its nodes.
fn lower_graph(graph: &Graph, phase: Phase, info: &DeviceInfo, own: &Overrides) -> (Graph, Vec<String>) {
    let mut planner = Planner::new(info.clone(), own.clone());
    let lowered = lower(graph, phase, &Fusing::All, &mut planner).unwrap();
    let kernel = |node: &tapml_graph::Node| {
        planner.plan(&node.op, &lowered.input_types(node), phase).unwrap().kernel.clone()
    };
    let kernels = lowered.nodes().iter().map(kernel).collect();
    (lowered, kernels)
}

#[test]
fn nothing_else_changes_when_a_kernel_is_brought() {
    let graph = common::toy_llama(DType::F16).greedy().unwrap().unwrap();
    for (name, op) in [
        ("argmax/cluster_cuda", "argmax"),
        ("norm_linear/gemv_cuda", "norm_linear"),
        ("rope_append_attention/flash_decode_cuda", "rope_append_attention"),
    ] {
        let own = give_kernel(name, &text(name)).unwrap();
        for phase in Phase::ALL {
            let (before, kernels) = lower_graph(&graph, phase, &hopper(), &Overrides::default());
            let (after, mine) = lower_graph(&graph, phase, &hopper(), &own);
            assert_eq!(before, after, "{name}: the same nodes");
            for (before, after) in kernels.iter().zip(&mine) {
                if before == name {
                    assert_eq!(*after, format!("{op}/mine.cu"))
                } else {
                    assert_eq!(before, after, "{name}")
                }
            }
        }
    }
}
