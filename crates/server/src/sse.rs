//! Answers that come piece by piece, as server-sent events.
//!
//! What a client has not taken yet waits in a queue, so that a slow client keeps nobody else waiting. An answer has a largest
//! number of tokens, which bounds the queue.

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value;
use std::convert::Infallible;
use tokio::sync::mpsc::{self, UnboundedSender};

/// Events on their way to a client. Whoever makes them sees by [`EventSender::wait_closed`] that the client is gone.
#[derive(Clone, Debug)]
pub struct EventSender(UnboundedSender<Bytes>);

impl EventSender {
    /// Sends an event. One that nobody takes any more is lost.
    pub fn send(&self, event: &Value) {
        self.send_text(&event.to_string());
    }

    /// Sends an event under a name, which its field `type` has too.
    pub fn send_named(&self, name: &str, mut event: Value) {
        event["type"] = name.into();
        let _ = self.0.send(Bytes::from(format!("event: {name}\ndata: {event}\n\n")));
    }

    /// The mark behind the last event.
    pub fn end(&self) {
        self.send_text("[DONE]");
    }

    fn send_text(&self, text: &str) {
        let _ = self.0.send(Bytes::from(format!("data: {text}\n\n")));
    }

    /// Returns when the client is gone.
    pub async fn wait_closed(&self) {
        self.0.closed().await;
    }
}

/// A response of events, and what sends them. It ends when the sender is dropped.
pub fn event_stream() -> (EventSender, Response) {
    let (send, mut events) = mpsc::unbounded_channel();
    let events =
        stream::poll_fn(move |context| events.poll_recv(context).map(|event| event.map(Ok::<_, Infallible>)));
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        // Proxies that gather answers pass these on at once.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (EventSender(send), (headers, Body::from_stream(events)).into_response())
}
