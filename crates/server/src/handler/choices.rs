//! How completions and chats are written: a list of choices under a head, whole or in chunks.

use super::answers::{AnswerForm, GatheredAnswer, random_name};
use super::timings::timings;
use crate::answer::AnswerPiece;
use crate::fields::Parsed;
use crate::generate::{AnswerEnd, Totals};
use crate::request::StreamOptions;
use crate::served::ServedModel;
use crate::sse::EventSender;
use crate::state::unix_seconds;
use serde_json::{Value, json};
use tapml_engine::Finish;

/// Why an answer ended, in OpenAI's words.
pub fn finish_name(finish: Finish) -> &'static str {
    match finish {
        Finish::Length | Finish::Context => "length",
        _ => "stop",
    }
}

/// The tokens of a request.
pub fn usage(totals: &Totals) -> Value {
    let Totals { prompt_tokens, cached_tokens, new_tokens, .. } = totals;
    json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": new_tokens,
        "total_tokens": prompt_tokens + new_tokens,
        "prompt_tokens_details": { "cached_tokens": cached_tokens },
    })
}

/// What stands at the head of an answer and of each of its chunks.
#[derive(Clone, Debug)]
pub struct Envelope {
    object: &'static str,
    id: String,
    created: u64,
    model: String,
}

impl Envelope {
    /// The head of a new answer, whose id begins with `prefix`.
    pub fn new(object: &'static str, prefix: &str, model: &ServedModel) -> Parsed<Envelope> {
        let id = format!("{prefix}-{}", random_name()?);
        Ok(Envelope { object, id, created: unix_seconds(), model: model.name().into() })
    }

    /// With choices.
    pub fn wrap(&self, choices: Vec<Value>) -> Value {
        let Envelope { object, id, created, model } = self;
        let fingerprint = concat!("tapml-", env!("CARGO_PKG_VERSION"));
        json!({
            "id": id, "object": object, "created": created, "model": model, "system_fingerprint": fingerprint,
            "choices": choices,
        })
    }

    /// With choices, and what they took.
    pub fn wrap_last(&self, choices: Vec<Value>, totals: &Totals) -> Value {
        let mut answer = self.wrap(choices);
        answer["usage"] = usage(totals);
        answer["timings"] = timings(&totals.usage());
        answer
    }
}

/// How the parts of an answer are written.
pub trait AnswerShape: Send + 'static {
    /// The choice of a whole answer.
    fn whole(&mut self, index: usize, piece: AnswerPiece, finish: Finish) -> Value;

    /// The choices of chunks that go before all others.
    fn opening(&self, _index: usize) -> Option<Value> {
        None
    }

    /// The choice of a chunk, if there is something to tell.
    fn part(&mut self, index: usize, piece: AnswerPiece) -> Option<Value>;

    /// The choices of an answer's last chunks.
    fn end(&mut self, index: usize, finish: Finish) -> Vec<Value>;
}

/// Answers as a list of choices.
pub struct Choices<S> {
    shape: S,
    envelope: Envelope,
    /// Whether the last chunk tells the tokens.
    usage_wanted: bool,
}

impl<S: AnswerShape> Choices<S> {
    /// Choices of this shape under this head.
    pub fn new(shape: S, envelope: Envelope, stream: Option<StreamOptions>) -> Choices<S> {
        Choices { shape, envelope, usage_wanted: stream.unwrap_or_default().include_usage }
    }

    fn send(&self, events: &EventSender, choice: Value) {
        let mut chunk = self.envelope.wrap(vec![choice]);
        if self.usage_wanted {
            // Clients that asked for the usage find the field in every chunk.
            chunk["usage"] = Value::Null;
        }
        events.send(&chunk);
    }
}

impl<S: AnswerShape> AnswerForm for Choices<S> {
    fn whole(&mut self, answers: Vec<GatheredAnswer>, totals: &Totals) -> Value {
        let choice = |(index, answer): (usize, GatheredAnswer)| {
            self.shape.whole(index, answer.piece, answer.end.map_or(Finish::Cancelled, |end| end.finish))
        };
        let choices = answers.into_iter().enumerate().map(choice).collect();
        self.envelope.wrap_last(choices, totals)
    }

    fn open(&mut self, events: &EventSender, answers: usize) {
        let openings = (0..answers).filter_map(|index| self.shape.opening(index));
        openings.for_each(|choice| self.send(events, choice));
    }

    fn piece(&mut self, events: &EventSender, answer: usize, piece: AnswerPiece) {
        if let Some(choice) = self.shape.part(answer, piece) {
            self.send(events, choice);
        }
    }

    fn finish(&mut self, events: &EventSender, answer: usize, end: AnswerEnd) {
        for choice in self.shape.end(answer, end.finish) {
            self.send(events, choice);
        }
    }

    fn close(&mut self, events: &EventSender, done: Parsed<Totals>) {
        match done {
            Ok(totals) if self.usage_wanted => events.send(&self.envelope.wrap_last(Vec::new(), &totals)),
            Ok(_) => {}
            Err(error) => events.send(&error.body()),
        }
        events.end();
    }
}
