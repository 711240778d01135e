//! Kernels of ONNX operators against the exact evaluations, at every sample, on every device of this machine, with all checks
//! of the emulator.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{devices, run_plan};
use tapml_graph::op::Sample;
use tapml_graph::{DType, Op, Tensor};
use tapml_kernels::{KERNELS, KernelCache, Phase, plan_variants};
use tapml_reference::foreign::{Disturbance, OwnEvaluator, oracle};

/// Multiples of the oracle's deviation under disturbances of one rounding of f32 that a kernel may be off by.
const FACTOR: f64 = 16.0;
const COPIES: usize = 8;

/// The largest ratio of error to allowed error, and where.
fn worst(sample: &Sample, inputs: &[Tensor], outputs: &[Tensor]) -> (f64, String) {
    let Op::Foreign(op) = &sample.op else { panic!("{:?}", sample.op) };
    let unit = DType::F32.unit_roundoff();
    let disturbance = Disturbance { amplitude: unit, reach: unit, copies: COPIES, seed: 7 };
    let oracle = oracle(&OwnEvaluator, op, inputs, &vec![false; inputs.len()], disturbance).unwrap().found;
    let mut worst = (0.0, String::new());
    for (k, output) in outputs.iter().enumerate() {
        let (exact, deviation) = (&oracle.exact[k], &oracle.deviation[k]);
        assert_eq!(output.shape(), exact.shape(), "{}", sample.name);
        let float = output.dtype().is_float();
        let storage = if float { 2.0 * output.dtype().unit_roundoff() } else { 0.0 };
        let tiny = if float { output.dtype().min_normal() } else { 0.0 };
        let squares: f64 = deviation.values().iter().map(|d| d * d).sum();
        let spread = (squares / deviation.values().len().max(1) as f64).sqrt();
        for (i, (y, (&e, &d))) in
            output.to_f64().into_iter().zip(exact.values().iter().zip(deviation.values())).enumerate()
        {
            let allowed = if float { FACTOR * d.max(spread) + storage * e.abs() + tiny } else { 0.0 };
            let ratio = if y == e || (y.is_nan() && e.is_nan()) { 0.0 } else { (y - e).abs() / allowed };
            if ratio > worst.0 || ratio.is_nan() {
                worst = (ratio, format!("output {k} element {i}: {y}, exact {e}, allowed ±{allowed:.3e}"));
            }
        }
    }
    worst
}

#[test]
fn samples_agree_with_the_exact_evaluations_and_nothing_is_found() {
    let mut wrong = Vec::new();
    for mut device in devices() {
        let mut cache = KernelCache::new();
        for sample in KERNELS.iter().filter(|row| row.op().contains('.')).flat_map(|row| row.samples()) {
            let label = format!("{} {} on {}", sample.op.name(), sample.name, device.info().name);
            let types = sample.types();
            let halves = types.iter().any(|ty| ty.dtype == DType::F16);
            if halves && !device.info().features.f16 {
                tapml_testing::skip("f16", &label);
                continue;
            }
            let inputs = sample.tensors(11).unwrap();
            let plans = plan_variants(&sample.op, &types, Phase::of_run(&sample.symbols), device.info());
            let plans = match plans {
                Ok(plans) => plans,
                Err(e) => {
                    wrong.push(format!("{label}: {e}"));
                    continue;
                }
            };
            for plan in plans {
                let run = run_plan(
                    device.as_mut(),
                    &mut cache,
                    &plan,
                    &sample.op,
                    &types,
                    &sample.symbols,
                    &inputs,
                );
                let findings = device.take_findings();
                match run {
                    Err(e) => wrong.push(format!("{label}: {e}")),
                    Ok(outputs) => {
                        let (ratio, place) = worst(&sample, &inputs, &outputs);
                        if ratio > 1.0 || ratio.is_nan() {
                            wrong.push(format!("{label}: {ratio:.2} times the allowed error at {place}"));
                        }
                    }
                }
                wrong.extend(findings.iter().map(|finding| format!("{label}: {finding}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// What a node declares tells its plan from that of another with the same inputs: the integers of a slice are inputs.
#[test]
fn plans_are_told_apart_by_the_declared_outputs() {
    let graph = |end: usize| {
        let text = format!(
            "graph g\ninput x: f32[8]\nweight s: i64[1]\nweight e: i64[1]\ny: f32[{end}] = onnx.Slice@13(x, s, e)\noutput y = y\n"
        );
        tapml_graph::Graph::parse(&text).unwrap()
    };
    let device = common::emulator("check=all");
    let mut planner = tapml_kernels::Planner::new(
        tapml_device::Device::info(&device).clone(),
        tapml_kernels::Overrides::default(),
    );
    let mut hash = |graph: &tapml_graph::Graph| {
        let node = &graph.nodes()[0];
        let types: Vec<_> = node.inputs.iter().map(|&id| graph.value(id).ty.clone()).collect();
        planner.plan(&node.op, &types, Phase::Decode).unwrap().hash.clone()
    };
    assert_ne!(hash(&graph(5)), hash(&graph(3)));
    assert_eq!(hash(&graph(5)), hash(&graph(5)));
}
