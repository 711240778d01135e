//! Which request goes where, and who is let in.

use crate::error::{ApiError, anthropic_body};
use crate::fields::Parsed;
use crate::handler::{anthropic, chat, completion, embedding, native, responses, status, tokens};
use crate::state::ServerState;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, ORIGIN, VARY,
};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Where a key stands for clients of other APIs.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Anthropic's path.
const MESSAGES: &str = "/v1/messages";

type Routed = MethodRouter<Arc<ServerState>>;

/// What answers at each path. `openapi.json` describes the same paths.
fn table() -> Vec<(&'static str, Routed)> {
    vec![
        ("/health", get(status::health)),
        ("/metrics", get(status::metrics)),
        ("/openapi.json", get(status::openapi)),
        ("/v1/models", get(status::models)),
        // Names may have slashes.
        ("/v1/models/{*name}", get(status::model)),
        ("/v1/completions", post(completion::complete)),
        ("/v1/chat/completions", post(chat::complete)),
        ("/v1/responses", post(responses::create)),
        (MESSAGES, post(anthropic::create)),
        ("/v1/messages/count_tokens", post(anthropic::count_tokens)),
        ("/v1/embeddings", post(embedding::embed)),
        ("/v1/chat/completions/input_tokens", post(native::input_tokens)),
        ("/completion", post(native::complete)),
        ("/props", get(native::props)),
        ("/tokenize", post(tokens::tokenize)),
        ("/detokenize", post(tokens::detokenize)),
        ("/apply-template", post(tokens::apply_template)),
    ]
}

/// Further paths of llama-server, and which of the table they stand for.
const ALIASES: &[(&str, &str)] = &[
    ("/v1/health", "/health"),
    ("/models", "/v1/models"),
    ("/completions", "/completion"),
    ("/chat/completions", "/v1/chat/completions"),
    ("/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"),
    ("/responses", "/v1/responses"),
];

/// The path that a further one stands for.
fn path_of_alias(path: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == path).map_or(path, |(_, path)| path)
}

/// What a server answers.
pub fn routes(state: Arc<ServerState>) -> Router {
    let table = table();
    let aliases = ALIASES.iter().filter_map(|(alias, path)| {
        let (_, methods) = table.iter().find(|(own, _)| own == path)?;
        Some((*alias, methods.clone()))
    });
    let all = table.iter().cloned().chain(aliases);
    let routes = all.fold(Router::new(), |routes, (path, methods)| routes.route(path, methods));
    routes
        .fallback(async |request: Request| not_found(request.uri().path()))
        .method_not_allowed_fallback(async |request: Request| not_allowed(&request))
        .layer(from_fn_with_state(state.clone(), guard))
        .with_state(state)
}

fn not_found(path: &str) -> ApiError {
    let path: String = path.chars().take(200).collect();
    let text = format!("there is nothing at `{path}`; /openapi.json lists what there is");
    ApiError::new(StatusCode::NOT_FOUND, text).with_code("unknown_url")
}

fn not_allowed(request: &Request) -> ApiError {
    let text = format!("`{}` does not take {}", request.uri().path(), request.method());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, text).with_code("method_not_allowed")
}

/// Lets a request pass that has a key, and comes from no page of another site.
async fn guard(State(state): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_string());
    let origin = request.headers().get(ORIGIN).cloned();
    let mut response = match check_origin(&state, request.headers(), origin.as_ref()) {
        Err(refused) => refused.into_response(),
        Ok(true) if method == Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        Ok(_) => match check_key(&state, request.headers(), &path) {
            Err(refused) => refused.into_response(),
            Ok(()) => next.run(request).await,
        },
    };
    if path.strip_prefix(MESSAGES).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        && let Some(error) = response.extensions_mut().remove::<ApiError>()
    {
        *response.body_mut() = anthropic_body(&error).to_string().into();
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    if let Some(origin) = origin.filter(|origin| is_allowed(&state, origin)) {
        allow_origin(response.headers_mut(), origin);
    }
    log::debug!("{method} {path}: {} after {:?}", response.status().as_u16(), start.elapsed());
    response
}

/// Fails if no key lets the request in. Whether the server is well is told to everybody.
fn check_key(state: &ServerState, headers: &HeaderMap, path: &str) -> Parsed<()> {
    if state.options.keys.is_empty() || path_of_alias(path) == "/health" {
        return Ok(());
    }
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer
        .and_then(|value| value.split_once(' '))
        .filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
    let key = bearer.map(|(_, key)| key).or(headers.get(API_KEY).and_then(|key| key.to_str().ok()));
    match key {
        Some(key) if state.options.keys.contains(key.trim()) => Ok(()),
        found => {
            let what = if found.is_some() { "the key is not accepted" } else { "a key is missing" };
            let text =
                format!("{what}; give one of the server's keys in the header `Authorization: Bearer KEY`");
            Err(ApiError::new(StatusCode::UNAUTHORIZED, text).with_code("invalid_api_key"))
        }
    }
}

fn is_allowed(state: &ServerState, origin: &HeaderValue) -> bool {
    state.options.origins.iter().any(|allowed| allowed == "*" || allowed.as_bytes() == origin.as_bytes())
}

/// Whether the request comes from a page of an allowed origin. Fails if it comes from a page of another site: a browser sends
/// some requests without asking first, and a name server can let another name stand for this machine.
fn check_origin(state: &ServerState, headers: &HeaderMap, origin: Option<&HeaderValue>) -> Parsed<bool> {
    let Some(origin) = origin else { return Ok(false) };
    if is_allowed(state, origin) {
        return Ok(true);
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let authority =
        origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let fixed = name == "localhost" || name.parse::<IpAddr>().is_ok();
    if authority == Some(host) && (fixed || !state.options.keys.is_empty()) {
        return Ok(false);
    }
    let text = "pages of this origin may not use the server; start it with `--cors ORIGIN` to let them";
    Err(ApiError::new(StatusCode::FORBIDDEN, text).with_code("origin_not_allowed"))
}

/// What a browser wants to read before a page may.
fn allow_origin(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, OPTIONS"));
    // Clients send headers of their own. The star stands for all but the first.
    let allowed = HeaderValue::from_static("authorization, *");
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    headers.append(VARY, HeaderValue::from_static("Origin"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_document_has_every_path() {
        let document: serde_json::Value = serde_json::from_str(status::OPENAPI).unwrap();
        let described = document["paths"].as_object().unwrap().keys().cloned();
        let served = table().into_iter().map(|(path, _)| path.replace("{*", "{"));
        assert_eq!(described.collect::<BTreeSet<String>>(), served.collect());
    }
}
