//! Which of the operators within a fused one is at fault. Outputs that are right clear what leads to them. Rows that are wrong
//! by one factor accuse the operator that [gives rows factors](tapml_graph::op::Operator::gives_factors). A call that becomes
//! right with one of them made [neutral](Neutral) accuses that one; one that stays wrong clears it.
//!
//! All of this is indirect: the values between operators stay inside the kernel. The result is named as probable and never as certain.

use crate::context::{DiagnosisContext, Facts};
use crate::experiment::{Outcomes, Reasoned};
use crate::perform::conclude;
use crate::report::{Fault, UNKNOWN};
use crate::within;
use std::collections::{BTreeMap, HashSet};
use tapml_exec::Call;
use tapml_graph::op::{Fused, Neutral};
use tapml_graph::{Graph, Node, NodeId, Op, Origin, Result, Tensor, ValueId};
use tapml_migrate::verdict::{Exact, judge};

/// Rows with fewer elements do not tell a factor from chance.
/// With one element a factor always fits.
const MIN_ELEMENTS: usize = 8;

/// The operator at fault within a fused one.
struct InnerOperator {
    /// Its name.
    op: String,
    /// How that is known.
    evidence: String,
}

/// Adds to a fault of a fused operator's kernel, which fails these calls, what the kernel stands for, which of that is at
/// fault by the first call, and why if nothing else says so.
///
/// Each call comes with its name. Faults of other operators are left as they are.
pub(crate) fn describe_inner(
    run: &mut DiagnosisContext<'_>,
    calls: &[(String, &Call)],
    node: NodeId,
    fault: &mut Fault,
) -> Result<()> {
    let Some((_, call)) = calls.first() else { return Ok(()) };
    let Op::Fused(fused) = &call.op else { return Ok(()) };
    let names: Vec<&str> = fused.body().nodes().iter().map(|node| node.op.name()).collect();
    fault.evidence += &format!("; the kernel stands for {}", names.join(", "));
    if let Some(InnerOperator { op, evidence }) =
        conclude(run, |facts, outcomes| locate(facts, call, node, outcomes))?
    {
        fault.evidence += &format!(", of which `{op}` is probably at fault: {evidence}");
        // A cause that explains the fused call itself says more than one of a part.
        if fault.cause == UNKNOWN
            && let Some(found) = within::cause(run, calls, node, &op)?
        {
            fault.cause = found.cause.name().into();
            (fault.fit, fault.tested) = (found.fit, found.tested);
            fault.evidence += &format!("; as a call of `{op}` alone: {}", found.evidence);
        }
        fault.inner_operator = Some(op);
    }
    Ok(())
}

/// The operator at fault within the fused operator of a node whose kernel fails this call; `None` for other operators, and
/// where more than one is left.
/// Tries the clues in order of their cost: outputs, factors, then calls with neutral inputs.
fn locate(
    facts: Facts<'_>,
    call: &Call,
    node: NodeId,
    outcomes: &Outcomes,
) -> Reasoned<Option<InnerOperator>> {
    let Op::Fused(fused) = &call.op else { return Ok(None) };
    let Some(shown) = Shown::from_call(facts, call, node, outcomes)? else { return Ok(None) };
    let body = fused.body();
    let (mut suspects, mut evidence) = by_outputs(body, &shown.wrong);
    let gives_factors = |op: &str| body.nodes().iter().any(|n| n.op.name() == op && n.op.gives_factors());
    if let (Some(factor), Some(&op)) = (shown.factor, suspects.iter().find(|op| gives_factors(op))) {
        let evidence =
            format!("each row of what is wrong is the exact one times one number, such as {factor:.4}");
        return Ok(Some(InnerOperator { op: op.into(), evidence }));
    }
    // Suspects may shrink on the way, so each is asked whether others are left.
    for op in suspects.clone() {
        let Some(inputs) = neutral_inputs(fused, op).filter(|_| suspects.len() > 1) else { continue };
        let changed = with_neutral(call, &inputs)?;
        let Some(now) = Shown::from_call(facts, &changed, node, outcomes)? else { continue };
        // An output that was right before and is wrong with other inputs says nothing of this fault.
        let wrong = now.wrong.iter().zip(&shown.wrong).any(|(now, before)| *now && *before);
        // Other inputs may hide a fault of another operator, too, if more than what this one adds is gone.
        if !wrong && inputs.len() == 1 {
            suspects = vec![op];
            evidence = vec![format!("the call is right with a neutral `{op}`")];
        } else if wrong && !gives_factors(op) {
            suspects.retain(|name| *name != op);
            evidence.push(format!("the call stays wrong with a neutral `{op}`"));
        }
    }
    let [op] = suspects[..] else { return Ok(None) };
    if evidence.is_empty() {
        evidence.push("no other leads to what is wrong".into());
    }
    Ok(Some(InnerOperator { op: op.into(), evidence: evidence.join(", ") }))
}

/// What a call shows.
/// Verdicts are those of single elements, so that the same test decides with changed inputs.
struct Shown {
    /// Which outputs are wrong.
    wrong: Vec<bool>,
    /// If each row of these outputs is the exact one times one number: that of the row that is off most.
    factor: Option<f64>,
}

impl Shown {
    /// What the target gives for a call; `None` if it could not be run.
    fn from_call(
        facts: Facts<'_>,
        call: &Call,
        node: NodeId,
        outcomes: &Outcomes,
    ) -> Reasoned<Option<Shown>> {
        let (observed, exact) = (outcomes.repeats(call)?, outcomes.exact(call)?);
        let precision = facts.choices.precision(node, &call.symbols)?;
        let Some(outputs) = observed.first() else { return Ok(None) };
        let wrong = |(exact, output): (&Exact, &Tensor)| {
            let judged = judge(std::slice::from_ref(exact), std::slice::from_ref(output), precision, None)?;
            // A ratio is NaN where a value is: that is wrong too.
            Ok(judged.element_ratio > 1.0 || judged.element_ratio.is_nan())
        };
        let wrong: Vec<bool> = exact.iter().zip(outputs).map(wrong).collect::<Result<_>>()?;
        let pairs = exact.iter().zip(outputs).zip(&wrong).filter(|(_, wrong)| **wrong);
        let pairs = pairs.map(|((exact, output), _)| ComparedRows {
            exact: &exact.values,
            observed: output.to_f64(),
            width: exact.row_len,
        });
        Ok(Some(Shown { factor: common_factor(pairs.collect()), wrong }))
    }
}

/// An output: its exact and its observed values, and the elements of a row.
struct ComparedRows<'a> {
    exact: &'a [f64],
    observed: Vec<f64>,
    width: usize,
}

/// The factor of the row that is off most, if every row of all outputs that is off by a hundredth is the exact one times one
/// number, the same in all outputs, to a twentieth of what it is off.
/// Rows of few elements say nothing: one element is always the exact one times a number.
///
/// The factor of a row is the least-squares one, `e·o / e·e`. A hundredth and a twentieth are squared in the code, since it compares
/// sums of squares.
fn common_factor(outputs: Vec<ComparedRows<'_>>) -> Option<f64> {
    let rows = outputs.first().map(|first| first.exact.len() / first.width.max(1))?;
    let mut most: Option<f64> = None;
    for row in 0..rows {
        let (mut dot, mut size, mut off, mut squares, mut count) = (0.0, 0.0, 0.0, 0.0, 0);
        for ComparedRows { exact, observed, width } in &outputs {
            let of_row = row * width..(row + 1) * width;
            for (e, o) in exact.get(of_row.clone())?.iter().zip(observed.get(of_row)?) {
                dot += e * o;
                size += e * e;
                squares += o * o;
                off += (o - e).powi(2);
                count += 1;
            }
        }
        // Rows that are nearly right have no factor to tell.
        if count < MIN_ELEMENTS || !(size > 0.0 && off.is_finite()) || off < 1e-4 * size {
            continue;
        }
        let factor = dot / size;
        // What is left of the observed row when the multiple of the exact one is taken away, squared.
        let rest = squares - dot * factor;
        if rest > 0.0025 * off {
            return None;
        }
        if most.is_none_or(|most| (factor - 1.0).abs() > (most - 1.0).abs()) {
            most = Some(factor);
        }
    }
    most
}

/// The operators that lead to a wrong output and to no right one, each once, and what clears the others.
fn by_outputs(body: &Graph, wrong: &[bool]) -> (Vec<&'static str>, Vec<String>) {
    let mut behind: [HashSet<NodeId>; 2] = Default::default();
    for (output, &wrong) in body.outputs().iter().zip(wrong) {
        nodes_behind(body, output.value, &mut behind[usize::from(wrong)]);
    }
    let [right, wrong] = behind;
    let name = |id: &NodeId| body.node(*id).op.name();
    let left: HashSet<NodeId> = wrong.difference(&right).copied().collect();
    // One code serves all nodes of an operator: where one of them leads to what is right, so would the others.
    let right_names: HashSet<&str> = right.iter().map(name).collect();
    let names_of = |ids: &mut dyn Iterator<Item = &NodeId>| {
        let mut ids: Vec<&NodeId> = ids.collect();
        ids.sort();
        let mut seen = HashSet::new();
        ids.into_iter().map(name).filter(|name| seen.insert(*name)).collect::<Vec<&'static str>>()
    };
    let mut names = names_of(&mut left.iter().filter(|id| !right_names.contains(name(id))));
    // Right and wrong outputs share all operators. Nodes that lead to wrong ones alone are then the best clue.
    if names.is_empty() {
        names = names_of(&mut if left.is_empty() { wrong.iter() } else { left.iter() });
    }
    let mut cleared: Vec<&str> = right.iter().map(name).filter(|op| !names.contains(op)).collect();
    cleared.sort_unstable();
    cleared.dedup();
    let evidence = cleared.iter().map(|op| format!("what `{op}` leads to is right"));
    (names, evidence.collect())
}

/// All nodes that a value depends on. Each is visited once, so the recursion is bounded by the body.
fn nodes_behind(body: &Graph, value: ValueId, found: &mut HashSet<NodeId>) {
    let Origin::Node { node, .. } = body.value(value).origin else { return };
    if found.insert(node) {
        body.node(node).inputs.iter().for_each(|&input| nodes_behind(body, input, found));
    }
}

/// The inputs of a fused operator, and their values, that make all nodes of one operator within it neutral and reach no
/// node of another; `None` if there are none for one of them.
fn neutral_inputs(fused: &Fused, op: &str) -> Option<BTreeMap<usize, Neutral>> {
    let body = fused.body();
    let given: Vec<ValueId> = body.inputs().map(|(id, _)| id).collect();
    // A neutral input must not change what another operator reads.
    let own = |value: ValueId| {
        let mut readers = body.nodes().iter().filter(|node| node.inputs.contains(&value));
        readers.all(|node| node.op.name() == op)
    };
    let of_node = |node: &Node| {
        let place = |&(input, neutral): &(usize, Neutral)| {
            let value = *node.inputs.get(input)?;
            let at = given.iter().position(|id| *id == value).filter(|_| own(value))?;
            Some((at, neutral))
        };
        node.op.neutral().iter().find_map(|all| all.iter().map(place).collect::<Option<Vec<_>>>())
    };
    let nodes = body.nodes().iter().filter(|node| node.op.name() == op);
    let found: Option<Vec<Vec<(usize, Neutral)>>> = nodes.map(of_node).collect();
    found.map(|all| all.into_iter().flatten().collect())
}

/// The call with neutral tensors in the place of some inputs. They are no weights, so the target cannot use cached ones.
fn with_neutral(call: &Call, inputs: &BTreeMap<usize, Neutral>) -> Result<Call> {
    let mut changed = call.clone();
    for (&at, neutral) in inputs {
        changed.inputs[at] = neutral.fill_like(&call.inputs[at])?;
        changed.weights[at] = None;
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{Answer, TestGraph, change, numbers, run_right};
    use tapml_graph::{Symbols, fusion};

    /// The operator that is located within a fused one with this body, where its call gives what `target` does.
    fn locate_in(body: &str, target: &Answer<'_>) -> Option<(String, String)> {
        // Reasoning is about the call alone, so that the graph may be that of the body.
        let subject = TestGraph::new(body);
        let fused = Fused::new(fusion::find("norm_linear").unwrap(), subject.graph.clone()).unwrap();
        let call = fused_call(&subject, fused);
        let found = subject.conclude(target, |facts, outcomes| locate(facts, &call, NodeId(0), outcomes))?;
        Some((found.op, found.evidence))
    }

    /// The call of a fused operator, with other numbers for each input.
    fn fused_call(subject: &TestGraph, fused: Fused) -> Call {
        let (graph, symbols) = (&subject.graph, Symbols::np(5, 0));
        let types: Vec<_> = graph.inputs().map(|(_, value)| value.ty.clone()).collect();
        let numbers =
            |(ty, seed): (&tapml_graph::TensorType, u32)| numbers(&ty.sizes(&symbols).unwrap(), seed);
        Call {
            node: "fused".into(),
            op: Op::Fused(fused),
            inputs: types.iter().zip(1u32..).map(numbers).collect(),
            weights: vec![None; types.len()],
            input_types: types,
            output_types: graph.outputs().iter().map(|o| graph.value(o.value).ty.clone()).collect(),
            symbols,
        }
    }

    #[test]
    fn outputs_that_are_right_clear_what_leads_to_them() {
        let body = "graph body\ninput x: f32[n,16]\ninput w: f32[16,16]\na: f32[n,16] = linear(x, w)\n\
                    b: f32[n,16] = silu(a)\noutput a = a\noutput b = b\n";
        let second = |call: &Call| {
            let [a, b] = <[Tensor; 2]>::try_from(run_right(call)).unwrap();
            vec![a, change(vec![b], |i, v| if i % 2 == 0 { -v } else { v }).remove(0)]
        };
        let (op, evidence) = locate_in(body, &second).unwrap();
        assert_eq!((op.as_str(), evidence.as_str()), ("silu", "what `linear` leads to is right"));
        assert_eq!(locate_in(body, &|call| change(run_right(call), |i, v| v + (i % 2) as f64)), None);
    }

    #[test]
    fn rows_that_are_wrong_by_a_factor_accuse_what_gives_factors() {
        let body = "graph body\ninput x: f32[n,16]\ninput g: f32[16]\ninput w: f32[16,16]\n\
                    a: f32[n,16] = rms_norm(x, g) {\"eps\":0.00001}\nb: f32[n,16] = linear(a, w)\noutput b = b\n";
        let rows = |call: &Call| change(run_right(call), |i, v| v * (1.5 + (i / 16) as f64));
        let (op, evidence) = locate_in(body, &rows).unwrap();
        assert!(op == "rms_norm" && evidence.contains("such as 5.5"), "{op}: {evidence}");
    }

    #[test]
    fn a_call_that_is_right_with_a_neutral_operator_accuses_it() {
        let body = "graph body\ninput x: f32[n,16]\ninput w: f32[16,16]\ninput y: f32[n,16]\n\
                    a: f32[n,16] = linear(x, w)\nb: f32[n,16] = add(a, y)\noutput b = b\n";
        let without_second_input = |call: &Call| {
            let mut call = call.clone();
            call.inputs[2] = Neutral::Zeros.fill_like(&call.inputs[2]).unwrap();
            run_right(&call)
        };
        let (op, evidence) = locate_in(body, &without_second_input).unwrap();
        assert_eq!((op.as_str(), evidence.as_str()), ("add", "the call is right with a neutral `add`"));
        let wrong_product =
            |call: &Call| change(run_right(call), |i, v| if i % 3 == 0 { v + 1.0 } else { v });
        let (op, evidence) = locate_in(body, &wrong_product).unwrap();
        assert_eq!((op.as_str(), evidence.as_str()), ("linear", "the call stays wrong with a neutral `add`"));
    }

    #[test]
    fn rows_times_one_number_have_a_common_factor() {
        let exact: Vec<f64> = (1..=16).map(|i| f64::from(i) * if i % 3 == 0 { -1.0 } else { 1.0 }).collect();
        let shown = |width: usize, change: fn(f64, usize) -> f64| {
            let observed = exact.iter().enumerate().map(|(i, &v)| change(v, i)).collect();
            common_factor(vec![ComparedRows { exact: &exact, observed, width }])
        };
        assert_eq!(shown(8, |v, i| if i < 8 { v } else { 2.0 * v }), Some(2.0), "one row of two");
        assert_eq!(shown(8, |v, _| v), None, "nothing is off");
        assert_eq!(shown(8, |v, i| if i == 1 { 2.0 * v } else { v }), None, "one element of a row");
        assert_eq!(shown(1, |v, i| v * i as f64), None, "rows of one element");
    }
}
