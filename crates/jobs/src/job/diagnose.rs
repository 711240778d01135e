//! Diagnosis as a job: a model, or a suite of it, on a target.
//!
//! A diagnosis uses the suite that a migration of the same model and target carved, if there is one. The
//! emulator stands by as a checker: it runs the same kernels and sees races and out-of-bounds accesses that
//! a device hides.

use super::{CheckpointOptions, MigrateJob, cpu, open_platform, overrides};
use crate::model::{GraphOptions, default_ledger, identity, suite_model};
use crate::onnx::{Inputs, TracedModel};
use crate::platform::{self, Platform, PlatformSpec};
use crate::prompts::Prompts;
use serde::Deserialize;
use std::path::PathBuf;
use tapml_diagnose::{DiagnoseOptions, Diagnosis, FaultKind, Reduction, Subject};
use tapml_engine::Tokenizer;
use tapml_graph::{Error, ErrorKind, Model, Node, Result};
use tapml_import::Checkpoint;
use tapml_import::onnx::is_onnx;
use tapml_kernels::Phase;
use tapml_migrate::ledger::LedgerFolder;
use tapml_migrate::suite::Suite;
use tapml_migrate::{CarveOptions, Progress, Stop, obtain_suite, weight_entries, weights_hash};

/// For serde.
fn repeats() -> u32 {
    DiagnoseOptions::default().repeats as u32
}

/// For serde.
fn default_true() -> bool {
    true
}

/// Finds every faulty operator of a model on a target, and faults between operators.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiagnoseJob {
    /// Checkpoint folder, GGUF or ONNX file.
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
    /// Arrays for the inputs of an ONNX model, in the place of prompts.
    #[serde(default)]
    pub inputs: Inputs,
    /// Who evaluates operators of others that TapML does not.
    #[serde(default)]
    pub oracle: Option<String>,
    /// A suite of the model; carved into [`default_ledger`] if there is none.
    #[serde(default)]
    pub suite: Option<PathBuf>,
    /// Decode steps after each prompt, if it is carved; [`MigrateJob::STEPS`] if not given.
    #[serde(default)]
    pub steps: Option<u32>,
    /// How often calls, and the whole model, are run to compare the results bit by bit.
    #[serde(default = "repeats")]
    pub repeats: u32,
    /// Whether faults between operators are looked for, too.
    #[serde(default = "default_true")]
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
    ///
    /// # Errors
    /// If something cannot be opened or the source fails. Faults of the target are the result.
    pub fn run(&self, progress: &dyn Progress, stop: &Stop) -> Result<Diagnosis> {
        if self.suite.is_some() && !self.inputs.is_empty() {
            return Err(Error::invalid("arrays beside a suite, which has its own inputs")
                .with_hint("give --suite, or --input and --inputs"));
        }
        if let Some(suite) = &self.suite {
            self.checkpoint_options().expect_no_runs(suite)?;
        }
        if is_onnx(&self.model) {
            return self.run_onnx(progress, stop);
        }
        // Its outputs are no logits, so that no harm to them is measured.
        if let Some((suite, model)) = super::open_recorded(&self.model, &self.inputs)? {
            self.checkpoint_options().expect_none_for_suite(&self.model)?;
            if let Some(other) = &self.suite {
                let (model, other) = (self.model.display(), other.display());
                let text = format!("the suite {other} beside the suite {model}, which stands for the model");
                return Err(Error::invalid(text).with_hint("name one of them"));
            }
            let mut source = open_platform(&self.source, &[])?;
            let target = open_platform(&self.target, &self.kernels)?;
            let options = DiagnoseOptions { between: self.between, impact: false, ..self.options() };
            return self.of_suite((&suite, &model), source.as_mut(), target, &options, progress, stop);
        }
        let (checkpoint, model) = super::open(&self.graph, &self.model, progress)?;
        let mut source = open_platform(&self.source, &[])?;
        let target = super::open_platform_for(&self.target, &self.kernels, model.graph())?;
        let suite = match &self.suite {
            Some(path) => Suite::open(path)?,
            None => self.carve(&checkpoint, &model, source.as_mut(), progress, stop)?,
        };
        // The suite's graph, with weights that were compared by hash.
        let model = suite.model(Some(&model))?;
        let options = DiagnoseOptions { between: self.between, ..self.options() };
        self.of_suite((&suite, &model), source.as_mut(), target, &options, progress, stop)
    }

    /// What only a checkpoint takes.
    fn checkpoint_options(&self) -> CheckpointOptions<'_> {
        CheckpointOptions { prompts: &self.prompts, steps: self.steps, graph: &self.graph }
    }

    /// The defaults with the job's number of repeats.
    fn options(&self) -> DiagnoseOptions {
        DiagnoseOptions { repeats: self.repeats as usize, ..DiagnoseOptions::default() }
    }

    /// The same of an ONNX model: its outputs are no logits, so that no harm to them is measured.
    fn run_onnx(&self, progress: &dyn Progress, stop: &Stop) -> Result<Diagnosis> {
        self.checkpoint_options().expect_none_for_onnx(&self.model)?;
        let mut source = open_platform(&self.source, &[])?;
        let target = open_platform(&self.target, &self.kernels)?;
        let suite = match &self.suite {
            Some(path) => Suite::open(path)?,
            None => {
                let traced = TracedModel::trace(&self.model, &self.inputs, source.as_mut(), progress, stop)?;
                let folder = LedgerFolder::take(&self.folder())?;
                traced.write(&self.model, source.as_ref(), (&folder.suite(), true))?;
                Suite::open(&folder.suite())?
            }
        };
        let model = suite_model(&suite, None)?;
        let options = DiagnoseOptions { between: self.between, impact: false, ..self.options() };
        self.of_suite((&suite, &model), source.as_mut(), target, &options, progress, stop)
    }

    /// Common to all sorts of models: oracle, checker, diagnosis, commands for the reader.
    fn of_suite(
        &self,
        (suite, model): (&Suite, &Model),
        source: &mut dyn Platform,
        mut target: Box<dyn Platform>,
        options: &DiagnoseOptions,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<Diagnosis> {
        let spec = PlatformSpec::parse(&self.target)?;
        let overrides = overrides(&self.kernels)?;
        let oracles = super::oracles(self.oracle.as_deref())?;
        let mut checker = self.checker(target.as_ref(), model)?;
        let subject = Subject {
            suite,
            model,
            oracles: &oracles,
            source,
            target: target.as_mut(),
            checker: checker.as_mut().map(|c| c.as_mut() as &mut dyn Platform),
            overrides: &overrides,
            reopen: Some(&|kernels| platform::open(&spec, kernels)),
        };
        let found = tapml_diagnose::diagnose(subject, options, progress, stop)?;
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
        // Computed here, so that a suite that is there can be recognised as that of these weights.
        identity.weights = weights_hash(&weight_entries(model)?).to_string();
        let options = CarveOptions {
            out: &folder.suite(),
            overwrite: true,
            steps: self.steps.unwrap_or(MigrateJob::STEPS),
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
        // Three kinds of emulator choose different kernels; the one that agrees with the target most sees
        // most of its faults.
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
        let (target, kernels, oracle) = (&self.target, &self.kernels, self.oracle.as_deref());
        let reduction = Reduction { suite: &found.suite, target, kernels, oracle };
        for fault in found.faults.iter_mut().filter(|fault| fault.reproduce.is_some()) {
            fault.reproduce = Some(match fault.kind {
                FaultKind::Operator => reduction.of_case(&fault.first_bad_case),
                FaultKind::Between => reduction.of_nodes(fault.joint_nodes()),
            });
        }
        found
    }
}
