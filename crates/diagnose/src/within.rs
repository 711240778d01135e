//! The operator at fault within a fused one, by itself: what the definition gives it, and what the kernel left in its outputs.
//! Hypotheses that know this operator, such as those about masks and positions, are tested on that call.
//!
//! It works only where the outputs of that operator are outputs of the fused one, which is where they can be seen.

use crate::context::DiagnosisContext;
use crate::explain;
use tapml_cause::{Cause, Explanation};
use tapml_exec::Call;
use tapml_graph::op::Fused;
use tapml_graph::{NodeId, Op, Result, Tensor, TensorType};
use tapml_reference::{Value, values_within};

/// The call of one operator within a fused call, and which outputs of the fused call are its own.
///
/// Inputs that the fused call has are its own tensors; the others come from the reference.
struct Within {
    /// A call that the operator could have got.
    call: Call,
    /// Indices of the fused call's outputs, in the order of the operator's.
    outputs: Vec<usize>,
}

/// Why these calls of a fused operator's node, each with its name, fail, if the operator named `op` is at fault: the cause of
/// the first that explains the others, too. Never certain, because what a kernel hands from one operator to the next is not seen.
/// `None` as soon as one call has no explanation.
pub(crate) fn cause(
    run: &mut DiagnosisContext<'_>,
    calls: &[(String, &Call)],
    node: NodeId,
    op: &str,
) -> Result<Option<Explanation>> {
    let mut found: Option<Explanation> = None;
    for (name, call) in calls {
        let Some(of_call) = of_call(run, call, node, op)? else { return Ok(None) };
        found = Some(match found {
            Some(found) => explain::held_against(found, &of_call, name),
            None => of_call,
        });
        if found.as_ref().is_none_or(|found| found.cause == Cause::Unknown) {
            return Ok(None);
        }
    }
    Ok(found.map(|found| Explanation { certain: false, ..found }))
}

/// The explanation of one fused call, as a call of the operator within it.
fn of_call(
    run: &mut DiagnosisContext<'_>,
    call: &Call,
    node: NodeId,
    op: &str,
) -> Result<Option<Explanation>> {
    let Op::Fused(fused) = &call.op else { return Ok(None) };
    let Some(within) = find_last_node(call, fused, op, &run.oracles.inputs(call)?)? else { return Ok(None) };
    let exact = run.oracles.exact(call, 0)?;
    let exact: Vec<_> = within.outputs.iter().map(|&at| exact[at].clone()).collect();
    let own = |outputs: Vec<Tensor>| within.outputs.iter().map(|&at| outputs[at].clone()).collect();
    let observed: Vec<Vec<Tensor>> = explain::repeats(run, call)?.into_iter().map(own).collect();
    let precision = run.choices.precision(node, &call.symbols)?;
    explain::of_call(run, &within.call, &exact, &observed, precision)
}

/// The last node of this operator all of whose outputs are outputs of the fused one; `None` if there is none.
fn find_last_node(call: &Call, fused: &Fused, op: &str, inputs: &[Value<f64>]) -> Result<Option<Within>> {
    let body = fused.body();
    let place = |value| body.outputs().iter().position(|output| output.value == value);
    let of_op = body.nodes().iter().filter(|node| node.op.name() == op);
    let mut placed = of_op.filter_map(|node| {
        let places: Option<Vec<usize>> = node.outputs.iter().map(|&value| place(value)).collect();
        Some((node, places?))
    });
    // The last one sees what all others made; its inputs are nearest to what the kernel computed with.
    let Some((node, outputs)) = placed.next_back() else { return Ok(None) };
    let values = values_within(fused, &call.symbols, inputs)?;
    let given: Vec<_> = body.inputs().map(|(id, _)| id).collect();
    let (mut tensors, mut weights) = (Vec::new(), Vec::new());
    for &id in &node.inputs {
        let at = given.iter().position(|input| *input == id);
        weights.push(at.and_then(|at| call.weights[at].clone()));
        tensors.push(match at {
            Some(at) => call.inputs[at].clone(),
            None => values[&id].to_tensor(body.value(id).ty.dtype)?,
        });
    }
    let types = |ids: &[_]| ids.iter().map(|&id| body.value(id).ty.clone()).collect::<Vec<TensorType>>();
    let call = Call {
        node: call.node.clone(),
        op: node.op.clone(),
        symbols: call.symbols.clone(),
        inputs: tensors,
        input_types: types(&node.inputs),
        weights,
        output_types: types(&node.outputs),
    };
    Ok(Some(Within { call, outputs }))
}
