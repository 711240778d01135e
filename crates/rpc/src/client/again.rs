//! Opening a session again whose connection was lost: the machine of the client slept, or the agent or the way to it was away.

use super::address::Address;
use super::connection::Connection;
use super::hello;
use crate::wire;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// Most of a try that counts: in the rest this process did not run, or a hub let it wait in its queue.
const TRY: Duration = Duration::from_secs(15);

static REOPENED: AtomicU64 = AtomicU64::new(0);

/// How often this process has opened a session again after its connection was lost.
pub fn count_reopened() -> u64 {
    REOPENED.load(Ordering::Relaxed)
}

/// A session, where it can be opened again, and what the device must still be.
pub struct Origin {
    address: Address,
    agent: String,
    info: wire::DeviceInfo,
}

impl Origin {
    /// That of a session which was opened so.
    pub fn new(address: &Address, connection: &Connection, agent: String, info: wire::DeviceInfo) -> Origin {
        let address = match connection.place().strip_prefix("hub/") {
            Some(leased) => address.clone().for_device(leased),
            None => address.clone(),
        };
        Origin { address, agent, info }
    }

    /// A new session with the same device instead of one that was lost by `lost`, which is the error if the device has failed
    /// itself, is not back in time, or is another one now.
    pub fn open(&self, old: &Connection, lost: Error) -> Result<Connection> {
        let limit = Duration::from_secs(self.address.reconnect);
        if !old.is_cut() || limit.is_zero() {
            return Err(lost);
        }
        log::warn!("{lost}; connecting again for up to {} s (`reconnect=SECONDS`)", limit.as_secs());
        let (start, mut spent) = (Instant::now(), Duration::ZERO);
        let (mut connection, welcome) = loop {
            let begin = Instant::now();
            let error = match hello::open(&self.address) {
                Ok(opened) => break opened,
                Err(error) => error,
            };
            spent += begin.elapsed().min(TRY) + PAUSE;
            let away = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Io | ErrorKind::DeviceLost);
            if !away || spent > limit || old.stop_flag().load(Ordering::Acquire) {
                let text = format!("in vain, for {} s: {error}", start.elapsed().as_secs());
                return Err(lost.with_detail("connecting again", text));
            }
            std::thread::sleep(PAUSE);
        };
        let found = welcome.device.unwrap_or_default();
        if found != self.info || welcome.agent != self.agent {
            let tell =
                |info: &wire::DeviceInfo, agent: &str| format!("{}, {}, {agent}", info.name, info.driver);
            let (was, is) = (tell(&self.info, &self.agent), tell(&found, &welcome.agent));
            let text = format!("in vain: another device, driver or agent is there: was {was}; is {is}");
            return Err(lost.with_detail("connecting again", text));
        }
        connection.set_stop_flag(old.stop_flag());
        REOPENED.fetch_add(1, Ordering::Relaxed);
        let (place, time) = (connection.place(), start.elapsed().as_secs_f64());
        log::warn!("{place}: connected again after {time:.1} s; what was on the device is brought back");
        Ok(connection)
    }
}
