//! `/v1/completions`.

use super::answers::{self, Job};
use super::choices::{AnswerShape, Choices, Envelope, finish_name};
use super::logprobs;
use crate::answer::{AnswerPiece, TokenText};
use crate::body::read_json;
use crate::fields::Parsed;
use crate::generate::AnswerPlan;
use crate::request::{CompletionRequest, Prompt};
use crate::state::ServerState;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use tapml_engine::Finish;

/// Continues prompts.
///
/// # Errors
/// If the request is wrong, or there is no room for it.
pub async fn complete(State(state): State<Arc<ServerState>>, request: Request) -> Parsed<Response> {
    let place = state.enter()?;
    let body = read_json(request, &state.options).await?;
    let job = state.prepare(move |state| prepare(state, &body)).await?;
    answers::respond(state, place, job).await
}

fn prepare(state: &ServerState, body: &[u8]) -> Parsed<Job<Choices<TextShape>>> {
    let request = CompletionRequest::parse(body)?;
    let model = &state.model;
    model.expect_name(request.common.model.as_deref())?;
    let grammar =
        request.common.grammar.as_ref().map(|(field, grammar)| state.compile(field, grammar)).transpose()?;
    let mut plans = Vec::new();
    for prompt in &request.prompts {
        let ids = model.encode(prompt)?;
        let echo = match prompt {
            _ if !request.echo => None,
            Prompt::Text(text) => Some(text.clone()),
            Prompt::Ids(_) | Prompt::Parts(_) => Some(model.tokenizer.decode(&ids)?),
        };
        for answer in 0..request.common.n {
            let mut options = answers::options(model, &request.common, answer, ids.len(), request.max_tokens);
            options.logprobs = request.logprobs;
            options.prompt_logprobs = request.logprobs.filter(|_| request.echo);
            let (prompt, echo, stops) = (ids.clone(), echo.clone(), request.common.stops.clone());
            plans.push(AnswerPlan {
                prompt,
                images: Vec::new(),
                counts: answer == 0,
                echo,
                options,
                stops,
                with_special: false,
                with_tokens: false,
                with_end: true,
                grammar: grammar.clone(),
            });
        }
    }
    let envelope = Envelope::new("text_completion", "cmpl", model)?;
    let shape = TextShape { logprobs: request.logprobs.is_some() };
    let stream = request.common.stream;
    Ok(Job { plans, form: Choices::new(shape, envelope, stream), stream: stream.is_some() })
}

/// Answers as completions write them.
struct TextShape {
    logprobs: bool,
}

impl TextShape {
    fn choice(&self, index: usize, text: &str, tokens: &[TokenText], finish: Option<Finish>) -> Value {
        let logprobs = if self.logprobs { logprobs::lists(tokens) } else { Value::Null };
        json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": finish.map(finish_name) })
    }
}

impl AnswerShape for TextShape {
    fn whole(&mut self, index: usize, piece: AnswerPiece, finish: Finish) -> Value {
        self.choice(index, &piece.text, &piece.tokens, Some(finish))
    }

    fn part(&mut self, index: usize, piece: AnswerPiece) -> Option<Value> {
        Some(self.choice(index, &piece.text, &piece.tokens, None))
    }

    fn end(&mut self, index: usize, finish: Finish) -> Vec<Value> {
        vec![self.choice(index, "", &[], Some(finish))]
    }
}
