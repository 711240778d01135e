//! OpenAI's `/v1/responses`, on the chats that there are. Nothing is kept between requests.

use super::answers::{self, AnswerForm, GatheredAnswer, Job, random_name};
use super::chat;
use crate::answer::AnswerPiece;
use crate::body::read_json;
use crate::error::ApiError;
use crate::fields::Parsed;
use crate::generate::{AnswerEnd, Totals};
use crate::request::responses::{RENAMED, ResponsesRequest};
use crate::sse::EventSender;
use crate::state::{ServerState, unix_seconds};
use crate::tool_calls::{ToolCall, ToolScanner};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tapml_engine::Finish;

/// Answers an input.
///
/// # Errors
/// If the request is wrong, or there is no room for it.
pub async fn create(State(state): State<Arc<ServerState>>, request: Request) -> Parsed<Response> {
    let place = state.enter()?;
    let body = read_json(request, &state.options).await?;
    let job = state.prepare(move |state| prepare(state, &body)).await?;
    answers::respond(state, place, job).await
}

fn prepare(state: &ServerState, body: &[u8]) -> Parsed<Job<ResponseForm>> {
    let ResponsesRequest { chat, repeated } = ResponsesRequest::parse(body)?;
    let (plans, tools) = chat::plans(state, &chat).map_err(|error| error.rename_param(RENAMED))?;
    let form = ResponseForm {
        id: random_name()?,
        created: unix_seconds(),
        model: state.model.name().into(),
        repeated,
        scanner: ToolScanner::new(tools),
        sequence: 0,
        text: None,
        output: Vec::new(),
        end: None,
    };
    Ok(Job { plans, form, stream: chat.common.stream.is_some() })
}

/// An answer as a list of items.
struct ResponseForm {
    /// Ids of items are made of it, too.
    id: String,
    created: u64,
    model: String,
    /// Fields of the request.
    repeated: Map<String, Value>,
    scanner: ToolScanner,
    /// How many events were sent.
    sequence: u64,
    /// The text of the message that was begun and not ended.
    text: Option<String>,
    /// Items that are complete.
    output: Vec<Value>,
    end: Option<AnswerEnd>,
}

fn usage(totals: &Totals) -> Value {
    let Totals { prompt_tokens, cached_tokens, new_tokens, .. } = totals;
    json!({
        "input_tokens": prompt_tokens,
        "input_tokens_details": { "cached_tokens": cached_tokens },
        "output_tokens": new_tokens,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": prompt_tokens + new_tokens,
    })
}

fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

impl ResponseForm {
    /// The response in this state.
    fn response(&self, status: &str, usage: Value) -> Value {
        let mut response = json!({
            "id": format!("resp_{}", self.id), "object": "response", "created_at": self.created, "status": status,
            "model": self.model, "output": self.output, "error": null, "incomplete_details": null,
            "previous_response_id": null, "store": false, "truncation": "disabled", "usage": usage,
        });
        for (name, value) in &self.repeated {
            response[name] = value.clone();
        }
        response
    }

    /// The response at its end.
    fn final_response(&self, totals: &Totals) -> Value {
        let mut response = self.response(self.status(), usage(totals));
        if self.status() == "incomplete" {
            response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        response
    }

    /// How it ended.
    fn status(&self) -> &'static str {
        match self.end.as_ref().map(|end| end.finish) {
            Some(Finish::Length | Finish::Context) => "incomplete",
            _ => "completed",
        }
    }

    /// The id of the item that comes next.
    fn item_id(&self, prefix: &str) -> String {
        format!("{prefix}_{}{:02}", self.id, self.output.len())
    }

    fn message(&self, status: &str, content: Vec<Value>) -> Value {
        let id = self.item_id("msg");
        json!({ "id": id, "type": "message", "status": status, "role": "assistant", "content": content })
    }

    fn call(&self, status: &str, call: &ToolCall, arguments: &str) -> Value {
        let (id, call_id) = (self.item_id("fc"), self.item_id("call"));
        json!({
            "id": id, "type": "function_call", "status": status, "call_id": call_id, "name": call.name,
            "arguments": arguments,
        })
    }

    fn send(&mut self, events: &EventSender, name: &str, mut event: Value) {
        event["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        events.send_named(name, event);
    }

    /// Sends an event of the item that comes next.
    fn send_item(&mut self, events: &EventSender, name: &str, item: Value) {
        let index = self.output.len();
        self.send(events, name, json!({ "output_index": index, "item": item }));
    }

    /// Sends an event of the text of the message that was begun.
    fn send_part(&mut self, events: &EventSender, name: &str, field: &str, value: Value) {
        let (id, index) = (self.item_id("msg"), self.output.len());
        let mut event = json!({ "item_id": id, "output_index": index, "content_index": 0 });
        event[field] = value;
        if field != "part" {
            event["logprobs"] = json!([]);
        }
        self.send(events, name, event);
    }

    fn begin_message(&mut self, events: &EventSender) {
        let message = self.message("in_progress", Vec::new());
        self.send_item(events, "response.output_item.added", message);
        self.send_part(events, "response.content_part.added", "part", text_part(""));
        self.text = Some(String::new());
    }

    fn send_text(&mut self, events: &EventSender, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.text.is_none() {
            self.begin_message(events);
        }
        if let Some(all) = self.text.as_mut() {
            all.push_str(text);
        }
        self.send_part(events, "response.output_text.delta", "delta", text.into());
    }

    fn end_message(&mut self, events: &EventSender, text: &str) {
        self.send_part(events, "response.output_text.done", "text", text.into());
        self.send_part(events, "response.content_part.done", "part", text_part(text));
        let message = self.message(self.status(), vec![text_part(text)]);
        self.send_item(events, "response.output_item.done", message.clone());
        self.output.push(message);
    }

    fn send_call(&mut self, events: &EventSender, call: &ToolCall) {
        let begun = self.call("in_progress", call, "");
        let (id, index) = (begun["id"].clone(), self.output.len());
        self.send_item(events, "response.output_item.added", begun);
        let delta = json!({ "item_id": id, "output_index": index, "delta": call.arguments });
        self.send(events, "response.function_call_arguments.delta", delta);
        let done =
            json!({ "item_id": id, "output_index": index, "name": call.name, "arguments": call.arguments });
        self.send(events, "response.function_call_arguments.done", done);
        let item = self.call("completed", call, &call.arguments);
        self.send_item(events, "response.output_item.done", item.clone());
        self.output.push(item);
    }

    /// Sends that the work failed.
    fn fail(&mut self, events: &EventSender, error: &ApiError) {
        let mut response = self.response("failed", Value::Null);
        response["error"] = json!({ "code": "server_error", "message": error.body()["error"]["message"] });
        self.send(events, "response.failed", json!({ "response": response }));
    }
}

impl AnswerForm for ResponseForm {
    fn whole(&mut self, answers: Vec<GatheredAnswer>, totals: &Totals) -> Value {
        let GatheredAnswer { piece, end } = answers.into_iter().next().unwrap_or_default();
        self.end = end;
        let (text, calls) = std::mem::take(&mut self.scanner).scan(&piece.text);
        if !text.is_empty() || calls.is_empty() {
            self.output.push(self.message(self.status(), vec![text_part(&text)]));
        }
        for call in &calls {
            self.output.push(self.call("completed", call, &call.arguments));
        }
        self.final_response(totals)
    }

    fn open(&mut self, events: &EventSender, _answers: usize) {
        for name in ["response.created", "response.in_progress"] {
            let response = self.response("in_progress", Value::Null);
            self.send(events, name, json!({ "response": response }));
        }
    }

    fn piece(&mut self, events: &EventSender, _answer: usize, piece: AnswerPiece) {
        let text = self.scanner.push(&piece.text);
        self.send_text(events, &text);
    }

    fn finish(&mut self, events: &EventSender, _answer: usize, end: AnswerEnd) {
        let (rest, calls) = std::mem::take(&mut self.scanner).finish();
        self.end = Some(end);
        self.send_text(events, &rest);
        if self.text.is_none() && calls.is_empty() {
            self.begin_message(events);
        }
        if let Some(text) = self.text.take() {
            self.end_message(events, &text);
        }
        for call in &calls {
            self.send_call(events, call);
        }
    }

    fn close(&mut self, events: &EventSender, done: Parsed<Totals>) {
        match done {
            Ok(totals) => {
                let response = self.final_response(&totals);
                let name = format!("response.{}", self.status());
                self.send(events, &name, json!({ "response": response }));
            }
            Err(error) => self.fail(events, &error),
        }
    }
}
