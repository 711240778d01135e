//! The work of a fleet at a broker, shared by all processes that run the same fleet: whoever is killed, the others, or the
//! same command once more, go on.
//!
//! The queue is a work queue of JetStream, the results are a key-value bucket; `tapml_broker` wraps both.
//! Keys are hashed or escaped by `key`, because lanes hold signs that subjects must not.

use super::identity::{Identity, other_run_error};
use super::queue::{FleetQueue, Item, Task};
use super::record::{Record, Records, encode};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tapml_broker::{Bucket, Client, Queue, key};
use tapml_graph::{Error, ErrorKind, Result};

// Three times the interval at which workers say that they are alive.
/// An item that was taken comes to somebody else after this time without a word about it.
const WAIT: Duration = Duration::from_secs(12);

/// How long results are kept.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// A queue and results at a broker.
pub struct BrokerQueue {
    /// Items of this run.
    queue: Queue,
    /// Records by `RUN.LANE.CASE`, and the identity.
    results: Bucket,
    /// Its name.
    run: String,
}

/// An item on its way, with the devices that were lost over it.
#[derive(Serialize, Deserialize)]
struct Sent {
    item: Item,
    lost: u32,
}

impl BrokerQueue {
    /// The run of this name at a broker, such as `nats://host:4222`. Fails if the name stands for another check.
    pub fn connect(url: &str, run: &str, identity: &Identity) -> Result<BrokerQueue> {
        let client = Arc::new(Client::connect(url)?);
        let queue = Queue::open(client.clone(), run, WAIT)?;
        let results = Bucket::open(client, "tapml_results", &format!("{run}."), KEPT)?;
        claim(&results, run, identity)?;
        Ok(BrokerQueue { queue, results, run: run.into() })
    }

    /// Puts one item.
    fn send(&self, item: Item, lost: u32) -> Result<()> {
        let lane = key(&item.lane);
        let sent =
            serde_json::to_vec(&Sent { item, lost }).map_err(|e| Error::bug(format!("an item: {e}")))?;
        self.queue.put(&lane, &sent)
    }
}

/// Makes the name stand for this check, unless it stands for another.
fn claim(results: &Bucket, run: &str, identity: &Identity) -> Result<()> {
    let row = format!("{run}.identity");
    let known = || results.with_rows(|rows| rows.get(&row).map(|row| row.value.clone()));
    if known().is_none() && results.with_rows(|rows| !rows.is_empty()) {
        return Err(other_run_error(&format!("the run `{run}` has results, but nothing says what of")));
    }
    let bytes = serde_json::to_vec(identity).map_err(|e| Error::bug(format!("an identity: {e}")))?;
    if results.create(&row, &bytes)?.is_some() {
        return Ok(());
    }
    // Another process may have written it just now: it is on its way.
    let until = Instant::now() + WAIT;
    loop {
        match known() {
            Some(bytes) => {
                // Another release's identity has other fields, which differ.
                let found = serde_json::from_slice(&bytes).unwrap_or_default();
                return identity.expect(&found, run);
            }
            None if Instant::now() > until => {
                return Err(Error::new(ErrorKind::Unavailable, format!("the run `{run}` cannot be read")));
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

impl FleetQueue for BrokerQueue {
    fn put(&self, items: Vec<Item>) -> Result<()> {
        items.into_iter().try_for_each(|item| self.send(item, 0))
    }

    fn take(&self, lane: &str) -> Result<Option<Task>> {
        let Some(delivery) = self.queue.take(&key(lane))? else { return Ok(None) };
        match serde_json::from_slice::<Sent>(&delivery.payload) {
            Ok(Sent { item, lost }) => Ok(Some(Task { item, lost, token: delivery.token })),
            Err(error) => {
                // Another release's: it would come for ever.
                log::warn!("an item of the queue cannot be read: {error}");
                self.queue.finish(&delivery.token)?;
                Ok(None)
            }
        }
    }

    fn renew(&self, task: &Task) -> Result<()> {
        self.queue.renew(&task.token)
    }

    fn finish(&self, task: Task, records: Vec<Record>) -> Result<()> {
        for record in records {
            let at = format!("{}.{}.{}", self.run, key(&record.lane), key(&record.case));
            // If somebody had the case as well, the first record stays.
            self.results.create(&at, &encode(&record)?)?;
        }
        self.queue.finish(&task.token)
    }

    fn give_back(&self, task: Task, pieces: Vec<Item>) -> Result<()> {
        // Pieces first, then the item is forgotten: a crash between the two costs a repetition, not a loss.
        pieces.into_iter().try_for_each(|item| self.send(item, task.lost + 1))?;
        self.queue.finish(&task.token)
    }

    fn records(&self) -> Result<Records> {
        let read = |bytes: &[u8]| serde_json::from_slice::<Record>(bytes).ok();
        let all = self
            .results
            .with_rows(|rows| rows.values().filter_map(|row| read(&row.value)).collect::<Vec<_>>());
        Ok(all.into_iter().map(|record| ((record.lane.clone(), record.case.clone()), record)).collect())
    }

    fn count(&self, lane: &str) -> Result<usize> {
        let of = format!("{}.{}.", self.run, key(lane));
        Ok(self.results.with_rows(|rows| rows.keys().filter(|key| key.starts_with(&of)).count()))
    }

    fn busy(&self, lane: &str) -> Result<bool> {
        self.queue.busy(&key(lane))
    }
}
