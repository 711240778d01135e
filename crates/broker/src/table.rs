//! The table that hubs of several hosts share, in a bucket whose rows go when nobody refreshes them.
//!
//! A hub refreshes its own rows; a row of a hub that is gone disappears by age. Leases are made by
//! `create`, which one hub wins. Writes happen on a thread, so that a broker that is away does not hold up
//! a hub.

use crate::bucket::Bucket;
use crate::client::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tapml_graph::Result;
use tapml_rpc::hub::Table;

/// How long a row stays that its hub does not refresh, and how often a hub does.
///
/// Three refreshes may fail before a row goes.
const LIFE: Duration = Duration::from_secs(15);

/// See [`LIFE`].
const REFRESH: Duration = Duration::from_secs(4);

// Longer than a refresh takes to come round.
/// How long nobody leases after a broker was away: it may have lost rows, which their hubs write again within this.
const SETTLE: Duration = Duration::from_secs(5);

/// One hub's view of the shared table.
pub struct HubTable {
    /// All hubs' rows.
    bucket: Arc<Bucket>,
    /// This hub's rows, shared with the thread.
    own: Arc<Own>,
}

#[derive(Default)]
struct Own {
    state: Mutex<HubState>,
    /// Wakes the thread when a row is due.
    changed: Condvar,
    over: AtomicBool,
}

/// What this hub has written.
#[derive(Default)]
struct HubState {
    /// Rows with the number of the last writing, if they are only this hub's as long as nobody else writes them.
    rows: BTreeMap<String, (Vec<u8>, Option<u64>)>,
    /// Rows to write or remove at once.
    due: BTreeSet<String>,
}

impl Own {
    fn state(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HubTable {
    /// Opens the table at a broker, see [`Client::connect`]; hubs that give the same name share one.
    pub fn connect(url: &str, name: &str) -> Result<HubTable> {
        crate::bucket::expect_key(name)?;
        let client = Arc::new(Client::connect(url)?);
        let bucket = Arc::new(Bucket::open(client, &format!("tapml_hub_{name}"), "", LIFE)?);
        let own = Arc::new(Own::default());
        let (of, to) = (own.clone(), bucket.clone());
        let keep = move || keep(&of, &to);
        std::thread::Builder::new()
            .name("table".into())
            .spawn(keep)
            .map_err(|e| crate::client::unavailable(&e))?;
        Ok(HubTable { bucket, own })
    }

    /// Changes this hub's rows and notes that one has to be written.
    fn due(&self, key: &str, change: impl FnOnce(&mut HubState)) {
        let mut state = self.own.state();
        change(&mut state);
        state.due.insert(key.into());
        self.own.changed.notify_all();
    }
}

impl Drop for HubTable {
    fn drop(&mut self) {
        self.own.over.store(true, Ordering::Release);
        self.own.changed.notify_all();
    }
}

impl Table for HubTable {
    fn version(&self) -> u64 {
        // Rows also go by time alone, of which nobody tells.
        let alive =
            self.bucket.with_rows(|rows| rows.values().filter(|row| row.seen.elapsed() < LIFE).count());
        // The number of living rows in the lower bits: it falls without a message.
        self.bucket.version() << 20 | alive as u64
    }

    fn rows(&self) -> Vec<(String, Vec<u8>)> {
        self.bucket.with_rows(|rows| {
            let alive = rows.iter().filter(|(_, row)| row.seen.elapsed() < LIFE);
            alive.map(|(key, row)| (key.clone(), row.value.clone())).collect()
        })
    }

    fn put(&self, key: &str, value: &[u8]) {
        self.due(key, |state| drop(state.rows.insert(key.into(), (value.to_vec(), None))));
    }

    fn create(&self, key: &str, value: &[u8]) -> Result<bool> {
        if let Some(trouble) = self.trouble() {
            return Err(crate::client::unavailable(&trouble));
        }
        let Some(seq) = self.bucket.create(key, value)? else { return Ok(false) };
        self.own.state().rows.insert(key.into(), (value.to_vec(), Some(seq)));
        Ok(true)
    }

    fn remove(&self, key: &str) {
        self.due(key, |state| drop(state.rows.remove(key)));
    }

    fn trouble(&self) -> Option<String> {
        match self.bucket.read() {
            (_, None) => Some("the hubs' broker is away".into()),
            // The first reading misses nothing: no broker was away before it.
            (1, _) => None,
            (_, Some(when)) if when.elapsed() > SETTLE => None,
            _ => Some("the hubs' broker has just come back".into()),
        }
    }
}

/// Writes what is due, and everything now and then, until the table is dropped.
fn keep(own: &Own, bucket: &Bucket) {
    let (mut refreshed, mut known) = (Instant::now(), bucket.read().0);
    while !own.over.load(Ordering::Acquire) {
        let mut state = own.state();
        if state.due.is_empty() {
            let waited = own.changed.wait_timeout(state, Duration::from_millis(200));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut due = std::mem::take(&mut state.due);
        // A broker that was away may have lost everything.
        let read = bucket.read().0;
        if refreshed.elapsed() > REFRESH || read != known {
            known = read;
            refreshed = Instant::now();
            due.extend(state.rows.keys().cloned());
        }
        drop(state);
        for key in due {
            if let Err(error) = write(own, bucket, &key) {
                log::debug!("row {key}: {error}");
                own.state().due.insert(key);
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
    let rows: Vec<String> = own.state().rows.keys().cloned().collect();
    // Without it they go a little later.
    rows.iter().for_each(|key| drop(bucket.remove(key)));
}

/// Writes one row as it is now, or removes it.
fn write(own: &Own, bucket: &Bucket, key: &str) -> Result<()> {
    let row = own.state().rows.get(key).cloned();
    match row {
        // An agent that has gone over to another hub is that hub's row.
        None if bucket.with_rows(|rows| rows.contains_key(key)) => bucket.remove(key),
        None => Ok(()),
        Some((value, None)) => bucket.put(key, &value).map(drop),
        Some((value, Some(seq))) => {
            let mut next = bucket.replace(key, seq, &value)?;
            if next.is_none() {
                // The row had gone, because the broker was away for long: nobody may have taken it since.
                next = bucket.create(key, &value)?;
            }
            let mut state = own.state();
            match (next, state.rows.get_mut(key)) {
                (Some(seq), Some(row)) => row.1 = Some(seq),
                (None, _) => {
                    log::warn!("row {key} is another hub's by now");
                    state.rows.remove(key);
                }
                // It was removed while it was written.
                (Some(_), None) => drop(state.due.insert(key.into())),
            }
            Ok(())
        }
    }
}
