//! From what is not as it must be to faults: one for each cause, in words that a person can act on.

use super::scan::{Anomaly, Holds, What, Wrong};
use crate::diagnose::Run;
use crate::explain;
use crate::report::{Fault, FaultKind};
use std::collections::BTreeSet;
use tapml_graph::{NodeId, Result, Symbol, Tensor};
use tapml_migrate::verdict::judge;

/// A fault in the making: what one cause explains.
struct Group {
    kind: FaultKind,
    cause: String,
    /// Tells faults of one cause apart: a kernel.
    key: String,
    certain: bool,
    evidence: String,
    nodes: BTreeSet<NodeId>,
    count: u64,
    first: Anomaly,
}

/// Most anomalies that are looked at one by one; a fault of the whole program shows in every node.
const MOST: usize = 64;

/// The faults that explain these anomalies, in the order in which they appear.
pub(super) fn of(run: &mut Run<'_>, anomalies: Vec<Anomaly>) -> Result<Vec<Fault>> {
    let mut groups: Vec<Group> = Vec::new();
    let beyond = anomalies.iter().filter(|a| matches!(a.what, What::Beyond { .. })).count();
    let everywhere = beyond > 4 && beyond * 2 > super::placed(run).len();
    for anomaly in anomalies.into_iter().take(MOST.max(beyond)) {
        run.stop.check()?;
        let group = explained(run, anomaly, everywhere)?;
        match groups.iter_mut().find(|g| (g.kind, &g.cause, &g.key) == (group.kind, &group.cause, &group.key))
        {
            Some(known) => {
                known.nodes.extend(group.nodes);
                known.count += 1;
            }
            None => groups.push(group),
        }
    }
    groups.into_iter().map(|group| finish(run, group)).collect()
}

fn explained(run: &mut Run<'_>, anomaly: Anomaly, everywhere: bool) -> Result<Group> {
    let graph = run.suite.graph();
    let name = |id: NodeId| graph.node(id).name.as_str();
    let reader = name(anomaly.node);
    let mut nodes = BTreeSet::from([anomaly.node]);
    let mut certain = true;
    let (mut kind, mut key) = (FaultKind::Between, String::new());
    let (cause, evidence) = match &anomaly.what {
        What::Given { input } => (
            "missing_copy",
            format!(
                "`{reader}` reads other values than the input `{input}` that was given: the upload is lost or late"
            ),
        ),
        What::Changed { value, producer, holds } => {
            nodes.insert(*producer);
            let (value, producer) = (&graph.value(*value).name, name(*producer));
            let begin = format!("`{value}` is not what `{producer}` left in it when `{reader}` reads it");
            match holds {
                Holds::Output(other) => {
                    nodes.insert(*other);
                    let other = name(*other);
                    let end =
                        format!("it holds what `{other}` left: their memory overlaps while both are needed");
                    ("buffer_reused", format!("{begin}; {end}"))
                }
                Holds::Before => {
                    let end = "it holds its value of the step before: the reader ran before the writer, or a copy is lost";
                    ("missing_dependency", format!("{begin}; {end}"))
                }
                Holds::Nothing => {
                    ("missing_copy", format!("{begin}; it holds what memory held before anyone wrote it"))
                }
                _ => {
                    certain = false;
                    ("buffer_reused", format!("{begin}: something else writes to its memory in between"))
                }
            }
        }
        What::State { state, holds } => state_fault(run, *state, *holds, reader),
        What::Beyond { bytes, .. } if everywhere => (
            "not_written",
            format!(
                "memory that the program fills with a word before `{reader}` and other nodes write to it holds other \
                 bytes behind their outputs ({bytes} here): fills are not performed, or every kernel writes too far"
            ),
        ),
        What::Beyond { output, bytes } => {
            kind = FaultKind::Operator;
            key = run.choices.get(anomaly.node).map(|c| c.name.clone()).unwrap_or_default();
            let text = format!(
                "`{reader}` writes {bytes} bytes behind the end of its output {output}, in rows that this step does not have"
            );
            ("out_of_bounds", text)
        }
        What::Wrong(wrong) => {
            let why = wrong_in_program(run, anomaly.node, wrong)?;
            (kind, key, certain) = (why.kind, why.key, why.certain);
            (why.cause, why.evidence)
        }
    };
    let (cause, evidence) = (cause.to_string(), format!("in {}: {evidence}", anomaly.step));
    Ok(Group { kind, cause, key, certain, evidence, nodes, count: 1, first: anomaly })
}

fn state_fault(run: &Run<'_>, state: usize, holds: Holds, reader: &str) -> (&'static str, String) {
    let states = run.suite.graph().states();
    let name = &states[state].name;
    match holds {
        Holds::NotEmpty => (
            "state_not_reset",
            format!(
                "the state `{name}` is not empty when a text begins and `{reader}` reads it: the reset is lost"
            ),
        ),
        Holds::State(other) => {
            let other = &states[other].name;
            (
                "wrong_layer_state",
                format!("the state `{name}`, which `{reader}` reads, holds that of `{other}`"),
            )
        }
        Holds::Before => (
            "missing_copy",
            format!(
                "the state `{name}`, which `{reader}` reads, is still that before the last step: its new value is \
                 computed and not copied to where the next step reads it"
            ),
        ),
        _ => (
            "wrong_slot",
            format!("the state `{name}`, which `{reader}` reads, is not what the step before left in it"),
        ),
    }
}

/// Why an output within the program is wrong.
struct Why {
    kind: FaultKind,
    key: String,
    cause: &'static str,
    certain: bool,
    evidence: String,
}

fn wrong_in_program(run: &mut Run<'_>, node: NodeId, wrong: &Wrong) -> Result<Why> {
    let kernel = run.choices.get(node).map(|c| c.name.clone()).unwrap_or_default();
    let name = run.name(node).to_string();
    let alone = explain::repeats(run, &wrong.call)?;
    let right = alone
        .first()
        .is_some_and(|outputs| judge(&wrong.exact, outputs, wrong.precision, None).is_ok_and(|j| j.passed()));
    if !right {
        let (cause, certain, evidence) = hypothesis(run, wrong, &alone)?;
        let evidence = format!("`{name}` is wrong on inputs that no recorded call has: {evidence}");
        return Ok(Why { kind: FaultKind::Operator, key: kernel, cause, certain, evidence });
    }
    let why = |cause, certain, end: String| Why {
        kind: FaultKind::Between,
        key: String::new(),
        cause,
        certain,
        evidence: format!(
            "`{name}` is right when it runs alone on the inputs it finds, and wrong in the program: {end}"
        ),
    };
    let (n, old) = (rows(&wrong.call.symbols), wrong.stale.as_ref().and_then(rows));
    let written = leading_rows(&wrong.observed, &alone[0]);
    Ok(match written {
        _ if wrong.observed.iter().all(unwritten) => why(
            "not_written",
            true,
            "it leaves its output as memory was before; its dispatch does not take place".into(),
        ),
        Some(rows) if Some(rows as u64) == old && n > old => {
            let end = format!(
                "only the first {rows} rows are written, as many as the step before had: sizes are those \
                 of the step before"
            );
            why("wrong_symbol", true, end)
        }
        _ if as_before(run, wrong)? => {
            why("wrong_symbol", true, "it computes with the sizes and the position of the step before".into())
        }
        _ if wrong.earlier.as_ref().is_some_and(|e| explain::same(e, &wrong.observed)) => {
            why("stale_data", true, "its output is still that of the step before".into())
        }
        Some(rows) if rows > 0 => why("not_written", false, format!("only its first {rows} rows are right")),
        _ => {
            let (cause, _, evidence) = hypothesis(run, wrong, std::slice::from_ref(&wrong.observed))?;
            why(cause, false, evidence)
        }
    })
}

/// The cause of what was observed in a call within the program, whether it is certain, and a sentence.
fn hypothesis(
    run: &Run<'_>,
    wrong: &Wrong,
    observed: &[Vec<Tensor>],
) -> Result<(&'static str, bool, String)> {
    let found = explain::of_call(run, &wrong.call, &wrong.exact, observed, wrong.precision)?;
    Ok(match found {
        Some(found) => (found.cause.name(), found.certain, found.evidence),
        None => ("crash", true, "it cannot be run alone".into()),
    })
}

fn rows(symbols: &tapml_graph::Symbols) -> Option<u64> {
    symbols.get(Symbol::N)
}

/// Whether a tensor holds nothing but what memory is filled with before anyone writes it.
fn unwritten(tensor: &Tensor) -> bool {
    let poison = |w: &[u8]| w == tapml_exec::POISON.to_le_bytes();
    let words = tensor.bytes().chunks_exact(4);
    !tensor.is_empty() && (words.clone().all(poison) || words.flatten().all(|&b| b == 0))
}

/// How many rows, from the first, are those of another result, if not all are; of the output of which fewest are.
fn leading_rows(found: &[Tensor], right: &[Tensor]) -> Option<usize> {
    let leading = |(a, b): (&Tensor, &Tensor)| {
        let row = a.row_len() * a.dtype().size();
        let (a, b) = (&a.bytes()[..], &b.bytes()[..]);
        (a != b && row > 0).then(|| a.chunks(row).zip(b.chunks(row)).take_while(|(a, b)| a == b).count())
    };
    found.iter().zip(right).filter_map(leading).min()
}

/// Whether the outputs are what the operator gives at the symbols of the step before.
fn as_before(run: &mut Run<'_>, wrong: &Wrong) -> Result<bool> {
    let Some(stale) = wrong.stale.clone().filter(|s| *s != wrong.call.symbols) else { return Ok(false) };
    let call = tapml_exec::Call { symbols: stale, ..wrong.call.clone() };
    if call.check().is_err() {
        return Ok(false);
    }
    let outputs = explain::repeats(run, &call)?;
    Ok(outputs.first().is_some_and(|outputs| explain::same(outputs, &wrong.observed)))
}

fn finish(run: &Run<'_>, group: Group) -> Result<Fault> {
    let nodes: Vec<NodeId> = group.nodes.into_iter().collect();
    let judged = match &group.first.what {
        What::Wrong(wrong) => Some(&wrong.judgement),
        _ => None,
    };
    let first_bad_case = format!("{}.{}", group.first.step, run.name(group.first.node));
    let mut fault = Fault::between(run, &nodes, first_bad_case);
    fault.kind = group.kind;
    fault.cause = group.cause;
    fault.certain = group.certain;
    fault.evidence = group.evidence;
    fault.failed = group.count;
    if let Some(judgement) = judged {
        fault.worst_ratio = judgement.ratio;
        fault.criterion = judgement.criterion.name().into();
        fault.element = Some(judgement.worst);
        fault.pattern = judgement.pattern.as_ref().map(|p| p.text.clone()).unwrap_or_default();
    }
    Ok(fault)
}
