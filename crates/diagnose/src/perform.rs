//! The one place where an explanation's experiments are run. It decides nothing.

use crate::context::{DiagnosisContext, Facts};
use crate::experiment::{Experiment, Guesses, Outcomes, Pause, Reasoned, RunBehind, are_same};
use tapml_device::Finding;
use tapml_exec::{Call, Phase};
use tapml_graph::{ErrorKind, NodeId, Result, Tensor};

/// What a line of reasoning comes to: each experiment that it asks for is run, and it begins anew with the outcome.
///
/// Outcomes are of this question alone, so that it should be about one call. What takes long belongs behind its last experiment.
///
/// # Errors
///
/// A request to stop, a lost device, or what the reasoning fails with.
pub(crate) fn conclude<T>(
    run: &mut DiagnosisContext<'_>,
    reason: impl Fn(Facts<'_>, &Outcomes) -> Reasoned<T>,
) -> Result<T> {
    let mut outcomes = Outcomes::default();
    loop {
        run.stop.check()?;
        match reason(run.facts(), &outcomes) {
            Ok(found) => return Ok(found),
            Err(Pause::Needs(experiment)) => perform(run, *experiment, &mut outcomes)?,
            Err(Pause::Failed(error)) => return Err(error),
        }
    }
}

/// Runs an experiment and keeps its outcome.
fn perform(run: &mut DiagnosisContext<'_>, experiment: Experiment, outcomes: &mut Outcomes) -> Result<()> {
    match experiment {
        Experiment::Repeat(call) => {
            let outputs = repeat(run, &call)?;
            outcomes.add_repeats(call, outputs);
        }
        Experiment::Evaluate(call) => {
            let exact = run.oracles.exact(&call, 0)?;
            outcomes.add_exact(call, exact);
        }
        Experiment::RunBehind(calls) => {
            let outcome = run_behind(run, &calls)?;
            outcomes.add_behind(*calls, outcome);
        }
        Experiment::Match(guesses) => {
            let same = match_guesses(run, &guesses)?;
            outcomes.add_matches(guesses, same);
        }
    }
    Ok(())
}

/// The outputs of the call, as often as the options say; a repeat that could not be run is left out.
fn repeat(run: &mut DiagnosisContext<'_>, call: &Call) -> Result<Vec<Vec<Tensor>>> {
    let mut observed = Vec::new();
    for _ in 0..run.options.repeats {
        let keep = &mut |_, outputs: Result<Vec<Tensor>>| observed.extend(outputs);
        run.target.replay(std::slice::from_ref(call), keep)?;
    }
    Ok(observed)
}

/// What the source gives for the first call, and the target for the second right behind it.
fn run_behind(run: &mut DiagnosisContext<'_>, calls: &[Call; 2]) -> Result<Option<RunBehind>> {
    let mut recorded = None;
    run.source.replay(&calls[..1], &mut |_, outputs| recorded = outputs.ok())?;
    let mut last = None;
    // In one replay, so that nothing runs between the two.
    // If only the first of them gives outputs, they are not taken for those of the second.
    run.target.replay(calls, &mut |at, outputs| last = outputs.ok().filter(|_| at == 1).or(last.take()))?;
    Ok(recorded.zip(last).map(|(recorded, outputs)| RunBehind { recorded, outputs }))
}

/// Which guesses give what was observed; see [`Outcomes::matches`].
fn match_guesses(run: &mut DiagnosisContext<'_>, guesses: &Guesses) -> Result<Vec<bool>> {
    let mut left: Vec<usize> = (0..guesses.calls.len()).collect();
    // A kernel that races may give anything once, so each guess must fit twice.
    for _ in 0..2 {
        run.stop.check()?;
        // The call itself runs last, beside the guesses, and must not fit.
        let calls = left.iter().map(|&i| &guesses.calls[i]).chain([&guesses.unchanged]);
        let calls: Vec<Call> = calls.cloned().collect();
        let mut same = vec![false; calls.len()];
        run.target.replay(&calls, &mut |i, outputs| {
            same[i] = outputs.is_ok_and(|outputs| are_same(&outputs, &guesses.outputs));
        })?;
        if same.pop() == Some(true) {
            left.clear();
        }
        left = left.into_iter().zip(same).filter(|(_, same)| *same).map(|(i, _)| i).collect();
        if left.is_empty() {
            break;
        }
    }
    Ok((0..guesses.calls.len()).map(|i| left.contains(&i)).collect())
}

/// What the checking device saw of a call.
#[derive(Default)]
pub(crate) struct Look {
    /// Everything it reported; not all of it is a defect.
    pub findings: Vec<Finding>,
    /// Why it did not run the call, or not to its end.
    pub missed: Option<String>,
}

/// What the checking device sees in a call, if it runs the same kernel.
/// Findings of calls before are thrown away first, so that each finding belongs to this call.
pub(crate) fn look(run: &mut DiagnosisContext<'_>, call: &Call, node: NodeId) -> Result<Look> {
    let missed = |reason: &str| Look { missed: Some(reason.into()), ..Look::default() };
    let Some(checker) = run.checker.as_deref_mut() else { return Ok(missed("there is no checking device")) };
    let phase = Phase::of_run(&call.symbols);
    let same =
        match (checker.kernel_for(&call.op, &call.input_types, phase), run.choices.kernel_at(node, phase)) {
            // Another kernel would tell nothing of the target's.
            (Ok(own), Ok(choice)) => own.hash == choice.hash,
            _ => false,
        };
    if !same {
        return Ok(missed("the checking device runs another kernel"));
    }
    checker.take_findings();
    let mut error = None;
    checker.replay(std::slice::from_ref(call), &mut |_, outputs| error = outputs.err())?;
    // What a checker cannot survive is no reason to end the diagnosis of another platform.
    let lost = error.as_ref().is_some_and(|e| e.kind() == ErrorKind::DeviceLost);
    let findings = if lost { Vec::new() } else { checker.take_findings() };
    Ok(Look { findings, missed: error.map(|e| e.to_string()) })
}
