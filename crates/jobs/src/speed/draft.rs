//! How much faster a server's engine makes texts with guessed tokens, and what that is made of: the time of a step of one row,
//! of a step that checks a draft, and of a step of the small model.
//!
//! The acceptance of guesses may be chosen. Each text is made without guesses first. Then the small model runs as ever, and
//! in the place of each guess stands the token that is known to follow, or, by chance, another one. So models of random weights,
//! which agree on nothing, are measured as trained ones. The checks of guesses are those of a server.

use super::Rate;
use super::timed::{TimedRunner, TimedStep};
use crate::serve::{LoadedModel, ServeOptions, Serving};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tapml_engine::{
    DraftModel, Engine, EngineOptions, NgramOptions, ReplaceGuess, Request, RequestEvent, RequestOptions,
    Sampling, Tokenizer, bundled_text,
};
use tapml_exec::PlatformInfo;
use tapml_graph::{Error, Result};
use tapml_migrate::{Progress, Stop};

/// How often whoever waits for tokens looks whether to stop.
const LOOK: Duration = Duration::from_millis(100);

/// What is measured. The models, and how many tokens the small one guesses at once, are in [`ServeOptions`].
#[derive(Clone, Debug)]
pub struct DraftSpeedOptions {
    /// Tokens of a prompt.
    pub prompt_tokens: usize,
    /// Tokens that are made of a text.
    pub tokens: usize,
    /// Texts at once.
    pub clients: usize,
    /// Runs, after one that is not counted.
    pub runs: usize,
    /// The chance that a guess of the small model is right, from 0 to 1; its own guesses if absent.
    pub acceptance: Option<f64>,
    /// At most this many tokens are guessed from the text, in the place of a small model.
    pub ngram: Option<usize>,
    /// Decides which guesses are right.
    pub seed: u64,
}

impl Default for DraftSpeedOptions {
    fn default() -> DraftSpeedOptions {
        DraftSpeedOptions {
            prompt_tokens: 64,
            tokens: 256,
            clients: 1,
            runs: 5,
            acceptance: None,
            ngram: None,
            seed: 0,
        }
    }
}

/// The steps of so many rows behind the prompts, of all runs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StepTime {
    /// Rows of a step, over all texts.
    pub rows: usize,
    /// How many steps there were.
    pub steps: usize,
    /// Milliseconds of one.
    pub ms: Rate,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct DraftSpeedReport {
    /// Where.
    pub device: PlatformInfo,
    /// Tokens of a prompt.
    pub prompt_tokens: usize,
    /// Tokens made of a text.
    pub tokens: usize,
    /// Texts at once.
    pub clients: usize,
    /// Tokens guessed at once, at most.
    pub draft_tokens: usize,
    /// The acceptance that was asked for; absent if guesses are the small model's own, or of the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_acceptance: Option<f64>,
    /// Share of right tokens among the guesses that were compared; 0 if nothing was guessed.
    pub acceptance: f64,
    /// Guesses that were compared.
    pub compared_tokens: u64,
    /// Guesses that were right.
    pub accepted_tokens: u64,
    /// Tokens that a step with guesses gave of one text, on average; steps without a guess are counted.
    pub tokens_per_step: f64,
    /// Tokens a second without guesses.
    pub plain_tps: Rate,
    /// Tokens a second with guesses. The small model reads the prompts within this time.
    pub draft_tps: Rate,
    /// How many times as fast: the runs in pairs.
    pub speedup: Rate,
    /// Share of the time with guesses in which neither model ran.
    pub host_share: f64,
    /// Milliseconds of a step of one row of each text; absent if there was none.
    pub plain_step_ms: Option<f64>,
    /// Milliseconds of a step that checks the longest drafts of all texts; absent if there was none.
    pub verify_step_ms: Option<f64>,
    /// How many times as long such a step takes as one of one row.
    pub verify_ratio: Option<f64>,
    /// Milliseconds of a step of the small model, of one row of each text.
    pub draft_step_ms: Option<f64>,
    /// Steps of the model without guesses.
    pub plain_steps: Vec<StepTime>,
    /// Steps of the model with guesses.
    pub verify_steps: Vec<StepTime>,
    /// Steps of the small model.
    pub draft_steps: Vec<StepTime>,
}

/// Measures how much faster guesses make texts. With and without, the texts are the same, which is checked.
///
/// # Errors
/// As [`ServeOptions::load`]; if a size is 0, nothing guesses, the acceptance is no chance, or a text with guesses is another one
/// than without.
pub fn measure_drafts(
    serve: &ServeOptions,
    options: &DraftSpeedOptions,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<DraftSpeedReport> {
    check(serve, options)?;
    let context = options.prompt_tokens.saturating_add(options.tokens);
    let rows = options.clients.saturating_mul(guessed_at_once(serve, options).saturating_add(1));
    let serve = ServeOptions {
        context: Some(context),
        // As many pages as the texts need.
        pages: None,
        memory: u64::MAX,
        rows: serve.rows.max(rows),
        sequences: options.clients,
        ..serve.clone()
    };
    let Serving { checkpoint, model, platform, .. } = serve.load(progress, stop)?;
    let LoadedModel::Generator { runner, draft, .. } = model else {
        return Err(Error::unsupported("the model is an encoder, which generates no text"));
    };
    let target = TimedRunner::new(runner);
    let text = Tokenizer::open(checkpoint.dir()).and_then(|tokenizer| tokenizer.encode(bundled_text()));
    let text = text.ok().filter(|ids| !serve.random && !ids.is_empty());
    let bench = Bench {
        prompts: prompts(options, text.as_deref(), tapml_engine::BatchRunner::limits(&target).vocab),
        target,
        draft: draft.map(|draft| TimedRunner::new(draft.runner)),
        draft_tokens: guessed_at_once(&serve, options),
        options,
        stop,
    };
    bench.run(platform, progress)
}

fn check(serve: &ServeOptions, options: &DraftSpeedOptions) -> Result<()> {
    let DraftSpeedOptions { prompt_tokens, tokens, clients, runs, acceptance, ngram, .. } = options;
    if [*prompt_tokens, *clients, *runs].contains(&0) || *tokens < 2 {
        let found = [*prompt_tokens, *clients, *runs, *tokens];
        return Err(Error::invalid(format!(
            "prompt, clients and runs must be at least 1, and tokens at least 2: found {found:?}"
        )));
    }
    if serve.draft.is_some() == ngram.is_some() {
        return Err(Error::invalid("tokens are guessed by a small model or from the text, one of both")
            .with_hint("name `--draft MODEL` or `--ngram N`"));
    }
    match acceptance {
        Some(chance) if !(0.0..=1.0).contains(chance) => {
            Err(Error::invalid(format!("the acceptance must be from 0 to 1, found {chance}")))
        }
        Some(_) if ngram.is_some() => {
            Err(Error::unsupported("the acceptance of guesses from the text is what the text gives")
                .with_hint("leave `--acceptance` out, or name a small model with `--draft`"))
        }
        _ => Ok(()),
    }
}

fn guessed_at_once(serve: &ServeOptions, options: &DraftSpeedOptions) -> usize {
    options.ngram.unwrap_or(serve.draft_tokens)
}

/// A prompt for each text, no two alike: parts of the bundled text, or ids that look random.
fn prompts(options: &DraftSpeedOptions, text: Option<&[u32]>, vocab: usize) -> Vec<Vec<u32>> {
    let id = |client: usize, at: usize| match text {
        Some(ids) => ids[(client * 7 + at) % ids.len()],
        None => ((client + 1) * 7919 + at * 104_729).checked_rem(vocab).unwrap_or(0) as u32,
    };
    (0..options.clients).map(|client| (0..options.prompt_tokens).map(|at| id(client, at)).collect()).collect()
}

struct Bench<'a> {
    prompts: Vec<Vec<u32>>,
    target: TimedRunner,
    draft: Option<TimedRunner>,
    draft_tokens: usize,
    options: &'a DraftSpeedOptions,
    stop: &'a Stop,
}

/// All texts, made one time.
struct Pass {
    /// The tokens behind each prompt.
    texts: Vec<Vec<u32>>,
    /// Seconds from when the last of the texts had its first token to the last token of all.
    seconds: f64,
    /// Tokens within these seconds.
    tokens: usize,
    accepted: u64,
    compared: u64,
    /// Steps of the model and of the small one within these seconds.
    steps: [Vec<TimedStep>; 2],
}

/// What all counted passes of one kind gave.
#[derive(Default)]
struct Passes {
    rates: Vec<f64>,
    seconds: f64,
    accepted: u64,
    compared: u64,
    steps: [Vec<TimedStep>; 2],
}

impl Passes {
    fn add(&mut self, pass: Pass) {
        self.rates.push(pass.tokens as f64 / pass.seconds);
        self.seconds += pass.seconds;
        self.accepted += pass.accepted;
        self.compared += pass.compared;
        for (all, steps) in self.steps.iter_mut().zip(pass.steps) {
            all.extend(steps);
        }
    }
}

impl Bench<'_> {
    fn run(&self, platform: PlatformInfo, progress: &dyn Progress) -> Result<DraftSpeedReport> {
        let (mut plain, mut drafted) = (Passes::default(), Passes::default());
        progress.stage("runs", self.options.runs as u64 + 1);
        let mut known: Option<Arc<Vec<Vec<u32>>>> = None;
        // The first run is not counted: caches and clocks warm up.
        for run in 0..=self.options.runs {
            let without = self.pass(None)?;
            let texts = known.get_or_insert_with(|| Arc::new(self.whole_texts(&without.texts))).clone();
            self.expect_same(&texts, &without.texts, "a second run without guesses")?;
            let with = self.pass(Some((texts.clone(), run as u64)))?;
            self.expect_same(&texts, &with.texts, "a run with guesses")?;
            if run > 0 {
                plain.add(without);
                drafted.add(with);
            }
            progress.advance(1);
        }
        Ok(self.report(platform, &plain, &drafted))
    }

    /// Prompts and what follows.
    fn whole_texts(&self, made: &[Vec<u32>]) -> Vec<Vec<u32>> {
        self.prompts.iter().zip(made).map(|(prompt, made)| [prompt.as_slice(), made].concat()).collect()
    }

    fn expect_same(&self, known: &[Vec<u32>], made: &[Vec<u32>], what: &str) -> Result<()> {
        for (client, (known, made)) in known.iter().zip(made).enumerate() {
            let known = known.get(self.options.prompt_tokens..).unwrap_or_default();
            if known != made {
                let at = known.iter().zip(made).take_while(|(a, b)| a == b).count();
                return Err(Error::bug(format!(
                    "text {client} of {what} differs from the first one at token {at}: expected {:?}, found {:?}",
                    known.get(at),
                    made.get(at)
                )));
            }
        }
        Ok(())
    }

    /// Makes all texts; with guesses if the texts are given that are known to follow, and the number of the run.
    fn pass(&self, guesses: Option<(Arc<Vec<Vec<u32>>>, u64)>) -> Result<Pass> {
        let DraftSpeedOptions { clients, acceptance, ngram, seed, .. } = *self.options;
        let with_guesses = guesses.is_some();
        let model = self.draft.as_ref().zip(guesses).map(|(runner, (known, run))| DraftModel {
            runner: Box::new(runner.clone()),
            tokens: self.draft_tokens,
            requests: clients,
            replace: acceptance.map(|chance| replace_guesses(known, chance, seed.wrapping_add(run))),
        });
        let ngram = ngram.filter(|_| with_guesses).map(|tokens| NgramOptions { tokens, requests: clients });
        // Prompts that an earlier run had are computed again.
        let options =
            EngineOptions { queue: clients, prefix_cache: false, ngram, ..EngineOptions::default() };
        let engine = Engine::start_with_draft(Box::new(self.target.clone()), model, options)?;
        let (sender, events) = channel();
        let requests = self.prompts.iter().enumerate();
        let requests = requests.map(|(client, prompt)| self.request(client, prompt, sender.clone()));
        let _handles = engine.submit_all(requests.collect())?;
        drop(sender);
        let mut texts = vec![Vec::new(); clients];
        let mut times: Vec<Instant> = Vec::new();
        let mut first = None;
        loop {
            self.stop.check()?;
            match events.recv_timeout(LOOK) {
                Ok(ClientEvent { client, at, event: RequestEvent::Token(token) }) => {
                    if texts[client].is_empty() {
                        first = Some(at);
                    }
                    texts[client].push(token.id);
                    times.push(at);
                }
                Ok(ClientEvent { event: RequestEvent::Failed(error), .. }) => return Err(error),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                // Every text has ended.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // Its thread counts what the last step gave after it has told of it.
        engine.shut_down(Duration::ZERO);
        let stats = engine.stats();
        let (Some(begin), Some(end)) = (first, times.last()) else {
            return Err(Error::bug("the engine gave no token"));
        };
        let behind = |runner: &TimedRunner| {
            let mut steps = runner.take_steps();
            steps.retain(|step| step.began >= begin);
            steps
        };
        Ok(Pass {
            seconds: (*end - begin).as_secs_f64(),
            tokens: times.iter().filter(|&&at| at > begin).count(),
            texts,
            accepted: stats.accepted_tokens,
            compared: stats.compared_tokens,
            steps: [behind(&self.target), self.draft.as_ref().map(behind).unwrap_or_default()],
        })
    }

    /// Takes the most likely token each time; no token ends the text.
    fn request(&self, client: usize, prompt: &[u32], sender: Sender<ClientEvent>) -> Request {
        let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
        let options =
            RequestOptions { max_tokens: self.options.tokens, sampling, ..RequestOptions::default() };
        let events = move |event| {
            // Whoever does not listen any more has given up.
            match sender.send(ClientEvent { client, at: Instant::now(), event }) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        Request { prompt: prompt.to_vec(), images: Vec::new(), options, mask: None, events: Box::new(events) }
    }

    fn report(&self, device: PlatformInfo, plain: &Passes, drafted: &Passes) -> DraftSpeedReport {
        let DraftSpeedOptions { prompt_tokens, tokens, clients, acceptance, .. } = *self.options;
        let times = |steps: &[TimedStep]| step_times(steps);
        let [plain_steps, verify_steps] = [plain, drafted].map(|passes| times(&passes.steps[0]));
        let draft_steps = times(&drafted.steps[1]);
        let ms = |steps: &[StepTime], rows: usize| {
            steps.iter().find(|step| step.rows == rows).map(|step| step.ms.median)
        };
        let plain_step_ms = ms(&plain_steps, clients);
        let verify_step_ms = ms(&verify_steps, clients * (self.draft_tokens + 1));
        let speedups: Vec<f64> = drafted.rates.iter().zip(&plain.rates).map(|(a, b)| a / b).collect();
        let busy: f64 = drafted.steps.iter().flatten().map(|step| step.seconds).sum();
        // Each text has a token of each step, and the right guesses beside it.
        let turns: usize = drafted.steps[0].iter().map(|step| step.texts).sum();
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        DraftSpeedReport {
            device,
            prompt_tokens,
            tokens,
            clients,
            draft_tokens: self.draft_tokens,
            asked_acceptance: acceptance,
            acceptance: share(drafted.accepted as f64, drafted.compared as f64),
            compared_tokens: drafted.compared,
            accepted_tokens: drafted.accepted,
            tokens_per_step: share((turns as u64 + drafted.accepted) as f64, turns as f64),
            plain_tps: Rate::from_runs(&plain.rates),
            draft_tps: Rate::from_runs(&drafted.rates),
            speedup: Rate::from_runs(&speedups),
            host_share: share(drafted.seconds - busy, drafted.seconds),
            plain_step_ms,
            verify_step_ms,
            verify_ratio: plain_step_ms.zip(verify_step_ms).map(|(plain, verify)| verify / plain),
            draft_step_ms: ms(&draft_steps, clients),
            plain_steps,
            verify_steps,
            draft_steps,
        }
    }
}

/// An event of a text.
struct ClientEvent {
    client: usize,
    at: Instant,
    event: RequestEvent,
}

/// Proposes the token that is known to follow with this chance, and another one without.
fn replace_guesses(known: Arc<Vec<Vec<u32>>>, chance: f64, seed: u64) -> ReplaceGuess {
    let mut random = fastrand::Rng::with_seed(seed);
    Box::new(move |text, guess| {
        let known = known.iter().find(|known| known.starts_with(text));
        // Behind a wrong guess nothing is compared.
        let Some(next) = known.and_then(|known| known.get(text.len())) else { return guess };
        if random.f64() < chance {
            return *next;
        }
        // One of the two is a token of every vocabulary that has more than one.
        if guess == *next { next.checked_sub(1).unwrap_or(next + 1) } else { guess }
    })
}

/// Steps behind the prompts, by their rows.
fn step_times(steps: &[TimedStep]) -> Vec<StepTime> {
    let mut by_rows: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.generates) {
        by_rows.entry(step.rows).or_default().push(step.seconds * 1e3);
    }
    let time = |(rows, ms): (usize, Vec<f64>)| StepTime { rows, steps: ms.len(), ms: Rate::from_runs(&ms) };
    by_rows.into_iter().map(time).collect()
}
