//! One round of runs of the whole model: against the source, against itself, with poisoned memory, in other steps.
//!
//! Cheaper and more telling runs come first. A later kind of run is made only if all before it agree.

use super::departure::{Departure, DepartureKind};
use super::faults::{self, Located};
use super::hybrid::{hybrid, limits, target_nodes};
use super::runs::{self, RunStep};
use super::scan::{Before, scan};
use super::traced::{self, TracedValues};
use crate::context::DiagnosisContext;
use crate::report::Impact;
use std::collections::HashMap;
use std::time::Instant;
use tapml_exec::{Hybrid, LoadOptions, POISON};
use tapml_graph::{NodeId, Result, Symbols, Tensor};
use tapml_migrate::{ModelCheck, MovementLimits, watch_model};

/// Steps of a text that are run again: the prompt, what follows it, and what follows a step that followed.
/// Later steps do the same as the third.
const BEGINNING: usize = 3;

/// What a round found.
pub(super) struct ProbeRound {
    /// The comparison with the source over all recorded runs.
    pub check: ModelCheck,
    /// How far results may move with the nodes that are on the target.
    pub limits: MovementLimits,
    /// What departs, with its harm.
    pub departure: Option<(Departure, Option<Impact>)>,
    /// Recorded runs whose results depart from the source's.
    pub failing: Vec<usize>,
    /// Faults that are located already.
    pub located: Located,
}

/// The results of each recorded run.
/// Outputs by name, by index of the recorded run.
type RunResults = HashMap<usize, HashMap<String, Tensor>>;

/// Runs the model with all nodes that are not barred on the target.
///
/// # Errors
///
/// A target that does not take the model in one program, a lost device, a request to stop.
pub(super) fn round(run: &mut DiagnosisContext<'_>) -> Result<ProbeRound> {
    let (nodes, start) = (target_nodes(run), Instant::now());
    run.progress.stage("measure how far the results may move", 0);
    let limits = limits(run, &nodes)?;
    run.add_time("measure how far the results may move", start);
    let start = Instant::now();
    run.progress.stage("run the whole model", run.suite.frames().len() as u64);
    let texts = texts(run)?;
    let capacity = runs::capacity(&texts.concat());
    let mut whole = hybrid(run, &nodes, &capacity, LoadOptions::default())?;
    let (mut seen, mut failing) = (RunResults::new(), Vec::new());
    let check = {
        let (suite, model) = (run.suite, run.model);
        let all: Vec<&RunStep> = texts.iter().flatten().collect();
        // Results are kept, so that repeats need no second run to compare with.
        let mut watch = |frame: usize, outputs: &HashMap<String, Tensor>| {
            let step = all.iter().find(|s| s.frame == Some(frame));
            if let Some(step) = step
                && runs::ratio(run, &limits, step, outputs)? > 1.0
            {
                failing.push(frame);
            }
            seen.insert(frame, outputs.clone());
            Ok(())
        };
        watch_model(&mut whole, suite, model, &limits, run.progress, run.stop, &mut watch)?
    };
    run.add_time("run the whole model", start);
    let start = Instant::now();
    let mut found = ProbeRound { check, limits, departure: None, failing, located: Located::default() };
    let impact = impact(&found.check);
    found.departure = results(run, &texts, &found)?.map(|d| (d, impact));
    if found.departure.is_none() {
        found.departure = repeats(run, &mut whole, &texts, &seen)?.map(|d| (d, None));
    }
    if found.departure.is_none() {
        found.departure = halves(run, &mut whole, &found.limits)?.map(|d| (d, None));
    }
    // The next program is traced and needs the memory.
    drop(whole);
    run.add_time("run it again and in other steps", start);
    let start = Instant::now();
    if found.departure.is_none() {
        run_poisoned(run, &nodes, &texts, &seen, &mut found)?;
        run.add_time("run it with poisoned memory", start);
    }
    Ok(found)
}

/// The recorded steps of every prompt.
pub(super) fn texts(run: &DiagnosisContext<'_>) -> Result<Vec<Vec<RunStep>>> {
    (0..run.suite.manifest().prompts.len()).map(|prompt| runs::steps(run.suite, prompt)).collect()
}

/// The first recorded run whose results are too far from the source's.
/// The steps behind it do not matter, but for one that may find what this one left.
fn results(
    run: &DiagnosisContext<'_>,
    texts: &[Vec<RunStep>],
    found: &ProbeRound,
) -> Result<Option<Departure>> {
    let Some(&frame) = found.failing.first() else { return Ok(None) };
    let prompt = run.suite.frames()[frame].prompt as usize;
    let until = texts[prompt].iter().position(|s| s.frame == Some(frame)).unwrap_or(0);
    let steps = texts[prompt][..=until].to_vec();
    let (how, next) =
        (DepartureKind::Results(found.check.max_logit_ratio), texts[prompt].get(until + 1).cloned());
    Ok(Some(Departure::new(texts[..prompt].to_vec(), steps, next, how)))
}

/// Runs the beginnings of all texts again, backwards, and then those of the shortest as often as asked for: nothing may be
/// left of one text when the next begins, and nothing may be left to chance. The run with poisoned memory is the last.
fn repeats(
    run: &DiagnosisContext<'_>,
    whole: &mut Hybrid,
    texts: &[Vec<RunStep>],
    seen: &RunResults,
) -> Result<Option<Departure>> {
    run.progress.stage("run it again", 0);
    let begin = |&text: &usize| texts[text][..texts[text].len().min(BEGINNING)].to_vec();
    let backwards: Vec<usize> = (0..texts.len()).rev().collect();
    let mut short = backwards.clone();
    short.sort_by_key(|&text| runs::tokens(&texts[text]));
    short.truncate(runs::SHORT);
    let wanted = run.options.repeats;
    // At least one more run, unless one is all that was asked for; the run with poisoned memory is the last of `wanted`.
    for repeat in 0..(wanted - 1).min(1).max(wanted.saturating_sub(2)) {
        let order = if repeat == 0 { &backwards } else { &short };
        for (at, text) in order.iter().enumerate() {
            let (mut differs, steps) = (None, begin(text));
            runs::walk(run, whole, &steps, &mut |step, _, outputs| {
                // The walk cannot be ended from here; the first difference is kept.
                if differs.is_none() && step.frame.is_some_and(|f| !are_same(&seen[&f], &outputs)) {
                    differs = step.frame;
                }
                run.progress.advance(1);
                Ok(())
            })?;
            if let Some(frame) = differs {
                let until = steps.iter().position(|s| s.frame == Some(frame)).unwrap_or(0);
                let history = order[..at].iter().map(begin).collect();
                return Ok(Some(Departure::new(
                    history,
                    steps[..=until].to_vec(),
                    None,
                    DepartureKind::Bits,
                )));
            }
        }
    }
    Ok(None)
}

/// Runs a prompt in two steps: what the second computes must not depend on where the first ended.
/// The longest prompt has the most rows to get wrong.
fn halves(
    run: &mut DiagnosisContext<'_>,
    whole: &mut Hybrid,
    limits: &MovementLimits,
) -> Result<Option<Departure>> {
    let longest =
        (0..run.suite.manifest().prompts.len()).max_by_key(|&p| run.suite.manifest().prompts[p].ids.len());
    let Some(steps) = longest.map(|p| runs::halves(run.suite, p)).transpose()?.flatten() else {
        return Ok(None);
    };
    let worst = worst(run, whole, &steps, limits)?;
    if worst <= 1.0 {
        return Ok(None);
    }
    // A model may mean something else by two steps than by one; then the source shows it too.
    let mut source = hybrid(run, &[], &runs::capacity(&steps), LoadOptions::default())?;
    if self::worst(run, &mut source, &steps, limits)? > 1.0 {
        return Ok(None);
    }
    Ok(Some(Departure::new(Vec::new(), steps, None, DepartureKind::Results(worst))))
}

/// The largest ratio of a text's steps; see [`runs::ratio`].
pub(super) fn worst(
    run: &DiagnosisContext<'_>,
    whole: &mut Hybrid,
    steps: &[RunStep],
    limits: &MovementLimits,
) -> Result<f64> {
    let mut worst = 0.0f64;
    runs::walk(run, whole, steps, &mut |step, _, outputs| {
        worst = worst.max(runs::ratio(run, limits, step, &outputs)?);
        Ok(())
    })?;
    Ok(worst)
}

/// Runs the beginnings of two short texts with NaN in all memory that nobody has written yet, and looks at every value on
/// its way from node to node.
fn run_poisoned(
    run: &mut DiagnosisContext<'_>,
    nodes: &[NodeId],
    texts: &[Vec<RunStep>],
    seen: &RunResults,
    found: &mut ProbeRound,
) -> Result<()> {
    run.progress.stage("run it with poisoned memory", 0);
    let short = runs::short(texts);
    let fill = Some(POISON);
    let capacity = runs::capacity(&short.concat());
    let Some(mut whole) = traced::load(run, nodes, &capacity, fill)? else { return Ok(()) };
    let (mut anomalies, mut filled, mut before) = (Vec::new(), RunResults::new(), Before::default());
    for steps in &short {
        before = std::mem::take(&mut before).text();
        runs::walk(run, &mut whole, steps, &mut |step, whole, outputs| {
            let values = TracedValues::from_hybrid(run, whole, fill)?;
            // Nodes are not judged: a NaN on its way is what is looked for.
            anomalies.extend(scan(run, step, &values, &before, false)?);
            before = Before::step(run, step, &values);
            filled.extend(step.frame.map(|frame| (frame, outputs)));
            Ok(())
        })?;
    }
    drop(whole);
    // Anomalies of several steps, so there is no single scene to explain them by.
    found.located = faults::find_faults(run, anomalies, None)?;
    if !found.located.faults.is_empty()
        || filled.iter().all(|(frame, outputs)| are_same(&seen[frame], outputs))
    {
        return Ok(());
    }
    // Launches that join nodes are taken apart where values are looked at, and may round otherwise.
    // Only a program that was taken apart in the same way can be compared bit by bit.
    let plain = taken_apart(run, nodes, &short, &capacity)?;
    let differs = |step: &RunStep| step.frame.is_some_and(|f| !are_same(&plain[&f], &filled[&f]));
    for (text, steps) in short.iter().enumerate() {
        if let Some(until) = steps.iter().position(differs) {
            let (history, how) = (short[..text].to_vec(), DepartureKind::Poison);
            let departure = Departure { history, steps: steps[..=until].to_vec(), next: None, capacity, how };
            found.departure = Some((departure, None));
            return Ok(());
        }
    }
    Ok(())
}

/// The results of these texts' steps where every node runs by its own kernels and memory is not filled.
fn taken_apart(
    run: &mut DiagnosisContext<'_>,
    nodes: &[NodeId],
    texts: &[Vec<RunStep>],
    capacity: &Symbols,
) -> Result<RunResults> {
    let options = LoadOptions { poison: Some(false), ..traced::of_all(run, nodes) };
    let (mut whole, mut seen) = (hybrid(run, nodes, capacity, options)?, RunResults::new());
    for steps in texts {
        runs::walk(run, &mut whole, steps, &mut |step, _, outputs| {
            seen.extend(step.frame.map(|frame| (frame, outputs)));
            Ok(())
        })?;
    }
    Ok(seen)
}

/// Whether two results have the same bits.
pub(super) fn are_same(a: &HashMap<String, Tensor>, b: &HashMap<String, Tensor>) -> bool {
    a.len() == b.len() && a.iter().all(|(k, t)| b.get(k).is_some_and(|o| o.bytes()[..] == t.bytes()[..]))
}

/// The harm that the check of the whole model shows; `None` for an encoder.
fn impact(check: &ModelCheck) -> Option<Impact> {
    let changed = ((1.0 - check.top1_agreement?) * check.positions as f64).round() as u64;
    Some(Impact {
        case: "all recorded runs".into(),
        kl: check.kl?,
        kl_max: check.kl_max?,
        top1_changed: changed > 0,
        changed,
        positions: check.positions,
    })
}
