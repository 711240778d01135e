//! Routes: which request goes where.

use super::http::Head;

/// What a request is for.
#[derive(Debug, PartialEq, Eq)]
pub enum Route {
    /// A page for a browser, by its path.
    Page(String),
    /// An agent that dials in.
    Agent,
    /// A client that asks for a device or for the list of them; `forwarded` if another hub asks for it.
    Client {
        /// See above.
        forwarded: bool,
    },
    /// An agent that has come for the session of this name.
    Session(String),
    /// Nothing that there is.
    Nothing,
}

impl Route {
    /// Where a request goes: who asks for no WebSocket gets a page.
    pub fn from_head(head: &Head) -> Route {
        if !head.is_upgrade() {
            return Route::Page(head.path.clone());
        }
        match head.path.as_str() {
            "/agent" => Route::Agent,
            "/" | "/client" => Route::Client { forwarded: false },
            "/forward" => Route::Client { forwarded: true },
            path => match path.strip_prefix("/session/") {
                Some(id) => Route::Session(id.into()),
                None => Route::Nothing,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(path: &str, websocket: bool) -> Route {
        let upgrade = if websocket { "Upgrade: websocket\r\nSec-WebSocket-Key: abc\r\n" } else { "" };
        let text = format!("GET {path} HTTP/1.1\r\n{upgrade}\r\n");
        Route::from_head(&Head::read(&mut text.as_bytes()).unwrap())
    }

    #[test]
    fn a_path_tells_who_asks_and_without_a_websocket_it_is_a_pages() {
        assert_eq!(route("/", true), Route::Client { forwarded: false });
        assert_eq!(route("/client?x=1", true), Route::Client { forwarded: false });
        assert_eq!(route("/forward", true), Route::Client { forwarded: true });
        assert_eq!(route("/agent", true), Route::Agent);
        assert_eq!(route("/session/7f", true), Route::Session("7f".into()));
        for path in ["/agents", "/session", "//agent"] {
            assert_eq!(route(path, true), Route::Nothing, "{path}");
        }
        for path in ["/", "/agent", "/session/7f"] {
            assert_eq!(route(path, false), Route::Page(path.into()));
        }
    }
}
