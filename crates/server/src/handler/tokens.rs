//! `/tokenize`, `/detokenize` and `/apply-template`.

use super::answers::json_response;
use crate::body::read_json;
use crate::error::ApiError;
use crate::fields::Parsed;
use crate::request::{DetokenizeRequest, TemplateRequest, TokenizeRequest, TokenizeText};
use crate::served::check_ids;
use crate::state::ServerState;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// Reads the body and answers with what `work` makes of it.
async fn answer(
    state: Arc<ServerState>,
    request: Request,
    work: fn(&ServerState, &[u8]) -> Parsed<Value>,
) -> Parsed<Response> {
    let _place = state.enter()?;
    let body = read_json(request, &state.options).await?;
    let value = state.prepare(move |state| work(state, &body)).await?;
    Ok(json_response(&value))
}

/// Cuts a text into tokens.
pub async fn tokenize(State(state): State<Arc<ServerState>>, request: Request) -> Parsed<Response> {
    answer(state, request, |state, body| {
        let request = TokenizeRequest::parse(body)?;
        let model = &state.model;
        model.expect_name(request.model.as_deref())?;
        let ids = match &request.text {
            TokenizeText::Text { text, special: true } => model.tokenizer.encode(text)?,
            TokenizeText::Text { text, special: false } => model.tokenizer.encode_plain(text)?,
            TokenizeText::Chat(input) => model.chat_tokens(input, usize::MAX)?.ids,
        };
        let count = ids.len();
        let text = |id: &u32| model.tokenizer.decode(&[*id]).map_err(ApiError::from);
        let tokens: Parsed<Vec<Value>> = if request.pieces {
            ids.iter().map(|id| Ok(json!({ "id": id, "piece": text(id)? }))).collect()
        } else {
            Ok(ids.iter().map(|id| (*id).into()).collect())
        };
        let mut answer = json!({ "count": count, "max_model_len": model.context(), "tokens": tokens? });
        if request.strings {
            let written = |id: &u32| Value::from(model.tokenizer.token(*id));
            answer["token_strs"] = ids.iter().map(written).collect();
        }
        Ok(answer)
    })
    .await
}

/// Gives the text of tokens.
pub async fn detokenize(State(state): State<Arc<ServerState>>, request: Request) -> Parsed<Response> {
    answer(state, request, |state, body| {
        let request = DetokenizeRequest::parse(body)?;
        state.model.expect_name(request.model.as_deref())?;
        check_ids("tokens", &request.tokens, state.model.vocab())?;
        let text = state.model.tokenizer.decode(&request.tokens)?;
        // Clients of vLLM read the first, those of llama-server the second.
        Ok(json!({ "prompt": text, "content": text }))
    })
    .await
}

/// Gives the text that the model reads for a chat.
pub async fn apply_template(State(state): State<Arc<ServerState>>, request: Request) -> Parsed<Response> {
    answer(state, request, |state, body| {
        let request = TemplateRequest::parse(body)?;
        state.model.expect_name(request.model.as_deref())?;
        Ok(json!({ "prompt": state.model.render(&request.input)? }))
    })
    .await
}
