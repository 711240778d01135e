//! Routes: which request goes where. Who asks for no WebSocket gets a page.

use super::config::Config;
use super::pages::{PAGES, Page, bytes};
use super::state::{HubState, lock};
use crate::net::upgrade::{OpenSocket, Upgrade, refuse};
use crate::wire::limits::{HUB_PROTOCOL, PROTOCOL};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::net::IpAddr;
use std::sync::Arc;
use tapml_graph::Result;

type Hub = State<Arc<HubState>>;

/// What a hub answers.
pub fn routes(hub: Arc<HubState>) -> Router {
    let mut routes = Router::new()
        .route("/", get(client))
        .route("/agent", get(agent))
        .route("/client", get(client))
        .route("/forward", get(forward))
        .route("/session/{id}", get(session));
    for page in PAGES.iter().filter(|(path, ..)| *path != "/") {
        routes = routes.route(page.0, get(async || answer(page)));
    }
    routes.fallback(async || answer_not_found()).with_state(hub)
}

/// A client that asks for a device or for the list of them; or a browser that asks for the page.
async fn client(State(hub): Hub, upgrade: Option<Upgrade>) -> Response {
    match upgrade {
        Some(upgrade) => open_client(hub, upgrade, false),
        None => match PAGES.iter().find(|(path, ..)| *path == "/") {
            Some(page) => answer(page),
            None => "a hub of TapML devices\n".into_response(),
        },
    }
}

/// A client that another hub has asked this one for.
async fn forward(State(hub): Hub, upgrade: Option<Upgrade>) -> Response {
    upgrade.map_or_else(answer_not_found, |upgrade| open_client(hub, upgrade, true))
}

fn open_client(hub: Arc<HubState>, upgrade: Upgrade, forwarded: bool) -> Response {
    hub.open(upgrade, PROTOCOL, move |hub, opened| hub.client(opened, forwarded))
}

/// An agent that dials in.
async fn agent(State(hub): Hub, upgrade: Option<Upgrade>) -> Response {
    let open = |upgrade| hub.open(upgrade, HUB_PROTOCOL, |hub, opened| hub.agent(opened));
    upgrade.map_or_else(answer_not_found, open)
}

/// An agent that has come for the session of this name.
async fn session(State(hub): Hub, Path(id): Path<String>, upgrade: Option<Upgrade>) -> Response {
    let Some(upgrade) = upgrade else { return answer_not_found() };
    if !hub.lets_connect(&upgrade) {
        return refuse_page();
    }
    // Taken out: the name of a session is good for one connection.
    let Some(pending) = lock(&hub.pending).remove(&id) else {
        return refuse(StatusCode::NOT_FOUND, "there is no such session");
    };
    hub.open(upgrade, PROTOCOL, move |hub, opened| hub.session(opened, pending))
}

fn answer_not_found() -> Response {
    refuse(StatusCode::NOT_FOUND, "there is nothing here")
}

fn refuse_page() -> Response {
    refuse(StatusCode::FORBIDDEN, "pages of this origin may not connect")
}

fn answer(page: &'static Page) -> Response {
    let kind = page.1;
    let kind = HeaderValue::from_str(&format!("{kind}; charset=utf-8"));
    let kind = kind.unwrap_or(HeaderValue::from_static("text/plain"));
    let headers = [
        (CONTENT_TYPE, kind),
        // A hub of another version serves other pages under the same names.
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, bytes(page)).into_response()
}

impl HubState {
    /// Opens a WebSocket, which a thread of its own serves.
    fn open(
        self: &Arc<HubState>,
        upgrade: Upgrade,
        protocol: &'static str,
        serve: impl FnOnce(&HubState, OpenSocket) -> Result<()> + Send + 'static,
    ) -> Response {
        if !self.lets_connect(&upgrade) {
            return refuse_page();
        }
        let hub = self.clone();
        upgrade.accept(protocol, move |opened| {
            let (from, link) = (opened.from, opened.socket.link().clone());
            if let Err(error) = serve(&hub, opened) {
                log::debug!("{from}: {error}");
            }
            // After an error too: the other side would wait for an answer.
            link.close();
        })
    }

    fn lets_connect(&self, upgrade: &Upgrade) -> bool {
        let origin = upgrade.origin.as_ref().map(|origin| origin.to_str().unwrap_or_default());
        let Config { origins, token, .. } = &self.config;
        may_connect(origin, &upgrade.host, origins, token.is_some())
    }
}

/// Whether a page of this origin may connect: none (no page), one that is allowed, or one that the hub itself has served.
/// Without a token, the hub's name must be one that no foreign name server can give to another site.
fn may_connect(origin: Option<&str>, host: &str, allowed: &[String], token: bool) -> bool {
    // Browsers send it always; other programs are let in by their token.
    let Some(origin) = origin else { return true };
    let own = origin.split_once("://").is_some_and(|(_, authority)| authority == host);
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    // An IPv6 address stands in brackets.
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let fixed = name == "localhost" || name.parse::<IpAddr>().is_ok();
    allowed.iter().any(|a| a == origin) || own && (token || fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_may_not_connect() {
        let may =
            |origin: &str, host: &str, token| may_connect(Some(origin), host, &["https://ok".into()], token);
        assert!(may_connect(None, "h:1", &[], false), "no page asks");
        assert!(may("https://ok", "h:1", false));
        assert!(may("http://127.0.0.1:7071", "127.0.0.1:7071", false));
        assert!(may("http://[::1]:7071", "[::1]:7071", false));
        assert!(may("http://localhost:7071", "localhost:7071", false));
        assert!(may("https://lab:7071", "lab:7071", true));
        assert!(!may("https://lab:7071", "lab:7071", false), "another name server could say so too");
        assert!(!may("http://evil", "127.0.0.1:7071", true));
        assert!(!may("", "", true));
    }
}
