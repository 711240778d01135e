//! `tapml bench draft`: how much faster a server makes texts with guessed tokens.

use crate::Outcome;
use crate::command::common::{GraphArgs, GuessArgs, serve_options};
use crate::output::{JsonArg, table};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::{ArgGroup, Args};
use serde::Serialize;
use std::path::PathBuf;
use tapml::graph::DType;
use tapml::platform;
use tapml::serve::ServeOptions;
use tapml::speed::{DraftSpeedOptions, DraftSpeedReport, Rate, StepTime, measure_drafts};

/// Measure how much faster guessed tokens make texts, with an acceptance that is chosen or the model's own.
///
/// The texts are made without guesses, and again with them, by the engine of `tapml serve`. They must be the same.
#[derive(Args)]
#[command(
    group(ArgGroup::new("guesses").required(true).args(["draft", "ngram"])),
    after_help = "Examples:\n  tapml bench draft models/llama --draft models/llama_draft --target cpu\n  tapml bench draft tools/shapes/llama-3.1-8b --draft tools/shapes/llama-3.2-1b --random --acceptance 0.8 --target cuda --activation f16 --draft-quantize q4"
)]
pub struct DraftCommand {
    /// Folder in Hugging Face layout, or a GGUF file; with --random its `config.json` is enough
    model: PathBuf,
    #[command(flatten)]
    guess: GuessArgs,
    /// Chance that a guess of the small model is right, from 0 to 1; its own guesses if not given
    #[arg(long, value_name = "P", requires = "draft")]
    acceptance: Option<f64>,
    /// Where to run; the fastest device present if not given, else cpu
    #[arg(long, value_name = "PLATFORM")]
    target: Option<String>,
    /// Use this source instead of the built-in kernel of an operator; may repeat
    #[arg(long, value_name = "OP=FILE")]
    kernel: Vec<String>,
    /// Random weights instead of the checkpoints': folders with a configuration are enough
    #[arg(long)]
    random: bool,
    /// Texts at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    clients: usize,
    /// Tokens of a prompt
    #[arg(long, value_name = "N", default_value_t = 64)]
    prompt_tokens: usize,
    /// Tokens that are made of a text
    #[arg(long, value_name = "N", default_value_t = 256)]
    tokens: usize,
    /// Runs without and with guesses, after one of each that is not counted
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: usize,
    /// Decides which guesses are right
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    graph: GraphArgs,
    #[command(flatten)]
    json: JsonArg,
}

/// What is written as JSON.
#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    model: String,
    /// The small model; absent if tokens are guessed from the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    draft: Option<String>,
    target: &'a str,
    /// Whether the weights are not those of checkpoints.
    random_weights: bool,
    activation: DType,
    /// What was measured; its fields stand beside the others.
    #[serde(flatten)]
    speed: &'a DraftSpeedReport,
}

impl DraftCommand {
    /// Measures, prints, and writes the report.
    ///
    /// # Errors
    /// If a model cannot be read or served, or guesses change a text.
    pub fn run(self) -> Result<Outcome> {
        let stop = stopping::stop_on_signal()?;
        let bar = Bar::at_stage("read the model");
        let serve = ServeOptions {
            model: self.model.clone(),
            target: self.target.clone().unwrap_or_else(|| platform::fastest().to_string()),
            kernels: self.kernel.clone(),
            check: false,
            random: self.random,
            ..serve_options(&self.graph, &self.guess)
        };
        let options = DraftSpeedOptions {
            prompt_tokens: self.prompt_tokens,
            tokens: self.tokens,
            clients: self.clients,
            runs: self.runs,
            acceptance: self.acceptance,
            ngram: self.guess.ngram,
            seed: self.seed,
        };
        let speed = measure_drafts(&serve, &options, &bar, &stop)?;
        bar.finish();
        self.json.say(&text(&speed))?;
        self.json.write(&Report {
            schema: 1,
            model: self.model.display().to_string(),
            draft: self.guess.draft.as_ref().map(|draft| draft.display().to_string()),
            target: &serve.target,
            random_weights: self.random,
            activation: serve.graph.activation,
            speed: &speed,
        })?;
        Ok(Outcome::Holds)
    }
}

/// The report for people.
fn text(s: &DraftSpeedReport) -> String {
    let rate = |r: &Rate| format!("{:.1} tokens/s ({:.1} to {:.1})", r.median, r.min, r.max);
    let acceptance = match s.asked_acceptance {
        Some(asked) => {
            format!("{:.3} of {} guesses right, {asked} asked for", s.acceptance, s.compared_tokens)
        }
        None => format!("{:.3} of {} guesses right", s.acceptance, s.compared_tokens),
    };
    let mut lines = vec![
        format!("device   {} ({})", s.device.device, s.device.driver),
        format!("plain    {}", rate(&s.plain_tps)),
        format!("drafts   {}, {:.2} tokens a step", rate(&s.draft_tps), s.tokens_per_step),
        format!("speedup  {:.2} times ({:.2} to {:.2})", s.speedup.median, s.speedup.min, s.speedup.max),
        format!("accepted {acceptance}"),
    ];
    if let (Some(ratio), Some(verify), Some(plain)) = (s.verify_ratio, s.verify_step_ms, s.plain_step_ms) {
        let rows = s.draft_tokens + 1;
        lines.push(format!(
            "verify   {ratio:.3} times a step of one row: {verify:.3} ms for {rows} rows of a text, {plain:.3} ms for one"
        ));
    }
    if let Some(ms) = s.draft_step_ms {
        lines.push(format!("draft    {ms:.3} ms a step of the small model"));
    }
    lines.push(format!("host     {:.1} % of the time neither model ran", 100.0 * s.host_share));
    let mut steps = table(&["STEPS OF", "ROWS", "COUNT", "MEDIAN ms", "LEAST", "GREATEST"]);
    let kinds = [
        ("the model alone", &s.plain_steps),
        ("the model with guesses", &s.verify_steps),
        ("the small model", &s.draft_steps),
    ];
    for (name, times) in kinds {
        for StepTime { rows, steps: count, ms } in times {
            let ms = [ms.median, ms.min, ms.max].map(|ms| format!("{ms:.3}"));
            steps.add_row([name.to_string(), rows.to_string(), count.to_string()].into_iter().chain(ms));
        }
    }
    format!("{}\n\n{steps}", lines.join("\n"))
}
