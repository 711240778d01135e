//! The operator at fault within a fused one, by itself: what the definition gives it, and what the kernel left in its outputs.
//! Hypotheses that know this operator, such as those about masks and positions, are tested on that call.
//!
//! It works only where the outputs of that operator are outputs of the fused one, which is where they can be seen.

use crate::context::{DiagnosisContext, Facts};
use crate::experiment::{Outcomes, Reasoned};
use crate::explain;
use crate::perform::conclude;
use tapml_cause::{Cause, Explanation};
use tapml_exec::Call;
use tapml_graph::op::Fused;
use tapml_graph::{Node, NodeId, Op, Result, Tensor, TensorType};
use tapml_reference::{Value, values_within};

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
        let of_call = conclude(run, |facts, outcomes| of_call(facts, (call, node), op, outcomes))?;
        let Some(of_call) = of_call else { return Ok(None) };
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
    facts: Facts<'_>,
    (call, node): (&Call, NodeId),
    op: &str,
    outcomes: &Outcomes,
) -> Reasoned<Option<Explanation>> {
    let Op::Fused(fused) = &call.op else { return Ok(None) };
    let Some((inner, outputs)) = find_last_node(fused, op) else { return Ok(None) };
    let exact = outcomes.exact(call)?;
    let exact: Vec<_> = outputs.iter().map(|&at| exact[at].clone()).collect();
    let own = |all: &Vec<Tensor>| outputs.iter().map(|&at| all[at].clone()).collect();
    let observed: Vec<Vec<Tensor>> = outcomes.repeats(call)?.iter().map(own).collect();
    let precision = facts.choices.precision(node, &call.symbols)?;
    // Last, because it evaluates the whole body.
    let inner = call_within(call, fused, inner, &facts.oracles.inputs(call)?)?;
    Ok(explain::of_call(facts, &inner, &exact, &observed, precision)?)
}

/// The last node of this operator all of whose outputs are outputs of the fused one, and which of them are its own, in the order of
/// the operator's; `None` if there is none.
fn find_last_node<'f>(fused: &'f Fused, op: &str) -> Option<(&'f Node, Vec<usize>)> {
    let body = fused.body();
    let place = |value| body.outputs().iter().position(|output| output.value == value);
    let of_op = body.nodes().iter().filter(|node| node.op.name() == op);
    let mut placed = of_op.filter_map(|node| {
        let places: Option<Vec<usize>> = node.outputs.iter().map(|&value| place(value)).collect();
        Some((node, places?))
    });
    // The last one sees what all others made; its inputs are nearest to what the kernel computed with.
    placed.next_back()
}

/// The call of a node within a fused call, as it could have been. Inputs that the fused call has are its own tensors; the others
/// come from the reference.
fn call_within(call: &Call, fused: &Fused, node: &Node, inputs: &[Value<f64>]) -> Result<Call> {
    let body = fused.body();
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
    Ok(Call {
        node: call.node.clone(),
        op: node.op.clone(),
        symbols: call.symbols.clone(),
        inputs: tensors,
        input_types: types(&node.inputs),
        weights,
        output_types: types(&node.outputs),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{TestGraph, change, numbers, run_right};
    use tapml_graph::{Symbols, fusion};

    #[test]
    fn an_operator_whose_outputs_are_seen_is_explained_as_a_call_of_its_own() {
        let subject = TestGraph::new(
            "graph body\ninput x: f32[n,16]\ninput w: f32[16,16]\na: f32[n,16] = silu(x)\n\
             b: f32[n,16] = linear(a, w)\noutput b = b\n",
        );
        let fused = Fused::new(fusion::find("norm_linear").unwrap(), subject.graph.clone()).unwrap();
        let types: Vec<TensorType> = subject.graph.inputs().map(|(_, value)| value.ty.clone()).collect();
        let call = Call {
            node: "fused".into(),
            op: Op::Fused(fused),
            symbols: Symbols::np(5, 0),
            inputs: vec![numbers(&[5, 16], 1), numbers(&[16, 16], 2)],
            weights: vec![None; 2],
            output_types: types[..1].to_vec(),
            input_types: types,
        };
        let negative = |call: &Call| change(run_right(call), |_, v| -v);
        let of_op = |op| {
            subject.conclude(&negative, |facts, outcomes| of_call(facts, (&call, NodeId(0)), op, outcomes))
        };
        let found = of_op("linear").unwrap();
        assert_eq!(found.cause, Cause::WrongSign, "{}", found.evidence);
        assert!(of_op("silu").is_none(), "its output stays inside the kernel");
    }
}
