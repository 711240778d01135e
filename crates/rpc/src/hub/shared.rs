//! What the hubs of several hosts share: agents, leases and queues as rows of a table that every hub sees. An agent's hub
//! writes its row; a lease is the row that exactly one hub could create; who waits is known to all, so that the queue is one.

use super::device_request::Place;
use super::registry::Destination;
use super::rows::{AgentRow, LeaseRow, Rows, WaitRow};
use crate::wire::Register;
use prost::Message as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tapml_graph::Result;

/// Rows that the hubs of several hosts share. What a hub writes stays as long as the hub is there, and goes soon after.
pub trait Table: Send + Sync {
    /// Changes whenever a row does.
    fn version(&self) -> u64;
    /// All rows: keys and values.
    fn rows(&self) -> Vec<(String, Vec<u8>)>;
    /// Writes a row.
    fn put(&self, key: &str, value: &[u8]);
    /// Writes a row if there is none. False if there is one.
    fn create(&self, key: &str, value: &[u8]) -> Result<bool>;
    /// Removes a row that this hub has written.
    fn remove(&self, key: &str);
    /// Why rows can neither be read nor written now, in words for clients; `None` if they can.
    fn trouble(&self) -> Option<String>;
}

/// One hub's side of the table.
pub struct Shared {
    /// The table.
    pub table: Arc<dyn Table>,
    /// This hub.
    pub id: String,
    /// Where other hubs reach it.
    pub url: String,
    /// The version that was read last.
    pub seen: AtomicU64,
}

impl Shared {
    /// The rows of other hubs, if any row has changed. What cannot be read is passed over: it is another release's.
    pub fn changed_rows(&self) -> Option<Rows> {
        let version = self.table.version();
        if self.seen.swap(version, Ordering::AcqRel) == version {
            return None;
        }
        let mut rows = Rows::default();
        for (key, value) in self.table.rows() {
            let value = value.as_slice();
            match key.split('.').next() {
                Some("a") => {
                    rows.agents.extend(AgentRow::decode(value).ok().filter(|row| row.hub != self.id))
                }
                Some("l") => {
                    rows.leases.extend(LeaseRow::decode(value).ok().filter(|row| row.hub != self.id))
                }
                Some("w") => {
                    rows.waiting.extend(WaitRow::decode(value).ok().filter(|row| row.hub != self.id))
                }
                _ => {}
            }
        }
        Some(rows)
    }

    /// Tells of an agent that is here.
    pub fn put_agent(&self, register: Register) {
        let key = agent_key(&register.name);
        let row = AgentRow { hub: self.id.clone(), url: self.url.clone(), register: Some(register) };
        self.table.put(&key, &row.encode_to_vec());
    }

    /// An agent is not here any more, unless another hub has it by now.
    pub fn remove_agent(&self, name: &str) {
        self.table.remove(&agent_key(name));
    }

    /// Tells of a client that waits.
    pub fn put_waiter(&self, waiter: u64, target: &str, priority: i32, since: u64) {
        let row = WaitRow { hub: self.id.clone(), waiter, target: target.into(), priority, since };
        self.table.put(&self.wait_key(waiter), &row.encode_to_vec());
    }

    /// A client waits no more.
    pub fn remove_waiter(&self, waiter: u64) {
        self.table.remove(&self.wait_key(waiter));
    }

    fn wait_key(&self, waiter: u64) -> String {
        format!("w.{}.{waiter}", self.id)
    }

    /// The key of a lease, if no other hub was faster.
    pub fn claim(&self, target: &Destination, waiter: u64) -> Result<Option<String>> {
        let Place { agent, device } = target.place.clone();
        let row = LeaseRow { hub: self.id.clone(), waiter, agent, device }.encode_to_vec();
        let taken: Vec<String> = self.table.rows().into_iter().map(|(key, _)| key).collect();
        for slot in 0..target.sessions {
            let key = format!("l.{}.{slot}", hash(&target.place.to_string()));
            if !taken.contains(&key) && self.table.create(&key, &row)? {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }
}

fn agent_key(name: &str) -> String {
    format!("a.{}", hash(name))
}

fn hash(name: &str) -> String {
    blake3::hash(name.as_bytes()).to_hex()[..32].to_string()
}
