//! A client: a remote device is a [`tapml_device::Device`], or a [`tapml_exec::NodeServer`] if it runs operators itself.

mod address;
mod again;
mod blobs;
pub(crate) mod connect;
mod connection;
mod described;
mod device;
pub mod node_cases;
mod nodes;
mod post_mortem;
mod program;
mod regions;

pub use address::{Address, OPTIONS};
pub use again::count_reopened;
pub use device::{RemoteDevice, Stopper, own_name};
pub use nodes::RemoteOperators;
pub use program::RemoteProgram;

use crate::net::Socket;
use crate::offer::Offered;
use crate::wire::limits::VERSION;
use crate::wire::{self, Reply, Request, convert};
use again::Origin;
use connection::Connection;
use std::net::{IpAddr, ToSocketAddrs};
use std::time::Duration;
use tapml_exec::{PlatformInfo, ServedOp};
use tapml_graph::{Context, Error, ErrorKind, Result};

/// How long an agent may show no sign of life, unless the address says otherwise.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The devices that an agent offers; the address names none.
pub fn devices(address: &Address) -> Result<Vec<Offered>> {
    Ok(offers(address)?.into_iter().map(read_offer).collect())
}

/// A device that runs kernels, or why it cannot be used.
pub fn read_offer(offer: wire::Offer) -> Offered {
    let info = match offer.info {
        Some(info) if info.ops.is_empty() => convert::info_from_wire(&info),
        Some(_) => Err(Error::unsupported("runs operators, no kernels")),
        None => Err(Error::new(ErrorKind::Unavailable, offer.reason)),
    };
    (offer.name, info)
}

/// The same as the agent or hub tells it; a hub adds who serves each device and how busy it is.
pub fn offers(address: &Address) -> Result<Vec<wire::Offer>> {
    let address = address.clone().for_list();
    let what = if address.hub { "hub" } else { "agent" };
    let (_, welcome) = open(&address).context(|| format!("{what} at {}", address.place()))?;
    Ok(welcome.devices)
}

/// A device elsewhere, of whichever sort.
pub enum Remote {
    /// Runs kernels.
    Device(Box<RemoteDevice>),
    /// Runs operators.
    Operators(Box<RemoteOperators>),
}

impl Remote {
    /// Connects to an agent and opens the device that the address names.
    pub fn open(address: &Address) -> Result<Remote> {
        let place = address.place();
        if address.target.is_empty() {
            return Err(Error::invalid(format!("`{place}` names no device of the agent"))
                .with_hint(format!("`tapml device list ws://{place}` shows what there is")));
        }
        let at = || format!("{} at {place}", if address.hub { "hub" } else { "agent" });
        let (connection, welcome) = open(address).context(at)?;
        let info = welcome
            .device
            .ok_or_else(|| Error::invalid("the agent's welcome describes no device"))
            .context(at)?;
        let origin = Origin::new(address, &connection, welcome.agent, info.clone());
        Ok(if info.ops.is_empty() {
            let device = RemoteDevice::new(connection, origin, &info, &welcome.capabilities)?;
            Remote::Device(Box::new(device))
        } else {
            let operators = RemoteOperators::new(connection, origin, &info).context(at)?;
            Remote::Operators(Box::new(operators))
        })
    }
}

/// A device that runs operators, as an agent offers it.
#[derive(Clone, Debug)]
pub struct OperatorDevice {
    /// The name to ask for.
    pub name: String,
    /// Identity.
    pub info: PlatformInfo,
    /// The operators that it runs.
    pub ops: Vec<ServedOp>,
}

/// A device that runs operators; `None` if the offer is of another sort.
pub fn operators(offer: &wire::Offer) -> Option<Result<OperatorDevice>> {
    let info = offer.info.as_ref().filter(|info| !info.ops.is_empty())?;
    let device = |(info, ops)| OperatorDevice { name: offer.name.clone(), info, ops };
    Some(nodes::read_announcement(info).map(device))
}

/// Connects, says hello, and is welcomed.
fn open(address: &Address) -> Result<(Connection, wire::Welcome)> {
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
