//! `tapml quantize`: a checkpoint with quantised weights.
//!
//! Weights that a scheme does not suit are copied as they are, and the report says why.

use crate::Outcome;
use crate::output::{JsonArg, bytes};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;
use tapml::import::quantize::{FORMS_HELP, Scheme, write};

/// Write a checkpoint with its weights quantised; every command opens it as it is.
#[derive(Args)]
#[command(after_help = "Example:\n  tapml quantize models/llama --scheme q4 --out llama-q4")]
pub struct QuantizeCommand {
    /// Folder in Hugging Face layout
    model: PathBuf,
    #[arg(long, value_name = "SCHEME", default_value = "q4", help = FORMS_HELP)]
    scheme: Scheme,
    /// The folder to write, which is empty or does not exist
    #[arg(long, short, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    json: JsonArg,
}

/// What is written as JSON.
#[derive(Serialize)]
struct Report {
    schema: u32,
    model: String,
    scheme: Scheme,
    out: String,
    /// How many weights were quantised.
    quantized: usize,
    /// Weights that stay as they are.
    kept: Vec<Kept>,
    /// Bytes of all weights as they were.
    source_weight_bytes: u64,
    /// Bytes of all weights in the new checkpoint.
    weight_bytes: u64,
    /// From the start of the command.
    seconds: f64,
}

/// A weight that was not quantised.
#[derive(Serialize)]
struct Kept {
    /// Its name in the checkpoint.
    weight: String,
    /// Why, as a part of a sentence.
    reason: String,
}

impl QuantizeCommand {
    /// Writes the checkpoint and tells what became of its weights.
    ///
    /// # Errors
    /// If the checkpoint cannot be read, or the folder holds something.
    pub fn run(self) -> Result<Outcome> {
        let start = Instant::now();
        let stop = stopping::stop_on_signal()?;
        let bar = Bar::at_stage("quantise the weights");
        let written = write(&self.model, &self.scheme, &self.out, &|| stop.check())?;
        bar.finish();
        let kept = written.kept.into_iter().map(|k| Kept { weight: k.weight, reason: k.reason });
        let report = Report {
            schema: 1,
            model: self.model.display().to_string(),
            scheme: self.scheme,
            out: self.out.display().to_string(),
            quantized: written.quantized,
            kept: kept.collect(),
            source_weight_bytes: written.before,
            weight_bytes: written.after,
            seconds: start.elapsed().as_secs_f64(),
        };
        self.json.say(&render(&report))?;
        self.json.write(&report)?;
        Ok(Outcome::Holds)
    }
}

/// One line for all weights, then those that were kept.
fn render(report: &Report) -> String {
    let mut text = format!(
        "{}: {} weights quantised by {}, {} instead of {}",
        report.out,
        report.quantized,
        report.scheme,
        bytes(report.weight_bytes),
        bytes(report.source_weight_bytes),
    );
    for kept in &report.kept {
        text += &format!("\nkept: `{}` {}", kept.weight, kept.reason);
    }
    text
}
