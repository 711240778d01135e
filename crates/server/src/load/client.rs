//! One request of a load over a connection that is kept.

use super::target::{LoadTarget, io_error};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tapml_graph::{Error, Result};
use tokio::time::timeout;

/// Longest line of an answer, bytes.
const LINE: usize = 4 << 20;

/// What was seen of one request.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// When each piece of the answer came, from the sending of the request on.
    pub pieces: Vec<Duration>,
    /// New tokens, as the server counts them.
    pub tokens: u64,
    /// Until the answer was complete.
    pub total: Duration,
}

/// A connection that is opened when it is needed, and again after a failure.
pub(super) struct LoadClient<'a> {
    target: &'a LoadTarget,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl<'a> LoadClient<'a> {
    pub fn new(target: &'a LoadTarget) -> LoadClient<'a> {
        LoadClient { target, sender: None }
    }

    /// Asks for an answer of exactly so many tokens to a prompt, and reads it to its end.
    pub async fn complete(&mut self, prompt: &[u32], tokens: u32) -> Result<Seen> {
        let body = json!({
            "model": self.target.model,
            "prompt": prompt,
            "max_tokens": tokens,
            "min_tokens": tokens,
            "ignore_eos": true,
            "temperature": 0,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        let asked = timeout(self.target.limit, self.ask(&body));
        let answered = asked.await.unwrap_or_else(|_| Err(io_error("no answer", "it took too long")));
        if answered.is_err() {
            // What is left of an answer would be taken for the next one.
            self.sender = None;
        }
        answered
    }

    /// What the server tells of its first model.
    pub async fn first_model(&mut self) -> Result<Value> {
        let request = self.target.request("GET", "/v1/models", String::new())?;
        let response = timeout(self.target.limit, self.send(request)).await;
        let response = response.map_err(|_| io_error("no answer", "it took too long"))??;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|e| io_error("the answer broke off", e))?;
        let body = body.to_bytes();
        if status != StatusCode::OK {
            return Err(io_error(
                &format!("GET /v1/models: status {}", status.as_u16()),
                String::from_utf8_lossy(&body),
            ));
        }
        let models: Value = serde_json::from_slice(&body).map_err(|e| io_error("GET /v1/models", e))?;
        let first = models.pointer("/data/0").cloned();
        first.ok_or_else(|| Error::invalid("GET /v1/models: the server names no model"))
    }

    async fn ask(&mut self, body: &Value) -> Result<Seen> {
        let start = Instant::now();
        let request = self.target.request("POST", "/v1/completions", body.to_string())?;
        let response = self.send(request).await?;
        let status = response.status();
        let mut seen = Seen { pieces: Vec::new(), tokens: 0, total: Duration::ZERO };
        let (mut body, mut held) = (response.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| io_error("the answer broke off", e))?;
            held.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            if held.len() > LINE {
                return Err(io_error("the answer has a line", format!("of more than {LINE} bytes")));
            }
            if status != StatusCode::OK {
                continue;
            }
            while let Some(end) = held.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = held.drain(..=end).collect();
                seen.line(&line, start)?;
            }
        }
        if status != StatusCode::OK {
            let text = String::from_utf8_lossy(&held).trim().chars().take(200).collect::<String>();
            return Err(io_error(&format!("status {}", status.as_u16()), text));
        }
        seen.total = start.elapsed();
        if seen.pieces.is_empty() {
            return Err(io_error("the answer", "it had no text"));
        }
        // A server that counts nothing gives a piece for each token.
        seen.tokens = seen.tokens.max(seen.pieces.len() as u64);
        Ok(seen)
    }

    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<hyper::Response<hyper::body::Incoming>> {
        if self.sender.as_ref().is_none_or(SendRequest::is_closed) {
            self.sender = Some(self.target.connect().await?);
        }
        let sender = self.sender.as_mut().ok_or_else(|| Error::bug("no connection"))?;
        sender.ready().await.map_err(|e| io_error("the connection", e))?;
        sender.send_request(request).await.map_err(|e| io_error("the request", e))
    }
}

impl Seen {
    /// A line of an event stream.
    fn line(&mut self, line: &[u8], start: Instant) -> Result<()> {
        let Some(data) = line.strip_prefix(b"data:") else { return Ok(()) };
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            return Ok(());
        }
        let event: Value = serde_json::from_slice(data).map_err(|e| io_error("an event of the answer", e))?;
        if let Some(error) = event.get("error") {
            return Err(io_error("the server", error));
        }
        // A piece without text is a token, too: of a character that is not whole yet.
        let of_token = event.pointer("/choices/0/text").is_some_and(Value::is_string);
        if of_token && event.pointer("/choices/0/finish_reason").is_none_or(Value::is_null) {
            self.pieces.push(start.elapsed());
        }
        if let Some(tokens) = event.pointer("/usage/completion_tokens").and_then(Value::as_u64) {
            self.tokens = tokens;
        }
        Ok(())
    }
}
