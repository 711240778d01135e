//! Bodies of requests, of bounded size and time.

use crate::error::ApiError;
use crate::fields::Parsed;
use crate::options::ServerOptions;
use axum::body::BodyDataStream;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use futures_util::StreamExt;
use std::time::Duration;
use tokio::time::timeout;

/// Bytes of a body that is too long which are read on: a client that still sends does not hear the refusal.
const DRAINED: usize = 64 << 20;
/// How long that may take.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// The body of a request that holds JSON.
///
/// # Errors
/// If it is of another type, too long, or does not come in time.
pub async fn read_json(request: Request, options: &ServerOptions) -> Parsed<Vec<u8>> {
    let (head, body) = request.into_parts();
    let mut body = body.into_data_stream();
    let refused =
        match expect_json(&head.headers).and_then(|()| expect_length(&head.headers, options.max_body)) {
            Ok(()) => match timeout(options.read_timeout, collect(&mut body, options.max_body)).await {
                Ok(Ok(bytes)) => return Ok(bytes),
                Ok(Err(refused)) => refused,
                Err(_) => {
                    let seconds = options.read_timeout.as_secs();
                    let text = format!("the body did not come within {seconds} s");
                    return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, text));
                }
            },
            Err(refused) => refused,
        };
    // However it ends, the answer is the refusal.
    let _ = timeout(DRAIN_TIME, drain(&mut body)).await;
    Err(refused)
}

fn expect_json(headers: &HeaderMap) -> Parsed<()> {
    let kind = headers.get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default());
    let essence = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
    if essence.as_deref() == Some("application/json") {
        return Ok(());
    }
    let found = kind.unwrap_or("none");
    let text = format!("the header Content-Type must be application/json, found {found}");
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text))
}

fn expect_length(headers: &HeaderMap, most: usize) -> Parsed<()> {
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > most as u64) { Err(too_long(most)) } else { Ok(()) }
}

fn too_long(most: usize) -> ApiError {
    let text = format!(
        "the body is longer than {most} bytes; send less, or start the server with a larger `--max-body`"
    );
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text).with_code("request_too_large")
}

async fn collect(body: &mut BodyDataStream, most: usize) -> Parsed<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(part) = body.next().await {
        let part = part.map_err(|e| ApiError::bad_request(format!("the body could not be read: {e}")))?;
        if bytes.len() + part.len() > most {
            return Err(too_long(most));
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

async fn drain(body: &mut BodyDataStream) {
    let mut left = DRAINED;
    while let Some(Ok(part)) = body.next().await {
        match left.checked_sub(part.len()) {
            Some(less) => left = less,
            None => return,
        }
    }
}
