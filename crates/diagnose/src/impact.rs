//! Harm: a wrong output put into the source's run in the place of the right one, and what becomes of the logits, or of the
//! token that is chosen by them. A run may be one of the lowered graph, with calls composed of the recorded ones.
//!
//! Everything after the wrong node is evaluated by the reference in f32, on recorded values, so that no fault of another node adds to
//! the harm.

use crate::context::DiagnosisContext;
use crate::report::Impact;
use std::cmp::Reverse;
use std::collections::HashMap;
use tapml_exec::LOGITS;
use tapml_graph::{Context, Error, ErrorKind, Model, Origin, Result, Tensor, ValueId};
use tapml_migrate::CaseResult;
use tapml_migrate::suite::{Case, Suite};
use tapml_migrate::{argmax, row_distance};
use tapml_reference::{Value, WeightCache, eval, on_pool};

/// Calls whose harm is measured, of all that fail.
/// Each takes a run of the rest of the model on the CPU.
const CALLS: usize = 4;

/// The harm of the failing call that hurts most, of a few: the worst ones and the earliest, of prompts and of single tokens.
/// How far a call is off says little of what it does: an infinite ratio may be one NaN behind a mask, and the last token's call
/// reaches no other. What could not be run has no output to look at.
///
/// # Errors
///
/// A request to stop, a lost device, or an evaluation that fails for reasons other than the wrong values.
pub(crate) fn of_worst(run: &mut DiagnosisContext<'_>, failed: &[&CaseResult]) -> Result<Option<Impact>> {
    let mut most: Option<Impact> = None;
    for case in candidates(run, failed) {
        run.stop.check()?;
        let found = of_call(run, case)?;
        let more = |old: &Impact, new: &Impact| new.weight() > old.weight();
        if found.as_ref().is_some_and(|new| most.as_ref().is_none_or(|old| more(old, new))) {
            most = found;
        }
    }
    Ok(most)
}

/// The calls whose harm is measured, each once.
fn candidates(run: &DiagnosisContext<'_>, failed: &[&CaseResult]) -> Vec<Case> {
    let judged = failed.iter().filter(|r| r.outcome.is_ok());
    let prompt = |case: Case| run.suite.frames()[case.frame].step == 0;
    // An infinite ratio counts least here; the first such call is taken beside the worst finite one.
    let finite = |r: &CaseResult| if r.ratio().is_finite() { r.ratio() } else { 0.0 };
    let mut cases = Vec::new();
    for of_prompt in [true, false] {
        let of_kind = judged.clone().filter(|r| prompt(r.case) == of_prompt);
        let worst = of_kind.clone().max_by(|a, b| finite(a).total_cmp(&finite(b)));
        // The first one that is not finite, or else the first at all: most of the model comes after it.
        let first = of_kind.min_by_key(|r| (r.ratio().is_finite(), r.case.node, Reverse(r.case.frame)));
        cases.extend(worst.into_iter().chain(first).map(|r| r.case));
    }
    cases.dedup();
    cases.truncate(CALLS);
    cases
}

/// The harm of one call of the suite as the target computes it. `None` if the target cannot run it, or if its outputs are
/// nothing that the rest of the model can go on with.
pub(crate) fn of_call(run: &mut DiagnosisContext<'_>, case: Case) -> Result<Option<Impact>> {
    let (call, _) = run.suite.call(case, run.model)?;
    let mut found = None;
    run.target.replay(std::slice::from_ref(&call), &mut |_, outputs| found = outputs.ok())?;
    let Some(outputs) = found else { return Ok(None) };
    // Only borrowed: the weights stay converted for the next call.
    let recorded = RecordedRuns { suite: run.suite, model: run.model, weights: &run.weights };
    if let Some(chosen) = recorded.choice(case, &outputs)? {
        return Ok(Some(chosen));
    }
    // On the pool that evaluations use: from any other thread each node of the model would wake it anew.
    match on_pool(u64::MAX, || recorded.logits(case, outputs)) {
        Ok(Some(changed)) => recorded.impact(case, &changed).map(Some),
        Ok(None) => Ok(None),
        // Such as an index of an expert that does not exist.
        Err(e) if e.kind() == ErrorKind::InvalidInput => Ok(None),
        Err(e) => Err(e),
    }
}

/// What the source's runs consist of.
struct RecordedRuns<'a> {
    /// The recorded values of every run.
    suite: &'a Suite,
    /// Gives weights that are not in `weights` yet.
    model: &'a Model,
    /// Weights converted to f32.
    weights: &'a WeightCache<f32>,
}

impl RecordedRuns<'_> {
    /// The harm of a node that chooses tokens by the logits, which stay as they are; `None` if it is another one.
    fn choice(&self, case: Case, outputs: &[Tensor]) -> Result<Option<Impact>> {
        let graph = self.suite.graph();
        let (node, logits) = (graph.node(case.node), graph.outputs().iter().find(|o| o.name == LOGITS));
        let reads = logits.is_some_and(|output| node.inputs.contains(&output.value));
        let (Some(&id), Some(found)) = (node.outputs.last(), outputs.last()) else { return Ok(None) };
        // Such a node reads the logits and gives indices of tokens.
        if !reads || found.dtype().is_float() {
            return Ok(None);
        }
        let (expected, found) = (self.suite.value(case.frame, id)?.to_f64(), found.to_f64());
        let changed = expected.iter().zip(&found).filter(|(a, b)| a != b).count() as u64;
        Ok(Some(Impact {
            case: self.suite.case_id(case),
            kl: 0.0,
            kl_max: 0.0,
            top1_changed: changed > 0,
            changed,
            positions: expected.len() as u64,
        }))
    }

    /// The logits of the case's run with other outputs of its node: what depends on them is evaluated anew, all else is as
    /// recorded. `None` if the graph has none.
    fn logits(&self, case: Case, outputs: Vec<Tensor>) -> Result<Option<Tensor>> {
        let graph = self.suite.graph();
        let Some(output) = graph.outputs().iter().find(|o| o.name == LOGITS) else { return Ok(None) };
        let node = graph.node(case.node);
        let mut changed: HashMap<ValueId, Tensor> = node.outputs.iter().copied().zip(outputs).collect();
        let symbols = &self.suite.frames()[case.frame].symbols;
        // Nodes are in an order in which values come before their readers.
        for node in graph.nodes().iter().skip(case.node.0 as usize + 1) {
            // The logits are there; nothing behind them matters.
            if changed.contains_key(&output.value) {
                break;
            }
            // What does not depend on the wrong output is as recorded.
            if !node.inputs.iter().any(|v| changed.contains_key(v)) {
                continue;
            }
            let input = |&v: &ValueId| self.value(case.frame, &changed, v);
            let inputs: Vec<Value<f32>> = node.inputs.iter().map(input).collect::<Result<_>>()?;
            let outputs = eval(&node.op, symbols, &inputs).context(|| format!("node `{}`", node.name))?;
            for (&id, output) in node.outputs.iter().zip(outputs) {
                // Rounded to the graph's type, as the source stores it.
                changed.insert(id, output.to_tensor(graph.value(id).ty.dtype)?);
            }
        }
        match changed.remove(&output.value) {
            Some(logits) => Ok(Some(logits)),
            // The wrong output does not reach the logits.
            None => self.suite.value(case.frame, output.value).map(Some),
        }
    }

    /// A value as the changed run has it: evaluated anew, a weight, or recorded.
    fn value(&self, frame: usize, changed: &HashMap<ValueId, Tensor>, id: ValueId) -> Result<Value<f32>> {
        let described = self.suite.graph().value(id);
        match (changed.get(&id), described.origin) {
            (Some(tensor), _) => Value::from_tensor(tensor),
            (None, Origin::Weight) => self.weights.get_weight(self.model, &described.name),
            (None, _) => Value::from_tensor(&self.suite.value(frame, id)?),
        }
    }

    /// Compares logits with those of the source in the case's run.
    fn impact(&self, case: Case, changed: &Tensor) -> Result<Impact> {
        let output = self.suite.graph().outputs().iter().find(|o| o.name == LOGITS);
        let output = output.ok_or_else(|| Error::bug("logits were there"))?;
        let expected = self.suite.value(case.frame, output.value)?;
        let (width, case) = (expected.row_len().max(1), self.suite.case_id(case));
        let mut impact = Impact { case, kl: 0.0, kl_max: 0.0, top1_changed: false, changed: 0, positions: 0 };
        let (expected, changed) = (expected.to_f32(), changed.to_f32());
        for (expected, found) in expected.chunks(width).zip(changed.chunks(width)) {
            let (kl, _) = row_distance(expected, found);
            impact.kl += kl;
            impact.kl_max = impact.kl_max.max(kl);
            // A row that is not finite has no first token.
            impact.changed += u64::from(!kl.is_finite() || argmax(expected) != argmax(found));
            impact.positions += 1;
        }
        impact.kl /= impact.positions.max(1) as f64;
        impact.top1_changed = impact.changed > 0;
        Ok(impact)
    }
}
