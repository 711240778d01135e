//! A load on a server: many clients at once, or requests at a rate, with lengths and prompts that a seed decides.
//!
//! Any server with OpenAI's `/v1/completions` can be measured, so that two can be compared by the same load.

mod client;
mod lengths;
mod target;

pub use lengths::LoadLengths;

use client::{LoadClient, Seen};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tapml_graph::{Context, Error, Result};
use target::{LoadTarget, parse_url};
use tokio::runtime::Builder;
use tokio::time::{Instant as AsyncInstant, sleep_until};

/// Ids of prompts lie below this where the server does not tell its vocabulary: every vocabulary has so many.
const LEAST_VOCAB: u32 = 250;
/// Errors that are reported one by one.
const REPORTED: usize = 5;

/// What to ask for, and how.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Address of the server: `http://HOST:PORT`, with a path in front of `/v1` if it has one.
    pub url: String,
    /// Shown to the server.
    pub api_key: Option<String>,
    /// The model to ask for; the server's first if absent.
    pub model: Option<String>,
    /// Clients, each of which asks for the next answer when it has one.
    pub clients: usize,
    /// Requests a second, at random times (Poisson), in the place of clients that wait for their answers.
    pub rate: Option<f64>,
    /// Requests in all.
    pub requests: usize,
    /// Tokens of prompts and answers.
    pub lengths: LoadLengths,
    /// Most tokens of prompt and answer together.
    pub context: u32,
    /// Tokens at the beginning of every prompt that all prompts share.
    pub shared_prefix: u32,
    /// Decides prompts, lengths and times.
    pub seed: u64,
    /// How long a request may take.
    pub limit: Duration,
}

/// A time of many requests, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LoadTimes {
    /// Half of them are below.
    pub median: f64,
    /// 99 of 100 are below.
    pub p99: f64,
}

/// What a load measured.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// Version of this form.
    pub schema: u32,
    /// The server.
    pub url: String,
    /// The model that was asked for.
    pub model: String,
    /// Clients at once; 0 if requests came at a rate.
    pub clients: usize,
    /// Requests a second that were sent, if they came at a rate.
    pub rate: Option<f64>,
    /// Tokens of prompts and answers.
    pub lengths: String,
    /// Decided prompts, lengths and times.
    pub seed: u64,
    /// Requests sent.
    pub requests: usize,
    /// Requests without a whole answer.
    pub failed: usize,
    /// Some of their errors.
    pub errors: Vec<String>,
    /// Tokens of all prompts that were answered.
    pub prompt_tokens: u64,
    /// New tokens of all answers.
    pub output_tokens: u64,
    /// New tokens a second, of all clients together.
    pub output_tps: f64,
    /// The same while every client's answer streams, so that no prompt is being read; absent if that was never so.
    pub decode_tps: Option<f64>,
    /// From the sending of a request to the first piece of its answer.
    pub ttft_ms: LoadTimes,
    /// Between two pieces of an answer.
    pub itl_ms: LoadTimes,
    /// From the sending of a request to the end of its answer.
    pub e2e_ms: LoadTimes,
    /// From the first request to the end of the last answer.
    pub seconds: f64,
}

/// A request that was planned.
struct Planned {
    prompt: Vec<u32>,
    answer: u32,
    /// When it is sent, from the start on; as soon as a client is free if absent.
    at: Option<Duration>,
}

/// What came of a request.
struct RequestOutcome {
    /// Tokens of its prompt.
    prompt: usize,
    /// When it was sent, from the start on.
    sent: Duration,
    seen: Result<Seen>,
}

/// Puts the load on a server. `progress` is told how many requests are done.
///
/// # Errors
/// If the server cannot be asked for its models, or the options make no sense. A request that fails is counted.
pub fn measure_load(options: &LoadOptions, progress: &(dyn Fn(usize) + Sync)) -> Result<LoadReport> {
    if options.clients == 0
        || options.requests == 0
        || options.rate.is_some_and(|rate| !(rate > 0.0 && rate.is_finite()))
    {
        return Err(Error::invalid("clients, requests and the rate must be above 0"));
    }
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::invalid(format!("the clients could not be started: {e}")))?;
    runtime.block_on(run(options, progress)).context(|| options.url.clone())
}

async fn run(options: &LoadOptions, progress: &(dyn Fn(usize) + Sync)) -> Result<LoadReport> {
    let (authority, path) = parse_url(&options.url)?;
    let (api_key, limit) = (options.api_key.clone(), options.limit);
    let mut target = LoadTarget { authority, path, api_key, model: String::new(), limit };
    let first = LoadClient::new(&target).first_model().await?;
    let id = first.get("id").and_then(serde_json::Value::as_str);
    target.model = options.model.clone().or(id.map(str::to_string)).unwrap_or_default();
    let vocab = first.pointer("/meta/n_vocab").and_then(serde_json::Value::as_u64);
    let vocab = vocab.and_then(|vocab| u32::try_from(vocab).ok()).unwrap_or(LEAST_VOCAB);
    let waiting = Mutex::new(plan(options, vocab));
    let outcomes: Mutex<Vec<RequestOutcome>> = Mutex::new(Vec::new());
    let start = Instant::now();
    // Requests at a rate do not wait for each other: each has a client of its own.
    let clients =
        if options.rate.is_some() { options.requests } else { options.clients.min(options.requests) };
    let one = || async {
        let mut client = LoadClient::new(&target);
        loop {
            let next = lock(&waiting).pop_front();
            let Some(Planned { prompt, answer, at }) = next else { break };
            if let Some(at) = at {
                sleep_until(AsyncInstant::from_std(start + at)).await;
            }
            let sent = start.elapsed();
            let seen = client.complete(&prompt, answer).await;
            let mut outcomes = lock(&outcomes);
            outcomes.push(RequestOutcome { prompt: prompt.len(), sent, seen });
            progress(outcomes.len());
        }
    };
    futures_util::future::join_all((0..clients).map(|_| one())).await;
    let seconds = start.elapsed().as_secs_f64();
    let outcomes = outcomes.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    Ok(report(options, target.model, &outcomes, seconds))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nobody panics while it is held; a poisoned one is whole all the same.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// All requests, in the order in which they are sent.
fn plan(options: &LoadOptions, vocab: u32) -> VecDeque<Planned> {
    let mut random = fastrand::Rng::with_seed(options.seed);
    let ids = |count: u32, random: &mut fastrand::Rng| -> Vec<u32> {
        (0..count).map(|_| random.u32(0..vocab.max(1))).collect()
    };
    let shared = Arc::new(ids(options.shared_prefix, &mut random));
    let mut at = 0.0;
    let mut one = || {
        let (prompt, answer) = options.lengths.draw(&mut random, options.context);
        let own = prompt.saturating_sub(shared.len() as u32).max(1);
        let mut all: Vec<u32> = shared.iter().copied().take(prompt.saturating_sub(1) as usize).collect();
        all.extend(ids(own, &mut random));
        all.truncate(prompt as usize);
        let at = options.rate.map(|rate| {
            at += -(1.0 - random.f64()).ln() / rate;
            Duration::from_secs_f64(at)
        });
        Planned { prompt: all, answer, at }
    };
    (0..options.requests).map(|_| one()).collect()
}

fn report(options: &LoadOptions, model: String, outcomes: &[RequestOutcome], seconds: f64) -> LoadReport {
    let seen: Vec<&Seen> = outcomes.iter().filter_map(|outcome| outcome.seen.as_ref().ok()).collect();
    let answered = outcomes.iter().filter(|outcome| outcome.seen.is_ok());
    let errors = outcomes.iter().filter_map(|outcome| Some(outcome.seen.as_ref().err()?.to_string()));
    let streams: Vec<AnswerStream> = outcomes.iter().filter_map(AnswerStream::of_outcome).collect();
    let ms = |times: Vec<Duration>| {
        let mut sorted: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        LoadTimes { median: quantile(&sorted, 0.5), p99: quantile(&sorted, 0.99) }
    };
    let between = |seen: &Seen| seen.pieces.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>();
    let output_tokens: u64 = seen.iter().map(|seen| seen.tokens).sum();
    LoadReport {
        schema: 1,
        url: options.url.clone(),
        model,
        clients: if options.rate.is_some() { 0 } else { options.clients },
        rate: options.rate,
        lengths: options.lengths.to_string(),
        seed: options.seed,
        requests: outcomes.len(),
        failed: outcomes.len() - seen.len(),
        errors: errors.take(REPORTED).collect(),
        prompt_tokens: answered.map(|outcome| outcome.prompt as u64).sum(),
        output_tokens,
        output_tps: output_tokens as f64 / seconds.max(1e-9),
        decode_tps: options.rate.map_or_else(|| decode_tps(&streams, options.clients), |_| None),
        ttft_ms: ms(seen.iter().filter_map(|seen| seen.pieces.first().copied()).collect()),
        itl_ms: ms(seen.iter().flat_map(|seen| between(seen)).collect()),
        e2e_ms: ms(seen.iter().map(|seen| seen.total).collect()),
        seconds,
    }
}

/// When the pieces of an answer came, from the start of the load on.
struct AnswerStream(Vec<Duration>);

impl AnswerStream {
    fn of_outcome(outcome: &RequestOutcome) -> Option<AnswerStream> {
        let pieces = &outcome.seen.as_ref().ok()?.pieces;
        Some(AnswerStream(pieces.iter().map(|&at| outcome.sent + at).collect()))
    }
}

/// Pieces a second while so many answers stream at once: from the first piece of the last one that begins to the last piece of
/// the first one that ends.
fn decode_tps(streams: &[AnswerStream], clients: usize) -> Option<f64> {
    let ends = streams.iter().filter_map(|AnswerStream(pieces)| Some((*pieces.first()?, *pieces.last()?)));
    // At equal times what begins comes behind what ends: such answers did not stream together.
    let mut borders: Vec<(Duration, bool)> =
        ends.flat_map(|(first, last)| [(first, true), (last, false)]).collect();
    borders.sort_unstable();
    let (mut streaming, mut spans) = (0usize, Vec::new());
    for pair in borders.windows(2) {
        streaming = if pair[0].1 { streaming + 1 } else { streaming.saturating_sub(1) };
        if streaming >= clients && pair[1].0 > pair[0].0 {
            spans.push((pair[0].0, pair[1].0));
        }
    }
    let seconds: f64 = spans.iter().map(|(from, to)| (*to - *from).as_secs_f64()).sum();
    let among = |at: &Duration| spans.iter().any(|(from, to)| from < at && at <= to);
    let pieces = streams.iter().flat_map(|AnswerStream(pieces)| pieces).filter(|at| among(at)).count();
    (seconds > 0.0).then(|| pieces as f64 / seconds)
}

/// The least of sorted numbers that this share of them does not exceed; 0 of none.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> LoadOptions {
        LoadOptions {
            url: "http://127.0.0.1:1".into(),
            api_key: None,
            model: None,
            clients: 2,
            rate: None,
            requests: 9,
            lengths: LoadLengths::Fixed { prompt: 20, answer: 3 },
            context: 64,
            shared_prefix: 18,
            seed: 3,
            limit: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_seed_decides_every_prompt_and_time() {
        let texts = |options: &LoadOptions| -> Vec<(Vec<u32>, Option<Duration>)> {
            plan(options, 100).into_iter().map(|planned| (planned.prompt, planned.at)).collect()
        };
        let found = texts(&options());
        assert_eq!(found, texts(&options()));
        assert_ne!(found, texts(&LoadOptions { seed: 4, ..options() }));
        assert!(
            found
                .iter()
                .all(|(prompt, at)| prompt.len() == 20 && prompt[..18] == found[0].0[..18] && at.is_none())
        );
        assert_ne!(found[0].0, found[1].0);
        let timed = texts(&LoadOptions { rate: Some(10.0), ..options() });
        assert!(timed.windows(2).all(|pair| pair[0].1 < pair[1].1));
    }

    #[test]
    fn decoding_is_measured_while_all_answers_stream() {
        let stream = |first: u64, step: u64| {
            AnswerStream((0..5).map(|i| Duration::from_millis(first + i * step)).collect())
        };
        let both = [stream(0, 100), stream(200, 100)];
        // From 200 to 400 ms: two pieces of each, and none at the beginning.
        assert_eq!(decode_tps(&both, 2), Some(4.0 / 0.2));
        assert_eq!(
            decode_tps(&[stream(0, 100), stream(400, 100)], 2),
            None,
            "one begins when the other ends"
        );
        assert_eq!(decode_tps(&both, 3), None);
        assert_eq!(decode_tps(&[], 1), None);
    }

    #[test]
    fn quantiles_are_of_the_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((quantile(&hundred, 0.5), quantile(&hundred, 0.99)), (50.0, 99.0));
        assert_eq!((quantile(&[7.0], 0.99), quantile(&[], 0.5)), (7.0, 0.0));
    }

    #[test]
    fn addresses_without_a_scheme_or_with_more_than_an_address_are_refused() {
        assert_eq!(parse_url("http://h:81/x/v1/").unwrap(), ("h:81".into(), "/x".into()));
        assert_eq!(parse_url("http://[::1]").unwrap(), ("[::1]:80".into(), String::new()));
        for bad in ["h:81", "https://h", "http://", "http://a@b", "http:///x"] {
            assert!(parse_url(bad).is_err(), "{bad}");
        }
        let nobody = measure_load(&options(), &|_| {}).unwrap_err();
        assert!(nobody.to_string().contains("could not connect to 127.0.0.1:1"), "{nobody}");
    }
}
