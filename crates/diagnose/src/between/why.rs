//! Why a node leaves something wrong in a program although its operator is right: it did not run, ran too early, with
//! other sizes, or on other values than it should.
//!
//! Evidence by bits is certain: the node left exactly what the guess gives. Where no bits tell, hypotheses about values give a probable
//! cause.

use super::scan::{Differs, Wrong};
use super::scene::Scene;
use super::substituted::{self, Substitute};
use super::traced::TracedValues;
use crate::context::Facts;
use crate::experiment::{Outcomes, Reasoned, are_same};
use crate::explain;
use crate::report::FaultKind;
use tapml_exec::{Call, Phase, TracedNode, UNWRITTEN};
use tapml_graph::{NodeId, Origin, Result, Symbol, Symbols, Tensor, ValueId};
use tapml_migrate::verdict::judge;

/// Why an output within the program is wrong.
pub(super) struct Why {
    /// Whether the operator is wrong by itself after all.
    pub kind: FaultKind,
    /// The kernel that is wrong by itself; empty for others.
    pub kernel: String,
    /// A cause of `tapml-cause`, or one that only programs have, such as `wrong_symbol`.
    pub cause: &'static str,
    /// Whether the evidence leaves no other cause.
    pub certain: bool,
    /// A clause that says what was seen.
    pub evidence: String,
    /// The node that ran too late, or not at all, for this one.
    pub late: Option<NodeId>,
    /// Nodes that have to do with it beside the one that is wrong.
    pub nodes: Vec<NodeId>,
}

impl Why {
    /// A fault between operators.
    pub fn between_operators(cause: &'static str, certain: bool, evidence: String) -> Why {
        let (kind, kernel) = (FaultKind::Between, String::new());
        Why { kind, kernel, cause, certain, evidence, late: None, nodes: Vec::new() }
    }
}

/// Why a node is wrong.
///
/// The node is run alone first: if it is wrong there too, no program is needed to explain it.
///
/// # Errors
///
/// An experiment that is needed, or one that gave what cannot be judged.
pub(super) fn explain_node(
    facts: Facts<'_>,
    scene: &Scene,
    node: NodeId,
    wrong: &Wrong,
    outcomes: &Outcomes,
) -> Reasoned<Why> {
    let name = facts.name(node);
    let alone = outcomes.repeats(&wrong.call)?;
    let right = alone
        .first()
        .is_some_and(|outputs| judge(&wrong.exact, outputs, wrong.precision, None).is_ok_and(|j| j.passes()));
    // The recorded calls passed, but this one has other inputs, such as those of a longer text.
    if !right {
        let phase = Phase::of_run(&wrong.call.symbols);
        let kernel = facts.choices.kernel_at(node, phase).map(|c| c.name.clone()).unwrap_or_default();
        let Guess { cause, certain, evidence } = hypothesis(facts, wrong, alone)?;
        let evidence = format!("`{name}` is wrong on inputs that no recorded call has: {evidence}");
        return Ok(Why {
            kind: FaultKind::Operator,
            kernel,
            ..Why::between_operators(cause, certain, evidence)
        });
    }
    let why = match explain_bits(facts, scene, node, (wrong, &alone[0]), outcomes)? {
        Some(why) => why,
        None => guess_cause(facts, scene, wrong, &alone[0])?,
    };
    let begin =
        format!("`{name}` is right when it runs alone on the inputs it finds, and wrong in the program");
    Ok(Why { evidence: format!("{begin}: {}", why.evidence), ..why })
}

/// Why a node of an operator that may be wrong by itself leaves something else in the program than alone; `None` if no
/// bits tell it beyond doubt.
pub(super) fn of_other(
    facts: Facts<'_>,
    scene: &Scene,
    node: NodeId,
    found: &Differs,
    outcomes: &Outcomes,
) -> Reasoned<Option<Why>> {
    let call = (&found.call, &found.observed[..]);
    let silent = |outputs: &[Tensor]| left_alone(facts, scene, node, &found.call, outputs);
    let why = if silent(&found.observed) && !silent(&found.alone) && !is_unwritten(&found.alone) {
        Some(lost_output(facts, scene, node, call.0, true))
    } else if let Some(stale) = substituted::symbols(facts, node, call, scene, outcomes)? {
        Some(Why::between_operators("wrong_symbol", true, computes_with(&found.call.symbols, &stale)))
    } else if rows(&found.call.symbols) > Some(1) {
        // With a single row, what is read in the wrong row is memory that nobody wrote.
        // Asked at once, because a substitute that fits makes a lost output uncertain.
        let other = substituted::value(facts, node, call, scene, outcomes)?;
        other.map(|(instead, alone)| took(facts, instead, alone))
    } else {
        None
    };
    let name = facts.name(node);
    let begin = format!(
        "`{name}` leaves something else in the program than when it runs alone on the inputs it finds"
    );
    let why = why.filter(|why| why.certain);
    Ok(why.map(|why| Why { evidence: format!("{begin}: {}", why.evidence), ..why }))
}

/// What the bits that the node left tell; `None` if they say nothing.
/// Tests go from lost writes over wrong sizes to other values. An earlier one excludes what a later one would say.
fn explain_bits(
    facts: Facts<'_>,
    scene: &Scene,
    node: NodeId,
    (wrong, right): (&Wrong, &[Tensor]),
    outcomes: &Outcomes,
) -> Reasoned<Option<Why>> {
    let call = (&wrong.call, &wrong.observed[..]);
    let other = substituted::value(facts, node, call, scene, outcomes)?;
    if left_alone(facts, scene, node, &wrong.call, &wrong.observed) {
        return Ok(Some(lost_output(facts, scene, node, call.0, other.is_none())));
    }
    let (n, old) = (rows(&wrong.call.symbols), scene.before.symbols.as_ref().and_then(rows));
    let written = leading_rows(&wrong.observed, right);
    if let (Some(rows), Some(old)) = (written, old)
        && rows as u64 == old
        // Only a longer step can be cut to the length of the one before.
        && n > Some(old)
    {
        let end = format!(
            "only the first {rows} rows are written, as many as the step before had: sizes are those of the step before"
        );
        return Ok(Some(Why::between_operators("wrong_symbol", true, end)));
    }
    if let Some(stale) = substituted::symbols(facts, node, call, scene, outcomes)? {
        return Ok(Some(Why::between_operators(
            "wrong_symbol",
            true,
            computes_with(&wrong.call.symbols, &stale),
        )));
    }
    if scene.before.outputs.get(&node).is_some_and(|old| are_same(old, &wrong.observed)) {
        let end = "its output is still that of the step before";
        return Ok(Some(Why::between_operators("stale_data", true, end.into())));
    }
    Ok(other.map(|(instead, alone)| took(facts, instead, alone)))
}

/// What can be said if no bits tell.
/// The result is never certain.
fn guess_cause(facts: Facts<'_>, scene: &Scene, wrong: &Wrong, right: &[Tensor]) -> Result<Why> {
    if let Some(rows) = leading_rows(&wrong.observed, right).filter(|&rows| rows > 0) {
        return Ok(Why::between_operators(
            "not_written",
            false,
            format!("only its first {rows} rows are right"),
        ));
    }
    // The hypotheses know unwritten memory by other bits.
    let observed = wrong.observed.iter().map(|t| signalling(t, &scene.values)).collect::<Result<Vec<_>>>()?;
    let Guess { cause, evidence, .. } = hypothesis(facts, wrong, &[observed])?;
    Ok(Why::between_operators(cause, false, evidence))
}

/// "it computes with p = 14 instead of 0, …".
pub(super) fn computes_with(now: &Symbols, stale: &Symbols) -> String {
    let differ = now.iter().filter_map(|(symbol, value)| {
        let old = stale.get(symbol).filter(|&old| old != value)?;
        Some(format!("{symbol} = {old} instead of {value}"))
    });
    let differ: Vec<String> = differ.collect();
    format!("it computes with {}, left from the step before", differ.join(" and "))
}

/// The fault of a node that computed with another value.
/// A value that is not there yet means that the node ran too early; another value means a wrong binding.
pub(super) fn took(facts: Facts<'_>, instead: Substitute, certain: bool) -> Why {
    let graph = facts.graph;
    let name = |value: ValueId| graph.value(value).name.as_str();
    let producer = |value: ValueId| match graph.value(value).origin {
        Origin::Node { node, .. } => Some(node),
        _ => None,
    };
    let early = |input: ValueId, what: &str| {
        let cause = if producer(input).is_some() { "missing_dependency" } else { "missing_copy" };
        let end = format!(
            "it computes with {what} in the place of `{}`: it ran before that was written",
            name(input)
        );
        Why { late: producer(input), ..Why::between_operators(cause, certain, end) }
    };
    match instead {
        Substitute::Nothing(input) => early(input, "what memory held before anyone wrote it"),
        Substitute::Before(input) => early(input, "the value of the step before"),
        Substitute::Other { input, other } => {
            // Two states in each other's place are the layers' states; other values may be alike by chance.
            let state = is_state(facts, input) && is_state(facts, other);
            let cause = if state { "wrong_layer_state" } else { "swapped_operands" };
            let end = format!("it computes with `{}` in the place of `{}`", name(other), name(input));
            Why::between_operators(cause, certain && state, end)
        }
    }
}

/// Whether a value is a state, or what one becomes.
fn is_state(facts: Facts<'_>, value: ValueId) -> bool {
    facts.graph.states().iter().any(|s| s.input == value || s.output == value)
}

/// Whether a call that ran alone wrote nothing: its outputs hold what memory is filled with there.
fn is_unwritten(outputs: &[Tensor]) -> bool {
    let fill = |word: &[u8]| UNWRITTEN.iter().any(|fill| fill.to_le_bytes() == word);
    outputs.iter().all(|t| t.bytes().chunks_exact(4).all(fill))
}

/// Whether a node left its outputs as they were: what memory is filled with or, where it extends a state, the old rows and
/// zeros.
fn left_alone(facts: Facts<'_>, scene: &Scene, node: NodeId, call: &Call, outputs: &[Tensor]) -> bool {
    let op = &facts.graph.node(node).op;
    if let (true, [observed], Some(before)) = (op.appends(), outputs, call.inputs.first()) {
        let (old, new) = observed.bytes().split_at(before.bytes().len().min(observed.bytes().len()));
        let zeros = new.iter().all(|&b| b == 0);
        let filled = new.chunks_exact(4).all(|w| scene.values.is_fill(w));
        return old == &before.bytes()[..] && (zeros || filled);
    }
    outputs.iter().all(|t| scene.values.is_untouched(t))
}

/// The fault of a node that left its outputs as they were: its rows stand in another state, or it did not run.
/// The second is certain only if the caller found no other reason, other nodes did write, and the node extends no state.
fn lost_output(facts: Facts<'_>, scene: &Scene, node: NodeId, call: &Call, certain: bool) -> Why {
    match find_other_state(facts, scene, node, call) {
        Some(other) => {
            let end = format!(
                "it leaves its own state as it was, and the next step finds the rows in the state of `{}`",
                facts.name(other)
            );
            Why { nodes: vec![other], ..Why::between_operators("wrong_layer_state", true, end) }
        }
        None => {
            let end = "it leaves its output as memory was before; its dispatch does not take place";
            // Rows of a state may stand where nobody looks, and with no rows at all no node writes.
            let others = || scene.values.nodes.iter().flat_map(|t| &t.outputs);
            let sole = others().any(|t| !t.is_empty() && !scene.values.is_untouched(t));
            let appends = facts.graph.node(node).op.appends();
            Why::between_operators("not_written", certain && sole && !appends, end.into())
        }
    }
}

/// For a node that should have extended a state: the node in whose state its rows stand when the next step reads it.
fn find_other_state(facts: Facts<'_>, scene: &Scene, node: NodeId, call: &Call) -> Option<NodeId> {
    let graph = facts.graph;
    let (after, before, rows) = (scene.after.as_ref()?, call.inputs.first()?, call.inputs.get(1)?);
    let (start, len) = (before.bytes().len(), rows.bytes().len());
    // Rows of zeros are found in any state that is empty.
    if !graph.node(node).op.appends() || rows.bytes().iter().all(|&b| b == 0) {
        return None;
    }
    let holds = |id: NodeId, traced: &TracedNode| {
        let state =
            traced.inputs.first().and_then(Option::as_ref).map(|t| &t.bytes()[..]).unwrap_or_default();
        id != node && graph.node(id).op.appends() && state.get(start..start + len) == Some(&rows.bytes()[..])
    };
    let all = after.nodes.iter().filter_map(|t| Some((graph.find_node(&t.node)?, t)));
    all.into_iter().find(|(id, t)| holds(*id, t)).map(|(id, _)| id)
}

/// The tensor with the word that hypotheses know where it holds what memory was filled with.
fn signalling(tensor: &Tensor, values: &TracedValues) -> Result<Tensor> {
    if !values.touches_fill(tensor) {
        return Ok(tensor.clone());
    }
    let word =
        |w: &[u8]| if values.is_fill(w) { tapml_exec::POISON.to_le_bytes().to_vec() } else { w.to_vec() };
    let words: Vec<u8> = tensor.bytes().chunks(4).flat_map(word).collect();
    Tensor::new(tensor.dtype(), tensor.shape().to_vec(), tapml_graph::Bytes::new(words))
}

/// What may be the cause of a wrong call.
struct Guess {
    cause: &'static str,
    certain: bool,
    /// A sentence.
    evidence: String,
}

/// The cause of what was observed in a call within the program.
fn hypothesis(facts: Facts<'_>, wrong: &Wrong, observed: &[Vec<Tensor>]) -> Result<Guess> {
    let found = explain::of_call(facts, &wrong.call, &wrong.exact, observed, wrong.precision)?;
    Ok(match found {
        Some(found) => Guess { cause: found.cause.name(), certain: found.certain, evidence: found.evidence },
        // The target ran it in the program, but gives no outputs for the same call alone.
        None => Guess { cause: "crash", certain: true, evidence: "it cannot be run alone".into() },
    })
}

/// Rows of a step.
fn rows(symbols: &Symbols) -> Option<u64> {
    symbols.get(Symbol::N)
}

/// How many rows, from the first, are those of another result, if not all are; of the output of which fewest are.
fn leading_rows(found: &[Tensor], right: &[Tensor]) -> Option<usize> {
    let leading = |(a, b): (&Tensor, &Tensor)| {
        // In bytes.
        let row = a.row_len() * a.dtype().size();
        let (a, b) = (&a.bytes()[..], &b.bytes()[..]);
        (a != b && row > 0).then(|| a.chunks(row).zip(b.chunks(row)).take_while(|(a, b)| a == b).count())
    };
    found.iter().zip(right).filter_map(leading).min()
}
