//! One forward run of a model that generates no text.
//!
//! The model is traced on the source first, which gives all sizes and the expected outputs. Then it runs on
//! the target, node by node where the source must help, as one program where the target serves every node.

use super::open_platform;
use crate::onnx::{Inputs, TracedModel};
use crate::platform::Platform;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tapml_exec::{Fusing, Hybrid, HybridSide, LoadOptions};
use tapml_graph::{Context, Error, ErrorKind, Graph, Model, Node, Result, Symbols, Tensor};
use tapml_import::npy;
use tapml_import::onnx::is_onnx;
use tapml_kernels::Phase;
use tapml_migrate::{Progress, Stop};

/// Runs an ONNX model, or the graph of a suite of a PyTorch module, on a target, and on the source what the target does not serve.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunJob {
    /// The ONNX file, or the suite.
    pub model: PathBuf,
    /// Arrays for the model's inputs; a suite has some of its own.
    pub inputs: Inputs,
    /// Where it runs.
    pub target: String,
    /// The user's kernels, as `OP=FILE`.
    #[serde(default)]
    pub kernels: Vec<String>,
    /// What the sizes of all values are learned from, and what runs the operators that the target does not serve.
    #[serde(default = "super::cpu")]
    pub source: String,
    /// How often each set of inputs runs, for the times.
    #[serde(default = "default_repeats")]
    pub repeat: u32,
}

/// For serde.
fn default_repeats() -> u32 {
    1
}

/// The arrays that a run gave, by the names of the model's outputs.
pub type Outputs = BTreeMap<String, Tensor>;

/// What was run.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// Version of this form.
    pub schema: u32,
    /// The file.
    pub model: String,
    /// The word of the target.
    pub target: String,
    /// The word of the source.
    pub source: String,
    /// The kinds of operators and what ran them, in the order of the graph.
    pub ops: Vec<RunOp>,
    /// One for each set of inputs.
    pub runs: Vec<Run>,
    /// Times.
    pub seconds: RunSeconds,
}

/// What ran the nodes of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunOp {
    /// The kind, such as `onnx.Conv@11`.
    pub op: String,
    /// How many nodes.
    pub nodes: usize,
    /// The word of the platform.
    pub platform: String,
    /// The row of the kernel list, or the platform's own word for it.
    pub kernel: String,
    /// Why the target does not serve it, if the source ran it.
    pub reason: Option<String>,
}

/// One set of inputs.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// What the set is called.
    pub inputs: String,
    /// Its folder within the folder of outputs; empty if there is one set.
    pub folder: String,
    /// What came out.
    pub outputs: Vec<RunOutput>,
    /// Seconds of each repetition.
    pub seconds: Vec<f64>,
}

/// One output.
#[derive(Clone, Debug, Serialize)]
pub struct RunOutput {
    /// Its name in the model.
    pub name: String,
    /// Elements.
    pub dtype: String,
    /// Sizes.
    pub shape: Vec<usize>,
    /// The file, within the folder of outputs.
    pub file: String,
    /// Largest distance from what the source gives; `None` where one of the two is not finite and the other is.
    pub max_difference: Option<f64>,
    /// The largest finite magnitude of what the source gives.
    pub max_magnitude: f64,
}

/// Times of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunSeconds {
    /// The source's run, from which sizes are learned.
    pub trace: f64,
    /// Kernels compiled, weights uploaded.
    pub load: f64,
    /// All.
    pub total: f64,
}

impl RunJob {
    /// Runs every set of inputs; gives the report and each set's outputs.
    ///
    /// # Errors
    /// If an operator is served by neither platform, inputs do not fit, or a run fails.
    pub fn run(&self, progress: &dyn Progress, stop: &Stop) -> Result<(RunReport, Vec<Outputs>)> {
        let start = Instant::now();
        // A suite has inputs of its own, so that none are required.
        let suite = if is_onnx(&self.model) {
            None
        } else {
            Some(super::open_recorded(&self.model, &Inputs::default())?.ok_or_else(|| {
                let text = format!("{} is no ONNX model", self.model.display());
                Error::invalid(text).with_hint(
                    "`tapml run` takes `.onnx` files and suites of PyTorch modules; `tapml generate` runs language models",
                )
            })?)
        };
        let mut target = open_platform(&self.target, &self.kernels)?;
        let mut source = open_platform(&self.source, &[])?;
        let (inputs, from) = (&self.inputs, source.as_mut());
        let traced = match suite {
            None => TracedModel::trace(&self.model, inputs, from, progress, stop)?,
            Some((suite, model)) => TracedModel::of_suite((&suite, model), inputs, from, progress, stop)?,
        };
        let trace = start.elapsed().as_secs_f64();
        let model = &traced.first.model;
        let Placed { ops, on_target, fusing } = place_nodes(model.graph(), target.as_ref(), source.as_ref())?;
        progress.stage("load", 0);
        let side = |node: &Node| {
            if on_target.contains(&node.name) { HybridSide::Target } else { HybridSide::Source }
        };
        let (capacity, options) = (Symbols::np(1, 0), LoadOptions { fusing, ..LoadOptions::default() });
        let (from, to) = (source.as_mut(), target.as_mut());
        let mut hybrid = Hybrid::with_options(model, from, to, &side, &capacity, options)?;
        let load = start.elapsed().as_secs_f64() - trace;
        let (mut runs, mut outputs) = (Vec::new(), Vec::new());
        // Beside the folders lies the report.
        let mut folders = FileNames([RunReport::FILE.to_string()].into());
        progress.stage("run", traced.labels.len() as u64 * u64::from(self.repeat.max(1)));
        for (label, values) in traced.labels.iter().zip(traced.runs()) {
            let (mut seconds, mut found) = (Vec::new(), HashMap::new());
            for _ in 0..self.repeat.max(1) {
                stop.check()?;
                // A run must not see what the one before left.
                hybrid.reset()?;
                let begin = Instant::now();
                let given = run_inputs(model, values);
                found = hybrid.feed(given).context(|| format!("inputs `{label}`"))?;
                seconds.push(begin.elapsed().as_secs_f64());
                progress.advance(1);
            }
            let found: Outputs = found.into_iter().collect();
            let shown = compare_outputs(model.graph(), values, &found)?;
            // One set's outputs lie directly in the folder.
            let folder = if traced.labels.len() > 1 { folders.unique_name(label, "") } else { String::new() };
            runs.push(Run { inputs: label.clone(), folder, outputs: shown, seconds });
            outputs.push(found);
        }
        let report = RunReport {
            schema: 1,
            model: self.model.display().to_string(),
            target: self.target.clone(),
            source: self.source.clone(),
            ops,
            runs,
            seconds: RunSeconds { trace, load, total: start.elapsed().as_secs_f64() },
        };
        Ok((report, outputs))
    }
}

impl RunReport {
    /// The report's file beside the arrays, which every folder of outputs holds.
    pub const FILE: &str = "run.json";

    /// Writes the arrays that a run gave into a new folder: each as `.npy`, and if there are several sets of inputs, those
    /// of each in a folder of its own.
    pub fn write_arrays(&self, folder: &Path, outputs: &[Outputs]) -> Result<()> {
        for (run, arrays) in self.runs.iter().zip(outputs) {
            let within = folder.join(&run.folder);
            std::fs::create_dir_all(&within).map_err(|e| Error::io("create", &within, &e))?;
            for output in &run.outputs {
                let array = arrays.get(&output.name).ok_or_else(|| Error::bug("an output is missing"))?;
                npy::write(&within.join(&output.file), array)?;
            }
        }
        Ok(())
    }
}

/// Who runs what.
struct Placed {
    /// The kinds of operators with what runs them.
    ops: Vec<RunOp>,
    /// The nodes that the target runs.
    on_target: HashSet<String>,
    /// What is fused: as in a migration nothing where not the whole model runs on the target.
    fusing: Fusing,
}

/// A graph of others' operators runs once and whole: there is one phase.
const PHASE: Phase = Phase::Prefill;

/// Asks the target for every node, then the source for what is left.
fn place_nodes(graph: &Graph, target: &dyn Platform, source: &dyn Platform) -> Result<Placed> {
    let (mut ops, mut on_target): (Vec<RunOp>, _) = (Vec::new(), HashSet::new());
    for node in graph.nodes() {
        let types = graph.input_types(node);
        let (platform, kernel, reason) = match target.kernel_for(&node.op, &types, PHASE) {
            Ok(choice) => (target.word(), choice.name, None),
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let choice = source.kernel_for(&node.op, &types, PHASE)?;
                (source.word(), choice.name, Some(error.to_string()))
            }
            Err(error) => return Err(error.context(format!("node `{}`", node.name))),
        };
        if reason.is_none() {
            on_target.insert(node.name.clone());
        }
        count(&mut ops, node, platform, kernel, reason);
    }
    // Fused kernels cover several nodes; a node on the other side would cut through one.
    if on_target.len() < graph.nodes().len() {
        return Ok(Placed { ops, on_target, fusing: Fusing::Off });
    }
    if let Some(lowered) = target.lower(graph, PHASE)? {
        // The lowered graph's nodes are what runs.
        ops.clear();
        for node in lowered.nodes() {
            let choice = target.kernel_for(&node.op, &lowered.input_types(node), PHASE)?;
            count(&mut ops, node, target.word(), choice.name, None);
        }
    }
    Ok(Placed { ops, on_target, fusing: Fusing::All })
}

/// Counts a node among those of its kind that the same kernel runs.
fn count(ops: &mut Vec<RunOp>, node: &Node, platform: &str, kernel: String, reason: Option<String>) {
    let op = node.op.name();
    match ops.iter_mut().find(|o| o.op == op && o.platform == platform && o.kernel == kernel) {
        Some(known) => known.nodes += 1,
        None => {
            let (op, platform) = (op.to_string(), platform.to_string());
            ops.push(RunOp { op, nodes: 1, platform, kernel, reason });
        }
    }
}

/// The inputs of a run, of all its values.
fn run_inputs(model: &Model, values: &[Tensor]) -> HashMap<String, Tensor> {
    let inputs = model.graph().inputs();
    inputs.filter_map(|(id, input)| Some((input.name.clone(), values.get(id.0 as usize)?.clone()))).collect()
}

/// The outputs beside those of the source.
fn compare_outputs(graph: &Graph, values: &[Tensor], found: &Outputs) -> Result<Vec<RunOutput>> {
    let mut files = FileNames::default();
    let output = |output: &tapml_graph::Output| {
        let missing = || Error::bug(format!("output `{}` is missing", output.name));
        let own = found.get(&output.name).ok_or_else(missing)?;
        let recorded = values.get(output.value.0 as usize).ok_or_else(missing)?;
        if own.shape() != recorded.shape() {
            let (own, recorded) = (own.shape(), recorded.shape());
            let text = format!("output `{}` has sizes {own:?}, the source gives {recorded:?}", output.name);
            return Err(Error::bug(text));
        }
        let file = files.unique_name(&output.name, ".npy");
        let (max_difference, max_magnitude) = distance(&recorded.to_f64(), &own.to_f64());
        Ok(RunOutput {
            name: output.name.clone(),
            dtype: own.dtype().to_string(),
            shape: own.shape().to_vec(),
            file,
            max_difference,
            max_magnitude,
        })
    };
    graph.outputs().iter().map(output).collect()
}

/// The largest distance, `None` if one element is finite and the other is not, and the largest finite magnitude of the first.
fn distance(recorded: &[f64], own: &[f64]) -> (Option<f64>, f64) {
    let mut most = Some(0.0f64);
    for (a, b) in recorded.iter().zip(own) {
        // Equal infinities and two NaN count as equal.
        let apart = if (a == b) || (a.is_nan() && b.is_nan()) { 0.0 } else { (a - b).abs() };
        most = most.filter(|_| apart.is_finite()).map(|most| most.max(apart));
    }
    let finite = recorded.iter().map(|v| v.abs()).filter(|v| v.is_finite());
    (most, finite.fold(0.0, f64::max))
}

/// Names of files that are taken, in lower case: some file systems know no other.
#[derive(Default)]
struct FileNames(HashSet<String>);

impl FileNames {
    /// A name that is not taken yet, from one that may be any text.
    fn unique_name(&mut self, name: &str, ending: &str) -> String {
        // File systems allow 255 bytes.
        const LONGEST: usize = 100;
        let safe = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let safe: String = name.chars().map(safe).take(LONGEST).collect();
        // A leading dot hides a file.
        let name = match safe.trim_start_matches('.') {
            "" => "output",
            rest => rest,
        };
        let (mut file, mut count) = (format!("{name}{ending}"), 1);
        while !self.0.insert(file.to_lowercase()) {
            count += 1;
            file = format!("{name}-{count}{ending}");
        }
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_stay_in_their_folder() {
        for (name, file) in [
            ("scores", "scores"),
            ("../../etc/passwd", "_.._etc_passwd"),
            ("StatefulPartitionedCall:1", "StatefulPartitionedCall_1"),
            ("", "output"),
            ("..", "output"),
            ("é", "_"),
        ] {
            assert_eq!(FileNames::default().unique_name(name, ""), file);
        }
    }

    #[test]
    fn no_name_of_a_file_is_given_twice() {
        let mut names = FileNames::default();
        let given = ["a b", "a_b", "A.b", "a_B", ""].map(|name| names.unique_name(name, ".npy"));
        assert_eq!(given, ["a_b.npy", "a_b-2.npy", "A.b.npy", "a_B-3.npy", "output.npy"]);
    }

    #[test]
    fn distances_of_numbers_that_are_not_finite() {
        let (nan, infinity) = (f64::NAN, f64::INFINITY);
        assert_eq!(distance(&[1.0, -4.0, nan], &[1.5, -4.0, nan]), (Some(0.5), 4.0));
        assert_eq!(distance(&[infinity, 1.0], &[infinity, 1.0]), (Some(0.0), 1.0));
        assert_eq!(distance(&[infinity, 1.0], &[0.0, 1.0]).0, None);
        assert_eq!(distance(&[1.0], &[nan]).0, None);
    }
}
