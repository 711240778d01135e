//! `/v1/chat/completions`.

use super::answers::{self, Job, random_name};
use super::choices::{AnswerShape, Choices, Envelope, finish_name};
use super::logprobs;
use crate::answer::{AnswerPiece, TokenText};
use crate::body::read_json;
use crate::fields::Parsed;
use crate::generate::AnswerPlan;
use crate::request::ChatRequest;
use crate::served::ChatTokens;
use crate::state::ServerState;
use crate::tool_calls::{ToolCall, ToolScanner, ToolSet};
use crate::tool_grammar::answer_grammar;
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

fn prepare(state: &ServerState, body: &[u8]) -> Parsed<Job<Choices<ChatShape>>> {
    let request = ChatRequest::parse(body)?;
    let common = &request.common;
    let (plans, tools) = plans(state, &request)?;
    let object = if common.stream.is_some() { "chat.completion.chunk" } else { "chat.completion" };
    let scanners = vec![ToolScanner::new(tools); common.n];
    let shape = ChatShape { logprobs: request.logprobs.is_some(), scanners };
    let form = Choices::new(shape, Envelope::new(object, "chatcmpl", &state.model)?, common.stream);
    Ok(Job { plans, form, stream: common.stream.is_some() })
}

/// The answers to a chat that are wanted, and the functions whose calls they are searched for.
pub fn plans(state: &ServerState, request: &ChatRequest) -> Parsed<(Vec<AnswerPlan>, ToolSet)> {
    let model = &state.model;
    let common = &request.common;
    model.expect_name(common.model.as_deref())?;
    let ChatTokens { ids: prompt, images } = model.encode_chat(&request.input)?;
    let (field, form) = common.grammar.clone().unzip();
    let grammar = answer_grammar(model.template_source(), &request.tools, form)?;
    let grammar = grammar.map(|grammar| state.compile(field.unwrap_or("tools"), &grammar)).transpose()?;
    let names = request.tools.functions.iter().map(|function| function.name.clone()).collect();
    let tools = ToolSet { names, parallel: request.tools.parallel };
    let most = request.max_tokens.unwrap_or(usize::MAX);
    let plan = |answer| {
        let mut options = answers::options(model, common, answer, prompt.len(), most);
        options.logprobs = request.logprobs;
        let (prompt, stops) = (prompt.clone(), common.stops.clone());
        let images = images.clone();
        let with_special = !tools.names.is_empty();
        let (counts, grammar) = (answer == 0, grammar.clone());
        AnswerPlan {
            prompt,
            images,
            counts,
            echo: None,
            options,
            stops,
            with_special,
            with_tokens: false,
            with_end: false,
            grammar,
        }
    };
    Ok(((0..common.n).map(plan).collect(), tools))
}

/// Answers as chats write them.
struct ChatShape {
    logprobs: bool,
    /// Of each answer.
    scanners: Vec<ToolScanner>,
}

impl ChatShape {
    fn logprobs(&self, tokens: &[TokenText]) -> Value {
        if self.logprobs && !tokens.is_empty() { logprobs::content(tokens) } else { Value::Null }
    }

    /// The rest of an answer's text, and its calls as they are written.
    fn finish(&mut self, index: usize) -> (String, Vec<Value>) {
        let Some(scanner) = self.scanners.get_mut(index).map(std::mem::take) else {
            return Default::default();
        };
        let (rest, calls) = scanner.finish();
        (rest, calls.into_iter().enumerate().map(|(at, call)| written_call(at, call)).collect())
    }
}

/// A call in a list of calls.
fn written_call(at: usize, call: ToolCall) -> Value {
    // The text of an answer is done: a name that is not random serves as well.
    let id = random_name().unwrap_or_else(|_| at.to_string());
    let ToolCall { name, arguments } = call;
    json!({
        "index": at, "id": format!("call_{id}"), "type": "function",
        "function": { "name": name, "arguments": arguments },
    })
}

fn chunk(index: usize, delta: Value, logprobs: Value, finish: Option<&str>) -> Value {
    json!({ "index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish })
}

impl AnswerShape for ChatShape {
    fn whole(&mut self, index: usize, piece: AnswerPiece, finish: Finish) -> Value {
        let mut text =
            self.scanners.get_mut(index).map_or(String::new(), |scanner| scanner.push(&piece.text));
        let (rest, mut calls) = self.finish(index);
        text.push_str(&rest);
        let mut message = json!({ "role": "assistant", "content": text, "refusal": null });
        let mut finish = finish_name(finish);
        if !calls.is_empty() {
            finish = "tool_calls";
            if text.is_empty() {
                message["content"] = Value::Null;
            }
            // Only chunks need it, which are put together by it.
            calls.iter_mut().filter_map(Value::as_object_mut).for_each(|call| drop(call.remove("index")));
            message["tool_calls"] = calls.into();
        }
        let logprobs = self.logprobs(&piece.tokens);
        json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": finish })
    }

    fn opening(&self, index: usize) -> Option<Value> {
        Some(chunk(index, json!({ "role": "assistant", "content": "" }), Value::Null, None))
    }

    fn part(&mut self, index: usize, piece: AnswerPiece) -> Option<Value> {
        let text = self.scanners.get_mut(index)?.push(&piece.text);
        if text.is_empty() && piece.tokens.is_empty() {
            return None;
        }
        Some(chunk(index, json!({ "content": text }), self.logprobs(&piece.tokens), None))
    }

    fn end(&mut self, index: usize, finish: Finish) -> Vec<Value> {
        let (rest, calls) = self.finish(index);
        let finish = if calls.is_empty() { finish_name(finish) } else { "tool_calls" };
        let mut chunks = Vec::new();
        if !rest.is_empty() {
            chunks.push(chunk(index, json!({ "content": rest }), Value::Null, None));
        }
        for call in calls {
            chunks.push(chunk(index, json!({ "tool_calls": [call] }), Value::Null, None));
        }
        chunks.push(chunk(index, json!({}), Value::Null, Some(finish)));
        chunks
    }
}
