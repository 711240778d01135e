//! Kernels of ONNX operators against the exact evaluations, at every sample, on every device of this machine, with all checks
//! of the emulator.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{devices, run_plan};
use tapml_device::{AdapterKind, Device, DeviceInfo, FindingKind};
use tapml_graph::op::{DeclaredType, Fill, Sample};
use tapml_graph::{DType, Graph, Op, Result, Tensor, TensorType};
use tapml_kernels::{KERNELS, KernelCache, Overrides, Phase, plan_node, plan_variants};
use tapml_reference::foreign::{Disturbance, OwnEvaluator, oracle};

/// Multiples of the oracle's deviation under disturbances of one rounding of f32 that a kernel may be off by.
const FACTOR: f64 = 16.0;
const COPIES: usize = 8;

/// The largest ratio of error to allowed error, and where.
fn worst(sample: &Sample, inputs: &[Tensor], outputs: &[Tensor]) -> (f64, String) {
    let unit = DType::F32.unit_roundoff();
    let disturbance = Disturbance { amplitude: unit, reach: unit, copies: COPIES, seed: 7 };
    let oracle = oracle(&OwnEvaluator, &sample.op, inputs, &vec![false; inputs.len()], disturbance);
    let oracle = oracle.unwrap().found;
    let mut worst = (0.0, String::new());
    for (k, output) in outputs.iter().enumerate() {
        let (exact, deviation) = (&oracle.exact[k], &oracle.deviation[k]);
        let inner = |i: usize| oracle.inner.get(k).map_or(0.0, |inner| inner.values()[i]);
        assert_eq!(output.shape(), exact.shape(), "{}", sample.name);
        let float = output.dtype().is_float();
        let storage = if float { 2.0 * output.dtype().unit_roundoff() } else { 0.0 };
        let tiny = if float { output.dtype().min_normal() } else { 0.0 };
        let squares: f64 = deviation.values().iter().filter(|d| d.is_finite()).map(|d| d * d).sum();
        let spread = (squares / deviation.values().len().max(1) as f64).sqrt();
        for (i, (y, (&e, &d))) in
            output.to_f64().into_iter().zip(exact.values().iter().zip(deviation.values())).enumerate()
        {
            let allowed =
                if float { FACTOR * d.max(spread) + storage * e.abs() + tiny + inner(i) } else { 0.0 };
            let ratio = if y == e || (y.is_nan() && e.is_nan()) { 0.0 } else { (y - e).abs() / allowed };
            if ratio > worst.0 || ratio.is_nan() {
                worst = (ratio, format!("output {k} element {i}: {y}, exact {e}, allowed ±{allowed:.3e}"));
            }
        }
    }
    worst
}

/// The samples of operators of others, and of fused ones that stand for such, each once.
fn samples() -> impl Iterator<Item = Sample> {
    let mut rows: Vec<_> = KERNELS.iter().collect();
    rows.dedup_by_key(|row| row.op());
    rows.into_iter().flat_map(|row| row.samples()).filter(|sample| sample.op.is_foreign())
}

#[test]
fn samples_agree_with_the_exact_evaluations_and_nothing_is_found() {
    let mut wrong = Vec::new();
    for mut device in devices() {
        let mut cache = KernelCache::new();
        for sample in samples() {
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
                let mut findings = device.take_findings();
                // Inputs that are not finite, or have no logarithm, give what is not finite.
                if sample
                    .inputs
                    .iter()
                    .any(|input| matches!(input.fill, Fill::Values(v) if v.contains("nan")))
                {
                    findings.retain(|finding| finding.kind != FindingKind::NonFinite);
                }
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

/// A type with one size larger, one smaller, one more or less dimension, and another dtype.
fn other_types(ty: &TensorType) -> Vec<TensorType> {
    let sizes: Vec<u64> = ty.shape.iter().filter_map(|size| size.as_const()).collect();
    let mut shapes = Vec::new();
    for d in 0..sizes.len() {
        for size in [sizes[d] + 1, sizes[d].saturating_sub(1), 0] {
            let mut other = sizes.clone();
            other[d] = size;
            shapes.push(other);
        }
    }
    shapes.push([&[2], &sizes[..]].concat());
    shapes.extend(sizes.split_first().map(|(_, rest)| rest.to_vec()));
    let dtypes = [DType::F32, DType::F16, DType::I64, DType::I32, DType::U8, DType::Bool];
    let typed = dtypes.into_iter().filter(|dtype| *dtype != ty.dtype).map(|dtype| (dtype, sizes.clone()));
    let types = shapes.into_iter().map(|shape| (ty.dtype, shape)).chain(typed);
    types.map(|(dtype, shape)| TensorType::new(dtype, shape)).collect()
}

/// Samples with one type that is another: of an input, or of what the node declares.
fn damage_sample(sample: &Sample) -> Vec<Sample> {
    let Op::Foreign(op) = &sample.op else { panic!("{:?}", sample.op) };
    let mut all = Vec::new();
    for at in 0..sample.inputs.len() {
        for ty in other_types(&sample.inputs[at].ty) {
            let mut other = sample.clone();
            other.inputs[at].ty = ty;
            all.push(other);
        }
    }
    for (at, declared) in op.outputs().iter().enumerate() {
        for ty in declared.ty().map(other_types).unwrap_or_default() {
            let mut outputs = op.outputs().to_vec();
            outputs[at] = DeclaredType::As(ty);
            all.push(Sample { op: op.with_outputs(outputs).unwrap().into(), ..sample.clone() });
        }
    }
    all
}

/// A node comes from a file, whose types may not fit each other: a planner refuses it, or its kernel stays within its arrays.
#[test]
fn types_that_do_not_fit_are_refused_or_do_no_harm() {
    let mut device = common::emulator("check=all");
    let mut wrong = Vec::new();
    let (mut refused, mut ran) = (0, 0);
    let samples = KERNELS.iter().filter(|row| row.op().contains('.')).flat_map(|row| row.samples());
    for sample in samples.flat_map(|sample| damage_sample(&sample)) {
        let types = sample.types();
        let Op::Foreign(op) = &sample.op else { panic!("{:?}", sample.op) };
        let label = format!("{} {types:?} {:?}", sample.name, op.outputs());
        let planned = tapml_kernels::plan_node(
            &sample.op,
            &types,
            Phase::Decode,
            tapml_device::Device::info(&device),
            &tapml_kernels::Overrides::default(),
        );
        let Ok(plan) = planned else {
            refused += 1;
            continue;
        };
        ran += 1;
        let inputs = sample.tensors(11).unwrap();
        let mut cache = KernelCache::new();
        let run = run_plan(&mut device, &mut cache, &plan, &sample.op, &types, &sample.symbols, &inputs);
        cache.clear(&mut device).unwrap();
        let mut findings = tapml_device::Device::take_findings(&mut device);
        findings.retain(|finding| finding.kind != FindingKind::NonFinite);
        wrong.extend(run.err().map(|error| format!("{label}: {error}")));
        wrong.extend(findings.first().map(|finding| format!("{label}: {finding}")));
    }
    assert!(refused > 1000 && ran > 100, "{refused} refused, {ran} ran");
    let shown: Vec<&str> = wrong.iter().map(String::as_str).take(60).collect();
    assert!(wrong.is_empty(), "{} wrong of {ran}:\n{}", wrong.len(), shown.join("\n"));
}

/// The kernel of a convolution, with attributes and types as they stand in a graph's text.
fn kernel_of(info: &DeviceInfo, attributes: &str, [x, w, y]: [&str; 3]) -> Result<String> {
    let text = format!(
        "graph g\ninput x: f32[{x}]\nweight w: f32[{w}]\ny: f32[{y}] = onnx.Conv@11(x, w) {{{attributes}}}\noutput y = y\n"
    );
    let graph = Graph::parse(&text)?;
    let node = &graph.nodes()[0];
    let types: Vec<_> = node.inputs.iter().map(|&id| graph.value(id).ty.clone()).collect();
    plan_node(&node.op, &types, Phase::Decode, info, &Overrides::default()).map(|plan| plan.kernel)
}

/// What a convolution gives follows from its input; a file may declare something else.
#[test]
fn a_convolution_that_declares_other_sizes_is_refused() {
    let info = common::null(false).info().clone();
    let kernel = |attributes, y| kernel_of(&info, attributes, ["1, 1, 5, 6", "1, 1, 3, 3", y]);
    let (padded, same) =
        (r#""pads": [1, 0, 1, 1], "strides": [2, 2]"#, r#""auto_pad": "SAME_UPPER", "strides": [2, 2]"#);
    for (attributes, y) in [("", "1, 1, 3, 4"), (padded, "1, 1, 3, 3"), (same, "1, 1, 3, 3")] {
        assert_eq!(kernel(attributes, y).unwrap(), "onnx.Conv/portable");
    }
    let dilated = r#""dilations": [2, 2]"#;
    for (attributes, y) in
        [("", "1, 1, 3, 5"), ("", "1, 1, 2, 4"), (dilated, "1, 1, 3, 4"), (same, "1, 1, 2, 3")]
    {
        let error = kernel(attributes, y).unwrap_err().to_string();
        assert!(error.contains("is declared, expected ["), "{error}");
    }
}

/// On a processor a tile must be full and have many channels, on a GPU its sums must be long.
#[test]
fn tiles_are_taken_where_they_are_faster() {
    let mut info = common::null(false).info().clone();
    let full = ["1, 16, 80, 96", "64, 16, 1, 1", "1, 64, 80, 96"];
    let half_as_many = ["1, 64, 80, 96", "32, 64, 1, 1", "1, 32, 80, 96"];
    let few_places = ["1, 384, 5, 6", "384, 384, 1, 1", "1, 384, 5, 6"];
    let one_place = ["1, 384, 1, 1", "96, 384, 1, 1", "1, 96, 1, 1"];
    let few_channels = ["1, 96, 9, 9", "4, 96, 3, 3", "1, 4, 7, 7"];
    let all = [full, half_as_many, few_places, one_place, few_channels];
    for (kind, tiled) in [
        (AdapterKind::Cpu, [true, false, false, false, false]),
        (AdapterKind::Discrete, [false, true, true, false, false]),
    ] {
        info.kind = kind;
        for (types, is_tiled) in all.into_iter().zip(tiled) {
            let expected = if is_tiled { "onnx.Conv/tiled" } else { "onnx.Conv/portable" };
            assert_eq!(kernel_of(&info, "", types).unwrap(), expected, "{kind:?} {types:?}");
        }
    }
}
