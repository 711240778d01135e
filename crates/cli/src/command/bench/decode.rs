//! `tapml bench decode`: how fast a model generates, and what the memory's speed would allow.
//!
//! The floor of a token is the time in which the memory gives the bytes that a step must read. How near a device
//! comes to it tells what its kernels leave unused.

use crate::Outcome;
use crate::command::common::{self, GraphArgs};
use crate::output::{self, JsonArg, bytes, table};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use tapml::exec::Interface;
use tapml::graph::DType;
use tapml::import::LogitRows;
use tapml::platform::PlatformSpec;
use tapml::speed::{KernelTime, Rate, SpeedOptions, SpeedReport, measure};

/// Measure how many tokens a second a model reads and makes, against the floor that its memory's speed sets.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tapml bench decode models/llama --target vulkan\n  tapml bench decode tools/shapes/llama-3.1-8b --random --target cuda --activation f16 --profile"
)]
pub struct DecodeCommand {
    /// Folder in Hugging Face layout, or a GGUF file; with --random its `config.json` is enough
    model: PathBuf,
    /// Where to run; the fastest device present if not given, else cpu
    #[arg(long, value_name = "PLATFORM")]
    target: Option<String>,
    /// Use this source instead of the built-in kernel of an operator; may repeat
    #[arg(long, value_name = "OP=FILE")]
    kernel: Vec<String>,
    /// Random weights instead of the checkpoint's: a folder with a configuration is enough
    #[arg(long)]
    random: bool,
    /// Tokens in front of those that are decoded
    #[arg(long, value_name = "N", default_value_t = 16)]
    prompt_tokens: usize,
    /// Tokens that are decoded in a run
    #[arg(long, value_name = "N", default_value_t = 128)]
    tokens: usize,
    /// Tokens of the prompt whose processing is measured; 0 for none
    #[arg(long, value_name = "N", default_value_t = 512)]
    prefill: usize,
    /// Tokens that the cache holds before decoding
    #[arg(long, value_name = "N", default_value_t = 0)]
    context: usize,
    /// Runs, after one that is not counted
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: usize,
    /// Time every kernel of a step, and of the long prompt, against its own floor
    #[arg(long)]
    profile: bool,
    #[command(flatten)]
    graph: GraphArgs,
    #[command(flatten)]
    json: JsonArg,
}

/// Steps of a profile.
const STEPS: usize = 5;

/// What is written as JSON.
#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    model: String,
    target: &'a str,
    /// Whether the weights are not those of a checkpoint.
    random_weights: bool,
    activation: DType,
    /// What was measured; its fields stand beside the others.
    #[serde(flatten)]
    speed: &'a SpeedReport,
}

impl DecodeCommand {
    /// Measures, prints, and writes the report.
    ///
    /// # Errors
    /// If the model cannot be read, or the platform does not run it.
    pub fn run(self) -> Result<Outcome> {
        let stop = stopping::stop_on_signal()?;
        let bar = Bar::at_stage("read the model");
        let target = self.target.clone().unwrap_or_else(|| tapml::platform::fastest().to_string());
        let (graph, target) = self.graph.for_target(&target)?;
        // Generation needs the logits of the last row alone.
        let model = if self.random {
            graph.open_random(&self.model, LogitRows::Last)?
        } else {
            graph.open(&self.model, LogitRows::Last)?.1
        };
        Interface::from_graph(model.graph())?.expect_logits()?;
        let options = SpeedOptions {
            prompt_tokens: self.prompt_tokens,
            tokens: self.tokens,
            prefill_tokens: self.prefill,
            depth: self.context,
            runs: self.runs,
            profile: if self.profile { STEPS } else { 0 },
        };
        let specs = PlatformSpec::parse_ranks(&target)?;
        let overrides = common::overrides(&self.kernel)?;
        bar.stage(&format!("measure on {target}"), 0);
        // The bar is taken away while a line is printed.
        let mut note = |text: &str| bar.suspend(|| output::note("bench", text));
        let speed = measure(&specs, overrides, &model, &options, &mut note, &stop)?;
        bar.finish();
        self.say(&speed)?;
        self.json.write(&Report {
            schema: 1,
            model: self.model.display().to_string(),
            target: &target,
            random_weights: self.random,
            activation: self.graph.options().activation,
            speed: &speed,
        })?;
        // What was measured is told before the command ends as stopped.
        if speed.stopped {
            stop.check()?;
        }
        Ok(Outcome::Holds)
    }

    /// Prints the rates, the floor, and the kernels if they were timed.
    fn say(&self, s: &SpeedReport) -> Result<()> {
        let rate = |r: &Rate| format!("{:.1} tokens/s ({:.1} to {:.1})", r.median, r.min, r.max);
        self.json.say(&format!("device   {} ({})", s.device.device, s.device.driver))?;
        self.json.say(&format!(
            "decode   {}, {} tokens after {}",
            rate(&s.decode),
            s.tokens,
            // A filled cache stands in the place of a prompt.
            s.prompt_tokens.max(s.depth)
        ))?;
        // Zero means that no long prompt was measured.
        if s.prefill_tokens > 0 {
            self.json.say(&format!("prefill  {}, {} tokens", rate(&s.prefill), s.prefill_tokens))?;
        }
        self.json.say(&format!(
            "floor    {:.3} ms a token: {} at {} a second; decoding reaches {:.1} % of it",
            s.floor_ms,
            bytes(s.bytes_per_token),
            bytes(s.bandwidth as u64),
            100.0 * s.share_of_floor
        ))?;
        if let Some(planned) = &s.planned {
            self.json.say(&format!(
                "memory   {} at most; planned: weights {}, cache {}, values {}",
                bytes(s.peak_bytes),
                bytes(planned.weights),
                bytes(planned.states),
                bytes(planned.activations)
            ))?;
        }
        self.json.say(&format!("load     {:.2} s", s.load_seconds))?;
        for (what, kernels) in [("a step", &s.profile), ("the long prompt", &s.prefill_profile)] {
            if !kernels.is_empty() {
                self.json.say(&format!("kernels of {what}\n{}", profile(kernels)))?;
            }
        }
        Ok(())
    }
}

/// A line for each kernel, and their sum.
fn profile(kernels: &[KernelTime]) -> String {
    let micro = |seconds: f64| format!("{:.1}", seconds * 1e6);
    let row = |k: &KernelTime| {
        // A kernel may be too short for the clock.
        let share = if k.seconds > 0.0 { 100.0 * k.floor_seconds / k.seconds } else { 0.0 };
        vec![
            k.kernel.clone(),
            k.count.to_string(),
            micro(k.seconds),
            micro(k.floor_seconds),
            micro(k.loss_seconds),
            format!("{share:.0} %"),
        ]
    };
    let sum = |of: fn(&KernelTime) -> f64| kernels.iter().map(of).sum::<f64>();
    let all = KernelTime {
        kernel: "all".into(),
        count: kernels.iter().map(|k| k.count).sum(),
        seconds: sum(|k| k.seconds),
        floor_seconds: sum(|k| k.floor_seconds),
        loss_seconds: sum(|k| k.loss_seconds),
    };
    let mut out = table(&["KERNEL", "COUNT", "µs", "FLOOR µs", "LOSS µs", "OF FLOOR"])
        .with_optional(&["FLOOR µs", "LOSS µs"]);
    for kernel in kernels.iter().chain([&all]) {
        out.add_row(row(kernel));
    }
    out.to_string()
}
