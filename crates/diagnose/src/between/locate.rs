//! Where a departure comes from: first in the values of single nodes, then by placement.
//!
//! Values of single nodes name the node and often the cause. Placement only names a set of nodes, but it works where values cannot be
//! seen or where the fault goes away when they are kept.

use super::bisect::smallest;
use super::departure::{Departure, DepartureKind};
use super::faults::{self, Located};
use super::hybrid::{hybrid, target_nodes};
use super::probe;
use super::runs::{self, RunStep};
use super::scan::{Before, scan};
use super::scene::{self, Shown};
use super::traced::{self, FILL, TracedValues};
use crate::context::DiagnosisContext;
use crate::report::{Fault, FaultKind};
use std::collections::HashMap;
use tapml_exec::{Hybrid, LoadOptions, POISON, TracedNode};
use tapml_graph::{ErrorKind, NodeId, Result, Tensor};
use tapml_migrate::MovementLimits;

/// The faults behind a departure; none if rounding explains it.
///
/// `failing` are the recorded runs that depart, by index.
///
/// # Errors
///
/// A request to stop, a lost device, or a program that loads and cannot run.
pub(super) fn locate(
    run: &mut DiagnosisContext<'_>,
    limits: &MovementLimits,
    departure: &Departure,
    failing: &[usize],
) -> Result<Located> {
    run.progress.stage("locate what departs", 0);
    // Filled memory tells what nobody wrote from what somebody wrote wrongly, unless it hides the fault. What only a NaN
    // shows needs one.
    let word = if departure.how == DepartureKind::Poison { POISON } else { FILL };
    let mut gone = false;
    // The second look is without a fill, which may hide the fault.
    for fill in [Some(word), None] {
        let seen = match trace_departure(run, limits, departure, fill)? {
            Look::Seen(seen) => seen,
            other => {
                gone |= matches!(other, Look::Gone);
                continue;
            }
        };
        if !seen.located.faults.is_empty() {
            return Ok(seen.located);
        }
        // A router whose two best choices lie within rounding may take either; what follows then differs by far.
        if seen.explains_departures(failing.len()) {
            run.notes.push(format!(
                "the whole model's results depart from the source's because {}: a rounding decides, and either choice is \
                 right",
                seen.changed_choices.join(", ")
            ));
            return Ok(Located::default());
        }
    }
    let mut fault = by_placement(run, limits, departure)?;
    if gone {
        fault.evidence += GONE;
    }
    let faults = vec![fault];
    Ok(Located { faults, whole: false })
}

/// What follows from a departure that goes away when it is looked at.
const GONE: &str = "; when the values of single nodes are kept, which takes apart launches that join several of them and gives each \
                    value memory of its own, the same run does not depart: what differs is a joined launch, or the memory \
                    that nodes share";

/// A look at the values of single nodes.
enum Look {
    /// What they show.
    Seen(NodeEvidence),
    /// The departure does not show while they are kept.
    Gone,
    /// They cannot be kept.
    Blind,
}

/// What the values of the nodes say.
struct NodeEvidence {
    /// Faults that the values show.
    located: Located,
    /// Choices that differ from the source's although each is right on the inputs of its node.
    changed_choices: Vec<String>,
}

impl NodeEvidence {
    /// Whether turned choices explain that so many recorded runs depart.
    fn explains_departures(&self, failing: usize) -> bool {
        failing > 0 && !self.changed_choices.is_empty()
    }
}

/// Runs the departing text with the values of all nodes visible.
/// Only a departure of results must show again; bits and poison are looked at by [`unsteady`].
fn trace_departure(
    run: &mut DiagnosisContext<'_>,
    limits: &MovementLimits,
    departure: &Departure,
    fill: Option<u32>,
) -> Result<Look> {
    let nodes = target_nodes(run);
    let Some(mut whole) = traced::load(run, &nodes, &departure.capacity, fill)? else {
        return Ok(Look::Blind);
    };
    let before = run_before(run, &mut whole, departure, fill)?;
    // Both are filled while the steps run, until the first anomaly.
    let (mut turns, mut departs) = (Vec::new(), false);
    let judged = matches!(departure.how, DepartureKind::Results(_));
    let steps = (&departure.steps[..], departure.next.as_ref());
    let shown =
        scene::first(run, &mut whole, steps, before, fill, &mut |run, step, values, before, outputs| {
            departs |= runs::ratio(run, limits, step, outputs)? > 1.0;
            turns.extend(changed_routers(run, step, &values.nodes)?);
            scan(run, step, values, before, judged)
        })?;
    drop(whole);
    let mut located = match shown {
        Shown::Something(anomalies, scene) => faults::find_faults(run, anomalies, Some(&scene))?,
        Shown::Nothing(_) if judged && !departs => return Ok(Look::Gone),
        Shown::Nothing(_) => Located::default(),
    };
    if located.faults.is_empty() && !judged {
        located.faults.extend(unsteady(run, departure, fill)?);
    }
    Ok(Look::Seen(NodeEvidence { located, changed_choices: turns }))
}

/// Runs the texts before the departing one. Gives what the device may remember of the last step.
/// The values of other steps are not read, since reading takes long.
fn run_before(
    run: &DiagnosisContext<'_>,
    whole: &mut Hybrid,
    departure: &Departure,
    fill: Option<u32>,
) -> Result<Before> {
    let mut before = Before::default();
    for (i, text) in departure.history.iter().enumerate() {
        let last = i + 1 == departure.history.len();
        let mut left = text.len();
        runs::walk(run, whole, text, &mut |step, whole, _| {
            left -= 1;
            if last && left == 0 {
                before = Before::step(run, step, &TracedValues::from_hybrid(run, whole, fill)?);
            }
            Ok(())
        })?;
    }
    Ok(before)
}

/// The routers of a step that choose otherwise than the source did.
fn changed_routers(run: &DiagnosisContext<'_>, step: &RunStep, traced: &[TracedNode]) -> Result<Vec<String>> {
    let Some(frame) = step.frame else { return Ok(Vec::new()) };
    let mut turns = Vec::new();
    for node in traced {
        let Some(id) = run.suite.graph().find_node(&node.node) else { continue };
        for (&value, found) in run.suite.graph().node(id).outputs.iter().zip(&node.outputs) {
            // Routers are the nodes that give integers: indices of experts.
            if !found.dtype().is_float() && run.suite.value(frame, value)?.bytes()[..] != found.bytes()[..] {
                turns.push(format!("`{}` chooses otherwise in {}", node.node, step.label));
            }
        }
    }
    Ok(turns)
}

/// The first node that gives other outputs for the same inputs, in two runs of the same, or with and without poison.
fn unsteady(
    run: &mut DiagnosisContext<'_>,
    departure: &Departure,
    fill: Option<u32>,
) -> Result<Option<Fault>> {
    // Poison is compared with no fill; chance with the same fill again.
    let other = match (departure.how, fill) {
        (DepartureKind::Poison, Some(_)) => None,
        (DepartureKind::Poison, None) => Some(POISON),
        _ => fill,
    };
    let nodes = target_nodes(run);
    let mut views: Vec<Vec<TracedNode>> = Vec::new();
    for fill in [fill, other] {
        let Some(mut whole) = traced::load(run, &nodes, &departure.capacity, fill)? else { return Ok(None) };
        // Poison differs at once, chance may need several runs.
        for _ in 0..if departure.how == DepartureKind::Poison { 1 } else { run.options.repeats } {
            let mut last = Vec::new();
            runs::walk(run, &mut whole, &departure.steps, &mut |_, whole, _| {
                last = whole.traced_nodes()?;
                Ok(())
            })?;
            views.push(last);
        }
    }
    for pair in views.windows(2) {
        for (a, b) in pair[0].iter().zip(&pair[1]) {
            // Nodes behind it have other inputs, so the first one with equal inputs is where it begins.
            if equal(a.inputs.iter().flatten(), b.inputs.iter().flatten())
                && !equal(a.outputs.iter(), b.outputs.iter())
            {
                let Some(id) = run.suite.graph().find_node(&a.node) else { continue };
                return Ok(Some(unsteady_fault(run, departure, id, fill)));
            }
        }
    }
    Ok(None)
}

/// Whether two lists of tensors have the same bytes.
fn equal<'t>(a: impl Iterator<Item = &'t Tensor>, b: impl Iterator<Item = &'t Tensor>) -> bool {
    a.map(|t| &t.bytes()[..]).eq(b.map(|t| &t.bytes()[..]))
}

/// The nodes on the target that run the code of this one, in graph order.
fn same_code(run: &DiagnosisContext<'_>, id: NodeId) -> Vec<NodeId> {
    let hash = |id: NodeId| run.choices.hash(id);
    let mut nodes = target_nodes(run);
    nodes.retain(|&other| other == id || hash(other).is_some_and(|h| Some(h) == hash(id)));
    nodes
}

/// The fault of a node that is not steady. Without a fill a difference may come from memory, so it is not certain.
fn unsteady_fault(run: &DiagnosisContext<'_>, departure: &Departure, id: NodeId, fill: Option<u32>) -> Fault {
    let label = departure.steps.last().map(|s| s.label.clone()).unwrap_or_default();
    let name = run.name(id);
    // What a kernel reads it reads wherever it runs; chance may spare its other nodes.
    let nodes = if departure.how == DepartureKind::Poison { same_code(run, id) } else { vec![id] };
    let mut fault = Fault::of_nodes(run.facts(), FaultKind::Between, &nodes, format!("{label}.{name}"));
    // Memory that is not filled may hold something else each time.
    fault.certain = departure.how == DepartureKind::Poison || fill.is_some();
    (fault.cause, fault.evidence) = match departure.how {
        DepartureKind::Poison => (
            "uninitialised".into(),
            format!(
                "`{name}` gives other results for the same inputs when memory that nobody wrote holds other bytes"
            ),
        ),
        _ => (
            "race".into(),
            format!("`{name}` gives other results for the same inputs when the same run is repeated"),
        ),
    };
    fault
}

/// The smallest set of nodes that departs when it is on the target and all others are on the source.
/// All other nodes are known to be right on the source. The result is a set, not a cause.
fn by_placement(
    run: &mut DiagnosisContext<'_>,
    limits: &MovementLimits,
    departure: &Departure,
) -> Result<Fault> {
    let all = target_nodes(run);
    let trials = run.options.trials;
    run.progress.stage("move nodes between the platforms", trials as u64);
    // Without the texts before it is faster, if it departs all the same.
    let short = Departure { history: Vec::new(), ..departure.clone() };
    // Each trial runs all texts of the departure, so a short one saves much.
    let departure = if departs(run, limits, &short, &all)? { &short } else { departure };
    let found = smallest(all, trials, &mut |nodes| {
        run.progress.advance(1);
        match departs(run, limits, departure, nodes) {
            // A placement that cannot be loaded says nothing.
            Err(e) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::OutOfMemory) => Ok(false),
            other => other,
        }
    })?;
    let label = departure.steps.last().map(|s| s.label.clone()).unwrap_or_default();
    let first = found.items.first().map(|&id| run.name(id)).unwrap_or_default();
    let mut fault =
        Fault::of_nodes(run.facts(), FaultKind::Between, &found.items, format!("{label}.{first}"));
    if let DepartureKind::Results(ratio) = departure.how {
        fault.worst_ratio = ratio;
    }
    let what = match departure.how {
        DepartureKind::Results(ratio) => format!(
            "the results of {label} lie {ratio:.3} times as far from the source's as the allowed errors of all operators together \
             explain"
        ),
        DepartureKind::Bits => format!("the same run gives different bits in {label}"),
        DepartureKind::Poison => format!("the results of {label} depend on memory that nobody has written"),
    };
    let count = found.items.len();
    fault.evidence = if found.minimal {
        format!(
            "every operator is right alone, but with {} on the target and all others on the source {what}",
            if count == 1 {
                "this node".into()
            } else {
                format!("these {count} nodes, and no fewer of them,")
            }
        )
    } else {
        format!(
            "every operator is right alone, but with these {count} nodes on the target {what}; a smaller set was not \
             found in {trials} trials"
        )
    };
    Ok(fault)
}

/// Whether the departure shows with these nodes on the target.
fn departs(
    run: &mut DiagnosisContext<'_>,
    limits: &MovementLimits,
    departure: &Departure,
    nodes: &[NodeId],
) -> Result<bool> {
    run.stop.check()?;
    let capacity = &departure.capacity;
    // Memory is filled only where no launch joins nodes, so that the run to compare with must not have joined ones either.
    let options = match departure.how {
        DepartureKind::Poison => LoadOptions { poison: Some(false), ..traced::of_all(run, nodes) },
        _ => LoadOptions::default(),
    };
    let mut whole = hybrid(run, nodes, capacity, options)?;
    for text in &departure.history {
        runs::walk(run, &mut whole, text, &mut |_, _, _| Ok(()))?;
    }
    match departure.how {
        DepartureKind::Results(_) => Ok(probe::worst(run, &mut whole, &departure.steps, limits)? > 1.0),
        DepartureKind::Bits => {
            let first = last(run, &mut whole, departure)?;
            for _ in 1..run.options.repeats {
                if !probe::are_same(&first, &last(run, &mut whole, departure)?) {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        DepartureKind::Poison => {
            let first = last(run, &mut whole, departure)?;
            // Two programs may not fit the device at once.
            drop(whole);
            let options = LoadOptions { poison: Some(true), ..traced::of_all(run, nodes) };
            let mut whole = hybrid(run, nodes, capacity, options)?;
            Ok(!probe::are_same(&first, &last(run, &mut whole, departure)?))
        }
    }
}

/// The results of the last step.
fn last(
    run: &DiagnosisContext<'_>,
    whole: &mut Hybrid,
    departure: &Departure,
) -> Result<HashMap<String, Tensor>> {
    let mut results = HashMap::new();
    runs::walk(run, whole, &departure.steps, &mut |_, _, outputs| {
        results = outputs;
        Ok(())
    })?;
    Ok(results)
}
