//! `tapml carve`: record every node call of real runs on the source.

use super::common::{self, GraphArgs};
use super::prompt::inputs;
use crate::Outcome;
use crate::output::{JsonArg, bytes};
use crate::progress::Bar;
use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use tapml::engine::Tokenizer;
use tapml::import::{Checkpoint, Rows};
use tapml::migrate::{CarveOptions, Hash, ModelIdentity, carve, suite::Totals};

/// Run a model on the source with real prompts and record every operator call as a test.
#[derive(Args)]
#[command(
    after_help = "Example:\n  tapml carve models/llama --prompts prompts.txt --out llama.suite --steps 8"
)]
pub struct CarveCommand {
    /// Folder in Hugging Face layout, or a GGUF file
    model: PathBuf,
    /// Prompts, one per line, ![](FILE) before one for an image; bundled ones if not given
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// The suite's folder; must not exist unless --overwrite is given
    #[arg(long, value_name = "SUITE")]
    out: PathBuf,
    /// Replace an existing suite
    #[arg(long)]
    overwrite: bool,
    /// Where the model is known to work
    #[arg(long, value_name = "PLATFORM", default_value = "cpu")]
    source: String,
    /// Decode steps after each prompt
    #[arg(long, default_value_t = 4)]
    steps: u32,
    /// Put the weights into the suite too
    #[arg(long)]
    self_contained: bool,
    #[command(flatten)]
    graph: GraphArgs,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    model: String,
    source: String,
    suite: String,
    prompts: usize,
    steps: u32,
    totals: Totals,
    seconds: Seconds,
}

#[derive(Serialize)]
struct Seconds {
    run: f64,
    total: f64,
}

impl CarveCommand {
    pub fn run(self) -> Result<Outcome> {
        let (checkpoint, model) = self.graph.open(&self.model, Rows::All)?;
        let tokenizer = Tokenizer::open(checkpoint.dir())?;
        let prompts = inputs(&checkpoint, &tokenizer, self.prompts.as_deref())?;
        let mut source = common::open_platform(&self.source, &[])?;
        let bar = Bar::new();
        let options = CarveOptions {
            out: &self.out,
            overwrite: self.overwrite,
            steps: self.steps,
            self_contained: self.self_contained,
            context: checkpoint.context() as u32,
            decode: &|ids| tokenizer.decode(ids).unwrap_or_default(),
        };
        let stop = common::stop_on_signal()?;
        let identity = identity(&checkpoint)?;
        let carved = carve(source.as_mut(), &model, identity, &prompts, &options, &bar, &stop)?;
        bar.finish();
        let totals = carved.manifest.totals.clone();
        self.json.say(&format!(
            "{}: {} calls of {} nodes, {} tensors, {} in {:.2} s",
            self.out.display(),
            totals.calls,
            model.graph().nodes().len(),
            totals.tensors,
            bytes(totals.tensor_bytes),
            carved.total.as_secs_f64()
        ))?;
        let seconds = Seconds { run: carved.running.as_secs_f64(), total: carved.total.as_secs_f64() };
        self.json.write(&Report {
            schema: 1,
            model: self.model.display().to_string(),
            source: self.source,
            suite: self.out.display().to_string(),
            prompts: prompts.len(),
            steps: carved.manifest.settings.steps,
            totals,
            seconds,
        })?;
        Ok(Outcome::Holds)
    }
}

/// Who the model is, for suites and ledgers. Weights are named by the suite one by one.
pub fn identity(checkpoint: &Checkpoint) -> Result<ModelIdentity> {
    let config = checkpoint.dir().join("config.json");
    let bytes = match checkpoint.dir().is_dir() {
        true => std::fs::read(&config).with_context(|| format!("could not read {}", config.display()))?,
        // A GGUF file has none; what follows from its metadata stands for it.
        false => serde_json::to_vec(checkpoint.config().json())?,
    };
    Ok(ModelIdentity {
        name: checkpoint.dir().file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
        path: checkpoint.dir().display().to_string(),
        config: Hash::of(&bytes).to_string(),
        ..ModelIdentity::default()
    })
}
