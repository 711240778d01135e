//! What the oracle asks of fused operators: how far the exact result moves when values within are rounded to the dtypes
//! that they have in the body, as kernels may or may not do; and how far a choice within moves with the inputs.
//!
//! A fused kernel may keep an inner value in `f32` or round it to the body's dtype. Both are right, so that a verdict allows
//! what lies between them.

use crate::deviation::{arrays, widen};
use crate::eval::{Jump, eval, jumps};
use crate::random::Uniform;
use crate::value::{Array, Value};
use rayon::prelude::*;
use std::collections::HashMap;
use tapml_graph::op::Fused;
use tapml_graph::{DType, Error, Graph, Op, Result, Symbols, ValueId};

/// What the nodes behind a value are given for it.
type Handed<'a> = dyn Fn(ValueId, &Value<f64>) -> Result<Value<f64>> + Sync + 'a;

/// The values of a body.
type BodyValues = HashMap<ValueId, Value<f64>>;

/// Whether values of this dtype lose digits of f32 when they are stored.
fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// For each output element the largest change over `copies` evaluations in which every value that one node of the body hands
/// to another is multiplied by `1 + u·U(−1, 1)`, `u` the unit roundoff of its dtype. `None` if all of them are f32.
///
/// # Errors
/// If a node of the body cannot be evaluated.
pub(crate) fn inner_deviation(
    fused: &Fused,
    symbols: &Symbols,
    inputs: &[Value<f64>],
    exact: &[Array<f64>],
    copies: usize,
    seed: u64,
) -> Result<Option<Vec<Array<f64>>>> {
    let body = fused.body();
    if !has_narrow_intermediates(body) {
        return Ok(None);
    }
    let moved: Vec<Vec<Array<f64>>> = (0..copies)
        .into_par_iter()
        .map(|copy| arrays(run(body, symbols, inputs, &|value, of| round(body, value, of, seed, copy))?))
        .collect::<Result<_>>()?;
    let mut found = Vec::new();
    for (k, exact) in exact.iter().enumerate() {
        let mut largest = vec![0.0; exact.len()];
        moved.iter().for_each(|outputs| widen(&mut largest, exact.values(), outputs[k].values()));
        found.push(Array::new(exact.shape().to_vec(), largest)?);
    }
    Ok(Some(found))
}

/// The outputs of a fused operator if the values that its nodes hand to each other were cut to their dtypes and not
/// rounded, in the mean: each is half a unit in the last place nearer to zero. `None` for other operators, and if no value
/// has fewer digits than f32.
///
/// # Errors
/// If a node of the body cannot be evaluated.
pub fn cut_within(op: &Op, symbols: &Symbols, inputs: &[Value<f64>]) -> Result<Option<Vec<Value<f64>>>> {
    let Op::Fused(fused) = op else { return Ok(None) };
    let body = fused.body();
    if !has_narrow_intermediates(body) {
        return Ok(None);
    }
    let cut = |id: ValueId, value: &Value<f64>| {
        let dtype = body.value(id).ty.dtype;
        let (Value::Float(array), true) = (value, is_narrow(dtype)) else { return Ok(value.clone()) };
        // Half a unit in the last place: the unit roundoff times the power of two at or below the magnitude.
        let half = |v: f64| dtype.unit_roundoff() * v.abs().max(dtype.min_normal()).log2().floor().exp2();
        let nearer = |&v: &f64| if v == 0.0 { v } else { v - v.signum() * half(v) };
        Value::float(array.shape().to_vec(), array.values().iter().map(nearer).collect())
    };
    run(body, symbols, inputs, &cut).map(Some)
}

/// Every value of a fused operator's body, its inputs among them.
///
/// # Errors
/// If a node of the body cannot be evaluated.
pub fn values_within(
    fused: &Fused,
    symbols: &Symbols,
    inputs: &[Value<f64>],
) -> Result<HashMap<ValueId, Value<f64>>> {
    let body = fused.body();
    let kept = std::sync::Mutex::new(HashMap::new());
    run(body, symbols, inputs, &|id, value| {
        kept.lock().map_err(|_| Error::bug("an evaluation failed"))?.insert(id, value.clone());
        Ok(value.clone())
    })?;
    let mut kept: HashMap<_, _> = kept.into_inner().map_err(|_| Error::bug("an evaluation failed"))?;
    kept.extend(body.inputs().map(|(id, _)| id).zip(inputs.iter().cloned()));
    Ok(kept)
}

/// Whether a node hands a value of fewer digits than f32 to another.
fn has_narrow_intermediates(body: &Graph) -> bool {
    let handed = body.nodes().iter().flat_map(|node| &node.inputs);
    // Inputs are stored by whoever gives them, so that nothing is rounded within.
    let computed = |value: &&ValueId| !body.inputs().any(|(id, _)| id == **value);
    handed.filter(computed).any(|&value| is_narrow(body.value(value).ty.dtype))
}

/// A value as a kernel could have rounded it. Below the normal numbers steps have one size; 0 is exact.
fn round(body: &Graph, id: ValueId, value: &Value<f64>, seed: u64, copy: usize) -> Result<Value<f64>> {
    let dtype = body.value(id).ty.dtype;
    let (Value::Float(array), true) = (value, is_narrow(dtype)) else { return Ok(value.clone()) };
    let stream = Uniform::new(seed, &[u64::MAX, u64::from(id.0), copy as u64]);
    let (unit, normal) = (dtype.unit_roundoff(), dtype.min_normal());
    let mut rounded = array.values().to_vec();
    let mut rest = rounded.iter_mut();
    for piece in stream.pieces(0, array.len()) {
        for (&noise, value) in piece.iter().zip(&mut rest) {
            if *value != 0.0 {
                *value += unit * value.abs().max(normal) * noise;
            }
        }
    }
    Value::float(array.shape().to_vec(), rounded)
}

/// Runs a body; `handed` makes of a value what the nodes behind it are given. The outputs are as they are computed.
///
/// # Errors
/// If a node cannot be evaluated, or the body reads a value that is not there.
fn run(
    body: &Graph,
    symbols: &Symbols,
    inputs: &[Value<f64>],
    handed: &Handed<'_>,
) -> Result<Vec<Value<f64>>> {
    let mut given: BodyValues = body.inputs().map(|(id, _)| id).zip(inputs.iter().cloned()).collect();
    let mut outputs: BodyValues = HashMap::new();
    let missing = || Error::bug("a body uses a value that is not there");
    for node in body.nodes() {
        let inputs: Option<Vec<_>> = node.inputs.iter().map(|value| given.get(value).cloned()).collect();
        let made = eval(&node.op, symbols, &inputs.ok_or_else(missing)?)?;
        for (&id, value) in node.outputs.iter().zip(made) {
            // Nodes behind it see the changed value; an output of the body is not changed by itself.
            given.insert(id, handed(id, &value)?);
            outputs.insert(id, value);
        }
    }
    let results = body.outputs().iter().map(|output| outputs.remove(&output.value).ok_or_else(missing));
    results.collect()
}

/// How the outputs of a fused operator jump that are those of a choice within: `None` for any other output.
///
/// What the choice reads moves with the inputs by more than `amplitude`: the jumps are measured at the largest relative
/// change of it over the `moved` copies of the inputs.
pub(crate) fn jumps_within(
    fused: &Fused,
    symbols: &Symbols,
    inputs: &[Value<f64>],
    moved: &[Vec<Value<f64>>],
    amplitude: f64,
) -> Result<Vec<Option<Jump>>> {
    let body = fused.body();
    let mut found: Vec<Option<Jump>> = body.outputs().iter().map(|_| None).collect();
    // No fused operator has more than one choice.
    let Some(node) = body.nodes().iter().find(|node| matches!(node.op, Op::Route(_))) else {
        return Ok(found);
    };
    let read = |inputs: &[Value<f64>]| -> Result<Vec<Value<f64>>> {
        let kept = values_within(fused, symbols, inputs)?;
        let read = node.inputs.iter().map(|value| kept.get(value).cloned());
        read.collect::<Option<Vec<_>>>().ok_or_else(|| Error::bug("a choice reads what is not there"))
    };
    let exact = read(inputs)?;
    // The reading moves at least as far as the inputs do.
    let mut relative = amplitude;
    for copy in moved {
        if let (Some(Value::Float(exact)), Some(Value::Float(found))) = (exact.first(), read(copy)?.first()) {
            relative = exact
                .values()
                .iter()
                .zip(found.values())
                .map(|(exact, found)| ((found - exact) / exact).abs())
                .filter(|change| change.is_finite())
                .fold(relative, f64::max);
        }
    }
    for (value, jump) in node.outputs.iter().zip(jumps(&node.op, &exact, relative)?.unwrap_or_default()) {
        if let Some(at) = body.outputs().iter().position(|output| output.value == *value) {
            found[at] = Some(jump);
        }
    }
    Ok(found)
}
