//! What tells of the server and its model: `/health`, `/metrics`, `/openapi.json`, `/v1/models`.

use super::answers::json_response;
use crate::error::ApiError;
use crate::fields::Parsed;
use crate::served::ServedKind;
use crate::state::ServerState;
use axum::extract::{Path, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;
use tapml_engine::EmbeddingOptions;

/// What all requests and answers look like. Tests hold the server to it.
pub const OPENAPI: &str = include_str!("../../openapi.json");

/// Describes the server to programs.
pub async fn openapi() -> Response {
    let text = OPENAPI.replacen("\"VERSION\"", concat!('"', env!("CARGO_PKG_VERSION"), '"'), 1);
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}

/// Whether requests are served.
pub async fn health(State(state): State<Arc<ServerState>>) -> Parsed<Response> {
    if state.is_stopping() {
        return Err(ApiError::stopping());
    }
    let mut health = json!({ "status": "ok", "model": state.model.name(), "context": state.model.context() });
    let mut tell = |name: &str, count: usize| health[name] = count.into();
    match &state.model.kind {
        ServedKind::Generator(engine) => {
            if let Some(fault) = engine.fault() {
                return Err(ApiError::fault(&fault));
            }
            let stats = engine.stats();
            tell("running", stats.running);
            tell("waiting", stats.waiting);
            tell("pages", stats.pages);
            tell("pages_used", stats.pages_used);
        }
        ServedKind::Encoder(encoder) => {
            let stats = encoder.stats();
            tell("running", stats.running);
            tell("waiting", stats.waiting);
        }
    }
    if let Some(shadow) = &state.model.shadow {
        health["shadow"] = json!({ "source": shadow.source, "share": shadow.share });
    }
    Ok(json_response(&health))
}

/// The page for Prometheus.
pub async fn metrics(State(state): State<Arc<ServerState>>) -> Response {
    let text = {
        let shadow = state.model.shadow.as_ref().map(|shadow| (shadow.stats)());
        match &state.model.kind {
            ServedKind::Generator(engine) => {
                state.metrics.text(state.model.name(), &engine.stats(), shadow.as_ref())
            }
            ServedKind::Encoder(encoder) => {
                state.metrics.text_of_encoder(state.model.name(), &encoder.stats())
            }
        }
    };
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(CONTENT_TYPE, kind)], text).into_response()
}

/// The names of the model.
pub async fn models(State(state): State<Arc<ServerState>>) -> Response {
    let data: Vec<Value> = state.model.names.iter().map(|name| card(&state, name)).collect();
    json_response(&json!({ "object": "list", "data": data }))
}

/// The model of a name.
pub async fn model(State(state): State<Arc<ServerState>>, Path(name): Path<String>) -> Parsed<Response> {
    state.model.expect_name(Some(&name))?;
    Ok(json_response(&card(&state, &name)))
}

fn card(state: &ServerState, name: &str) -> Value {
    // As llama.cpp's server tells it.
    let mut meta = json!({ "n_vocab": state.model.vocab() });
    if let ServedKind::Encoder(encoder) = &state.model.kind {
        let EmbeddingOptions { pooling, normalize, .. } = encoder.options();
        meta["n_embd"] = encoder.size().into();
        meta["pooling"] = pooling.iter().map(|mode| mode.name()).collect();
        meta["normalized"] = (*normalize).into();
    }
    json!({
        "id": name,
        "object": "model",
        "created": state.created,
        "owned_by": "tapml",
        "max_model_len": state.model.context(),
        "meta": meta,
    })
}
