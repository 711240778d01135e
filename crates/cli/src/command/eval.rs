//! `tapml eval`: how far a quantised model departs from its source over a text, or how many tasks it solves.
//!
//! Over a text both models are fed the same tokens in windows. The source runs on the reference, so that the comparison has a
//! fixed side. Tasks are solved in several ways side by side.

mod row;
mod solve;

use super::common::{self, GraphArgs, GuessArgs};
use crate::Outcome;
use crate::output::{self, JsonArg, bytes};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tapml::engine::{Tokenizer, bundled_prompts};
use tapml::eval::{Comparison, Side, compare, split_windows};
use tapml::graph::Model;
use tapml::import::LogitRows;
use tapml::model::GraphOptions;

/// Most bytes of a text that are read.
const MOST_BYTES: u64 = 64 << 20;

/// Compare a model, quantised or already so, with its source: perplexity, divergence, agreement over a text; or count the tasks
/// that it solves.
///
/// With --tasks the model answers, as `tapml serve` does, prompts with one right answer each. Each --row solves them in one more
/// way. A way passes that solves as many as the median of all, give or take 1, or 3 if weights are quantised.
#[derive(Args)]
#[command(after_help = "Examples:\n  tapml eval models/llama --quantize q4 --text held-out.txt\n  \
                        tapml eval llama-Q4_0.gguf --reference models/llama --text held-out.txt\n  \
                        tapml eval models/llama --tasks tasks.jsonl \
                        --row '--activation f16' --row '--quantize q4' --row '--ngram 3'\n\n\
                        KL is the mean over tokens of the Kullback-Leibler divergence from the source, in nats.")]
pub struct EvalCommand {
    /// Folder in Hugging Face layout, or a GGUF file
    model: PathBuf,
    /// The model to compare with; the same without --quantize if it is not given
    #[arg(long, value_name = "MODEL")]
    reference: Option<PathBuf>,
    /// A text that the model was not trained on; the bundled prompts if it is not given
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Most tokens of the text
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(2..))]
    tokens: u64,
    /// Tokens that are fed together; the model's context if that is shorter
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(2..))]
    window: u64,
    /// Where the model runs; the one it is compared with runs on `cpu`
    #[arg(long, value_name = "PLATFORM", default_value = "cpu")]
    target: String,
    /// Tasks in place of a text: a JSON object a line, with `prompt` and `answer`, and `kind` and `id` if wanted
    #[arg(long, value_name = "FILE.jsonl", conflicts_with_all = ["text", "tokens", "window"])]
    tasks: Option<PathBuf>,
    /// Solve the tasks again, with these flags of this command in the place of those given, with spaces between them: --target,
    /// --activation, --quantize, --ngram, --draft, …; may repeat
    #[arg(long, value_name = "FLAGS", requires = "tasks", value_parser = row::parse_row, allow_hyphen_values = true)]
    row: Vec<row::RowArgs>,
    #[command(flatten)]
    graph: GraphArgs,
    #[command(flatten)]
    guess: GuessArgs,
    #[command(flatten)]
    json: JsonArg,
}

/// What is written as JSON.
#[derive(Clone, Serialize)]
struct Report {
    schema: u32,
    /// As it was named on the command line.
    model: String,
    /// The source; the model itself without quantisation if none was named.
    reference: String,
    /// The scheme, if weights were quantised here.
    quantize: Option<String>,
    /// The file; nothing for the bundled prompts.
    text: Option<String>,
    target: String,
    /// Tokens that were fed together.
    window: usize,
    /// What was measured; its fields stand beside the others.
    #[serde(flatten)]
    comparison: Comparison,
    /// Bytes of the source's weights.
    source_weight_bytes: u64,
    /// Bytes of the weights under test.
    weight_bytes: u64,
    /// From the start of the command.
    seconds: f64,
    /// Someone asked to stop before the end of the text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stopped: bool,
}

impl EvalCommand {
    /// Compares window by window; what was compared is reported even if the user stops it.
    ///
    /// # Errors
    /// If a model or the text cannot be read, or no tokenizer is found.
    pub fn run(self) -> Result<Outcome> {
        if let Some(tasks) = &self.tasks {
            return self.solve(tasks);
        }
        if self.guess.draft.is_some() || self.guess.ngram.is_some() {
            let text = "tokens are guessed where a model makes text, and `eval` makes none without `--tasks`";
            return Err(tapml::Error::invalid(text)
                .with_hint("add `--tasks FILE.jsonl`, or leave the guesses out")
                .into());
        }
        let (start, stop) = (Instant::now(), stopping::stop_on_signal()?);
        let bar = Arc::new(Bar::at_stage("read the models"));
        let reference = self.reference.as_deref().unwrap_or(&self.model);
        // The reference is not quantised, whatever the model under test is.
        let (source, plain) = GraphOptions::default().open(reference, LogitRows::All)?;
        let (graph, words) = self.graph.for_target(&self.target)?;
        let (checkpoint, model) = graph.open(&self.model, LogitRows::All)?;
        // A quantised file may lack a tokenizer, or hold one of its own.
        let tokenizer = Tokenizer::open(source.dir()).or_else(|_| Tokenizer::open(checkpoint.dir()))?;
        let (ids, begin) = self.ids(&tokenizer)?;
        // Both models have to take it.
        let window = (self.window as usize).min(source.context()).min(checkpoint.context());
        let mut cpu = common::open_platform("cpu", &[])?;
        let mut target = common::open_platform(&words, &[])?;
        let source = Side { model: &plain, platform: cpu.as_mut() };
        let tested = Side { model: &model, platform: target.as_mut() };
        let mut report = Report {
            schema: 1,
            model: self.model.display().to_string(),
            reference: reference.display().to_string(),
            quantize: self.graph.quantize.map(|scheme| scheme.to_string()),
            text: self.text.as_deref().map(|path: &Path| path.display().to_string()),
            target: self.target.clone(),
            window,
            comparison: Comparison::default(),
            source_weight_bytes: weight_bytes(&plain)?,
            weight_bytes: weight_bytes(&model)?,
            seconds: 0.0,
            stopped: false,
        };
        let windows = split_windows(&ids, window, begin)?;
        bar.stage("compare", windows.len() as u64);
        let mut so_far = |comparison| {
            bar.advance(1);
            report.comparison = comparison;
            report.seconds = start.elapsed().as_secs_f64();
            let (last, json) = (Report { stopped: true, ..report.clone() }, self.json.clone());
            let bar = bar.clone();
            // Set anew for each window, with all that is known by then.
            stopping::set_last_words(move || {
                bar.finish();
                if let Err(error) = write_report(&last, &json) {
                    output::print_error(&error);
                }
            });
        };
        stopping::or_last_words(compare(source, tested, &windows, &stop, &mut so_far))?;
        bar.finish();
        write_report(&report, &self.json)?;
        Ok(Outcome::Holds)
    }

    /// Tokens of the text, and the one that begins a text.
    fn ids(&self, tokenizer: &Tokenizer) -> Result<(Vec<u32>, Option<u32>)> {
        let text = match &self.text {
            None => bundled_prompts().join("\n\n"),
            Some(path) => tapml::files::read_text(path, MOST_BYTES, "a text")?,
        };
        let front = tokenizer.encode("")?;
        let ids = tokenizer.encode(&text)?;
        // A token that begins a text stands in front of each window, not in the text.
        let ids = ids.strip_prefix(front.as_slice()).unwrap_or(&ids);
        let count = (self.tokens as usize).min(ids.len());
        Ok((ids[..count].to_vec(), front.first().copied()))
    }
}

/// Shows the report, and writes it.
fn write_report(report: &Report, json: &JsonArg) -> Result<()> {
    json.say(&render(report))?;
    json.write(report)
}

/// Bytes of a model's weights as they are stored.
fn weight_bytes(model: &Model) -> Result<u64> {
    Ok(model.graph().summary()?.weight_bytes)
}

/// Perplexity, divergence, agreement and sizes.
fn render(report: &Report) -> String {
    let c = &report.comparison;
    format!(
        "{} tokens in windows of {}\nperplexity {:.4}, of the source {:.4} ({:+.2} %)\nKL {:.6} nats, at most {:.4}\n\
         same most likely token {:.2} %\nweights {}, of the source {}",
        c.tokens,
        report.window,
        c.perplexity,
        c.source_perplexity,
        100.0 * (c.perplexity / c.source_perplexity - 1.0),
        c.kl,
        c.kl_most,
        100.0 * c.top1_agreement,
        bytes(report.weight_bytes),
        bytes(report.source_weight_bytes),
    )
}
