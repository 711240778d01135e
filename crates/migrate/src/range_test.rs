//! The range probe: made-up calls beside the recorded ones, for operators whose formula saturates or grows like an
//! exponential. A `tanh` by exponentials that overflow is right on every recorded input and NaN on a larger one, and no
//! recorded call can tell.
//!
//! A probe has the operator, attributes, types and sizes of a recorded call. Where the operator treats numbers one by one,
//! its input sweeps the finite range of its dtype: both signs, magnitudes at equal distances of their logarithms, zero with
//! both signs, the smallest normal and the largest finite number; every other row stays below [`MODERATE`]. Where the
//! saturating function stands behind products (attention with a soft cap, gated layers), row `r` of the recorded activations
//! is multiplied by `4^(2 + r mod 10)`, or tenth `r` of a single row. So is a fused operator's input that such a function
//! depends on; behind a normalisation, which takes the size from a row, that is its weights. Operators declare this
//! themselves ([`tapml_graph::Operator::saturation`]); one that is defined by others takes it from them.
//!
//! No recorded input reaches there, so a probe is judged more mildly than a case: it fails only where the platform gives NaN
//! where the exact result, rounded to its dtype, is finite, or infinity where it is at most half the largest finite number:
//! next to that, an error that the verdict allows may become infinite.

use crate::accumulation_order;
use crate::choices::KernelChoices;
use crate::oracle::Oracles;
pub use crate::overflow::Overflow;
use crate::suite::{Case, Suite};
use crate::verdict::Exact;
use std::collections::HashMap;
use tapml_exec::{Call, Platform};
use tapml_graph::op::{Reach, Saturation};
use tapml_graph::{DType, ErrorKind, Model, Node, Op, Result, Tensor};

/// Bound of the numbers in every other row: beyond what exponentials of f32 bear, below where all saturates.
pub const MODERATE: f64 = 128.0;
/// Smallest magnitude of the sweep, zero and the smallest normal number aside.
const LEAST: f64 = 1.0 / 16384.0;
/// Calls of at most so many rows are probed, if there are any.
const ROWS: usize = 64;
/// Different factors of a probe that is scaled.
const FACTORS: usize = 10;
/// The distances of magnitudes in the order of a row: neighbours differ, and any part of a row covers the range.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// The call with which the operator of a recorded one is probed; `None` if it is not of that kind.
pub fn range_call(call: &Call) -> Result<Option<Call>> {
    let Some(Saturation { input: which, reach }) = call.op.saturation(&call.input_types) else {
        return Ok(None);
    };
    let Some(input) = call.inputs.get(which).filter(|input| !input.is_empty()) else { return Ok(None) };
    // Integers and packed weights have no range to sweep.
    let Some((least, most)) = range(input.dtype()) else { return Ok(None) };
    let width = width(input);
    let rows = input.len() / width;
    let values: Vec<f64> = match reach {
        Reach::Any => (0..input.len()).map(|i| sweep(i / width, i % width, rows, (least, most))).collect(),
        Reach::Scaled => {
            let most = bound(call, most);
            // A single row has all factors.
            let step = |i: usize| if rows > 1 { i / width % FACTORS } else { i * FACTORS / width };
            let scaled = |(i, v): (usize, &f64)| (v * 4f64.powi(2 + step(i) as i32)).clamp(-most, most);
            input.to_f64().iter().enumerate().map(scaled).collect()
        }
    };
    let (mut inputs, mut weights) = (call.inputs.clone(), call.weights.clone());
    inputs[which] = Tensor::from_f64(input.dtype(), input.shape().to_vec(), &values)?;
    // The values are the probe's own, also where the input is a weight.
    weights[which] = None;
    Ok(Some(Call { inputs, weights, ..call.clone() }))
}

/// Numbers of a row; a vector is one.
fn width(input: &Tensor) -> usize {
    if input.shape().len() > 1 { input.row_len() } else { input.len() }.max(1)
}

/// What an input may be at most. A fused operator rounds on its way what it has rotated, or normalised and weighted.
fn bound(call: &Call, most: f64) -> f64 {
    let (Op::Fused(_), Some(x)) = (&call.op, call.inputs.first()) else { return most };
    // Half the largest number, over the square root of a row's length, which a norm may multiply by.
    let inner = range(x.dtype()).map_or(most, |(_, most)| most / (2.0 * (x.row_len().max(1) as f64).sqrt()));
    most.min(inner)
}

/// The smallest normal and the largest finite number.
fn range(dtype: DType) -> Option<(f64, f64)> {
    match dtype {
        DType::F32 => Some((f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX))),
        DType::BF16 => Some((f64::from(f32::MIN_POSITIVE), f64::from(f32::from_bits(0x7f7f_0000)))),
        DType::F16 => Some((2f64.powi(-14), 65504.0)),
        _ => None,
    }
}

/// The number at `column` of `row`.
fn sweep(row: usize, column: usize, rows: usize, (least, most): (f64, f64)) -> f64 {
    let bound = if rows > 1 && row.is_multiple_of(2) { MODERATE } else { most };
    let sign = if column.is_multiple_of(2) { 1.0 } else { -1.0 };
    let magnitude = match column {
        // Columns alternate in sign, so zero comes with both.
        0 | 1 => 0.0,
        2 | 3 => least,
        4 | 5 => bound,
        _ => LEAST * (bound / LEAST).powf((column as f64 * GOLDEN).fract()),
    };
    sign * magnitude.min(bound)
}

/// Where the outputs of a probe are NaN or infinite and the exact results are not; `recorded` is the call that it was made
/// of, and `names` are its node and kernel hash.
pub fn find_overflow(
    (call, recorded): (&Call, &Call),
    exact: &[Exact],
    outputs: &[Tensor],
    names: (&str, &str),
) -> Option<Overflow> {
    let Saturation { input: which, reach } = call.op.saturation(&call.input_types)?;
    let inputs = call.inputs.get(which)?.to_f64();
    let in_row = width(&call.inputs[which]);
    let largest = |values: &[f64]| values.iter().fold(0f64, |most, v| most.max(v.abs()));
    let of_rows: Vec<f64> = inputs.chunks(in_row).map(largest).collect();
    let (mut wrong, mut all) = (Vec::new(), 0);
    // The right input farthest from zero on either side.
    let mut right = [0f64; 2];
    for (exact, output) in exact.iter().zip(outputs).filter(|(_, o)| o.dtype().is_float()) {
        let most = range(output.dtype())?.1;
        for (i, (&exact_value, found)) in exact.values.iter().zip(output.to_f64()).enumerate() {
            all += 1;
            let input = match reach {
                Reach::Any => inputs.get(i).copied().unwrap_or(0.0),
                Reach::Scaled => {
                    let row = of_rows.get(i / exact.row_len.max(1)).or(of_rows.first());
                    row.copied().unwrap_or(0.0)
                }
            };
            if found.is_finite() {
                let side = &mut right[usize::from(input < 0.0)];
                *side = side.max(input.abs());
            } else if exact_value.abs() <= if found.is_nan() { most } else { most / 2.0 } {
                // Next to the largest finite number, infinity is a rounding that the verdict allows.
                wrong.push((input, exact_value, found));
            }
        }
    }
    // Inputs beyond which everything is wrong point at an overflow within the formula.
    let sharp = wrong.iter().all(|w: &(f64, f64, f64)| w.0.abs() > right[usize::from(w.0 < 0.0)]);
    let &(input, exact, found) = wrong.iter().min_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))?;
    Some(Overflow {
        node: names.0.into(),
        kernel_hash: names.1.into(),
        input,
        exact,
        observed: if found.is_nan() { "NaN".into() } else { "infinity".into() },
        recorded: recorded.inputs.get(which).map_or(0.0, |t| largest(&t.to_f64())),
        elements: [wrong.len(), all],
        sharp,
        chain: None,
    })
}

/// Probes every kernel variant among these cases of one operator. Gives the number of probes, and what fails.
pub(crate) fn run(
    suite: &Suite,
    model: &Model,
    oracles: &Oracles,
    platform: &mut dyn Platform,
    cases: &[Case],
    choices: &KernelChoices,
) -> Result<(u64, Vec<Overflow>)> {
    let graph = suite.graph();
    let probed = |node: &Node| {
        node.op.saturation(&graph.input_types(node)).is_some() || node.op.dot_product().is_some()
    };
    // Fused operators of one name may differ.
    if !cases.iter().any(|case| probed(graph.node(case.node))) {
        return Ok((0, Vec::new()));
    }
    let mut variants: Vec<(String, Case, Call)> = Vec::new();
    for (hash, case) in widest(suite, cases, choices) {
        variants.push((hash, case, suite.call(case, model)?.0));
    }
    let mut probes = Vec::new();
    for (hash, case, recorded) in &variants {
        probes.extend(range_call(recorded)?.map(|call| (hash, case, recorded, call)));
        let several = call_rows(recorded) > 1;
        if several && choices.of_case(suite, *case).is_ok_and(|choice| choice.accumulate.keeps_chain) {
            probes.extend(accumulation_order::order_call(recorded)?.map(|call| (hash, case, recorded, call)));
        }
    }
    let calls: Vec<Call> = probes.iter().map(|(.., call)| call.clone()).collect();
    let mut found: Vec<Option<Result<Vec<Tensor>>>> = calls.iter().map(|_| None).collect();
    platform.replay(&calls, &mut |i, outputs| found[i] = Some(outputs))?;
    // What the probes show of themselves is no finding of a recorded call.
    platform.take_findings();
    let mut failures = Vec::new();
    for ((hash, case, recorded, call), outputs) in probes.iter().zip(found) {
        let outputs = match outputs {
            Some(Ok(outputs)) => outputs,
            Some(Err(e)) if matches!(e.kind(), ErrorKind::DeviceLost | ErrorKind::Interrupted) => {
                return Err(e);
            }
            // A kernel that cannot be run fails its cases.
            _ => continue,
        };
        let names = (call.node.as_str(), hash.as_str());
        match call.op.saturation(&call.input_types) {
            Some(_) => {
                let exact = oracles.exact(call, 0)?;
                failures.extend(find_overflow((call, recorded), &exact, &outputs, names));
            }
            None => {
                let declared = choices.precision(case.node, &call.symbols)?;
                failures.extend(accumulation_order::longer(call, &outputs, declared, names));
            }
        }
    }
    Ok((calls.len() as u64, failures))
}

/// Rows of the run; 1 if the graph has no such symbol.
fn call_rows(call: &Call) -> u64 {
    call.symbols.get(tapml_graph::Symbol::N).unwrap_or(1)
}

/// For each kernel variant the case of the most rows, up to [`ROWS`] if there is one, in the order of the cases.
fn widest(suite: &Suite, cases: &[Case], choices: &KernelChoices) -> Vec<(String, Case)> {
    let rows = |case: &Case| {
        let rows = suite.frames()[case.frame].symbols.get(tapml_graph::Symbol::N).unwrap_or(1) as usize;
        // A longer case is taken only if there is no other one.
        if rows <= ROWS { rows } else { 0 }
    };
    let mut order: Vec<(String, Case)> = Vec::new();
    let mut index: HashMap<&str, usize> = HashMap::new();
    for case in cases {
        let Ok(choice) = choices.of_case(suite, *case) else { continue };
        let at = *index.entry(&choice.hash).or_insert_with(|| {
            order.push((choice.hash.clone(), *case));
            order.len() - 1
        });
        if rows(case) > rows(&order[at].1) {
            order[at].1 = *case;
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::op::{Sample, Silu, Softcap};
    use tapml_graph::{Dim, Symbol, Symbols, TensorType};

    fn call(rows: usize) -> Call {
        let ty = TensorType::new(DType::F32, [Dim::from(Symbol::N), Dim::from(256usize)]);
        Call {
            node: "cap".into(),
            op: Softcap { cap: 30.0 }.into(),
            symbols: Symbols::np(rows as u64, 0),
            inputs: vec![Tensor::from_f32(vec![rows, 256], vec![0.5; rows * 256]).unwrap()],
            input_types: vec![ty.clone()],
            weights: vec![None],
            output_types: vec![ty],
        }
    }

    fn run_capped(call: &Call, tanh: fn(f32) -> f32) -> Vec<Tensor> {
        let x = &call.inputs[0];
        let y: Vec<f32> = x.to_f32().iter().map(|&v| 30.0 * tanh(v / 30.0)).collect();
        vec![Tensor::from_f32(x.shape().to_vec(), y).unwrap()]
    }

    #[test]
    fn a_sweep_covers_the_range() {
        let probed = range_call(&call(3)).unwrap().unwrap();
        let values = probed.inputs[0].to_f64();
        assert!(values.contains(&f64::from(f32::MAX)) && values.contains(&-f64::from(f32::MAX)));
        assert!(values.iter().any(|v| *v == 0.0 && v.is_sign_negative()));
        assert!(values[..256].iter().all(|v| v.abs() <= MODERATE), "a moderate row");
        for decade in [1e-3, 1e-1, 1e1, 1e3, 1e9, 1e30] {
            let near = |v: &f64| (decade..10.0 * decade).contains(&v.abs());
            assert!(values.iter().any(near), "{decade}");
        }
    }

    #[test]
    fn what_overflows_is_told_and_what_saturates_is_not() {
        let recorded = call(2);
        let probed = range_call(&recorded).unwrap().unwrap();
        let exact = Oracles::new(0).exact(&probed, 0).unwrap();
        let told =
            |tanh| find_overflow((&probed, &recorded), &exact, &run_capped(&probed, tanh), ("cap", "hash"));
        assert_eq!(told(f32::tanh), None);
        let found = told(|x| ((2.0 * x).exp() - 1.0) / ((2.0 * x).exp() + 1.0)).expect("it overflows");
        assert!(found.input > 1300.0 && found.exact == 30.0 && found.observed == "NaN", "{found:?}");
        assert!(found.recorded == 0.5 && found.sharp, "all beyond a bound, among positive ones: {found:?}");
        assert!(found.text().contains("`cap` gives NaN"), "{}", found.text());
    }

    #[test]
    fn an_allowed_error_next_to_the_largest_number_may_become_infinite() {
        let recorded = Call { op: Silu {}.into(), ..call(2) };
        let probed = range_call(&recorded).unwrap().unwrap();
        let exact = Oracles::new(0).exact(&probed, 0).unwrap();
        let told = |largest: f32| {
            let silu = |v: f32| if v > largest { f32::INFINITY } else { v / (1.0 + (-v).exp()) };
            let x = &probed.inputs[0];
            let y = x.to_f32().iter().map(|&v| silu(v)).collect();
            let y = Tensor::from_f32(x.shape().to_vec(), y).unwrap();
            find_overflow((&probed, &recorded), &exact, &[y], ("silu", "hash"))
        };
        assert_eq!(told(f32::MAX * 0.75), None);
        assert!(told(f32::MAX / 4096.0).is_some());
    }

    fn saturation(sample: &Sample) -> Option<Saturation> {
        let types: Vec<TensorType> = sample.inputs.iter().map(|input| input.ty.clone()).collect();
        sample.op.saturation(&types)
    }

    #[test]
    fn a_fused_operator_is_probed_by_what_its_saturating_function_depends_on() {
        let samples = (tapml_graph::fusion::find("norm_linear").unwrap().samples)();
        let (gated, plain): (Vec<_>, Vec<_>) = samples.iter().partition(|s| s.name.starts_with("gate"));
        assert!(gated.len() > 1 && plain.iter().all(|sample| saturation(sample).is_none()));
        for sample in gated {
            let Saturation { input, reach } = saturation(sample).unwrap();
            let shape = &sample.inputs[input].ty.shape;
            assert_eq!(
                (reach, shape.len()),
                (Reach::Scaled, 1),
                "the weights of the norm of `{}`",
                sample.name
            );
        }
        let capped = |op: &Op| match op {
            Op::Fused(fused) => {
                fused.body().nodes().iter().any(|n| matches!(&n.op, Op::Attention(a) if a.softcap.is_some()))
            }
            _ => false,
        };
        for sample in (tapml_graph::fusion::find("rope_append_attention").unwrap().samples)() {
            let expected = capped(&sample.op).then_some(Saturation { input: 0, reach: Reach::Scaled });
            assert_eq!(saturation(&sample), expected, "the queries of `{}`", sample.name);
        }
    }
}
