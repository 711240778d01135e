//! Anthropic's `/v1/messages` and `/v1/messages/count_tokens`, on the chats that there are.

use super::answers::{self, AnswerForm, GatheredAnswer, Job, json_response, random_name};
use super::chat;
use crate::answer::AnswerPiece;
use crate::body::read_json;
use crate::error::anthropic_body;
use crate::fields::Parsed;
use crate::generate::{AnswerEnd, Totals};
use crate::request::anthropic;
use crate::sse::EventSender;
use crate::state::ServerState;
use crate::tool_calls::{ToolCall, ToolScanner};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use tapml_engine::Finish;

/// Answers messages.
///
/// # Errors
/// If the request is wrong, or there is no room for it.
pub async fn create(State(state): State<Arc<ServerState>>, request: Request) -> Parsed<Response> {
    let place = state.enter()?;
    let body = read_json(request, &state.options).await?;
    let job = state.prepare(move |state| prepare(state, &body)).await?;
    answers::respond(state, place, job).await
}

/// Counts the tokens of messages.
///
/// # Errors
/// If the request is wrong, or there is no room for it.
pub async fn count_tokens(State(state): State<Arc<ServerState>>, request: Request) -> Parsed<Response> {
    let _place = state.enter()?;
    let body = read_json(request, &state.options).await?;
    let count = state.prepare(move |state| {
        let request = anthropic::parse(&body)?;
        state.model.expect_name(request.common.model.as_deref())?;
        Ok(state.model.chat_tokens(&request.input, usize::MAX)?.ids.len())
    });
    Ok(json_response(&json!({ "input_tokens": count.await? })))
}

fn prepare(state: &ServerState, body: &[u8]) -> Parsed<Job<MessageForm>> {
    let request = anthropic::parse(body)?;
    let (plans, tools) =
        chat::plans(state, &request).map_err(|error| error.rename_param(anthropic::RENAMED))?;
    let form = MessageForm {
        id: format!("msg_{}", random_name()?),
        model: state.model.name().into(),
        prompt_tokens: plans.iter().map(|plan| plan.prompt.len()).sum(),
        scanner: ToolScanner::new(tools),
        blocks: 0,
        text: false,
        called: false,
        end: None,
    };
    Ok(Job { plans, form, stream: request.common.stream.is_some() })
}

/// An answer as a list of blocks.
struct MessageForm {
    id: String,
    model: String,
    prompt_tokens: usize,
    scanner: ToolScanner,
    /// How many blocks were begun and ended.
    blocks: usize,
    /// Whether a block of text was begun and not ended.
    text: bool,
    /// Whether a function is called.
    called: bool,
    end: Option<AnswerEnd>,
}

/// Tokens that were in the cache are not counted among the others.
fn usage(totals: &Totals) -> Value {
    json!({
        "input_tokens": totals.prompt_tokens - totals.cached_tokens.min(totals.prompt_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": totals.cached_tokens,
        "output_tokens": totals.new_tokens,
    })
}

fn call_block(call: &ToolCall, input: Value) -> Parsed<Value> {
    Ok(
        json!({ "type": "tool_use", "id": format!("toolu_{}", random_name()?), "name": call.name, "input": input }),
    )
}

impl MessageForm {
    /// The message, without what is known at its end alone.
    fn message(&self, content: Vec<Value>, usage: Value) -> Value {
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": null, "stop_sequence": null, "usage": usage,
        })
    }

    /// Why the answer ended, and the text that ended it.
    fn reason(&self) -> (&'static str, Option<&str>) {
        let stop = self.end.as_ref().and_then(|end| end.stop_text.as_deref());
        let reason = match self.end.as_ref().map(|end| end.finish) {
            _ if self.called => "tool_use",
            _ if stop.is_some() => "stop_sequence",
            Some(Finish::Length | Finish::Context) => "max_tokens",
            _ => "end_turn",
        };
        (reason, stop)
    }

    fn send_text(&mut self, events: &EventSender, text: &str) {
        if text.is_empty() {
            return;
        }
        if !self.text {
            self.begin_block(events, json!({ "type": "text", "text": "" }));
            self.text = true;
        }
        self.send_delta(events, json!({ "type": "text_delta", "text": text }));
    }

    fn begin_block(&self, events: &EventSender, block: Value) {
        events.send_named("content_block_start", json!({ "index": self.blocks, "content_block": block }));
    }

    fn send_delta(&self, events: &EventSender, delta: Value) {
        events.send_named("content_block_delta", json!({ "index": self.blocks, "delta": delta }));
    }

    fn end_block(&mut self, events: &EventSender) {
        events.send_named("content_block_stop", json!({ "index": self.blocks }));
        self.blocks += 1;
    }

    fn send_call(&mut self, events: &EventSender, call: &ToolCall) {
        // Without random numbers the request would have been refused at its beginning.
        let Ok(block) = call_block(call, json!({})) else { return };
        self.begin_block(events, block);
        self.send_delta(events, json!({ "type": "input_json_delta", "partial_json": call.arguments }));
        self.end_block(events);
        self.called = true;
    }
}

impl AnswerForm for MessageForm {
    fn whole(&mut self, answers: Vec<GatheredAnswer>, totals: &Totals) -> Value {
        let GatheredAnswer { piece, end } = answers.into_iter().next().unwrap_or_default();
        self.end = end;
        let (text, calls) = std::mem::take(&mut self.scanner).scan(&piece.text);
        let mut content = Vec::new();
        if !text.is_empty() {
            content.push(json!({ "type": "text", "text": text }));
        }
        for call in &calls {
            let input = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
            content.extend(call_block(call, input).ok());
        }
        self.called = !calls.is_empty();
        let mut message = self.message(content, usage(totals));
        let (reason, stop) = self.reason();
        message["stop_reason"] = reason.into();
        message["stop_sequence"] = stop.into();
        message
    }

    fn open(&mut self, events: &EventSender, _answers: usize) {
        // What the cache has of the prompt is told at the end.
        let totals = Totals { prompt_tokens: self.prompt_tokens, ..Totals::default() };
        let message = self.message(Vec::new(), usage(&totals));
        events.send_named("message_start", json!({ "message": message }));
    }

    fn piece(&mut self, events: &EventSender, _answer: usize, piece: AnswerPiece) {
        let text = self.scanner.push(&piece.text);
        self.send_text(events, &text);
    }

    fn finish(&mut self, events: &EventSender, _answer: usize, end: AnswerEnd) {
        let (rest, calls) = std::mem::take(&mut self.scanner).finish();
        self.send_text(events, &rest);
        if std::mem::take(&mut self.text) {
            self.end_block(events);
        }
        for call in &calls {
            self.send_call(events, call);
        }
        self.end = Some(end);
    }

    fn close(&mut self, events: &EventSender, done: Parsed<Totals>) {
        match done {
            Ok(totals) => {
                let (reason, stop) = self.reason();
                let delta = json!({ "stop_reason": reason, "stop_sequence": stop });
                events.send_named("message_delta", json!({ "delta": delta, "usage": usage(&totals) }));
                events.send_named("message_stop", json!({}));
            }
            Err(error) => events.send_named("error", anthropic_body(&error)),
        }
    }
}
