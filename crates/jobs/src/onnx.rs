//! Models of others' operators as jobs take them: arrays for their inputs, and the run on a source that gives all their values.
//!
//! Running a model and recording it is one thing here (`File::trace`): the graph's sizes come from the run.

mod inputs;
mod numbers;
mod options;
mod picture;
mod sound;
mod source;
mod tokens;

pub use inputs::{InputSet, Inputs, Takes};

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use tapml_exec::Platform;
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{Context, Error, Model, Op, Result, Tensor, Value, ValueId};
use tapml_import::onnx::{File, OperatorRunner, Traced};
use tapml_migrate::suite::Suite;
use tapml_migrate::{Progress, RecordedRun, Stop, identity_of_file, record, tensor_type};
use tapml_reference::foreign::Evaluator;

/// Runs nodes on the source.
/// Counts progress by nodes and stops between two of them.
struct OnSource<'a> {
    source: &'a mut dyn Platform,
    progress: &'a dyn Progress,
    stop: &'a Stop,
}

impl OperatorRunner for OnSource<'_> {
    fn run(&mut self, node: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>> {
        self.stop.check()?;
        let gave = self.source.discover(node, op, inputs);
        self.progress.advance(1);
        gave
    }
}

/// A platform that evaluates operators of others in `f64`.
///
/// The lock makes it usable by oracles of several threads; calls run one at a time.
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
        // A panic of another call leaves the platform as usable as it was.
        let mut platform = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let outputs = platform.discover("oracle", op, &inputs)?;
        let declared = op.outputs().iter().filter_map(DeclaredType::ty);
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
    pub fn trace(
        path: &Path,
        inputs: &Inputs,
        source: &mut dyn Platform,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<TracedModel> {
        let file = File::open(path)?;
        let sets = inputs.read(path, &file, progress)?;
        // Saturating: the number of nodes is a claim of the file, and only progress depends on it.
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
            // One suite has one graph; calls of several runs share its nodes.
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

    /// Runs the graph of a suite of others' operators: with the inputs that are given, else with those that it holds.
    ///
    /// # Errors
    /// An input is missing, or of another type than the graph says: its sizes are those of the recorded run.
    pub fn of_suite(
        (suite, model): (&Suite, Model),
        inputs: &Inputs,
        source: &mut dyn Platform,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<TracedModel> {
        let sets = if inputs.is_empty() {
            (0..suite.frames().len())
                .map(|at| Ok(InputSet { label: format!("recorded {at}"), arrays: suite.inputs(at)? }))
                .collect::<Result<_>>()?
        } else {
            inputs.read(suite.path(), model.graph(), progress)?
        };
        progress.stage("carve", (model.graph().nodes().len() * sets.len()) as u64);
        let (mut labels, mut runs) = (Vec::new(), Vec::new());
        for InputSet { label, arrays } in sets {
            let mut runner = OnSource { source, progress, stop };
            runs.push(values(&model, &arrays, &mut runner).context(|| format!("inputs `{label}`"))?);
            labels.push(label);
        }
        let mut runs = runs.into_iter();
        let values = runs.next().ok_or_else(|| Error::invalid("the suite holds no run"))?;
        let first = Traced { model, values, unrolled: Vec::new() };
        Ok(TracedModel { first, labels, more: runs.collect() })
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
    ) -> Result<tapml_migrate::suite::Manifest> {
        let runs: Vec<RecordedRun<'_>> = (self.labels.iter().zip(self.runs()))
            .map(|(label, values)| RecordedRun { label: label.clone(), values })
            .collect();
        let model = &self.first.model;
        record(out, model, identity_of_file(path, model), source.describe(), &runs)
    }
}

/// Every value of a graph of others' operators with these inputs, by its id.
/// Runs node by node, without a program: types are checked after each.
fn values(
    model: &Model,
    arrays: &HashMap<String, Tensor>,
    runner: &mut dyn OperatorRunner,
) -> Result<Vec<Tensor>> {
    let graph = model.graph();
    let given = |value: &Value| match arrays.get(&value.name) {
        Some(array) if tensor_type(array) == value.ty => Ok(array.clone()),
        Some(array) => {
            let text =
                format!("input `{}` is {}, the graph takes {}", value.name, tensor_type(array), value.ty);
            Err(Error::invalid(text).with_hint("record the module again with arguments of these sizes"))
        }
        None => Err(Error::invalid(format!("nothing is given for the input `{}`", value.name))),
    };
    if let Some(name) = arrays.keys().find(|name| !graph.inputs().any(|(_, input)| input.name == **name)) {
        return Err(Error::invalid(format!("the graph has no input `{name}`")));
    }
    let mut known: HashMap<ValueId, (Tensor, bool)> = HashMap::new();
    for (id, input) in graph.inputs() {
        known.insert(id, (given(input)?, false));
    }
    for (id, weight) in graph.weights() {
        known.insert(id, (model.weight(&weight.name)?, true));
    }
    let missing = || Error::bug("a value of the graph is missing");
    for node in graph.nodes() {
        let Op::Foreign(op) = &node.op else {
            return Err(Error::bug(format!("`{}` is no operator of others", node.op.name())));
        };
        let taken = node.inputs.iter().map(|id| known.get(id).cloned().ok_or_else(missing));
        let gave = runner.run(&node.name, op, &taken.collect::<Result<Vec<_>>>()?)?;
        for (&id, tensor) in node.outputs.iter().zip(gave) {
            let (found, wanted) = (tensor_type(&tensor), &graph.value(id).ty);
            if found != *wanted {
                let text =
                    format!("node `{}` ({}) gives {found}, the graph says {wanted}", node.name, op.kind());
                return Err(Error::invalid(text));
            }
            known.insert(id, (tensor, false));
        }
    }
    // In the order of ids, as suites store them.
    let ids = (0..graph.values().len()).map(|at| ValueId(at as u32));
    ids.map(|id| known.remove(&id).map(|(tensor, _)| tensor).ok_or_else(missing)).collect()
}
