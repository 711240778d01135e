//! The long jobs, as plain data: carve, check, migrate, diagnose. What the command line and other languages run alike.
//! A job says nothing and draws nothing; it tells its progress, and ends when it is asked to.

use crate::diagnose::{DiagnoseOptions, Diagnosis, Subject};
use crate::engine::Tokenizer;
use crate::graph::{Model, Node};
use crate::import::onnx::is_onnx;
use crate::import::{Checkpoint, Rows};
use crate::kernels::{Overrides, Phase};
use crate::migrate::ledger::LedgerFolder;
use crate::migrate::report::{CheckReport, MigrateReport};
use crate::migrate::suite::{Suite, Totals};
use crate::migrate::{
    self, CarveOptions, CheckOptions, MigrateOptions, Oracles, Progress, Stop, obtain_suite, weight_entries,
    weights_hash,
};
use crate::model::{GraphOptions, default_ledger, identity, suite_model};
use crate::onnx::{Inputs, PlatformEvaluator, TracedModel};
use crate::platform::{self, Platform, PlatformSpec};
use crate::prompts::Prompts;
use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;

mod run;

pub use run::{Outputs, Run, RunJob, RunOp, RunOutput, RunReport, RunSeconds};

/// Bytes of exact results that are kept while a job runs.
const ORACLE_BYTES: usize = 1 << 30;

/// Where the model is known to work, unless a job says otherwise.
fn cpu() -> String {
    "cpu".into()
}

fn four() -> u32 {
    4
}

fn eight() -> u32 {
    8
}

fn repeats() -> u32 {
    DiagnoseOptions::default().repeats as u32
}

fn yes() -> bool {
    true
}

/// Opens a platform by its word with the user's kernels, given as `OP=FILE`.
pub fn open_platform(word: &str, kernels: &[String]) -> Result<Box<dyn Platform>> {
    platform::open(&PlatformSpec::parse(word)?, overrides(kernels)?)
}

/// Exact results of one suite; `oracle` names a platform that evaluates in `f64` what TapML does not.
pub fn oracles(oracle: Option<&str>) -> Result<Oracles> {
    let own = Oracles::new(ORACLE_BYTES);
    match oracle {
        None => Ok(own),
        Some(word) => {
            let platform = open_platform(word, &[]).map_err(|e| e.context("the oracle"))?;
            Ok(own.with_evaluator(Box::new(PlatformEvaluator::new(platform))))
        }
    }
}

/// The lines of Python by which a model runs on the runtime of this word without TapML, where such are known.
pub fn load_lines(word: &str) -> Option<String> {
    #[cfg(feature = "remote")]
    return crate::agents::load_lines(word);
    #[cfg(not(feature = "remote"))]
    return None.filter(|_: &String| !word.is_empty());
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
    /// Decode steps after each prompt.
    #[serde(default = "four")]
    pub steps: u32,
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
    /// Carves. What the checkpoint has to say (see [`Checkpoint::notes`]) goes to `progress`.
    pub fn run(&self, progress: &dyn Progress, stop: &Stop) -> Result<CarveReport> {
        if is_onnx(&self.model) {
            return self.run_onnx(progress, stop);
        }
        if !self.inputs.is_empty() {
            return Err(Error::invalid("arrays are inputs of ONNX models; this model reads prompts"));
        }
        let (checkpoint, model) = open(&self.graph, &self.model, progress)?;
        let tokenizer = Tokenizer::open(checkpoint.dir())?;
        let prompts = self.prompts.read(&checkpoint, &tokenizer)?;
        let mut source = open_platform(&self.source, &[])?;
        let options = CarveOptions {
            out: &self.out,
            overwrite: self.overwrite,
            steps: self.steps,
            self_contained: self.self_contained,
            context: checkpoint.context() as u32,
            decode: &|ids| tokenizer.decode(ids).unwrap_or_default(),
        };
        let identity = identity(&checkpoint)?;
        let carved = migrate::carve(source.as_mut(), &model, identity, &prompts, &options, progress, stop)?;
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

    fn run_onnx(&self, progress: &dyn Progress, stop: &Stop) -> Result<CarveReport> {
        let start = Instant::now();
        let mut source = open_platform(&self.source, &[])?;
        let traced = TracedModel::of(&self.model, &self.inputs, source.as_mut(), progress, stop)?;
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
    pub fn run(&self, progress: &dyn Progress, stop: &Stop) -> Result<CheckReport> {
        let suite = Suite::open(&self.suite)?;
        let model = suite_model(&suite, self.model.as_deref())?;
        let mut target = open_platform(&self.target, &self.kernels)?;
        let options = CheckOptions { ops: self.ops.clone(), cases: self.cases.clone() };
        let oracles = oracles(self.oracle.as_deref())?;
        Ok(migrate::check(&suite, &model, target.as_mut(), &oracles, &options, progress, stop)?.report)
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
    /// Decode steps after each prompt.
    #[serde(default = "eight")]
    pub steps: u32,
    /// Folder that keeps what was decided; see [`default_ledger`].
    #[serde(default)]
    pub ledger: Option<PathBuf>,
    /// How the checkpoint becomes a graph.
    #[serde(default)]
    pub graph: GraphOptions,
}

impl MigrateJob {
    /// The ledger's folder.
    pub fn ledger(&self) -> PathBuf {
        self.ledger.clone().unwrap_or_else(|| default_ledger(&self.model, &self.target, &self.graph))
    }

    /// Migrates, going on from the ledger. Also gives the model, which the report's page shows.
    pub fn run(&self, progress: &dyn Progress, stop: &Stop) -> Result<(MigrateReport, Model)> {
        if is_onnx(&self.model) {
            return self.run_onnx(progress, stop);
        }
        let start = Instant::now();
        let (checkpoint, model) = open(&self.graph, &self.model, progress)?;
        let import_seconds = start.elapsed().as_secs_f64();
        let tokenizer = Tokenizer::open(checkpoint.dir())?;
        let prompts = self.prompts.read(&checkpoint, &tokenizer)?;
        let mut target = open_platform(&self.target, &self.kernels)?;
        let mut source = open_platform(&self.source, &[])?;
        let options = MigrateOptions {
            ledger: &self.ledger(),
            steps: self.steps,
            context: checkpoint.context() as u32,
            import_seconds,
            decode: &|ids| tokenizer.decode(ids).unwrap_or_default(),
        };
        let (source, target) = (source.as_mut(), target.as_mut());
        let identity = identity(&checkpoint)?;
        let done = migrate::migrate(&model, identity, &prompts, source, target, &options, progress, stop)?;
        Ok((done.report, model))
    }

    fn run_onnx(&self, progress: &dyn Progress, stop: &Stop) -> Result<(MigrateReport, Model)> {
        let mut target = open_platform(&self.target, &self.kernels)?;
        let mut source = open_platform(&self.source, &[])?;
        let oracles = oracles(self.oracle.as_deref())?;
        let traced = TracedModel::of(&self.model, &self.inputs, source.as_mut(), progress, stop)?;
        let model = traced.first.model.clone();
        let identity = migrate::identity_of_file(&self.model, &model);
        let options = MigrateOptions {
            ledger: &self.ledger(),
            steps: 0,
            context: 0,
            import_seconds: 0.0,
            decode: &|_| String::new(),
        };
        let obtain = |_: &migrate::ModelIdentity, source: &mut dyn Platform, folder: &LedgerFolder| {
            traced.write(&self.model, source, (&folder.suite(), true))?;
            Suite::open(&folder.suite())
        };
        let (source, target) = (source.as_mut(), target.as_mut());
        let done = migrate::migrate_suite(
            &model, identity, &obtain, &oracles, source, target, &options, progress, stop,
        )?;
        Ok((done.report, model))
    }
}

/// Finds every faulty operator of a model on a target, and faults between operators.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiagnoseJob {
    /// Checkpoint folder or GGUF file.
    pub model: PathBuf,
    /// The platform under test.
    pub target: String,
    /// The user's kernels, as `OP=FILE`.
    #[serde(default)]
    pub kernels: Vec<String>,
    /// Where the model is known to work.
    #[serde(default = "cpu")]
    pub source: String,
    /// What the model reads, if it is carved.
    #[serde(default)]
    pub prompts: Prompts,
    /// A suite of the model; carved into [`default_ledger`] if there is none.
    #[serde(default)]
    pub suite: Option<PathBuf>,
    /// Decode steps after each prompt, if it is carved.
    #[serde(default = "eight")]
    pub steps: u32,
    /// How often calls, and the whole model, are run to compare the results bit by bit.
    #[serde(default = "repeats")]
    pub repeats: u32,
    /// Whether faults between operators are looked for, too.
    #[serde(default = "yes")]
    pub between: bool,
    /// How the checkpoint becomes a graph.
    #[serde(default)]
    pub graph: GraphOptions,
}

impl DiagnoseJob {
    /// The folder that a migration of this model uses, too.
    pub fn folder(&self) -> PathBuf {
        default_ledger(&self.model, &self.target, &self.graph)
    }

    /// Diagnoses.
    pub fn run(&self, progress: &dyn Progress, stop: &Stop) -> Result<Diagnosis> {
        let (checkpoint, model) = open(&self.graph, &self.model, progress)?;
        let overrides = overrides(&self.kernels)?;
        let spec = PlatformSpec::parse(&self.target)?;
        let mut target = platform::open(&spec, overrides.clone())?;
        let mut source = open_platform(&self.source, &[])?;
        let mut checker = self.checker(target.as_ref(), &model)?;
        let suite = match &self.suite {
            Some(path) => Suite::open(path)?,
            None => self.carve(&checkpoint, &model, source.as_mut(), progress, stop)?,
        };
        let model = suite.model(Some(&model))?;
        let options = DiagnoseOptions {
            repeats: self.repeats as usize,
            between: self.between,
            ..DiagnoseOptions::default()
        };
        let subject = Subject {
            suite: &suite,
            model: &model,
            oracles: &Oracles::new(ORACLE_BYTES),
            source: source.as_mut(),
            target: target.as_mut(),
            checker: checker.as_mut().map(|c| c.as_mut() as &mut dyn Platform),
            overrides: &overrides,
            reopen: Some(&|kernels| platform::open(&spec, kernels)),
        };
        let found = crate::diagnose::diagnose(subject, &options, progress, stop)?;
        Ok(self.with_commands(found))
    }

    /// The suite in the folder that a migration uses too, carved unless it is there.
    fn carve(
        &self,
        checkpoint: &Checkpoint,
        model: &Model,
        source: &mut dyn Platform,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<Suite> {
        let tokenizer = Tokenizer::open(checkpoint.dir())?;
        let prompts = self.prompts.read(checkpoint, &tokenizer)?;
        let folder = LedgerFolder::take(&self.folder())?;
        let mut identity = identity(checkpoint)?;
        identity.weights = weights_hash(&weight_entries(model)?).to_string();
        let options = CarveOptions {
            out: &folder.suite(),
            overwrite: true,
            steps: self.steps,
            self_contained: false,
            context: checkpoint.context() as u32,
            decode: &|ids| tokenizer.decode(ids).unwrap_or_default(),
        };
        obtain_suite(model, &identity, &prompts, source, &options, progress, stop)
    }

    /// An emulator with all checks and the same kernels, those of any device or of a GPU, with matrix units or without,
    /// whichever the target takes for more nodes; with the target's profile if that is an emulator too.
    fn checker(&self, target: &dyn Platform, model: &Model) -> Result<Option<Box<dyn Platform>>> {
        let spec = PlatformSpec::parse(&self.target)?;
        let own = spec.options.into_iter().filter(|(name, _)| name == "profile" && spec.word == "emulator");
        let own: Vec<(String, String)> = own.collect();
        let graph = model.graph();
        let hashes = |platform: &dyn Platform, node: &Node| {
            let inputs = graph.input_types(node);
            Phase::ALL
                .map(|phase| platform.kernel_for(&node.op, &inputs, phase).ok().map(|choice| choice.hash))
        };
        let wanted: Vec<_> = graph.nodes().iter().map(|node| hashes(target, node)).collect();
        // A kernel in CUDA C++ is another one than the emulator's, which then says nothing of its nodes.
        let wgsl: Vec<String> = self.kernels.iter().filter(|k| k.ends_with(".wgsl")).cloned().collect();
        let mut best: Option<(usize, Box<dyn Platform>)> = None;
        for (kind, matrices) in [("cpu", "off"), ("gpu", "off"), ("gpu", "on")] {
            let options = [("check", "all"), ("kind", kind), ("matrices", matrices)];
            let options = options.map(|(name, value)| (name.to_string(), value.to_string()));
            let options = own.iter().cloned().chain(options).collect();
            let spec = PlatformSpec { word: "emulator".into(), index: 0, options };
            let platform = match platform::open(&spec, overrides(&wgsl)?) {
                // A build without the emulator diagnoses without it.
                Err(e) if e.kind() == ErrorKind::Unavailable => return Ok(None),
                other => other?,
            };
            let nodes = graph.nodes().iter().zip(&wanted);
            let same = nodes.map(|(node, wanted)| (hashes(platform.as_ref(), node), wanted));
            let same: usize =
                same.map(|(own, wanted)| own.iter().zip(wanted).filter(|(a, b)| a == b).count()).sum();
            if best.as_ref().is_none_or(|(most, _)| same > *most) {
                best = Some((same, platform));
            }
        }
        Ok(best.map(|(_, platform)| platform))
    }

    /// Commands that a reader may copy name the target as it was given, with the user's kernels.
    fn with_commands(&self, mut found: Diagnosis) -> Diagnosis {
        for fault in &mut found.faults {
            if let Some(case) = fault.reproduce.as_ref().map(|_| &fault.first_bad_case) {
                let text = crate::diagnose::reduce_command(&found.suite, case, &self.target, &self.kernels);
                fault.reproduce = Some(text);
            }
        }
        found
    }
}

/// Opens a checkpoint with logits of all rows, and tells what it has to say.
fn open(options: &GraphOptions, path: &Path, progress: &dyn Progress) -> Result<(Checkpoint, Model)> {
    let (checkpoint, model) = options.open(path, Rows::All)?;
    checkpoint.notes().iter().for_each(|note| progress.note(&format!("note: {note}")));
    Ok((checkpoint, model))
}
