//! `/v1/chat/completions`.

use super::answers::{self, AnswerShape, Envelope, Job, finish_name};
use super::logprobs;
use crate::answer::{AnswerPiece, TokenText};
use crate::body::read_json;
use crate::fields::Parsed;
use crate::generate::AnswerPlan;
use crate::request::ChatRequest;
use crate::state::ServerState;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use tapml_engine::Finish;

/// Answers a chat.
///
/// # Errors
/// If the request is wrong, or there is no room for it.
pub async fn complete(State(state): State<Arc<ServerState>>, request: Request) -> Parsed<Response> {
    let place = state.enter()?;
    let body = read_json(request, &state.options).await?;
    let job = state.prepare(move |state| prepare(state, &body)).await?;
    answers::respond(state, place, job).await
}

fn prepare(state: &ServerState, body: &[u8]) -> Parsed<Job<ChatShape>> {
    let request = ChatRequest::parse(body)?;
    let model = &state.model;
    let common = &request.common;
    model.expect_name(common.model.as_deref())?;
    let prompt = model.encode_chat(&request.chat)?;
    let most = request.max_tokens.unwrap_or(usize::MAX);
    let plan = |answer| {
        let mut options = answers::options(model, common, answer, prompt.len(), most);
        options.logprobs = request.logprobs;
        let (prompt, stops) = (prompt.clone(), common.stops.clone());
        AnswerPlan { prompt, counts: answer == 0, echo: None, options, stops, with_end: false }
    };
    let object = if common.stream.is_some() { "chat.completion.chunk" } else { "chat.completion" };
    Ok(Job {
        plans: (0..common.n).map(plan).collect(),
        shape: ChatShape { logprobs: request.logprobs.is_some() },
        envelope: Envelope::new(object, "chatcmpl", model)?,
        stream: common.stream,
    })
}

/// Answers as chats write them.
struct ChatShape {
    logprobs: bool,
}

impl ChatShape {
    fn logprobs(&self, tokens: &[TokenText]) -> Value {
        if self.logprobs { logprobs::content(tokens) } else { Value::Null }
    }
}

impl AnswerShape for ChatShape {
    fn whole(&self, index: usize, piece: AnswerPiece, finish: Finish) -> Value {
        json!({
            "index": index,
            "message": { "role": "assistant", "content": piece.text, "refusal": null },
            "logprobs": self.logprobs(&piece.tokens),
            "finish_reason": finish_name(finish),
        })
    }

    fn opening(&self, index: usize) -> Option<Value> {
        let delta = json!({ "role": "assistant", "content": "" });
        Some(json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": null }))
    }

    fn part(&mut self, index: usize, piece: AnswerPiece) -> Value {
        let logprobs = if piece.tokens.is_empty() { Value::Null } else { self.logprobs(&piece.tokens) };
        let delta = json!({ "content": piece.text });
        json!({ "index": index, "delta": delta, "logprobs": logprobs, "finish_reason": null })
    }

    fn end(&mut self, index: usize, finish: Finish) -> Value {
        json!({ "index": index, "delta": {}, "logprobs": null, "finish_reason": finish_name(finish) })
    }
}
