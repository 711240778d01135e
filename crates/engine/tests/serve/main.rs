//! The serving engine on a model that notices every wrong page: texts alone and among others, prefix cache, preemption, failures.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod drafts;
mod ends;
mod masked;
mod model;
mod options;
mod sampled;
mod texts;

use model::{LIMITS, Watched};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tapml_engine::{
    BatchLimits, Engine, EngineOptions, EngineStats, Finish, PromptToken, Request, RequestEvent,
    RequestHandle, RequestOptions, SampledToken, TokenMask, Usage,
};
use tapml_graph::Error;

/// What came of a request.
#[derive(Debug)]
struct Answer {
    prompt: Option<Vec<PromptToken>>,
    tokens: Vec<SampledToken>,
    end: Result<(Finish, Usage), Error>,
}

/// A request under way.
struct Asked {
    handle: RequestHandle,
    events: Receiver<RequestEvent>,
}

impl Asked {
    /// Waits for the end, and asserts that there is one end and nothing after it.
    fn answer(self) -> Answer {
        let (mut prompt, mut tokens, mut end) = (None, Vec::new(), None);
        while end.is_none() {
            match self.events.recv_timeout(Duration::from_secs(60)).expect("no end was told") {
                RequestEvent::Prompt(told) => {
                    assert!(prompt.is_none() && tokens.is_empty(), "the prompt is told once and first");
                    prompt = Some(told);
                }
                RequestEvent::Token(token) => tokens.push(token),
                RequestEvent::Finished(finish, usage) => end = Some(Ok((finish, usage))),
                RequestEvent::Failed(error) => end = Some(Err(error)),
            }
        }
        assert!(self.events.recv_timeout(Duration::from_secs(60)).is_err(), "something follows the end");
        Answer { prompt, tokens, end: end.unwrap() }
    }
}

impl Answer {
    fn ids(&self) -> Vec<u32> {
        model::ids(&self.tokens)
    }

    fn finish(&self) -> Finish {
        self.end.as_ref().unwrap().0
    }

    fn usage(&self) -> Usage {
        self.end.as_ref().unwrap().1
    }
}

/// An engine over the model, and what is seen of the model.
fn start(limits: BatchLimits, options: EngineOptions) -> (Engine, Watched) {
    let (model, watch) = model::HashModel::new(limits);
    (Engine::start(model, options).unwrap(), watch)
}

fn request(
    prompt: &[u32],
    options: RequestOptions,
    mask: Option<Box<dyn TokenMask>>,
) -> (Request, Receiver<RequestEvent>) {
    let (sender, events) = channel();
    let tell = move |event| match sender.send(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    (Request { prompt: prompt.to_vec(), images: Vec::new(), options, mask, events: Box::new(tell) }, events)
}

fn ask(engine: &Engine, prompt: &[u32], options: RequestOptions) -> Asked {
    let (request, events) = request(prompt, options, None);
    Asked { handle: engine.submit(request).unwrap(), events }
}

/// `max_tokens` new tokens, sampled as `number` says.
fn request_options(max_tokens: usize, number: u64) -> RequestOptions {
    RequestOptions { max_tokens, sampling: model::sampling(number), ..RequestOptions::default() }
}

/// A prompt that depends on a number.
fn prompt(length: usize, number: u64) -> Vec<u32> {
    let mut random = fastrand::Rng::with_seed(number);
    (0..length).map(|_| random.u32(0..LIMITS.vocab as u32)).collect()
}

/// Asserts that nothing was promised and not kept, and that no page has a user; gives the numbers.
fn assert_clean(engine: &Engine, watch: &Watched) -> EngineStats {
    let stats = engine.stats();
    assert_eq!(watch.lock().unwrap().violations, Vec::<String>::new());
    assert_eq!((stats.pages_used, stats.running, stats.waiting), (0, 0, 0), "{stats:?}");
    assert_eq!(stats.submitted, stats.finished + stats.cancelled + stats.failed, "{stats:?}");
    stats
}

/// Asserts by Pearson's chi-square that these counts are draws of a distribution with these expected counts.
fn assert_distribution(counts: &[f64], expected: &[f64]) {
    // What is expected less often than five times is one class.
    let (rare, common): (Vec<usize>, Vec<usize>) =
        (0..expected.len()).partition(|&code| expected[code] < 5.0);
    let class = |codes: &[usize]| {
        let sum = |of: &[f64]| codes.iter().map(|&code| of[code]).sum::<f64>();
        (sum(counts), sum(expected))
    };
    let classes = common.iter().map(|&code| class(&[code])).chain([class(&rare)]);
    let classes: Vec<(f64, f64)> = classes.filter(|(_, expected)| *expected > 0.0).collect();
    let impossible: Vec<usize> =
        (0..expected.len()).filter(|&code| expected[code] == 0.0 && counts[code] > 0.0).collect();
    assert!(impossible.is_empty(), "drawn and impossible: {impossible:?}");
    let statistic: f64 = classes.iter().map(|(found, expected)| (found - expected).powi(2) / expected).sum();
    let freedom = (classes.len() - 1) as f64;
    println!("chi-square {statistic:.1} of {freedom} degrees");
    // Wilson and Hilferty 1931: the value that is exceeded once in a million times.
    let normal = 4.753;
    let limit = freedom * (1.0 - 2.0 / (9.0 * freedom) + normal * (2.0 / (9.0 * freedom)).sqrt()).powi(3);
    assert!(statistic < limit, "{statistic} of at most {limit}");
}
