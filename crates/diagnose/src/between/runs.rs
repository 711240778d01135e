//! Runs of a hybrid model over the recorded prompts, step by step.
//!
//! A text is a list of steps from an empty state, such as a prompt and then single tokens.

use crate::context::DiagnosisContext;
use std::collections::HashMap;
use tapml_exec::{Hybrid, Interface, LOGITS};
use tapml_graph::{Graph, Result, Symbol, Symbols, Tensor, ValueId};
use tapml_migrate::suite::Suite;
use tapml_migrate::{MovementLimits, row_distance};

/// One run of the graph.
#[derive(Clone, Debug)]
pub(super) struct RunStep {
    /// Index of the recorded run, if this is one.
    pub frame: Option<usize>,
    /// `p0.s3`, as cases of the suite begin; further words tell how a run differs from the recorded one.
    pub label: String,
    /// Inputs of the graph by name.
    pub inputs: HashMap<String, Tensor>,
    /// Rows of the step, and positions before it.
    pub symbols: Symbols,
    /// The recorded run that has the same positions, and the first row of these in it.
    pub like: (usize, usize),
}

/// The recorded steps of a prompt.
pub(super) fn steps(suite: &Suite, prompt: usize) -> Result<Vec<RunStep>> {
    let frames = suite.frames().iter().enumerate().filter(|(_, f)| f.prompt as usize == prompt);
    let step = |(frame, run): (usize, &tapml_migrate::suite::Frame)| {
        Ok(RunStep {
            frame: Some(frame),
            label: format!("p{prompt}.s{}", run.step),
            inputs: suite.inputs(frame)?,
            symbols: run.symbols.clone(),
            like: (frame, 0),
        })
    };
    frames.map(step).collect()
}

/// A prompt in two steps, which no recorded run is: several rows after others. `None` if it has fewer than 3 tokens, or if
/// the model has inputs besides the tokens, or is an encoder, which sees all tokens at once.
pub(super) fn halves(suite: &Suite, prompt: usize) -> Result<Option<Vec<RunStep>>> {
    let ids = &suite.manifest().prompts[prompt].ids;
    let frame = suite.frames().iter().position(|f| (f.prompt as usize, f.step) == (prompt, 0));
    let logits = suite.graph().outputs().iter().any(|o| o.name == LOGITS);
    let (Some(frame), 3.., 1, true) = (frame, ids.len(), suite.graph().inputs().count(), logits) else {
        return Ok(None);
    };
    let interface = Interface::from_graph(suite.graph())?;
    // At least 1, since there are 3 tokens or more.
    let middle = ids.len() / 2;
    let half = |ids: &[u32], before: usize| {
        Ok(RunStep {
            frame: None,
            label: format!("p{prompt}.s0 in steps of {middle} and {} tokens, at {before},", ids.len()),
            inputs: interface.inputs(ids)?,
            symbols: interface.symbols(ids.len(), before),
            like: (frame, before),
        })
    };
    let (first, second) = ids.split_at(middle);
    Ok(Some(vec![half(first, 0)?, half(second, middle)?]))
}

/// Room for the longest of these steps, and for the last.
/// `p` has room for a whole step behind the last position.
pub(super) fn capacity(steps: &[RunStep]) -> Symbols {
    let most = |symbol| steps.iter().filter_map(|s| s.symbols.get(symbol)).max().unwrap_or(0);
    Symbols::np(most(Symbol::N).max(1), most(Symbol::P) + most(Symbol::N).max(1))
}

/// Sees a step, the hybrid after it, and its outputs by name.
type See<'a> = dyn FnMut(&RunStep, &mut Hybrid, HashMap<String, Tensor>) -> Result<()> + 'a;

/// Runs the steps from an empty state and shows each result.
pub(super) fn walk(
    run: &DiagnosisContext<'_>,
    hybrid: &mut Hybrid,
    steps: &[RunStep],
    see: &mut See<'_>,
) -> Result<()> {
    hybrid.reset()?;
    for step in steps {
        let outputs = feed(run, hybrid, step)?;
        see(step, hybrid, outputs)?;
    }
    Ok(())
}

/// Runs one step behind those before.
pub(super) fn feed(
    run: &DiagnosisContext<'_>,
    hybrid: &mut Hybrid,
    step: &RunStep,
) -> Result<HashMap<String, Tensor>> {
    run.stop.check()?;
    hybrid.feed(step.inputs.clone())
}

/// How many of the shortest texts are looked at more closely.
/// Two texts show what is left of one when the next begins.
pub(super) const SHORT: usize = 2;

/// Numbers that a text's steps are given.
pub(super) fn tokens(steps: &[RunStep]) -> usize {
    steps.iter().flat_map(|s| s.inputs.values()).map(Tensor::len).sum()
}

/// The beginnings of the shortest texts: two steps of each.
pub(super) fn short(texts: &[Vec<RunStep>]) -> Vec<Vec<RunStep>> {
    let mut short: Vec<&Vec<RunStep>> = texts.iter().collect();
    short.sort_by_key(|steps| steps.first().map(|s| tokens(std::slice::from_ref(s))));
    short.into_iter().take(SHORT).map(|s| s[..s.len().min(2)].to_vec()).collect()
}

/// The largest `|Δ| / allowed` of a step's results to what the source gave for the same positions; infinite if a value is
/// not finite.
///
/// Rows of a step that is a part of a recorded one are compared with the same rows there.
pub(super) fn ratio(
    run: &DiagnosisContext<'_>,
    limits: &MovementLimits,
    step: &RunStep,
    outputs: &HashMap<String, Tensor>,
) -> Result<f64> {
    let (frame, first) = step.like;
    let (mut worst, mut before) = (0.0f64, 0);
    for (name, value) in results(run.suite.graph()) {
        let Some(found) = outputs.get(name) else { continue };
        let expected = run.suite.value(frame, value)?;
        let width = expected.row_len().max(1);
        let rows = expected.len() / width;
        let tokens = |symbols: &Symbols| symbols.get(Symbol::N).unwrap_or(1);
        let end = first as u64 + tokens(&step.symbols) == tokens(&run.suite.frames()[frame].symbols);
        if rows == 1 && !end {
            // Logits of the last position only, and this is not the last.
            continue;
        }
        let (expected, found) = (expected.to_f32(), found.to_f32());
        // Results with one row belong to the last position, wherever the step begins.
        let same = expected.chunks(width).enumerate().skip(if rows > 1 { first } else { 0 });
        for ((row, expected), found) in same.zip(found.chunks(width)) {
            let (_, error) = row_distance(expected, found);
            // Rows are numbered over all results of the frame, in their order.
            let allowed = limits.allowed_movement(frame, before + row);
            let ratio = if error == 0.0 { 0.0 } else { error / allowed };
            worst = worst.max(if ratio.is_nan() { f64::INFINITY } else { ratio });
        }
        before += rows;
    }
    Ok(worst)
}

/// What a model is judged by: its logits, or, if it has none, all its results.
pub(super) fn results(graph: &Graph) -> Vec<(&str, ValueId)> {
    let logits = graph.outputs().iter().find(|o| o.name == LOGITS);
    let outputs = logits.map_or(graph.outputs(), std::slice::from_ref);
    outputs.iter().map(|o| (o.name.as_str(), o.value)).collect()
}
