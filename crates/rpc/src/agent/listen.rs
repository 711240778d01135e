//! The accepting side of agents and hubs: a thread for every connection, as far as the gate has places.

use super::gate::{Gate, Waiting};
use super::link::{Link, Reader};
use crate::wire::limits::HANDSHAKE;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A connection whose other side has shown nothing yet.
pub struct Arrived {
    pub link: Arc<Link>,
    pub reader: Reader,
    pub from: SocketAddr,
    pub place: Waiting,
}

/// Serves every connection on a thread of its own until stopped, and waits for those threads.
pub fn listen(
    listener: &TcpListener,
    gate: &Gate,
    tls: Option<&Arc<rustls::ServerConfig>>,
    stop: &AtomicBool,
    serve: &Arc<dyn Fn(Arrived) + Send + Sync>,
) {
    let mut threads = Vec::new();
    while !stop.load(Ordering::Acquire) {
        let (tcp, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                log::warn!("could not accept a connection: {error}");
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        if stop.load(Ordering::Acquire) {
            break;
        }
        let (link, reader) = match Link::open(tcp, tls, HANDSHAKE) {
            Ok(opened) => opened,
            Err(error) => {
                log::debug!("{from}: {error}");
                continue;
            }
        };
        let place = gate.knock(from.ip(), &link);
        let (serve, arrived) = (serve.clone(), Arrived { link, reader, from, place });
        match std::thread::Builder::new().name("connection".into()).spawn(move || serve(arrived)) {
            Ok(thread) => threads.push(thread),
            Err(error) => log::warn!("could not start a thread: {error}"),
        }
        threads.retain(|t| !t.is_finished());
    }
    threads.into_iter().for_each(|thread| drop(thread.join()));
}
