//! How fast a model generates on a platform, and what the platform's memory would allow: tokens a second against the floor
//! that reading the weights and the cache once a token sets.
//!
//! Prompts differ from run to run, so that no cache of prefixes helps. Times are wall-clock times around
//! whole steps, transfers of ids and logits included.

mod bandwidth;
mod draft;
mod profile;
mod rate;
mod timed;
pub(crate) mod traffic;

use crate::platform;
pub use draft::{DraftSpeedOptions, DraftSpeedReport, StepTime, measure_drafts};
pub use profile::KernelTime;
use profile::{Profiler, Recording};
pub use rate::Rate;
use serde::Serialize;
use std::ops::ControlFlow;
use std::time::Instant;
use tapml_engine::{GenerateOptions, Generation, Generator, Sampling};
use tapml_exec::{DevicePlatform, Platform, PlatformInfo, PlatformSpec, Session};
use tapml_graph::{Error, ErrorKind, Graph, Model, Result, Symbols};
use tapml_kernels::{CompileOptions, Overrides, Phase, ProgramMemory, compile};
use tapml_migrate::Stop;

/// What is measured.
#[derive(Clone, Debug)]
pub struct SpeedOptions {
    /// Tokens of the prompt in front of decoding.
    pub prompt_tokens: usize,
    /// Tokens that are decoded in one run.
    pub tokens: usize,
    /// Tokens of the prompt whose processing is measured.
    pub prefill_tokens: usize,
    /// Tokens that the cache holds before decoding, if more than the prompt's.
    pub depth: usize,
    /// Runs after one that is not counted.
    pub runs: usize,
    /// Steps of which every kernel is timed; 0 for none.
    pub profile: usize,
}

impl Default for SpeedOptions {
    fn default() -> SpeedOptions {
        SpeedOptions { prompt_tokens: 16, tokens: 128, prefill_tokens: 512, depth: 0, runs: 5, profile: 0 }
    }
}

/// Tokens a second of one run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Run {
    /// Of the long prompt.
    pub prefill_tps: f64,
    /// Of the tokens after a prompt.
    pub decode_tps: f64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct SpeedReport {
    /// Where.
    pub device: PlatformInfo,
    /// Tokens of the prompt in front of decoding, and in the cache before each run.
    pub prompt_tokens: usize,
    /// Tokens in the cache before the first run.
    pub depth: usize,
    /// Tokens decoded in a run.
    pub tokens: usize,
    /// Tokens of the long prompt.
    pub prefill_tokens: usize,
    /// Median of the runs: decoded tokens a second.
    pub decode_tps: f64,
    /// All of it.
    pub decode: Rate,
    /// Median of the runs: tokens of the long prompt a second.
    pub prefill_tps: f64,
    /// All of it.
    pub prefill: Rate,
    /// Bytes of weights and states that a token cannot do without reading, in the middle of a run.
    pub bytes_per_token: u64,
    /// Bytes a second that a kernel reads which does nothing else, measured in the same run.
    pub bandwidth: f64,
    /// Milliseconds that reading those bytes takes.
    pub floor_ms: f64,
    /// The floor's share of the time that a token took.
    pub share_of_floor: f64,
    /// Most bytes of device memory in use at once; 0 where nobody counts.
    pub peak_bytes: u64,
    /// Bytes that the compiled program plans for, by use.
    pub planned: Option<ProgramMemory>,
    /// Seconds until the model was ready.
    pub load_seconds: f64,
    /// One by one.
    pub runs: Vec<Run>,
    /// Whether someone asked to stop before all runs were done; kernels were not timed then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Kernels by the time that they lose against their own floors, if asked for. Each kernel is timed alone, so that the
    /// sum is more than a step takes in which they overlap.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profile: Vec<KernelTime>,
    /// The same of the long prompt, whose floors are those of its bytes alone: products of many rows take longer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefill_profile: Vec<KernelTime>,
}

/// Measures a language model with logits of the last row on a platform, or on several as its ranks. `note` is told what is being
/// done. Whoever asks to stop once a run has been timed gets what the runs so far tell.
///
/// # Errors
/// If prompt, tokens or runs are 0, something cannot be opened, or every run lost its connection.
pub fn measure(
    specs: &[PlatformSpec],
    overrides: Overrides,
    model: &Model,
    options: &SpeedOptions,
    note: &mut dyn FnMut(&str),
    stop: &Stop,
) -> Result<SpeedReport> {
    if options.prompt_tokens == 0 || options.tokens == 0 || options.runs == 0 {
        return Err(Error::invalid("prompt, tokens and runs must be at least 1"));
    }
    let symbols = capacity(options);
    let [spec] = specs else { return measure_ranks(specs, overrides, model, options, note, stop) };
    // The processor runs graphs node by node, without a plan and without kernels to time.
    if spec.word == "cpu" {
        note("measuring the memory's speed");
        let bandwidth = bandwidth::of_host();
        let mut platform = platform::open(spec, overrides)?;
        return Bench {
            platform: platform.as_mut(),
            bandwidth,
            planned: None,
            recording: None,
            model,
            options,
            stop,
        }
        .run(note);
    }
    note("measuring the memory's speed");
    // On a device of its own, so that its buffer is no part of the model's memory.
    let mut alone = platform::open_device(spec)?;
    let bandwidth = tapml_exec::repeat(&mut alone, |device| bandwidth::of_device(device.as_mut()))?;
    drop(alone);
    // Compiled one more time here, only for the plan's sizes.
    let device = platform::open_for_plans(spec)?;
    let compiled = CompileOptions { overrides: overrides.clone(), ..CompileOptions::new(symbols) };
    let planned = compile(model.graph(), device.info(), &compiled)?.memory();
    let (profiler, recording) = Profiler::new(device);
    let mut platform = DevicePlatform::new(Box::new(profiler), overrides);
    let (planned, recording) = (Some(planned), Some(recording));
    Bench { platform: &mut platform, bandwidth, planned, recording, model, options, stop }.run(note)
}

/// Measures on several ranks, whose memories are read at once: the speed of the first one's counts for each. Kernels are not
/// timed one by one.
fn measure_ranks(
    specs: &[PlatformSpec],
    overrides: Overrides,
    model: &Model,
    options: &SpeedOptions,
    note: &mut dyn FnMut(&str),
    stop: &Stop,
) -> Result<SpeedReport> {
    let first = specs.first().ok_or_else(|| Error::invalid("there is no platform to measure on"))?;
    if options.profile > 0 {
        return Err(Error::unsupported("kernels of several ranks are not timed one by one")
            .with_hint("leave `--profile` out, or measure on one device"));
    }
    note("measuring the memory's speed");
    let bandwidth = if first.word == "cpu" {
        // All ranks have the host's memory together.
        bandwidth::of_host()
    } else {
        let mut alone = platform::open_device(first)?;
        specs.len() as f64 * tapml_exec::repeat(&mut alone, |device| bandwidth::of_device(device.as_mut()))?
    };
    let mut platform = platform::open_ranks(specs, overrides, model.graph().ranks())?;
    let (planned, recording) = (None, None);
    Bench { platform: platform.as_mut(), bandwidth, planned, recording, model, options, stop }.run(note)
}

/// The largest sizes of the runs.
fn capacity(options: &SpeedOptions) -> Symbols {
    let (context, chunk) = sizes(options);
    Symbols::np(chunk as u64, context as u64 - 1)
}

/// Positions, and tokens of the largest step.
///
/// With a depth the text grows from run to run, so room for all runs is counted.
fn sizes(options: &SpeedOptions) -> (usize, usize) {
    // The first token comes from the prompt's step.
    let steps = options.tokens + 1;
    let decoded = match options.depth {
        0 => options.prompt_tokens + steps + options.profile,
        depth => depth.max(options.prompt_tokens) + (steps + 1) * (options.runs + 1) + options.profile + 2,
    };
    let context = decoded.max(options.prefill_tokens + 1);
    (context, options.prefill_tokens.max(1).min(context))
}

/// What is measured with what.
struct Bench<'a> {
    /// Where the model runs.
    platform: &'a mut dyn Platform,
    /// Bytes a second; 0 if it is not known.
    bandwidth: f64,
    /// Not for the processor.
    planned: Option<ProgramMemory>,
    /// Not for the processor.
    recording: Option<Recording>,
    model: &'a Model,
    options: &'a SpeedOptions,
    stop: &'a Stop,
}

impl Bench<'_> {
    /// Load, prefill, decode, profile: in this order, so that timing single kernels disturbs no rate.
    fn run(self, note: &mut dyn FnMut(&str)) -> Result<SpeedReport> {
        let options = self.options;
        note("loading the model");
        let start = Instant::now();
        let (context, chunk) = sizes(options);
        let session = Session::greedy(self.platform, self.model, context, Some(chunk))?;
        let vocab = session.vocab().unwrap_or(1).max(1);
        let mut feeder = Feeder { generator: Generator::new(session), vocab, turn: 0, stop: self.stop };
        let mut text = feeder.prompt(options.prompt_tokens.max(options.depth));
        // The first run compiles and uploads; it counts as loading.
        feeder.generate(&text[..1], 1)?;
        let load_seconds = start.elapsed().as_secs_f64();
        note("prefill");
        let prefill = self.time_prefill(&mut feeder)?;
        note("decode");
        let (decode, stopped) = self.time_decode(&mut feeder, &mut text)?;
        let peak_bytes = self.platform.memory().1;
        // The cache grows in a run; its middle stands for the whole.
        let middle = (options.prompt_tokens.max(options.depth) + options.tokens / 2) as u64;
        let symbols = Symbols::np(1, middle);
        let profile = match &self.recording {
            Some(recording) if options.profile > 0 && !stopped => {
                note("timing the kernels");
                if options.depth == 0 {
                    text = feeder.prompt(options.prompt_tokens);
                    feeder.generate(&text, 1)?;
                }
                // The prompt is fed before, so that only decode steps are timed.
                recording.start();
                feeder.generate(&text, options.profile + 1)?;
                recording.finish(&self.lowered_graph(Phase::Decode)?, &symbols, self.bandwidth)?
            }
            _ => Vec::new(),
        };
        let prefill_profile = if stopped { Vec::new() } else { self.profile_prefill(&mut feeder)? };
        let bytes_per_token = traffic::of_step(self.model.graph(), &symbols)?;
        let (decode_rate, prefill_rate) = (Rate::from_runs(&decode), Rate::from_runs(&prefill));
        let floor = if self.bandwidth > 0.0 { bytes_per_token as f64 / self.bandwidth } else { 0.0 };
        let run = |(&prefill_tps, &decode_tps): (&f64, &f64)| Run { prefill_tps, decode_tps };
        Ok(SpeedReport {
            device: self.platform.describe(),
            prompt_tokens: options.prompt_tokens,
            depth: options.depth,
            tokens: options.tokens,
            prefill_tokens: options.prefill_tokens,
            decode_tps: decode_rate.median,
            decode: decode_rate,
            prefill_tps: prefill_rate.median,
            prefill: prefill_rate,
            bytes_per_token,
            bandwidth: self.bandwidth,
            floor_ms: floor * 1e3,
            share_of_floor: floor * decode_rate.median,
            peak_bytes,
            planned: self.planned,
            load_seconds,
            runs: prefill.iter().zip(&decode).map(run).collect(),
            stopped,
            profile,
            prefill_profile,
        })
    }

    /// Tokens a second of each run over the long prompt.
    fn time_prefill(&self, feeder: &mut Feeder<'_>) -> Result<Vec<f64>> {
        let mut run = || {
            let prompt = feeder.prompt(self.options.prefill_tokens);
            Ok(if prompt.is_empty() {
                0.0
            } else {
                prompt.len() as f64 / feeder.generate(&prompt, 1)?.prefill.as_secs_f64()
            })
        };
        // Not counted: caches and clocks warm up.
        run_undisturbed(&mut run)?;
        (0..self.options.runs).map(|_| run_undisturbed(&mut run)).collect()
    }

    /// Tokens a second of each run behind `text`, and whether someone asked to stop before all were done.
    fn time_decode(&self, feeder: &mut Feeder<'_>, text: &mut Vec<u32>) -> Result<(Vec<f64>, bool)> {
        let (options, mut rates) = (self.options, Vec::new());
        // The first run is not counted.
        for run in 0..=options.runs {
            let made = run_undisturbed(|| {
                if options.depth == 0 {
                    *text = feeder.prompt(options.prompt_tokens);
                }
                feeder.generate(text, options.tokens + 1)
            });
            let made = match made {
                Err(e) if e.kind() == ErrorKind::Interrupted && !rates.is_empty() => {
                    return Ok((rates, true));
                }
                made => made?,
            };
            // With a depth the next run goes on from here, in the cache that this one left.
            text.extend(&made.ids);
            if run > 0 {
                rates.push(options.tokens as f64 / made.decode.as_secs_f64());
            }
        }
        Ok((rates, false))
    }

    /// The kernels of the long prompt, if they are asked for and it is one step.
    fn profile_prefill(&self, feeder: &mut Feeder<'_>) -> Result<Vec<KernelTime>> {
        let tokens = self.options.prefill_tokens;
        let Some(recording) = self.recording.as_ref().filter(|_| self.options.profile > 0 && tokens > 0)
        else {
            return Ok(Vec::new());
        };
        recording.start();
        for _ in 0..self.options.profile {
            let prompt = feeder.prompt(tokens);
            feeder.generate(&prompt, 1)?;
        }
        // Bytes of one step at the prompt's length.
        let lowered = self.lowered_graph(Phase::Prefill)?;
        recording.finish(&lowered, &Symbols::np(tokens as u64, 0), self.bandwidth)
    }

    /// The graph whose nodes the timings name.
    fn lowered_graph(&self, phase: Phase) -> Result<Graph> {
        let lowered = self.platform.lower(self.model.graph(), phase)?;
        Ok(lowered.unwrap_or_else(|| self.model.graph().clone()))
    }
}

/// Runs of which one shall go without a lost connection: the time of another is that of opening the device again, too.
const TRIES: usize = 5;

/// Does it until no connection to a device is lost meanwhile.
fn run_undisturbed<T>(mut run: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..TRIES {
        // Counted for the whole process: the loss of another connection makes a run count as disturbed,
        // too.
        let before = platform::count_reopened();
        let done = run()?;
        if platform::count_reopened() == before {
            return Ok(done);
        }
    }
    let text =
        format!("the connection to the device was lost in each of {TRIES} runs, so that none could be timed");
    Err(Error::new(ErrorKind::Unavailable, text))
}

/// Feeds prompts that no earlier one begins with.
struct Feeder<'a> {
    generator: Generator<Session>,
    vocab: u64,
    turn: u64,
    stop: &'a Stop,
}

impl Feeder<'_> {
    /// Ids that look random, from two primes and the turn.
    fn prompt(&mut self, len: usize) -> Vec<u32> {
        self.turn += 1;
        let id =
            |i: u64| (self.turn.wrapping_mul(7919).wrapping_add(i.wrapping_mul(104_729)) % self.vocab) as u32;
        (0..len as u64).map(id).collect()
    }

    /// Takes the most likely token each time; a stop token does not end it.
    fn generate(&mut self, prompt: &[u32], tokens: usize) -> Result<Generation> {
        let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
        let options = GenerateOptions { max_tokens: tokens, sampling, stop_ids: Vec::new() };
        let mut each = |_| self.stop.check().map(ControlFlow::Continue);
        self.generator.generate(prompt, &options, &mut each)
    }
}

#[cfg(test)]
mod tests;
