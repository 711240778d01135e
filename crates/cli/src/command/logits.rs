//! `tapml logits`: teacher-forced logits, and hidden states, of every position.
//!
//! Teacher-forced means that every position is given the prompt's own tokens.

use super::common::{self, GraphArgs};
use crate::Outcome;
use crate::output::{self, JsonArg};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;
use tapml::engine::Tokenizer;
use tapml::exec::Interface;
use tapml::graph::Tensor;
use tapml::import::{LogitRows, safetensors};
use tapml::model::{expect_context, teacher_forced};
use tapml::prompts::Given;

/// Write the logits of every position of a prompt, and the hidden states between layers, as safetensors.
#[derive(Args)]
#[command(
    after_help = "Example:\n  tapml logits models/llama --prompt 'Once upon a time' --hidden --out golden.safetensors"
)]
pub struct LogitsCommand {
    /// Folder in Hugging Face layout, or a GGUF file
    model: PathBuf,
    /// Text of the prompt
    #[arg(long, required_unless_present = "ids", conflicts_with = "ids")]
    prompt: Option<String>,
    /// Token ids instead of text, such as 0,17,42; needs no tokenizer
    #[arg(long, value_parser = common::parse_ids)]
    ids: Option<std::vec::Vec<u32>>,
    /// Image for the prompt, PNG, JPEG or WebP, if the model sees
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Where to run
    #[arg(long, value_name = "PLATFORM", default_value = "cpu")]
    target: String,
    /// Also write `hidden.0` (what enters the first layer) to `hidden.L` (what leaves layer L)
    #[arg(long)]
    hidden: bool,
    /// The safetensors file to write
    #[arg(long, value_name = "FILE", value_parser = output::writable())]
    out: PathBuf,
    #[command(flatten)]
    graph: GraphArgs,
    #[command(flatten)]
    json: JsonArg,
}

/// What is written as JSON.
#[derive(Serialize)]
struct Report {
    schema: u32,
    model: String,
    target: String,
    /// The file that was written.
    out: String,
    /// The prompt.
    ids: Vec<u32>,
    /// Sizes of each tensor in the file.
    tensors: BTreeMap<String, Vec<usize>>,
    /// Running the model, without reading it.
    seconds: f64,
}

impl LogitsCommand {
    /// Runs the prompt, and writes the tensors.
    ///
    /// # Errors
    /// If the model gives no logits, or the prompt does not fit its context.
    pub fn run(self) -> Result<Outcome> {
        let stop = stopping::stop_on_signal()?;
        let bar = Bar::at_stage("read the model");
        let (graph, target) = self.graph.for_target(&self.target)?;
        let (checkpoint, model) = graph.open(&self.model, LogitRows::All)?;
        Interface::from_graph(model.graph())?.expect_logits()?;
        // Ids need no tokenizer, which a checkpoint may lack.
        let tokenizer = match self.ids {
            Some(_) => None,
            None => Some(Tokenizer::open(checkpoint.dir())?),
        };
        let given = Given {
            text: self.prompt.as_deref(),
            ids: self.ids.as_deref(),
            image: self.image.as_deref(),
            // A golden is of the text itself.
            chat: false,
        };
        let (ids, image) = given.read(&checkpoint, tokenizer.as_ref())?;
        expect_context(ids.len(), 0, checkpoint.context())?;
        // The reading of the model is over, and is not part of the time that is reported.
        let start = Instant::now();
        let prompt = (ids.as_slice(), image.as_ref());
        let hidden = if self.hidden { checkpoint.hidden_values() } else { Vec::new() };
        let names: Vec<String> = (0..hidden.len()).map(|i| format!("hidden.{i}")).collect();
        let more = names.iter().map(String::as_str).zip(hidden.iter().map(String::as_str));
        bar.stage("run the model", 0);
        let mut platform = common::open_platform(&target, &[])?;
        let tensors = teacher_forced(&model, prompt, platform.as_mut(), more)?;
        // What was cut off is not written.
        stop.check()?;
        bar.finish();
        let seconds = start.elapsed().as_secs_f64();
        let list: Vec<(&str, Tensor)> =
            tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
        // A file should tell where its numbers are from.
        let metadata = BTreeMap::from([
            ("model".to_string(), checkpoint.dir().display().to_string()),
            ("target".to_string(), self.target.clone()),
        ]);
        safetensors::write(&self.out, &list, &metadata)?;
        self.json.say(&format!(
            "{}: {} tensors for {} positions",
            self.out.display(),
            list.len(),
            ids.len()
        ))?;
        self.json.write(&Report {
            schema: 1,
            model: self.model.display().to_string(),
            target: self.target.clone(),
            out: self.out.display().to_string(),
            tensors: tensors.iter().map(|(name, t)| (name.clone(), t.shape().to_vec())).collect(),
            ids,
            seconds,
        })?;
        Ok(Outcome::Holds)
    }
}
