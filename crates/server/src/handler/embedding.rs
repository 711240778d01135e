//! `/v1/embeddings`.

use crate::body::read_json;
use crate::error::ApiError;
use crate::fields::Parsed;
use crate::request::{EmbeddingRequest, Prompt, VectorFormat};
use crate::state::ServerState;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;
use tapml_engine::{EmbeddingModel, EmbeddingOptions, Finish};
use tokio::sync::oneshot;

/// Most tokens of all texts of a request; OpenAI's.
const MAX_TOKENS: usize = 300_000;

/// Texts that are ready for the encoder.
struct EmbeddingPlan {
    texts: Vec<Vec<u32>>,
    /// Numbers of a vector; all if absent.
    size: Option<usize>,
    format: VectorFormat,
}

/// The body of the answer.
#[derive(Serialize)]
struct EmbeddingAnswer<'a> {
    object: &'static str,
    data: Vec<EmbeddingEntry>,
    model: &'a str,
    usage: EmbeddingUsage,
}

#[derive(Serialize)]
struct EmbeddingEntry {
    object: &'static str,
    index: usize,
    embedding: WrittenVector,
}

/// A vector as the request wants it written.
#[derive(Serialize)]
#[serde(untagged)]
enum WrittenVector {
    Numbers(Vec<f32>),
    Text(String),
}

#[derive(Serialize)]
struct EmbeddingUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// Gives vectors of texts.
///
/// # Errors
/// If the request is wrong, the model is no encoder, or there is no room for the request.
pub async fn embed(State(state): State<Arc<ServerState>>, request: Request) -> Parsed<Response> {
    let _place = state.enter()?;
    let start = Instant::now();
    let body = read_json(request, &state.options).await?;
    let EmbeddingPlan { texts, size, format } = state.prepare(move |state| prepare(state, &body)).await?;
    let encoder = state.model.encoder()?;
    let tokens = texts.iter().map(Vec::len).sum();
    state.metrics.count_prompt(tokens);
    let mut data = Vec::new();
    // One after another: texts of other requests come between, and nothing more begins if the client goes away.
    for (index, ids) in texts.into_iter().enumerate() {
        let vector = compute(encoder, ids, size).await.inspect_err(|_| {
            state.metrics.count_end(None, start.elapsed());
        })?;
        data.push(EmbeddingEntry { object: "embedding", index, embedding: write_vector(vector, format) });
    }
    state.metrics.count_end(Some(Finish::Stop), start.elapsed());
    let usage = EmbeddingUsage { prompt_tokens: tokens, total_tokens: tokens };
    let answer = EmbeddingAnswer { object: "list", data, model: state.model.name(), usage };
    let text = serde_json::to_string(&answer)
        .map_err(|e| ApiError::internal(format!("the answer could not be written: {e}")))?;
    Ok(([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response())
}

fn prepare(state: &ServerState, body: &[u8]) -> Parsed<EmbeddingPlan> {
    let request = EmbeddingRequest::parse(body)?;
    let model = &state.model;
    model.expect_name(request.model.as_deref())?;
    let encoder = model.encoder()?;
    let size = request.dimensions.map(|size| check_size(encoder, size)).transpose()?;
    let mut texts = Vec::new();
    let mut tokens = 0;
    for input in request.inputs {
        let ids = match input {
            Prompt::Text(text) => model
                .tokenizer
                .encode(&encoder.options().prepare(&text))
                .map_err(|e| ApiError::from(e).with_param("input"))?,
            Prompt::Ids(ids) => ids,
            Prompt::Parts(parts) => model.encode_parts(&parts)?,
        };
        model.check_prompt("input", &ids)?;
        tokens += ids.len();
        if tokens > MAX_TOKENS {
            let text = format!("the texts of `input` have more than {MAX_TOKENS} tokens; send fewer at once");
            return Err(ApiError::bad_field("input", text).with_code("invalid_value"));
        }
        texts.push(ids);
    }
    Ok(EmbeddingPlan { texts, size, format: request.format })
}

/// Fails if the model's vectors cannot be cut to this many numbers.
fn check_size(encoder: &EmbeddingModel, size: usize) -> Parsed<usize> {
    let EmbeddingOptions { matryoshka, sizes, .. } = encoder.options();
    let whole = encoder.size();
    if size == whole || (*matryoshka && size < whole && (sizes.is_empty() || sizes.contains(&size))) {
        return Ok(size);
    }
    let able = if !matryoshka {
        format!("the model's vectors have {whole} numbers and cannot be cut; leave `dimensions` out")
    } else if sizes.is_empty() {
        format!("`dimensions` must be from 1 to {whole}, found {size}")
    } else {
        format!("`dimensions` must be one of {sizes:?} below {whole}, or {whole}; found {size}")
    };
    Err(ApiError::bad_field("dimensions", able).with_code("invalid_value"))
}

async fn compute(encoder: &EmbeddingModel, ids: Vec<u32>, size: Option<usize>) -> Parsed<Vec<f32>> {
    let (send, vector) = oneshot::channel();
    // A client that is gone takes nothing.
    encoder.submit(ids, size, move |vector| drop(send.send(vector)));
    let vector =
        vector.await.map_err(|_| ApiError::internal("the encoder ended before the answer was complete"))?;
    vector.map_err(|error| {
        let mut error = ApiError::from(error);
        // The text was looked at before: what is wrong now is not the client's.
        if error.status.is_client_error() {
            error.status = StatusCode::INTERNAL_SERVER_ERROR;
        }
        error
    })
}

fn write_vector(vector: Vec<f32>, format: VectorFormat) -> WrittenVector {
    match format {
        VectorFormat::Float => WrittenVector::Numbers(vector),
        VectorFormat::Base64 => {
            let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
            WrittenVector::Text(STANDARD.encode(bytes))
        }
    }
}
