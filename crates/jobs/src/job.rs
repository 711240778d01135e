//! The long jobs, as plain data: carve, check, migrate, diagnose. What the command line and other languages run alike.
//! A job says nothing and draws nothing; it tells its progress, and ends when it is asked to.
//!
//! Unknown fields are refused (`deny_unknown_fields`), so that a misspelt option of a caller is no silent
//! default.

use crate::model::{GraphOptions, default_ledger, identity, suite_model};
use crate::onnx::{Inputs, PlatformEvaluator, TracedModel};
use crate::platform::{self, Platform, PlatformSpec};
use crate::prompts::Prompts;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tapml_diagnose::Reduction;
use tapml_engine::Tokenizer;
use tapml_graph::paged::PAGES;
use tapml_graph::{Error, Graph, Model, Op, Result};
use tapml_import::onnx::is_onnx;
use tapml_import::{Checkpoint, LogitRows};
use tapml_kernels::Overrides;
use tapml_migrate::ledger::LedgerFolder;
use tapml_migrate::report::{CheckReport, MigrateReport};
use tapml_migrate::suite::{Suite, Totals};
use tapml_migrate::{CarveOptions, CheckOptions, MigrateOptions, Oracles, Progress, Stop};
use tapml_reduce::{ExportedProgram, Files};

mod checkpoint_options;
mod diagnose;
mod record;
mod run;

use checkpoint_options::CheckpointOptions;
pub use diagnose::DiagnoseJob;
pub use record::{RecordJob, RecordReport};
pub use run::{Outputs, Run, RunJob, RunOp, RunOutput, RunReport, RunSeconds};

/// Where the model is known to work, unless a job says otherwise.
/// The default source: the reference, which every machine has.
fn cpu() -> String {
    "cpu".into()
}

/// Opens a platform by its word with the user's kernels, given as `OP=FILE`.
pub fn open_platform(word: &str, kernels: &[String]) -> Result<Box<dyn Platform>> {
    platform::open_ranks(&PlatformSpec::parse_ranks(word)?, overrides(kernels)?, None)
}

/// The same for a graph; see [`overrides_for`]. A graph that is shared out already stays as it is, and parts of it run on
/// ranks, too.
pub fn open_platform_for(word: &str, kernels: &[String], graph: &Graph) -> Result<Box<dyn Platform>> {
    platform::open_ranks(&PlatformSpec::parse_ranks(word)?, overrides_for(kernels, graph)?, graph.ranks())
}

/// The kernels of a graph, with the user's. One whose texts lie in pages runs on kernels by which a row's results depend on that
/// row alone, as it does when it serves.
pub fn overrides_for(kernels: &[String], graph: &Graph) -> Result<Overrides> {
    let overrides = overrides(kernels)?;
    let paged = graph.find_value(PAGES).is_some();
    Ok(if paged { overrides.with_row_invariance() } else { overrides })
}

/// Exact results of one suite; `oracle` names a platform that evaluates in `f64` what TapML does not.
///
/// # Errors
/// If `oracle` names no platform of this build, or it cannot be opened.
pub fn oracles(oracle: Option<&str>) -> Result<Oracles> {
    let own = Oracles::new(Oracles::BUDGET);
    match oracle {
        None => Ok(own),
        Some(word) => {
            let platform = open_platform(word, &[]).map_err(|e| e.context("the oracle"))?;
            Ok(own.with_evaluator(Box::new(PlatformEvaluator::new(platform))))
        }
    }
}

/// A call, told as JSON, with its arrays, as files that run on the runtime of this word without TapML; see
/// [`tapml_reduce::WriteProgram`].
pub fn write_program(word: &str, call: &str, arrays: &Files) -> Option<ExportedProgram> {
    #[cfg(feature = "remote")]
    return crate::agents::write_program(word, call, arrays);
    #[cfg(not(feature = "remote"))]
    {
        // Other runtimes are reached through agents alone.
        let _ = (word, call, arrays);
        None
    }
}

/// Reads the user's kernels, given as `OP=FILE`.
pub fn overrides(kernels: &[String]) -> Result<Overrides> {
    let mut overrides = Overrides::default();
    kernels.iter().try_for_each(|kernel| overrides.add(kernel))?;
    Ok(overrides)
}

/// Runs a model on the source with prompts and records every node call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CarveJob {
    /// Checkpoint folder, GGUF or ONNX file.
    pub model: PathBuf,
    /// Arrays for the inputs of an ONNX model, in the place of prompts.
    #[serde(default)]
    pub inputs: Inputs,
    /// The suite's folder; must not exist unless `overwrite`.
    pub out: PathBuf,
    /// What the model reads.
    #[serde(default)]
    pub prompts: Prompts,
    /// Whether an existing suite is replaced.
    #[serde(default)]
    pub overwrite: bool,
    /// Where the model is known to work.
    #[serde(default = "cpu")]
    pub source: String,
    /// Decode steps after each prompt; [`CarveJob::STEPS`] if not given.
    #[serde(default)]
    pub steps: Option<u32>,
    /// Whether the weights go into the suite.
    #[serde(default)]
    pub self_contained: bool,
    /// How the checkpoint becomes a graph.
    #[serde(default)]
    pub graph: GraphOptions,
}

/// The report of a carve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CarveReport {
    /// Version of the fields.
    pub schema: u32,
    /// The checkpoint.
    pub model: String,
    /// The platform word of the source.
    pub source: String,
    /// The suite's folder.
    pub suite: String,
    /// Number of prompts.
    pub prompts: usize,
    /// Decode steps after each.
    pub steps: u32,
    /// Calls, tensors and bytes.
    pub totals: Totals,
    /// Nodes of the graph.
    pub nodes: usize,
    /// What of an ONNX model was unrolled: a sentence for each node with graphs within it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unrolled: Vec<String>,
    /// Wall-clock time.
    pub seconds: CarveSeconds,
}

/// Times of a carve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CarveSeconds {
    /// Within the source's runs, recording included.
    pub run: f64,
    /// All of it.
    pub total: f64,
}

impl CarveJob {
    /// Decode steps unless a user says otherwise: few, as each adds a call of every node to the suite.
    pub const STEPS: u32 = 4;

    /// Carves. What the checkpoint has to say (see [`Checkpoint::notes`]) goes to `progress`.
    ///
    /// # Errors
    /// If the model, its tokenizer or the source cannot be opened, the suite's folder exists, or a run
    /// fails.
    pub fn run(&self, progress: &dyn Progress, stop: &Stop) -> Result<CarveReport> {
        if is_onnx(&self.model) {
            return self.run_onnx(progress, stop);
        }
        if !self.inputs.is_empty() {
            return Err(Error::invalid("arrays are inputs of ONNX models; this model reads prompts"));
        }
        let (checkpoint, model) = open(&self.graph, &self.model, progress)?;
        // Opened before the source: a missing file is told before a device is taken.
        let tokenizer = Tokenizer::open(checkpoint.dir())?;
        let prompts = self.prompts.read(&checkpoint, &tokenizer)?;
        let mut source = open_platform(&self.source, &[])?;
        let options = CarveOptions {
            out: &self.out,
            overwrite: self.overwrite,
            steps: self.steps.unwrap_or(CarveJob::STEPS),
            self_contained: self.self_contained,
            context: checkpoint.context() as u32,
            decode: &|ids| tokenizer.decode(ids).unwrap_or_default(),
        };
        let identity = identity(&checkpoint)?;
        let carved =
            tapml_migrate::carve(source.as_mut(), &model, identity, &prompts, &options, progress, stop)?;
        let seconds = CarveSeconds { run: carved.running.as_secs_f64(), total: carved.total.as_secs_f64() };
        Ok(CarveReport {
            schema: 1,
            model: self.model.display().to_string(),
            source: self.source.clone(),
            suite: self.out.display().to_string(),
            prompts: prompts.len(),
            steps: carved.manifest.settings.steps,
            totals: carved.manifest.totals.clone(),
            nodes: model.graph().nodes().len(),
            unrolled: Vec::new(),
            seconds,
        })
    }

    /// What only a checkpoint takes.
    fn checkpoint_options(&self) -> CheckpointOptions<'_> {
        CheckpointOptions { prompts: &self.prompts, steps: self.steps, graph: &self.graph }
    }

    /// An ONNX model runs one time for each set of inputs; there are no steps.
    fn run_onnx(&self, progress: &dyn Progress, stop: &Stop) -> Result<CarveReport> {
        self.checkpoint_options().expect_none_for_onnx(&self.model)?;
        let start = Instant::now();
        let mut source = open_platform(&self.source, &[])?;
        let traced = TracedModel::trace(&self.model, &self.inputs, source.as_mut(), progress, stop)?;
        // Tracing is the source's run; writing comes after.
        let run = start.elapsed().as_secs_f64();
        let manifest = traced.write(&self.model, source.as_ref(), (&self.out, self.overwrite))?;
        Ok(CarveReport {
            schema: 1,
            model: self.model.display().to_string(),
            source: self.source.clone(),
            suite: self.out.display().to_string(),
            prompts: traced.labels.len(),
            steps: 0,
            totals: manifest.totals,
            nodes: traced.first.model.graph().nodes().len(),
            unrolled: traced.first.unrolled,
            seconds: CarveSeconds { run, total: start.elapsed().as_secs_f64() },
        })
    }
}

/// Replays a suite's calls on a target, each alone.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckJob {
    /// The suite's folder.
    pub suite: PathBuf,
    /// The platform under test.
    pub target: String,
    /// The user's kernels, as `OP=FILE`.
    #[serde(default)]
    pub kernels: Vec<String>,
    /// Only these operators, if any are named.
    #[serde(default)]
    pub ops: Vec<String>,
    /// Only these cases, if any are named.
    #[serde(default)]
    pub cases: Vec<String>,
    /// The checkpoint, if it is no longer where it was.
    #[serde(default)]
    pub model: Option<PathBuf>,
    /// Who evaluates operators of others that TapML does not.
    #[serde(default)]
    pub oracle: Option<String>,
}

impl CheckJob {
    /// Checks.
    ///
    /// # Errors
    /// If the suite, its weights or the target cannot be opened, or a filter names nothing. Wrong results
    /// are part of the report.
    pub fn run(&self, progress: &dyn Progress, stop: &Stop) -> Result<CheckReport> {
        let suite = Suite::open(&self.suite)?;
        let model = suite_model(&suite, self.model.as_deref())?;
        let mut target = open_platform_for(&self.target, &self.kernels, model.graph())?;
        let options = CheckOptions { ops: self.ops.clone(), cases: self.cases.clone() };
        let oracles = oracles(self.oracle.as_deref())?;
        Ok(tapml_migrate::check(&suite, &model, target.as_mut(), &oracles, &options, progress, stop)?.report)
    }
}

/// Moves a model to a target, one operator kind at a time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigrateJob {
    /// Checkpoint folder or GGUF file.
    pub model: PathBuf,
    /// The platform to move to.
    pub target: String,
    /// The user's kernels, as `OP=FILE`.
    #[serde(default)]
    pub kernels: Vec<String>,
    /// Where the model is known to work.
    #[serde(default = "cpu")]
    pub source: String,
    /// What the model reads.
    #[serde(default)]
    pub prompts: Prompts,
    /// Arrays for the inputs of an ONNX model, in the place of prompts.
    #[serde(default)]
    pub inputs: Inputs,
    /// Who evaluates operators of others that TapML does not.
    #[serde(default)]
    pub oracle: Option<String>,
    /// Decode steps after each prompt; [`MigrateJob::STEPS`] if not given.
    #[serde(default)]
    pub steps: Option<u32>,
    /// Folder that keeps what was decided; see [`default_ledger`].
    #[serde(default)]
    pub ledger: Option<PathBuf>,
    /// How the checkpoint becomes a graph.
    #[serde(default)]
    pub graph: GraphOptions,
}

impl MigrateJob {
    /// Decode steps unless a user says otherwise, of a diagnosis too: faults of a cache may show only after it has grown, and
    /// the whole model is compared at each step.
    pub const STEPS: u32 = 8;

    /// The ledger's folder.
    pub fn ledger(&self) -> PathBuf {
        self.ledger.clone().unwrap_or_else(|| default_ledger(&self.model, &self.target, &self.graph))
    }

    /// Migrates, going on from the ledger. Also gives the model, which the report's page shows.
    ///
    /// # Errors
    /// If something cannot be opened, or the source itself fails. What the target fails at is part of the
    /// report.
    pub fn run(&self, progress: &dyn Progress, stop: &Stop) -> Result<(MigrateReport, Model)> {
        if is_onnx(&self.model) {
            return self.run_onnx(progress, stop);
        }
        if let Some((suite, model)) = open_recorded(&self.model, &self.inputs)? {
            self.checkpoint_options().expect_none_for_suite(&self.model)?;
            let mut source = open_platform(&self.source, &[])?;
            let identity = suite.manifest().model.clone();
            // The suite is there already; a checkpoint's is carved into the ledger.
            let obtain = |_: &tapml_migrate::ModelIdentity, _: &mut dyn Platform, _: &LedgerFolder| {
                Suite::open(&self.model)
            };
            return self.move_suite(model, identity, &obtain, source.as_mut(), progress, stop);
        }
        let start = Instant::now();
        let (graph, words) = self.graph.for_target(&self.target)?;
        let (checkpoint, model) = open(&graph, &self.model, progress)?;
        let import_seconds = start.elapsed().as_secs_f64();
        let tokenizer = Tokenizer::open(checkpoint.dir())?;
        let prompts = self.prompts.read(&checkpoint, &tokenizer)?;
        let mut target = open_platform_for(&words, &self.kernels, model.graph())?;
        let mut source = open_platform(&self.source, &[])?;
        let options = MigrateOptions {
            ledger: &self.ledger(),
            steps: self.steps.unwrap_or(MigrateJob::STEPS),
            context: checkpoint.context() as u32,
            import_seconds,
            decode: &|ids| tokenizer.decode(ids).unwrap_or_default(),
        };
        let (source, target) = (source.as_mut(), target.as_mut());
        let identity = identity(&checkpoint)?;
        let done =
            tapml_migrate::migrate(&model, identity, &prompts, source, target, &options, progress, stop)?;
        Ok((done.report, model))
    }

    /// What only a checkpoint takes.
    fn checkpoint_options(&self) -> CheckpointOptions<'_> {
        CheckpointOptions { prompts: &self.prompts, steps: self.steps, graph: &self.graph }
    }

    /// The suite is written into the ledger from the traced runs.
    fn run_onnx(&self, progress: &dyn Progress, stop: &Stop) -> Result<(MigrateReport, Model)> {
        self.checkpoint_options().expect_none_for_onnx(&self.model)?;
        let mut source = open_platform(&self.source, &[])?;
        let traced = TracedModel::trace(&self.model, &self.inputs, source.as_mut(), progress, stop)?;
        let model = traced.first.model.clone();
        let identity = tapml_migrate::identity_of_file(&self.model, &model);
        let obtain = |_: &tapml_migrate::ModelIdentity, source: &mut dyn Platform, folder: &LedgerFolder| {
            traced.write(&self.model, source, (&folder.suite(), true))?;
            Suite::open(&folder.suite())
        };
        self.move_suite(model, identity, &obtain, source.as_mut(), progress, stop)
    }

    /// Migrates a model of operators of others, of which `obtain` gives the suite.
    fn move_suite(
        &self,
        model: Model,
        identity: tapml_migrate::ModelIdentity,
        obtain: &tapml_migrate::ObtainSuite<'_>,
        source: &mut dyn Platform,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<(MigrateReport, Model)> {
        let mut target = open_platform(&self.target, &self.kernels)?;
        let oracles = oracles(self.oracle.as_deref())?;
        let options = MigrateOptions {
            ledger: &self.ledger(),
            // No prompts: the suite holds the inputs.
            steps: 0,
            context: 0,
            import_seconds: 0.0,
            decode: &|_| String::new(),
        };
        let target = target.as_mut();
        let mut done = tapml_migrate::migrate_suite(
            &model, identity, obtain, &oracles, source, target, &options, progress, stop,
        )?;
        let suite = done.suite.display().to_string();
        let (target, kernels, oracle) = (&self.target, &self.kernels, self.oracle.as_deref());
        let reduction = Reduction { suite: &suite, target, kernels, oracle };
        for region in done.report.regions.iter_mut().filter(|region| !region.failing.is_empty()) {
            region.reproduce = Some(reduction.of_nodes(&region.failing));
        }
        Ok((done.report, model))
    }
}

/// The suite of operators of others that stands in the place of a model, such as what `tapml.torch.export` wrote; `None` if the
/// path is none of a suite.
fn open_recorded(path: &Path, inputs: &Inputs) -> Result<Option<(Suite, Model)>> {
    if !Suite::is_at(path) {
        return Ok(None);
    }
    if !inputs.is_empty() {
        return Err(Error::invalid(format!(
            "arrays beside the suite {}, which has its own inputs",
            path.display()
        )));
    }
    let suite = Suite::open(path)?;
    if let Some(node) = suite.graph().nodes().iter().find(|node| !matches!(node.op, Op::Foreign(_))) {
        let text = format!("{} is a suite of a checkpoint: it holds `{}`", path.display(), node.op.name());
        return Err(Error::invalid(text).with_hint("name the checkpoint"));
    }
    let model = suite_model(&suite, None)?;
    Ok(Some((suite, model)))
}

/// Opens a checkpoint with logits of all rows, and tells what it has to say.
fn open(options: &GraphOptions, path: &Path, progress: &dyn Progress) -> Result<(Checkpoint, Model)> {
    let (checkpoint, model) = options.open(path, LogitRows::All)?;
    checkpoint.notes().iter().for_each(|note| progress.note(&format!("note: {note}")));
    Ok((checkpoint, model))
}
