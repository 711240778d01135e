//! The beginning of a session: connecting to one of an address's places, the hello, and the welcome.

use super::address::Address;
use super::connect;
use super::connection::Connection;
use crate::net::Socket;
use crate::wire::limits::VERSION;
use crate::wire::{self, Reply, Request};
use std::net::{IpAddr, ToSocketAddrs};
use std::time::Duration;
use tapml_graph::{Error, ErrorKind, Result};

/// How long an agent may show no sign of life, unless the address says otherwise.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Connects, says hello, and is welcomed.
pub(super) fn open(address: &Address) -> Result<(Connection, wire::Welcome)> {
    let mut all = std::iter::once(address).chain(&address.also).peekable();
    while let Some(one) = all.next() {
        match connect::connect(one) {
            Err(error) if error.kind() == ErrorKind::Unavailable && all.peek().is_some() => {
                log::info!("{error}; trying the next hub");
            }
            connected => return greet(one, connected?),
        }
    }
    Err(Error::bug("an address names nothing to connect to"))
}

/// Says hello, and is welcomed.
fn greet(address: &Address, socket: Socket) -> Result<(Connection, wire::Welcome)> {
    let token = token(address)?;
    let within = match address.answer_within {
        0 => ANSWER_WITHIN,
        seconds => Duration::from_secs(seconds),
    };
    // Opening a device may take long, and no process can be asked meanwhile.
    let mut connection = Connection::new(socket, address.place(), within.max(3 * ANSWER_WITHIN));
    let hello = wire::Hello {
        version_min: VERSION,
        version_max: VERSION,
        client: concat!("tapml ", env!("CARGO_PKG_VERSION")).into(),
        token,
        target: address.target.clone(),
        deadline_ms: address.deadline.saturating_mul(1000).min(wire::limits::MAX_INTEGER),
        trace: address.trace,
        priority: address.priority,
        wait_ms: wait_ms(address),
    };
    let seq = connection.send(Request::Hello(hello), true)?;
    let Reply::Welcome(welcome) = connection.wait(seq)? else {
        return Err(Error::invalid("the agent answers a hello with something else than a welcome"));
    };
    if welcome.version != VERSION {
        let text = format!("the agent speaks version {}, this client {VERSION}", welcome.version);
        return Err(Error::unsupported(text));
    }
    connection.set_answer_within(within);
    connection.set_window(welcome.limits.as_ref().map_or(0, |l| l.window));
    Ok((connection, welcome))
}

/// The token for an agent: of the file, else of the variable. Never sent in plain text to another machine by accident.
pub(crate) fn token(address: &Address) -> Result<String> {
    let token = match &address.token_file {
        Some(file) => crate::secret::read(file)?,
        None => std::env::var("TAPML_TOKEN").unwrap_or_default(),
    };
    if token.is_empty() || address.tls || address.insecure || is_here(&address.host) {
        return Ok(token);
    }
    Err(Error::invalid(format!("the token would go to {} in plain text", address.place()))
        .with_hint("use wss://, or the option `insecure` on a network that you trust"))
}

fn is_here(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback(),
        Err(_) => (host, 0).to_socket_addrs().is_ok_and(|mut all| all.all(|a| a.ip().is_loopback())),
    }
}

/// How long a hello lets a hub look for a device.
pub(crate) fn wait_ms(address: &Address) -> u64 {
    address.wait.saturating_mul(1000).min(wire::limits::MAX_INTEGER)
}
