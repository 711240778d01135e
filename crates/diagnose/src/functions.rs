//! A device's own functions: WGSL lets `tanh`, `exp` and their like be off by many roundings, and on some devices they are.
//! A kernel that calls a poor one is blamed for what the device does, so the report says what the function gives there.
//!
//! The measurement replaces the call within the built-in `tanh` kernel by the function, so that the device compiles and runs it like
//! any kernel. Exact values are those of f64.

use crate::context::{DiagnosisContext, Reopen};
use std::path::Path;
use tapml_exec::{Call, Overrides, Phase};
use tapml_graph::op::Tanh;
use tapml_graph::{DType, Dim, ErrorKind, NodeId, Result, Symbol, Symbols, Tensor, TensorType};

/// A function of one number.
/// Inputs go from [`LEAST`] to `most` in magnitude.
struct UnaryFunction {
    /// Its name in WGSL.
    name: &'static str,
    /// The function in f64, whose own error is far below a rounding of f32.
    exact: fn(f64) -> f64,
    /// The largest magnitude at which it is measured.
    most: f64,
    /// Whether negative numbers are measured, too.
    signed: bool,
}

const fn new(name: &'static str, exact: fn(f64) -> f64, most: f64, signed: bool) -> UnaryFunction {
    UnaryFunction { name, exact, most, signed }
}

/// The functions of WGSL that kernels of models call.
const FUNCTIONS: &[UnaryFunction] = &[
    new("tanh", f64::tanh, 9.0, true),
    new("exp", f64::exp, 40.0, true),
    new("exp2", f64::exp2, 40.0, true),
    new("log", f64::ln, 1000.0, false),
    new("log2", f64::log2, 1000.0, false),
    new("sin", f64::sin, 30.0, true),
    new("cos", f64::cos, 30.0, true),
    new("sinh", f64::sinh, 8.0, true),
    new("cosh", f64::cosh, 8.0, true),
    new("sqrt", f64::sqrt, 1000.0, false),
    new("inverseSqrt", |x| 1.0 / x.sqrt(), 1000.0, false),
];

/// The smallest magnitude at which functions are measured.
const LEAST: f64 = 1e-3;
/// The call that measures a function.
/// Its 4096 inputs are one launch.
const SHAPE: [usize; 2] = [32, 128];
/// Roundings of f32 from which on a function is poor.
const POOR: f64 = 16.0;
/// Results below this are measured against it: next to a zero of the function no digits are left.
const FLOOR: f64 = 1.0 / 1024.0;
/// The call in the text of the built-in `tanh` that makes place for another.
const PLACE: &str = "tanh_accurate(v)";

/// What is known of the functions that a node's kernel calls, where the device's own ones are poor: one sentence.
///
/// # Errors
///
/// A lost device, or a request to stop. Anything else means that nothing is known.
pub(crate) fn poor(run: &DiagnosisContext<'_>, node: NodeId) -> Result<Option<String>> {
    let Some(reopen) = run.reopen else { return Ok(None) };
    let graph = run.suite.graph();
    let node = graph.node(node);
    let Ok(plan) = run.target.plan(&node.op, &graph.input_types(node), Phase::Prefill) else {
        return Ok(None);
    };
    // A plan may have helper launches, whose functions are not this kernel's.
    let of_kernel = plan.launches.iter().filter(|launch| launch.desc.name == plan.kernel);
    let text: String = of_kernel.map(|launch| launch.desc.source.text.as_str()).collect();
    let mut told = Vec::new();
    for function in FUNCTIONS.iter().filter(|function| calls(&text, function.name)) {
        match measure_function(reopen, function) {
            Ok(Some(worst)) if worst.roundings > POOR => told.push(worst.text(function.name)),
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::DeviceLost | ErrorKind::Interrupted) => return Err(e),
            // The device refuses the function, or the kernel that measures it: there is nothing to say of it.
            Err(_) => {}
        }
    }
    Ok((!told.is_empty()).then(|| told.join("; ")))
}

/// Whether a text of WGSL calls a function, in more than a comment.
/// Block comments and shadowed names are not told apart; the measurement shows whether the function is poor.
fn calls(text: &str, name: &str) -> bool {
    let called = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        code.match_indices(name).any(|(at, _)| {
            let before = code[..at].chars().next_back();
            let alone = before.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_');
            alone && code[at + name.len()..].trim_start().starts_with('(')
        })
    };
    text.lines().any(called)
}

/// Where a device's function is off most.
#[derive(Clone, Copy, Debug)]
struct WorstInput {
    /// Error in roundings of f32.
    roundings: f64,
    /// The input.
    at: f64,
    /// The function's value there.
    exact: f64,
    /// What the device gave.
    found: f64,
}

impl WorstInput {
    /// A sentence for the report.
    fn text(&self, name: &str) -> String {
        let WorstInput { roundings, at, exact, found } = self;
        format!(
            "this device's own `{name}` is off by up to {roundings:.0} roundings of f32 (at {at:.6}: exact {exact:.8e}, found \
             {found:.8e}), which may be all that is wrong: `tapml kernel` prints how the built-in kernels compute it"
        )
    }
}

/// Runs a kernel of one call of the function on the target; `None` if there is no place for it in the device's kernels.
/// The target is opened twice more: as it is, to read its kernel's text, and with the changed one.
fn measure_function(reopen: &Reopen<'_>, function: &UnaryFunction) -> Result<Option<WorstInput>> {
    let call = call(function)?;
    let built_in =
        reopen(Overrides::default())?.plan(&call.op, &call.input_types, Phase::of_run(&call.symbols))?;
    let text = built_in.launches.first().map_or("", |launch| launch.desc.source.text.as_str());
    if !text.contains(PLACE) {
        return Ok(None);
    }
    let mut overrides = Overrides::default();
    let file = format!("{}.wgsl", function.name);
    overrides.add_text("tanh", Path::new(&file), &text.replace(PLACE, &format!("{}(v)", function.name)))?;
    let mut outputs = None;
    reopen(overrides)?.replay(std::slice::from_ref(&call), &mut |_, given| outputs = Some(given))?;
    let Some(outputs) = outputs.transpose()? else { return Ok(None) };
    let inputs = call.inputs[0].to_f64();
    let found = outputs.first().map(Tensor::to_f64).unwrap_or_default();
    let errors = inputs.iter().zip(&found).map(|(&at, &found)| {
        let exact = (function.exact)(at);
        // Relative, but for results near zero: see `FLOOR`.
        let error = (found - exact).abs() / exact.abs().max(FLOOR);
        let roundings = if error.is_nan() { f64::INFINITY } else { error / DType::F32.unit_roundoff() };
        WorstInput { roundings, at, exact, found }
    });
    Ok(errors.max_by(|a, b| a.roundings.total_cmp(&b.roundings)))
}

/// A call of `tanh` whose inputs cover the range of the function, at equal distances of their logarithms.
fn call(function: &UnaryFunction) -> Result<Call> {
    let [rows, width] = SHAPE;
    let count = rows * width;
    let value = |i: usize| {
        let magnitude = LEAST * (function.most / LEAST).powf(i as f64 / (count - 1) as f64);
        // Signs alternate, so that both sides are covered at nearly the same magnitudes.
        if function.signed && i.is_multiple_of(2) { -magnitude } else { magnitude }
    };
    let values: Vec<f64> = (0..count).map(value).collect();
    let ty = TensorType::new(DType::F32, [Dim::from(Symbol::N), Dim::from(width)]);
    Ok(Call {
        node: function.name.into(),
        op: Tanh {}.into(),
        symbols: Symbols::np(rows as u64, 0),
        inputs: vec![Tensor::from_f64(DType::F32, SHAPE.to_vec(), &values)?],
        input_types: vec![ty.clone()],
        weights: vec![None],
        output_types: vec![ty],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_one_of_the_whole_name_outside_comments() {
        for (text, called) in [
            ("let y = tanh(x);", true),
            ("tanh (x)", true),
            ("let y = 1.0; // not tanh(x)", false),
            ("tanh_accurate(x)", false),
            ("atanh(x) + my_tanh(x)", false),
            ("let tanh = 1.0;", false),
        ] {
            assert_eq!(calls(text, "tanh"), called, "{text}");
        }
    }

    #[test]
    fn inputs_cover_the_range() {
        for function in FUNCTIONS {
            let values = call(function).unwrap().inputs[0].to_f64();
            assert!(values[0].abs() < 1.01 * LEAST && values[values.len() - 1] > 0.99 * function.most);
            assert_eq!(values.iter().any(|&v| v < 0.0), function.signed, "{}", function.name);
            assert!(values.iter().all(|&v| (function.exact)(v).is_finite()), "{}", function.name);
        }
    }
}
