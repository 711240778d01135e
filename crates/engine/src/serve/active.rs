//! A request on the engine's thread: its times, and what is reported of it.

use super::choose::Chooser;
use super::inbox::Arrival;
use super::request::{Request, RequestEvent, SampledToken, Usage};
use crate::generate::Finish;
use std::ops::ControlFlow;
use std::time::Instant;
use tapml_constraint::panics;
use tapml_graph::Error;

/// Takes the events of a request.
type Receiver = Box<dyn FnMut(RequestEvent) -> ControlFlow<()> + Send>;

/// See the module.
pub struct Active {
    pub chooser: Chooser,
    receiver: Receiver,
    pub cached_tokens: usize,
    /// Failed steps that it was in.
    pub failures: usize,
    arrived: Instant,
    first_step: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
}

impl Active {
    /// The state of a request that was taken; `prompt` are its tokens.
    pub fn new(arrival: Arrival, prompt: &[u32]) -> Active {
        let Request { options, mask, events, .. } = arrival.request;
        Active {
            chooser: Chooser::new(options, arrival.sampler, mask, prompt),
            receiver: events,
            cached_tokens: 0,
            failures: 0,
            arrived: arrival.at,
            first_step: None,
            first_token: None,
            last_token: None,
        }
    }

    /// A step with rows of it begins; says whether it is the first one.
    pub fn begin_step(&mut self, now: Instant) -> bool {
        let first = self.first_step.is_none();
        self.first_step.get_or_insert(now);
        first
    }

    /// Whether a token was chosen.
    pub fn has_begun(&self) -> bool {
        self.first_token.is_some()
    }

    /// Reports the prompt's log probabilities, when all are there, and then the tokens. False if nobody listens any more.
    pub fn report_tokens(&mut self, tokens: Vec<SampledToken>, now: Instant) -> bool {
        if !tokens.is_empty() {
            self.first_token.get_or_insert(now);
            self.last_token = Some(now);
        }
        let prompt = self.chooser.take_prompt().map(RequestEvent::Prompt);
        prompt.into_iter().chain(tokens.into_iter().map(RequestEvent::Token)).all(|event| self.report(event))
    }

    /// Reports the end.
    pub fn finish(mut self, finish: Finish, now: Instant) {
        let usage = self.usage(now);
        self.report(RequestEvent::Finished(finish, usage));
    }

    /// Reports the failure.
    pub fn fail(mut self, error: Error) {
        self.report(RequestEvent::Failed(error));
    }

    fn usage(&self, now: Instant) -> Usage {
        let first_step = self.first_step.unwrap_or(now);
        let first_token = self.first_token.unwrap_or(now);
        Usage {
            prompt_tokens: self.chooser.prompt_tokens,
            cached_tokens: self.cached_tokens,
            new_tokens: self.chooser.new_tokens,
            queued: first_step.saturating_duration_since(self.arrived),
            prefill: first_token.saturating_duration_since(first_step),
            decode: self.last_token.unwrap_or(now).saturating_duration_since(first_token),
        }
    }

    /// False if the receiver wants no more, or panicked.
    fn report(&mut self, event: RequestEvent) -> bool {
        panics::catch(|| (self.receiver)(event)).is_some_and(|flow| flow.is_continue())
    }
}
