//! ONNX models as jobs take them: arrays for their inputs, and the run on a source that makes them graphs.

mod inputs;
mod numbers;
mod options;
mod picture;
mod sound;
mod tokens;

pub use inputs::{InputSet, Inputs};

use crate::exec::Platform;
use crate::graph::op::{Declared, Foreign};
use crate::graph::{Context, Tensor};
use crate::import::onnx::{File, Runner, Traced};
use crate::migrate::{Progress, RecordedRun, Stop, identity_of_file, record, tensor_type};
use crate::reference::foreign::Evaluator;
use crate::{Error, Result};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Runs nodes on the source.
struct OnSource<'a> {
    source: &'a mut dyn Platform,
    progress: &'a dyn Progress,
    stop: &'a Stop,
}

impl Runner for OnSource<'_> {
    fn run(&mut self, node: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>> {
        self.stop.check()?;
        let gave = self.source.discover(node, op, inputs);
        self.progress.advance(1);
        gave
    }
}

/// A platform that evaluates operators of others in `f64`.
pub struct PlatformEvaluator(Mutex<Box<dyn Platform>>);

impl PlatformEvaluator {
    /// Of this platform, such as `reference`.
    pub fn new(platform: Box<dyn Platform>) -> PlatformEvaluator {
        PlatformEvaluator(Mutex::new(platform))
    }
}

impl Evaluator for PlatformEvaluator {
    fn evaluate(&self, op: &Foreign, inputs: &[Tensor], constants: &[bool]) -> Result<Vec<Tensor>> {
        let inputs: Vec<(Tensor, bool)> =
            inputs.iter().zip(constants).map(|(tensor, &constant)| (tensor.clone(), constant)).collect();
        let mut platform = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let outputs = platform.discover("oracle", op, &inputs)?;
        let declared = op.outputs().iter().filter_map(Declared::ty);
        for (ty, output) in declared.zip(&outputs) {
            let found = tensor_type(output);
            if found != *ty {
                return Err(Error::invalid(format!("the oracle gives {found}, expected {ty}")));
            }
        }
        Ok(outputs)
    }
}

/// A model that was run on a source with each set of inputs: one graph, and the values of each run.
pub struct TracedModel {
    /// The run with the first set.
    pub first: Traced,
    /// What each set is called.
    pub labels: Vec<String>,
    /// Values of the runs after the first.
    pub more: Vec<Vec<Tensor>>,
}

impl TracedModel {
    /// Runs a model.
    ///
    /// # Errors
    /// Two sets give two graphs: their sizes differ, or another branch was taken.
    pub fn of(
        path: &Path,
        inputs: &Inputs,
        source: &mut dyn Platform,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<TracedModel> {
        let file = File::open(path)?;
        let sets = inputs.read(path, &file, progress)?;
        let nodes = file.outline().nodes as u64;
        progress.stage("carve", nodes.saturating_mul(sets.len() as u64));
        let mut traced: Option<TracedModel> = None;
        for set in sets {
            let mut runner = OnSource { source, progress, stop };
            let run = file.trace(&set.arrays, &mut runner);
            let run =
                run.context(|| path.display().to_string()).context(|| format!("inputs `{}`", set.label))?;
            let Some(known) = &mut traced else {
                traced = Some(TracedModel { first: run, labels: vec![set.label], more: Vec::new() });
                continue;
            };
            if run.model.graph() != known.first.model.graph() {
                let (own, first) = (&set.label, &known.labels[0]);
                let text = format!(
                    "inputs `{own}` give another graph than `{first}`: other sizes, or another branch"
                );
                return Err(Error::invalid(text).with_hint("carve a suite for each"));
            }
            known.labels.push(set.label);
            known.more.push(run.values);
        }
        traced.ok_or_else(|| Error::invalid("no inputs given"))
    }

    /// The values of each run, in the order of the graph's values.
    pub fn runs(&self) -> impl Iterator<Item = &Vec<Tensor>> {
        std::iter::once(&self.first.values).chain(&self.more)
    }

    /// Writes the suite of these runs.
    pub fn write(
        &self,
        path: &Path,
        source: &dyn Platform,
        out: (&Path, bool),
    ) -> Result<crate::migrate::suite::Manifest> {
        let runs: Vec<RecordedRun<'_>> = (self.labels.iter().zip(self.runs()))
            .map(|(label, values)| RecordedRun { label: label.clone(), values })
            .collect();
        let model = &self.first.model;
        record(out, model, identity_of_file(path, model), source.describe(), &runs)
    }
}
