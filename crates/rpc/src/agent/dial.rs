//! An agent that dials a hub, because nobody can dial it: registers, opens sessions when told to, and dials again when the
//! connection breaks.

use super::accept::Door;
use crate::client::Address;
use crate::client::connect::dial_hub;
use crate::net::{Link, Socket, is_timeout};
use crate::wire::limits::{HEARTBEAT, HUB_PROTOCOL, IDLE_TIMEOUT, MAX_LABEL, PROTOCOL, VERSION};
use crate::wire::{self, AgentToHub, AgentWord, HubWord, Register, convert};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result};
use tungstenite::Message;

/// How long to wait before the first new attempt, and at most.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// How often an agent looks around while its hub is silent.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A hub to dial.
#[derive(Clone, Debug)]
pub struct Hub {
    /// Where it is; the name and options of a device are not used.
    pub address: Address,
    /// The name to be known by; empty lets the hub choose.
    pub name: String,
}

/// This machine's name, as far as it is one that a hub takes; else empty.
pub fn default_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("COMPUTERNAME").or_else(|_| std::env::var("HOSTNAME")).ok());
    let name = name.unwrap_or_default();
    name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).take(64).collect()
}

/// Serves a hub until the agent is stopped. Sessions end with it.
pub fn stay(door: &Arc<Door>, hub: &Hub) {
    let instance = format!("{:016x}", seed());
    let mut pause = BACK_OFF.0;
    let mut all = std::iter::once(&hub.address).chain(&hub.address.also).cycle();
    while !door.stop.load(Ordering::Acquire) {
        let begun = Instant::now();
        // One after the other: a hub of the same group takes the place of one that has gone.
        let address = all.next().unwrap_or(&hub.address);
        let hub = &Hub { address: address.clone(), name: hub.name.clone() };
        let left = visit(door, hub, &instance);
        if begun.elapsed() > IDLE_TIMEOUT {
            pause = BACK_OFF.0;
        }
        if let Err(error) = left {
            log::warn!("hub at {}: {error}; dialling again", hub.address.place());
        }
        // Not all agents of a hub that was restarted shall come at the same moment.
        let until = Instant::now() + pause.mul_f64(0.5 + (seed() % 1000) as f64 / 2000.0);
        while Instant::now() < until && !door.stop.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(20));
        }
        pause = (pause * 2).min(BACK_OFF.1);
    }
}

fn seed() -> u64 {
    // Without random numbers, agents only come at the same moment, or share an instance with nobody.
    getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()))
}

/// Registers and does what the hub says, until the connection ends.
fn visit(door: &Arc<Door>, hub: &Hub, instance: &str) -> Result<()> {
    let devices = door.devices()?.into_iter().map(|mut offer| {
        offer.reason = offer.reason.replace(char::is_control, " ");
        let end = (0..=MAX_LABEL.min(offer.reason.len())).rev().find(|&at| offer.reason.is_char_boundary(at));
        offer.reason.truncate(end.unwrap_or(0));
        offer
    });
    let register = Register {
        version_min: VERSION,
        version_max: VERSION,
        name: hub.name.clone(),
        token: crate::client::token(&hub.address)?,
        agent: concat!("tapml ", env!("CARGO_PKG_VERSION")).into(),
        instance: instance.into(),
        devices: devices.collect(),
        capabilities: Vec::new(),
        sessions: door.config.sessions.try_into().unwrap_or(u32::MAX),
    };
    let mut socket = dial_hub(&hub.address, "agent", HUB_PROTOCOL)?;
    let link = socket.link().clone();
    say(&link, AgentWord::Register(register))?;
    let mut sessions = Vec::new();
    let how = attend(door, hub, &link, &mut socket, &mut sessions);
    // Sessions have connections of their own and go on; they end with the agent.
    if door.stop.load(Ordering::Acquire) {
        sessions.into_iter().for_each(|thread: std::thread::JoinHandle<()>| drop(thread.join()));
    }
    link.finish();
    link.close();
    how
}

fn attend(
    door: &Arc<Door>,
    hub: &Hub,
    link: &Link,
    socket: &mut Socket,
    sessions: &mut Vec<std::thread::JoinHandle<()>>,
) -> Result<()> {
    let (mut heard, mut pinged) = (Instant::now(), Instant::now());
    while !door.stop.load(Ordering::Acquire) {
        match socket.read() {
            Ok(Message::Binary(bytes)) => {
                heard = Instant::now();
                match wire::decode_hub_word(bytes)? {
                    HubWord::Registered(known) => {
                        socket.let_in(POLL_INTERVAL);
                        log::info!("known at the hub as `{}`", known.name.escape_debug());
                    }
                    HubWord::Open(open) => sessions.extend(begin(door, hub, link, open)?),
                    HubWord::Failed(failed) => return Err(convert::error_from_wire(failed)),
                    HubWord::Close(_) | HubWord::Heartbeat(_) => {}
                }
                sessions.retain(|thread| !thread.is_finished());
            }
            Ok(Message::Close(_)) => return Err(gone_error(&"it closed the connection")),
            Ok(_) => heard = Instant::now(),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(gone_error(&error)),
        }
        if heard.elapsed() > IDLE_TIMEOUT {
            return Err(gone_error(&format!("silent for {} s", IDLE_TIMEOUT.as_secs())));
        }
        if pinged.elapsed() > HEARTBEAT {
            pinged = Instant::now();
            link.ping().map_err(|e| gone_error(&e))?;
        }
    }
    Ok(())
}

/// Starts a session that the hub asks for, on a thread of its own.
fn begin(
    door: &Arc<Door>,
    hub: &Hub,
    link: &Link,
    open: wire::Open,
) -> Result<Option<std::thread::JoinHandle<()>>> {
    let refuse = |reason: String, busy: bool| {
        let session = open.session.clone();
        say(link, AgentWord::Refused(wire::Refused { session, reason, busy })).map(|()| None)
    };
    if open.session.is_empty() || !open.session.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return refuse("that is no name of a session".into(), false);
    }
    let place = match door.gate.admit() {
        Ok(place) => place,
        Err(error) => return refuse(error.to_string(), true),
    };
    let (door, address, path) = (door.clone(), hub.address.clone(), format!("session/{}", open.session));
    let serve = move || match dial_hub(&address, &path, PROTOCOL) {
        Ok(socket) => door.serve_dialled(socket, place),
        // The hub gives up waiting for it.
        Err(error) => log::warn!("a session that the hub asked for: {error}"),
    };
    match std::thread::Builder::new().name("session".into()).spawn(serve) {
        Ok(thread) => Ok(Some(thread)),
        Err(error) => refuse(format!("could not start a thread: {error}"), true),
    }
}

fn say(link: &Link, word: AgentWord) -> Result<()> {
    link.send(wire::encode(&AgentToHub { word: Some(word) })).map_err(|e| gone_error(&e))
}

fn gone_error(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, format!("the hub is gone: {error}"))
}
