//! What all answers share: the plan of the engine's work, and answers that are gathered or streamed.

use crate::answer::AnswerPiece;
use crate::error::ApiError;
use crate::fields::Parsed;
use crate::generate::{AnswerEnd, AnswerPlan, Receiver, Submitted, Totals};
use crate::request::Common;
use crate::served::ServedModel;
use crate::sse::{EventSender, event_stream};
use crate::state::ServerState;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::sync::Arc;
use tapml_engine::RequestOptions;
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

/// A name that nothing else has.
pub fn random_name() -> Parsed<String> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).map_err(|e| ApiError::internal(format!("no random numbers: {e}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// An answer as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct GatheredAnswer {
    /// Its text and tokens.
    pub piece: AnswerPiece,
    /// Set at its end.
    pub end: Option<AnswerEnd>,
}

/// How the answers of a request are written: as one body, or as events.
pub trait AnswerForm: Send + 'static {
    /// The body of whole answers.
    fn whole(&mut self, answers: Vec<GatheredAnswer>, totals: &Totals) -> Value;

    /// Sends what goes before the first part of so many answers.
    fn open(&mut self, events: &EventSender, answers: usize);

    /// Sends a part of an answer.
    fn piece(&mut self, events: &EventSender, answer: usize, piece: AnswerPiece);

    /// Sends the end of an answer.
    fn finish(&mut self, events: &EventSender, answer: usize, end: AnswerEnd);

    /// Sends what goes behind the last part.
    fn close(&mut self, events: &EventSender, done: Parsed<Totals>);
}

/// Answers that are wanted, ready for the engine.
pub struct Job<F> {
    /// The answers.
    pub plans: Vec<AnswerPlan>,
    /// How they are written.
    pub form: F,
    /// Whether they come as events.
    pub stream: bool,
}

/// Does a job. The place is kept until its end.
pub async fn respond<F: AnswerForm>(
    state: Arc<ServerState>,
    place: OwnedSemaphorePermit,
    job: Job<F>,
) -> Parsed<Response> {
    let Job { plans, mut form, stream } = job;
    let submitted = Submitted::new(&state.model, plans)?;
    if !stream {
        let mut answers = vec![GatheredAnswer::default(); submitted.len()];
        // If the client goes away, this is dropped, and the engine's work ends.
        let totals = submitted.run(&state.model, &state.metrics, &mut answers).await?;
        drop(place);
        return Ok(json_response(&form.whole(answers, &totals)));
    }
    let (events, response) = event_stream();
    let mut streamed = Streamed { events: events.clone(), form };
    tokio::spawn(async move {
        let _place = place;
        streamed.form.open(&streamed.events, submitted.len());
        tokio::select! {
            done = submitted.run(&state.model, &state.metrics, &mut streamed) => {
                streamed.form.close(&streamed.events, done);
            }
            () = events.wait_closed() => log::debug!("the client of a stream is gone"),
        }
    });
    Ok(response)
}

/// A response of JSON.
pub fn json_response(value: &Value) -> Response {
    let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
    ([kind], value.to_string()).into_response()
}

impl Receiver for Vec<GatheredAnswer> {
    fn piece(&mut self, answer: usize, piece: AnswerPiece) {
        if let Some(answer) = self.get_mut(answer) {
            answer.piece.text.push_str(&piece.text);
            answer.piece.tokens.extend(piece.tokens);
        }
    }

    fn finish(&mut self, answer: usize, end: AnswerEnd) {
        if let Some(answer) = self.get_mut(answer) {
            answer.end = Some(end);
        }
    }
}

/// Sends answers as events.
struct Streamed<F> {
    events: EventSender,
    form: F,
}

impl<F: AnswerForm> Receiver for Streamed<F> {
    fn piece(&mut self, answer: usize, piece: AnswerPiece) {
        self.form.piece(&self.events, answer, piece);
    }

    fn finish(&mut self, answer: usize, end: AnswerEnd) {
        self.form.finish(&self.events, answer, end);
    }
}
