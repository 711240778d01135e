//! Answers from the engine: requests go to its thread, events come back, and become text here.

use crate::answer::{AnswerPiece, AnswerText, prompt_texts};
use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::served::ServedModel;
use std::ops::ControlFlow;
use std::pin::pin;
use std::time::{Duration, Instant};
use tapml_constraint::CompiledGrammar;
use tapml_engine::{
    Finish, PlacedImage, Request, RequestEvent, RequestHandle, RequestOptions, SampledToken, TokenMask, Usage,
};
use tokio::sync::mpsc::{self, UnboundedReceiver};

/// One answer that is wanted.
#[derive(Clone, Debug)]
pub struct AnswerPlan {
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// Images that some of them stand for.
    pub images: Vec<PlacedImage>,
    /// Whether the prompt's tokens count: of several answers to one prompt, those of one do.
    pub counts: bool,
    /// The prompt's text, if the answer begins with it.
    pub echo: Option<String>,
    /// How it is continued.
    pub options: RequestOptions,
    /// Texts that end the answer.
    pub stops: Vec<String>,
    /// Whether special tokens are part of the text: some models mark calls of functions by them.
    pub with_special: bool,
    /// Whether tokens are told without log probabilities, too.
    pub with_tokens: bool,
    /// Whether the token that ends an answer is told with its log probability.
    pub with_end: bool,
    /// The form that the answer is held to.
    pub grammar: Option<CompiledGrammar>,
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerEnd {
    /// Its tokens and times. New tokens are those that were told.
    pub usage: Usage,
    /// Why.
    pub finish: Finish,
    /// The text that ended it, if one did.
    pub stop_text: Option<String>,
}

impl AnswerEnd {
    /// That of an answer that has none.
    pub fn for_cancelled_answer() -> AnswerEnd {
        AnswerEnd { usage: Usage::default(), finish: Finish::Cancelled, stop_text: None }
    }
}

/// Takes answers as they are made.
pub trait Receiver {
    /// A part of an answer.
    fn piece(&mut self, answer: usize, piece: AnswerPiece);

    /// The end of an answer.
    fn finish(&mut self, answer: usize, end: AnswerEnd);
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Those of its prompts.
    pub prompt_tokens: usize,
    /// Of these, those that were in the cache.
    pub cached_tokens: usize,
    /// Those of its answers.
    pub new_tokens: usize,
    /// From the first step to the first new token, the longest of all answers.
    pub prefill: Duration,
    /// From the first new token to the last one, the longest of all answers.
    pub decode: Duration,
}

impl Totals {
    /// As those of one answer.
    pub fn usage(&self) -> Usage {
        let Totals { prompt_tokens, cached_tokens, new_tokens, prefill, decode } = *self;
        Usage { prompt_tokens, cached_tokens, new_tokens, prefill, decode, ..Usage::default() }
    }
}

/// Requests that the engine has taken. If this is dropped, its work on them ends.
pub struct Submitted {
    plans: Vec<AnswerPlan>,
    /// Each ends its request when it is dropped.
    handles: Vec<RequestHandle>,
    events: UnboundedReceiver<(usize, RequestEvent)>,
    start: Instant,
}

/// An answer that is under way.
struct ActiveAnswer<'t> {
    plan: AnswerPlan,
    /// Taken at its end.
    text: Option<AnswerText<'t>>,
    handle: RequestHandle,
    last_token: Option<Instant>,
    /// Tokens of its own.
    new_tokens: usize,
}

/// The answers of one request.
struct Answers<'t, 'r, R> {
    model: &'t ServedModel,
    metrics: &'t Metrics,
    receiver: &'r mut R,
    start: Instant,
    totals: Totals,
    answers: Vec<ActiveAnswer<'t>>,
}

impl Submitted {
    /// Gives requests to the engine.
    ///
    /// # Errors
    /// If the engine does not take one of them; then it does none.
    pub fn new(model: &ServedModel, plans: Vec<AnswerPlan>) -> Result<Submitted, ApiError> {
        let (send, events) = mpsc::unbounded_channel();
        let request = |(index, plan): (usize, &AnswerPlan)| {
            let send = send.clone();
            let receive = move |event| match send.send((index, event)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            let (prompt, options) = (plan.prompt.clone(), plan.options.clone());
            let mask = plan.grammar.as_ref().map(|grammar| Box::new(grammar.mask()) as Box<dyn TokenMask>);
            Request { prompt, images: plan.images.clone(), options, mask, events: Box::new(receive) }
        };
        let handles = model.engine()?.submit_all(plans.iter().enumerate().map(request).collect())?;
        Ok(Submitted { handles, plans, events, start: Instant::now() })
    }

    /// How many answers there will be.
    pub fn len(&self) -> usize {
        self.plans.len()
    }

    /// Makes the answers and gives their parts to `receiver`.
    ///
    /// # Errors
    /// If the engine fails.
    pub async fn run<R: Receiver>(
        self,
        model: &ServedModel,
        metrics: &Metrics,
        receiver: &mut R,
    ) -> Result<Totals, ApiError> {
        self.run_until(model, metrics, receiver, std::future::pending()).await
    }

    /// As [`Submitted::run`]; when `stop` is done, the answers end as they are after the step that runs.
    ///
    /// # Errors
    /// If the engine fails.
    pub async fn run_until<R: Receiver>(
        self,
        model: &ServedModel,
        metrics: &Metrics,
        receiver: &mut R,
        stop: impl Future<Output = ()>,
    ) -> Result<Totals, ApiError> {
        let Submitted { plans, handles, mut events, start } = self;
        let mut stop = pin!(stop);
        let (mut left, mut stopped) = (plans.len(), false);
        let totals = Totals::default();
        let mut answers = Answers { model, metrics, receiver, start, totals, answers: Vec::new() };
        for (plan, handle) in plans.into_iter().zip(handles) {
            answers.begin(plan, handle)?;
        }
        while left > 0 {
            let event = tokio::select! {
                event = events.recv() => event,
                () = &mut stop, if !stopped => {
                    stopped = true;
                    answers.answers.iter().for_each(|answer| answer.handle.cancel());
                    continue;
                }
            };
            let Some((index, event)) = event else {
                return Err(ApiError::internal("the engine ended before the answer was complete"));
            };
            if answers.take(index, event)?.is_break() {
                left -= 1;
            }
        }
        Ok(answers.totals)
    }
}

impl<R: Receiver> Answers<'_, '_, R> {
    fn begin(&mut self, plan: AnswerPlan, handle: RequestHandle) -> Result<(), ApiError> {
        let with_tokens = plan.with_tokens || plan.options.logprobs.is_some();
        let tokenizer = &self.model.tokenizer;
        let stream = if plan.with_special { tokenizer.stream_with_special() } else { tokenizer.stream() };
        let text = AnswerText::new(tokenizer, stream, &plan.prompt, &plan.stops, with_tokens)?;
        let text = Some(text.with_offset(plan.echo.as_ref().map_or(0, |echo| echo.chars().count())));
        if plan.counts {
            self.totals.prompt_tokens += plan.prompt.len();
            self.metrics.count_prompt(plan.prompt.len());
        }
        let index = self.answers.len();
        // With its tokens it comes when the engine tells them.
        if let Some(echo) = plan.echo.as_ref().filter(|_| plan.options.prompt_logprobs.is_none()) {
            self.receiver.piece(index, AnswerPiece { text: echo.clone(), tokens: Vec::new() });
        }
        self.answers.push(ActiveAnswer { plan, text, handle, last_token: None, new_tokens: 0 });
        Ok(())
    }

    /// Takes an event; `Break` if it was the answer's last.
    fn take(&mut self, index: usize, event: RequestEvent) -> Result<ControlFlow<()>, ApiError> {
        match event {
            RequestEvent::Prompt(tokens) => {
                let text = self.answers[index].plan.echo.clone().unwrap_or_default();
                let tokens = prompt_texts(&self.model.tokenizer, &tokens)?;
                self.receiver.piece(index, AnswerPiece { text, tokens });
                Ok(ControlFlow::Continue(()))
            }
            RequestEvent::Token(token) => {
                self.token(index, &token)?;
                Ok(ControlFlow::Continue(()))
            }
            RequestEvent::Finished(finish, usage) => {
                self.finish(index, finish, &usage)?;
                Ok(ControlFlow::Break(()))
            }
            RequestEvent::Failed(error) => {
                self.metrics.count_end(None, self.start.elapsed());
                Err(error.into())
            }
        }
    }

    /// A new token.
    fn token(&mut self, index: usize, token: &SampledToken) -> Result<(), ApiError> {
        let answer = &mut self.answers[index];
        let Some(text) = answer.text.as_mut().filter(|text| !text.is_stopped()) else { return Ok(()) };
        let now = Instant::now();
        match answer.last_token.replace(now) {
            None => self.metrics.observe_first_token(now - self.start),
            Some(last) => self.metrics.observe_next_token(now - last),
        }
        self.totals.new_tokens += 1;
        answer.new_tokens += 1;
        if answer.plan.options.stop_ids.contains(&token.id) {
            if answer.plan.with_end {
                text.push_end(token)?;
            }
            return Ok(());
        }
        let piece = text.push(token)?;
        if text.is_stopped() {
            // The end is still told, with what it cost.
            answer.handle.cancel();
        }
        if !piece.is_empty() {
            self.receiver.piece(index, piece);
        }
        Ok(())
    }

    /// The engine has done its part: the rest of the answer.
    fn finish(&mut self, index: usize, finish: Finish, usage: &Usage) -> Result<(), ApiError> {
        let answer = &mut self.answers[index];
        if answer.plan.counts {
            self.totals.cached_tokens += usage.cached_tokens;
        }
        self.totals.prefill = self.totals.prefill.max(usage.prefill);
        self.totals.decode = self.totals.decode.max(usage.decode);
        let Some(text) = answer.text.take() else { return Ok(()) };
        let finish = if text.is_stopped() { Finish::Stop } else { finish };
        let usage_told = Usage { new_tokens: answer.new_tokens, ..*usage };
        let end = AnswerEnd { usage: usage_told, finish, stop_text: text.stop_text().map(String::from) };
        let rest = text.finish()?;
        if !rest.is_empty() {
            self.receiver.piece(index, rest);
        }
        self.receiver.finish(index, end);
        self.metrics.observe_usage(usage);
        self.metrics.count_end(Some(finish), self.start.elapsed());
        Ok(())
    }
}
