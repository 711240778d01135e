//! What completions and chats share: the plan of the engine's work, and answers that are gathered or streamed.

use crate::answer::AnswerPiece;
use crate::error::ApiError;
use crate::fields::Parsed;
use crate::generate::{AnswerPlan, Receiver, Submitted, Totals};
use crate::request::{Common, StreamOptions};
use crate::served::ServedModel;
use crate::sse::{EventSender, event_stream};
use crate::state::{ServerState, unix_seconds};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;
use tapml_engine::{Finish, RequestOptions};
use tokio::sync::OwnedSemaphorePermit;

/// The options of an answer; each of several has a seed of its own.
pub fn options(
    model: &ServedModel,
    common: &Common,
    answer: usize,
    prompt: usize,
    most: usize,
) -> RequestOptions {
    let own = if common.ignore_eos { &[][..] } else { &model.stop_ids };
    let mut sampling = common.sampling.clone();
    sampling.seed = sampling.seed.wrapping_add(answer as u64);
    RequestOptions {
        // The last token needs no place.
        max_tokens: most.min(model.context() + 1 - prompt.min(model.context())),
        sampling,
        stop_ids: own.iter().chain(&common.stop_ids).copied().collect(),
        min_tokens: common.min_tokens,
        logprobs: None,
        prompt_logprobs: None,
        cache_salt: common.cache_salt.clone(),
    }
}

/// Why an answer ended, in OpenAI's words.
pub fn finish_name(finish: Finish) -> &'static str {
    match finish {
        Finish::Length | Finish::Context => "length",
        _ => "stop",
    }
}

/// The tokens of a request.
pub fn usage(totals: &Totals) -> Value {
    let Totals { prompt_tokens, cached_tokens, new_tokens } = totals;
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

    /// With choices, and the usage if it is known.
    pub fn wrap(&self, choices: Vec<Value>, usage: Option<Value>) -> Value {
        let Envelope { object, id, created, model } = self;
        let fingerprint = concat!("tapml-", env!("CARGO_PKG_VERSION"));
        let mut answer = json!({
            "id": id, "object": object, "created": created, "model": model, "system_fingerprint": fingerprint,
            "choices": choices,
        });
        if let Some(usage) = usage {
            answer["usage"] = usage;
        }
        answer
    }
}

/// A name that nothing else has.
pub fn random_name() -> Parsed<String> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).map_err(|e| ApiError::internal(format!("no random numbers: {e}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
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

/// Answers that are wanted, ready for the engine.
pub struct Job<S> {
    /// The answers.
    pub plans: Vec<AnswerPlan>,
    /// How they are written.
    pub shape: S,
    /// The head of a whole answer, or of its chunks.
    pub envelope: Envelope,
    /// Set if they are streamed.
    pub stream: Option<StreamOptions>,
}

/// Does a job. The place is kept until its end.
pub async fn respond<S: AnswerShape>(
    state: Arc<ServerState>,
    place: OwnedSemaphorePermit,
    job: Job<S>,
) -> Parsed<Response> {
    let Job { plans, mut shape, envelope, stream } = job;
    let submitted = Submitted::new(&state.model, plans)?;
    let Some(options) = stream else {
        let mut gathered = vec![Gathered::default(); submitted.len()];
        // If the client goes away, this is dropped, and the engine's work ends.
        let totals = submitted.run(&state.model, &state.metrics, &mut gathered).await?;
        let choice = |(index, answer): (usize, Gathered)| {
            shape.whole(index, answer.piece, answer.finish.unwrap_or(Finish::Cancelled))
        };
        let choices = gathered.into_iter().enumerate().map(choice).collect();
        drop(place);
        return Ok(json_response(&envelope.wrap(choices, Some(usage(&totals)))));
    };
    let (events, response) = event_stream();
    let usage_wanted = options.include_usage;
    let mut streamed = Streamed { events: events.clone(), shape, envelope, usage_wanted };
    tokio::spawn(async move {
        let _place = place;
        streamed.open(submitted.len());
        tokio::select! {
            done = submitted.run(&state.model, &state.metrics, &mut streamed) => streamed.close(done),
            () = events.wait_closed() => log::debug!("the client of {} is gone", streamed.envelope.id),
        }
    });
    Ok(response)
}

/// A response of JSON.
pub fn json_response(value: &Value) -> Response {
    let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
    ([kind], value.to_string()).into_response()
}

/// An answer as far as it is known.
#[derive(Clone, Debug, Default)]
struct Gathered {
    piece: AnswerPiece,
    finish: Option<Finish>,
}

impl Receiver for Vec<Gathered> {
    fn piece(&mut self, answer: usize, piece: AnswerPiece) {
        if let Some(gathered) = self.get_mut(answer) {
            gathered.piece.text.push_str(&piece.text);
            gathered.piece.tokens.extend(piece.tokens);
        }
    }

    fn finish(&mut self, answer: usize, finish: Finish) {
        if let Some(gathered) = self.get_mut(answer) {
            gathered.finish = Some(finish);
        }
    }
}

/// Sends answers in chunks.
struct Streamed<S> {
    events: EventSender,
    shape: S,
    envelope: Envelope,
    usage_wanted: bool,
}

impl<S: AnswerShape> Streamed<S> {
    fn open(&self, answers: usize) {
        (0..answers)
            .filter_map(|index| self.shape.opening(index))
            .for_each(|choice| self.send(vec![choice], None));
    }

    fn send(&self, choices: Vec<Value>, usage: Option<Value>) {
        // Clients that asked for the usage find the field in every chunk.
        let usage = usage.or(self.usage_wanted.then_some(Value::Null));
        self.events.send(&self.envelope.wrap(choices, usage));
    }

    fn close(&self, done: Parsed<Totals>) {
        match done {
            Ok(totals) if self.usage_wanted => self.send(Vec::new(), Some(usage(&totals))),
            Ok(_) => {}
            Err(error) => self.events.send(&error.body()),
        }
        self.events.end();
    }
}

impl<S: AnswerShape> Receiver for Streamed<S> {
    fn piece(&mut self, answer: usize, piece: AnswerPiece) {
        if let Some(choice) = self.shape.part(answer, piece) {
            self.send(vec![choice], None);
        }
    }

    fn finish(&mut self, answer: usize, finish: Finish) {
        for choice in self.shape.end(answer, finish) {
            self.send(vec![choice], None);
        }
    }
}
