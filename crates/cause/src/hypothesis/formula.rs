//! Another formula in the place of the operator's, or a step of it left out.
//!
//! Every operator of the table that accepts the attributes and inputs is tried, so a new operator is a hypothesis by itself.

use crate::Cause;
use crate::cut::{like, numbers};
use crate::output_view::Prediction;
use crate::trials::{Rank, Trials};
use std::collections::HashMap;
use tapml_graph::op::{Activation, OPS};
use tapml_graph::{DType, Graph, Op, Tensor, ValueId};
use tapml_reference::{Value, eval};

/// A name and a formula.
/// The name is a clause for people, the formula is in f64.
type Formula = (&'static str, fn(f64) -> f64);

/// Approximations that stand for activations.
/// They are no operators of their own, so they are written out.
const APPROXIMATIONS: &[Formula] = &[
    ("the input itself", |x| x),
    ("max(0, min(1, x/6 + 1/2)), the hard sigmoid", |x| (x / 6.0 + 0.5).clamp(0.0, 1.0)),
    ("x times the hard sigmoid", |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
    ("x (27 + x²) / (27 + 9 x²), an approximation of tanh", |x| x * (27.0 + x * x) / (27.0 + 9.0 * x * x)),
    ("x limited to −1 … 1", |x| x.clamp(-1.0, 1.0)),
    ("e^x", f64::exp),
    ("the absolute value", f64::abs),
    ("x²", |x| x * x),
];

/// Another operator that takes the same inputs and attributes, or an approximation.
pub(super) fn try_other(trials: &mut Trials<'_, '_>) {
    let op = trials.context.cut.op.clone();
    let inputs = trials.context.cut.inputs.clone();
    let mut others: Vec<Op> = OPS
        .iter()
        .filter_map(|info| Op::parse(info.name, op.attributes()).ok())
        .filter(|o| *o != op)
        .collect();
    if Activation::from_op(&op).is_some() {
        others.extend(Activation::ALL.iter().map(|a| a.op()).filter(|o| *o != op && o.name() != op.name()));
    }
    // An activation may be in both lists.
    others.dedup();
    for other in others {
        let prediction = trials.eval(&other, &inputs);
        trials.cut(
            Cause::WrongFormula,
            Rank::Named,
            format!("`{}` is computed, not `{}`", other.name(), op.name()),
            prediction,
        );
    }
    // Approximations are of one variable.
    let [input] = inputs.as_slice() else { return };
    if numbers(input).len() == trials.context.cut.view.outs[0].exact.len() && input.as_float().is_ok() {
        for (name, formula) in APPROXIMATIONS {
            let prediction = vec![numbers(input).into_iter().map(formula).collect()];
            trials.cut(Cause::WrongFormula, Rank::Named, format!("{name} is computed"), Some(prediction));
        }
    }
}

/// What happens at one node of a definition.
///
/// All other nodes of the definition compute exactly.
enum NodeChange<'a> {
    /// It hands on its first input.
    Skip,
    /// Another operator takes its place.
    Replace(&'a Op),
    /// Its result passes through a narrower type.
    Round(DType),
}

/// A fused operator with one node of its definition left out, replaced, or rounded behind.
pub(super) fn steps(trials: &mut Trials<'_, '_>) {
    let types = trials.context.evidence.call.input_types.iter();
    let types: Vec<_> = types.filter_map(|t| t.bind(&trials.context.cut.symbols).ok()).collect();
    let Some(Ok(graph)) = trials.context.cut.op.definition(&types) else { return };
    for (k, node) in graph.nodes().iter().enumerate() {
        let name = node.op.name();
        let prediction = run(trials, &graph, k, &NodeChange::Skip);
        trials.cut(
            Cause::MissingTerm,
            Rank::Named,
            format!("the step `{name}` ({}) is left out", node.name),
            prediction,
        );
        if Activation::from_op(&node.op).is_some() {
            for other in Activation::ALL.iter().map(|a| a.op()).filter(|o| *o != node.op) {
                let prediction = run(trials, &graph, k, &NodeChange::Replace(&other));
                let note = format!("`{}` is computed, not `{name}`", other.name());
                trials.cut(Cause::WrongFormula, Rank::Named, note, prediction);
            }
        }
        // Wider types round less than the allowance counts.
        for dtype in [DType::F16, DType::BF16] {
            let prediction = run(trials, &graph, k, &NodeChange::Round(dtype));
            let note = format!("the result of the step `{name}` ({}) is rounded to {dtype}", node.name);
            trials.cut(Cause::ConversionOrder, Rank::Placed, note, prediction);
        }
    }
}

/// The outputs of a definition whose node `k` is changed.
/// The definition is evaluated node by node in `f64`, on the inputs of the cut. It counts as one evaluation.
fn run(trials: &mut Trials<'_, '_>, graph: &Graph, k: usize, change: &NodeChange<'_>) -> Option<Prediction> {
    trials.spend()?;
    let cut = &trials.context.cut;
    let mut values: HashMap<ValueId, Value<f64>> =
        graph.inputs().map(|(id, _)| id).zip(cut.inputs.iter().cloned()).collect();
    for (at, node) in graph.nodes().iter().enumerate() {
        let inputs: Vec<Value<f64>> =
            node.inputs.iter().map(|id| values.get(id).cloned()).collect::<Option<_>>()?;
        let mut outputs = match change {
            NodeChange::Skip if at == k => vec![inputs.first()?.clone(); node.outputs.len()],
            NodeChange::Replace(op) if at == k => eval(op, &cut.symbols, &inputs).ok()?,
            _ => eval(&node.op, &cut.symbols, &inputs).ok()?,
        };
        if let NodeChange::Round(dtype) = change
            && at == k
        {
            outputs = outputs.iter().map(|v| round_value(v, *dtype)).collect::<Option<_>>()?;
        }
        values.extend(node.outputs.iter().copied().zip(outputs));
    }
    let outputs: Vec<Vec<f64>> =
        graph.outputs().iter().map(|o| values.get(&o.value).map(numbers)).collect::<Option<_>>()?;
    // A skipped step may leave another number of elements.
    let fits = outputs.iter().zip(&cut.view.outs).all(|(v, out)| v.len() == out.exact.len());
    fits.then_some(outputs)
}

/// A value rounded to a dtype.
pub(super) fn round_value(value: &Value<f64>, dtype: DType) -> Option<Value<f64>> {
    let all = numbers(value);
    let tensor = Tensor::from_f64(dtype, vec![all.len()], &all).ok()?;
    like(value, tensor.to_f64())
}
