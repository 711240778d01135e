//! A client: a remote device is a [`tapml_device::Device`].

mod address;
mod blobs;
pub(crate) mod connect;
mod connection;
mod described;
mod device;
mod post_mortem;
mod program;

pub use address::{Address, OPTIONS};
pub use device::{RemoteDevice, Stopper};
pub use program::RemoteProgram;

use crate::offer::Offered;
use crate::wire::limits::VERSION;
use crate::wire::{self, Reply, Request, convert};
use connection::Connection;
use std::net::{IpAddr, ToSocketAddrs};
use std::time::Duration;
use tapml_graph::{Context, Error, ErrorKind, Result};

/// How long an agent may show no sign of life, unless the address says otherwise.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The devices that an agent offers; the address names none.
pub fn devices(address: &Address) -> Result<Vec<Offered>> {
    Ok(offers(address)?.into_iter().map(offered).collect())
}

/// A device, or why it cannot be used.
pub fn offered(offer: wire::Offer) -> Offered {
    let info = match offer.info {
        Some(info) => convert::info_from_wire(&info),
        None => Err(Error::new(ErrorKind::Unavailable, offer.reason)),
    };
    (offer.name, info)
}

/// The same as the agent or hub tells it; a hub adds who serves each device and how busy it is.
pub fn offers(address: &Address) -> Result<Vec<wire::Offer>> {
    let address = Address { target: String::new(), ..address.clone() };
    let what = if address.hub { "hub" } else { "agent" };
    let (_, welcome) = open(&address).context(|| format!("{what} at {}", address.place()))?;
    Ok(welcome.devices)
}

/// Connects, says hello, and is welcomed.
fn open(address: &Address) -> Result<(Connection, wire::Welcome)> {
    let token = token(address)?;
    let within = match address.answer_within {
        0 => ANSWER_WITHIN,
        seconds => Duration::from_secs(seconds),
    };
    // Opening a device may take long, and no process can be asked meanwhile.
    let mut connection =
        Connection::new(connect::connect(address)?, address.place(), within.max(3 * ANSWER_WITHIN));
    let hello = wire::Hello {
        version_min: VERSION,
        version_max: VERSION,
        client: concat!("tapml ", env!("CARGO_PKG_VERSION")).into(),
        token,
        target: address.target.clone(),
        deadline_ms: address.deadline.saturating_mul(1000).min(wire::limits::MAX_INTEGER),
        trace: address.trace,
        priority: address.priority,
        wait_ms: address.wait.saturating_mul(1000).min(wire::limits::MAX_INTEGER),
    };
    let seq = connection.send(Request::Hello(hello), true, || "hello".into())?;
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
        Some(file) => {
            std::fs::read_to_string(file).map_err(|e| Error::io("read", file, &e))?.trim().to_string()
        }
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
