//! llama-server's own paths: `/completion`, `/props`, and the tokens of a chat.

use super::answers::{self, AnswerForm, GatheredAnswer, Job, json_response};
use super::logprobs;
use super::timings::timings;
use crate::answer::{AnswerPiece, TokenText};
use crate::body::read_json;
use crate::error::ApiError;
use crate::fields::Parsed;
use crate::generate::{AnswerEnd, AnswerPlan, Totals};
use crate::request::{Common, NativeRequest, Prompt, TemplateRequest};
use crate::served::{ServedKind, ServedModel};
use crate::sse::EventSender;
use crate::state::ServerState;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tapml_engine::{Finish, Usage};

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

/// What clients ask a server for before they use it.
pub async fn props(State(state): State<Arc<ServerState>>) -> Response {
    let model = &state.model;
    let slots = match &model.kind {
        ServedKind::Generator(engine) => engine.limits().sequences,
        ServedKind::Encoder(_) => 1,
    };
    json_response(&json!({
        "default_generation_settings": { "n_ctx": model.context() },
        "total_slots": slots,
        "model_alias": model.name(),
        "chat_template": model.template_source(),
        "modalities": { "vision": model.vision.is_some(), "audio": false },
        "build_info": concat!("tapml-", env!("CARGO_PKG_VERSION")),
    }))
}

/// Counts the tokens of a chat.
///
/// # Errors
/// If the request is wrong.
pub async fn input_tokens(State(state): State<Arc<ServerState>>, request: Request) -> Parsed<Response> {
    let _place = state.enter()?;
    let body = read_json(request, &state.options).await?;
    let count = state.prepare(move |state| {
        let request = TemplateRequest::parse(&body)?;
        state.model.expect_name(request.model.as_deref())?;
        Ok(state.model.chat_tokens(&request.input, usize::MAX)?.ids.len())
    });
    Ok(json_response(&json!({ "input_tokens": count.await? })))
}

fn prepare(state: &ServerState, body: &[u8]) -> Parsed<Job<NativeForm>> {
    let mut request = NativeRequest::parse(body)?;
    let model = &state.model;
    let common = &mut request.common;
    model.expect_name(common.model.as_deref())?;
    for (text, bias) in &request.text_biases {
        let ids = model.tokenizer.encode_plain(text)?;
        common.sampling.logit_bias.extend(ids.into_iter().map(|id| (id, *bias)));
    }
    let grammar = common.grammar.as_ref();
    let grammar = grammar.map(|(field, grammar)| state.compile(field, grammar)).transpose()?;
    let stream = common.stream.is_some();
    let (mut plans, mut written) = (Vec::new(), Vec::new());
    for prompt in &request.prompts {
        let ids = model.encode(prompt)?;
        written.push(NativeAnswer {
            prompt: match prompt {
                Prompt::Text(text) => text.clone(),
                Prompt::Ids(_) | Prompt::Parts(_) => model.tokenizer.decode(&ids)?,
            },
            prompt_tokens: ids.len(),
            tokens: 0,
            new_line: false,
        });
        let most = request.max_tokens.unwrap_or(usize::MAX);
        let mut options = answers::options(model, &request.common, 0, ids.len(), most);
        options.logprobs = request.probs;
        let (stops, grammar) = (request.common.stops.clone(), grammar.clone());
        plans.push(AnswerPlan {
            prompt: ids,
            images: Vec::new(),
            counts: true,
            echo: None,
            options,
            stops,
            with_special: false,
            with_tokens: stream || request.return_tokens,
            with_end: false,
            grammar,
        });
    }
    let settings = settings(model, &request, &request.common);
    let (context, name) = (model.context(), model.name().to_string());
    let NativeRequest { list, probs, return_tokens, fields, .. } = request;
    let probs = probs.is_some();
    let form = NativeForm { list, probs, return_tokens, fields, settings, context, name, answers: written };
    Ok(Job { plans, form, stream })
}

/// How the tokens are chosen. Samplers that are not served are told as those that do nothing.
fn settings(model: &ServedModel, request: &NativeRequest, common: &Common) -> Value {
    let sampling = &common.sampling;
    let mut biases: Vec<Value> =
        sampling.logit_bias.iter().map(|(id, bias)| json!({ "token": id, "bias": bias })).collect();
    if common.ignore_eos {
        // JSON has no infinity: null is what llama-server writes.
        biases.extend(model.stop_ids.iter().map(|id| json!({ "token": id, "bias": null })));
    }
    let most = request.max_tokens.and_then(|most| i64::try_from(most).ok()).unwrap_or(-1);
    json!({
        "n_predict": most, "max_tokens": most, "seed": sampling.seed, "temperature": sampling.temperature,
        "top_k": sampling.top_k.unwrap_or(0), "top_p": sampling.top_p.unwrap_or(1.0),
        "min_p": sampling.min_p.unwrap_or(0.0), "repeat_penalty": 1.0,
        "presence_penalty": sampling.presence_penalty.unwrap_or(0.0),
        "frequency_penalty": sampling.frequency_penalty.unwrap_or(0.0),
        "stop": common.stops, "ignore_eos": common.ignore_eos, "logit_bias": biases,
        "n_probs": request.probs.unwrap_or(0), "stream": common.stream.is_some(),
        "typical_p": 1.0, "top_n_sigma": -1.0, "xtc_probability": 0.0, "dry_multiplier": 0.0, "mirostat": 0,
        "dynatemp_range": 0.0, "adaptive_target": -1.0, "adaptive_decay": 0.9,
    })
}

/// What is known of an answer.
struct NativeAnswer {
    prompt: String,
    prompt_tokens: usize,
    /// New tokens that were told.
    tokens: usize,
    /// Whether a text that was told has a new line.
    new_line: bool,
}

/// Answers as llama-server writes its own.
struct NativeForm {
    list: bool,
    probs: bool,
    return_tokens: bool,
    fields: Vec<String>,
    settings: Value,
    context: usize,
    name: String,
    answers: Vec<NativeAnswer>,
}

impl NativeForm {
    /// The end of an answer with this text.
    fn last(&self, index: usize, piece: &AnswerPiece, end: &AnswerEnd) -> Value {
        let Some(answer) = self.answers.get(index) else { return Value::Null };
        let Usage { prompt_tokens, new_tokens, .. } = end.usage;
        let kind = match (end.finish, &end.stop_text) {
            (Finish::Length | Finish::Context, _) => "limit",
            (_, Some(_)) => "word",
            (_, None) => "eos",
        };
        let ids: Vec<u32> = if self.return_tokens { ids(&piece.tokens) } else { Vec::new() };
        let mut value = json!({
            "index": index, "content": piece.text, "tokens": ids, "id_slot": -1, "stop": true, "model": self.name,
            "tokens_predicted": new_tokens, "tokens_evaluated": prompt_tokens,
            "generation_settings": self.settings, "prompt": answer.prompt,
            "has_new_line": answer.new_line || piece.text.contains('\n'),
            // The last token of an answer takes no room.
            "truncated": kind == "limit" && prompt_tokens + new_tokens > self.context,
            "stop_type": kind, "stopping_word": end.stop_text.as_deref().unwrap_or_default(),
            "tokens_cached": end.usage.cached_tokens, "timings": timings(&end.usage),
        });
        if self.probs && !piece.tokens.is_empty() {
            value["completion_probabilities"] = logprobs::native(&piece.tokens);
        }
        self.choose(value)
    }

    /// The fields that are wanted.
    fn choose(&self, value: Value) -> Value {
        if self.fields.is_empty() {
            return value;
        }
        let wanted = self.fields.iter().filter_map(|path| {
            let found = path.split('/').try_fold(&value, |value, name| value.get(name))?;
            Some((path.clone(), found.clone()))
        });
        Value::Object(wanted.collect::<Map<String, Value>>())
    }
}

fn ids(tokens: &[TokenText]) -> Vec<u32> {
    tokens.iter().map(|token| token.id).collect()
}

impl AnswerForm for NativeForm {
    fn whole(&mut self, answers: Vec<GatheredAnswer>, _totals: &Totals) -> Value {
        let end = |end: Option<AnswerEnd>| end.unwrap_or_else(AnswerEnd::for_cancelled_answer);
        let answers = answers.into_iter().enumerate();
        let mut all: Vec<Value> =
            answers.map(|(index, answer)| self.last(index, &answer.piece, &end(answer.end))).collect();
        if self.list { all.into() } else { all.pop().unwrap_or_default() }
    }

    fn open(&mut self, _events: &EventSender, _answers: usize) {}

    fn piece(&mut self, events: &EventSender, index: usize, piece: AnswerPiece) {
        let Some(answer) = self.answers.get_mut(index) else { return };
        answer.tokens += piece.tokens.len();
        answer.new_line |= piece.text.contains('\n');
        let mut value = json!({
            "index": index, "content": piece.text, "tokens": ids(&piece.tokens), "stop": false, "id_slot": -1,
            "tokens_predicted": answer.tokens, "tokens_evaluated": answer.prompt_tokens,
        });
        if self.probs {
            value["completion_probabilities"] = logprobs::native(&piece.tokens);
        }
        events.send(&value);
    }

    fn finish(&mut self, events: &EventSender, answer: usize, end: AnswerEnd) {
        events.send(&self.last(answer, &AnswerPiece::default(), &end));
    }

    fn close(&mut self, events: &EventSender, done: Parsed<Totals>) {
        // Streams of this path have no mark at their end.
        if let Err(error) = done.map_err(|error: ApiError| error.body()) {
            events.send(&error);
        }
    }
}
