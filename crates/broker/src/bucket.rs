//! A key-value bucket of JetStream, mirrored here: reading costs nothing, writing is one round trip.
//!
//! Buckets are those of NATS' key-value stores: a stream `KV_NAME` with subjects `$KV.NAME.KEY`, the last
//! message of a subject is its value. A thread per bucket keeps the mirror; it reads everything anew after
//! each break, so that no change is missed for good.

use crate::client::{Client, unavailable};
use async_nats::Message;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tapml_graph::{Error, Result};

// `err_code`s of JetStream's server.
/// A stream of this name exists with other settings.
const EXISTS: u64 = 10_058;

/// The last message of a subject is not the one that was expected.
const CHANGED: u64 = 10_071;

// Three heartbeats missed in a row are silence.
/// How often a mirror hears something at least, and after what silence it begins anew.
const HEARTBEAT: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(10));

/// What the server tells a window of duplicates may be at most.
///
/// The server refuses a window longer than the rows' own life.
const DUPLICATES: Duration = Duration::from_secs(120);

/// A row.
#[derive(Clone, Debug)]
pub struct BucketEntry {
    /// Its value.
    pub value: Vec<u8>,
    /// Its number in the bucket.
    pub seq: u64,
    /// When it was last heard of here.
    pub seen: Instant,
}

/// See the module.
pub struct Bucket {
    /// Shared with others of the same broker.
    client: Arc<Client>,
    name: String,
    /// Filled by the watching thread.
    copy: Arc<BucketCopy>,
}

struct BucketCopy {
    /// By key, without the subject's head.
    rows: Mutex<BTreeMap<String, BucketEntry>>,
    /// Rises with every change, so that readers can tell whether to look again.
    version: AtomicU64,
    /// Set when the bucket is dropped; the thread ends within its next wait.
    over: AtomicBool,
    /// How often the whole bucket was read, and when last; none while it cannot be read.
    read: Mutex<(u64, Option<Instant>)>,
}

/// What is made and followed.
struct WatchedBucket {
    client: Arc<Client>,
    name: String,
    prefix: String,
    max_age: Duration,
}

/// A panic elsewhere leaves the data as it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bucket {
    /// Opens a bucket, which is made if there is none, and mirrors the keys that begin with `prefix` (empty: all; else it
    /// ends with a dot). Rows that nobody writes again for `max_age` go.
    ///
    /// # Errors
    /// If the bucket cannot be made, or is not read within ten seconds.
    pub fn open(client: Arc<Client>, name: &str, prefix: &str, max_age: Duration) -> Result<Bucket> {
        let of = WatchedBucket { client: client.clone(), name: name.into(), prefix: prefix.into(), max_age };
        of.make()?;
        let mirror = Arc::new(BucketCopy {
            rows: Mutex::default(),
            version: AtomicU64::new(1),
            over: AtomicBool::new(false),
            read: Mutex::default(),
        });
        let own = mirror.clone();
        let (tell, ready) = mpsc::channel();
        let run = move || watch(&of, &own, &tell);
        std::thread::Builder::new().name("bucket".into()).spawn(run).map_err(|e| unavailable(&e))?;
        ready
            .recv_timeout(HEARTBEAT.1)
            .map_err(|_| unavailable(&format!("the bucket {name} cannot be read")))?;
        Ok(Bucket { client, name: name.into(), copy: mirror })
    }

    /// Changes whenever a row does.
    pub fn version(&self) -> u64 {
        self.copy.version.load(Ordering::Acquire)
    }

    /// How often the whole bucket was read, and when last; none while the broker is away. What others have written before a broker
    /// went away may be missing from it until they have written it again.
    pub fn read(&self) -> (u64, Option<Instant>) {
        let (count, when) = *lock(&self.copy.read);
        (count, when.filter(|_| self.client.is_connected()))
    }

    /// Looks at all rows.
    pub fn with_rows<T>(&self, look: impl FnOnce(&BTreeMap<String, BucketEntry>) -> T) -> T {
        look(&lock(&self.copy.rows))
    }

    /// Writes a row; its number.
    pub fn put(&self, key: &str, value: &[u8]) -> Result<u64> {
        self.write(key, &[], value)?.map_err(|code| unavailable(&format!("error {code}")))
    }

    /// Writes a row if it is still the one of this number (0: there is none); its new number, or `None`.
    pub fn replace(&self, key: &str, seq: u64, value: &[u8]) -> Result<Option<u64>> {
        let expected = [("Nats-Expected-Last-Subject-Sequence", seq.to_string())];
        match self.write(key, &expected, value)? {
            Ok(seq) => Ok(Some(seq)),
            Err(CHANGED) => Ok(None),
            Err(code) => Err(unavailable(&format!("error {code}"))),
        }
    }

    /// Writes a row if there is none; its number, or `None`.
    ///
    /// Two round trips if the key was removed before.
    pub fn create(&self, key: &str, value: &[u8]) -> Result<Option<u64>> {
        if let Some(seq) = self.replace(key, 0, value)? {
            return Ok(Some(seq));
        }
        // A row that was removed has left a mark of its own number.
        let last = json!({ "last_by_subj": format!("$KV.{}.{key}", self.name) });
        let seq = match self.client.api(&format!("STREAM.MSG.GET.KV_{}", self.name), &last)? {
            Err(_) => 0,
            // A mark is empty, a row never is.
            Ok(found) if found["message"]["data"].is_null() => found["message"]["seq"].as_u64().unwrap_or(0),
            Ok(_) => return Ok(None),
        };
        self.replace(key, seq, value)
    }

    /// Removes a row.
    pub fn remove(&self, key: &str) -> Result<()> {
        let mark = [("KV-Operation", "DEL".to_string())];
        self.write(key, &mark, &[])?.map(drop).map_err(|code| unavailable(&format!("error {code}")))
    }

    /// One message to the key's subject.
    fn write(
        &self,
        key: &str,
        headers: &[(&'static str, String)],
        value: &[u8],
    ) -> Result<std::result::Result<u64, u64>> {
        self.client.keep(&format!("$KV.{}.{key}", self.name), headers, value)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.copy.over.store(true, Ordering::Release);
    }
}

impl WatchedBucket {
    /// Makes the bucket if there is none.
    fn make(&self) -> Result<()> {
        let WatchedBucket { client, name, max_age, .. } = self;
        let config = json!({
            "name": format!("KV_{name}"), "subjects": [format!("$KV.{name}.>")], "retention": "limits",
            // Only the last value of a key is kept.
            "max_msgs_per_subject": 1, "max_msgs": -1, "max_bytes": -1, "max_msg_size": -1, "max_consumers": -1,
            "max_age": max_age.as_nanos() as u64, "duplicate_window": max_age.min(&DUPLICATES).as_nanos() as u64,
            "storage": "file", "discard": "new", "num_replicas": 1, "allow_rollup_hdrs": true, "deny_delete": true,
        });
        match client.api(&format!("STREAM.CREATE.KV_{name}"), &config)? {
            Ok(_) | Err(EXISTS) => Ok(()),
            Err(code) => Err(unavailable(&format!("the bucket {name} cannot be made: error {code}"))),
        }
    }
}

/// Keeps the mirror true until the bucket is dropped. A broker that has lost its store gets the bucket again.
fn watch(of: &WatchedBucket, mirror: &BucketCopy, ready: &mpsc::Sender<()>) {
    while !mirror.over.load(Ordering::Acquire) {
        let WatchedBucket { client, name, prefix, .. } = of;
        if let Err(error) = round(client, name, prefix, mirror, ready) {
            log::debug!("the mirror of {name}: {error}");
            if let Err(error) = of.make() {
                log::debug!("{error}");
            }
        }
        // Between two rounds nobody may rely on the mirror.
        lock(&mirror.read).1 = None;
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Reads the whole bucket and then its changes, until the connection breaks or something is missed.
fn round(
    client: &Client,
    name: &str,
    prefix: &str,
    mirror: &BucketCopy,
    ready: &mpsc::Sender<()>,
) -> Result<()> {
    // Taken first: a connection that breaks while the consumer is made ends the round.
    let connection = client.connections();
    let subscription = client.subscribe_inbox()?;
    let head = format!("$KV.{name}.");
    let config = json!({ "stream_name": format!("KV_{name}"), "config": {
        "deliver_subject": subscription.inbox, "deliver_policy": "last_per_subject", "filter_subject": format!("{head}{prefix}>"),
        "ack_policy": "none", "replay_policy": "instant", "max_deliver": 1, "mem_storage": true, "num_replicas": 1,
        "idle_heartbeat": HEARTBEAT.0.as_nanos() as u64, "inactive_threshold": 60_000_000_000u64,
    }});
    let made = client.api(&format!("CONSUMER.CREATE.KV_{name}"), &config);
    let made = made?.map_err(|code| unavailable(&format!("error {code}")))?;
    // Rows are collected apart until all are read, so that readers never see half a bucket.
    let mut fresh = (made["num_pending"].as_u64() > Some(0)).then(BTreeMap::new);
    if fresh.is_none() {
        replace(mirror, BTreeMap::new(), ready);
    }
    let (mut next, mut heard) = (1, Instant::now());
    while !mirror.over.load(Ordering::Acquire) && client.connections() == connection {
        let Some(message) = subscription.receive(Duration::from_millis(200))? else {
            if heard.elapsed() > HEARTBEAT.1 {
                return Err(unavailable(&"it is silent"));
            }
            continue;
        };
        heard = Instant::now();
        // A heartbeat.
        if message.status.is_some() {
            continue;
        }
        let place = AckPlace::from_message(&message).ok_or_else(|| unavailable(&"a message has no place"))?;
        // Numbers of a consumer have no gaps.
        if place.delivered != next {
            return Err(unavailable(&"a change was missed"));
        }
        next += 1;
        let key = message.subject.strip_prefix(head.as_str()).unwrap_or_default().to_string();
        let removed = message.headers.is_some_and(|headers| headers.get("KV-Operation").is_some());
        let entry = BucketEntry { value: message.payload.into(), seq: place.seq, seen: Instant::now() };
        let apply = |rows: &mut BTreeMap<String, BucketEntry>| {
            if removed { drop(rows.remove(&key)) } else { drop(rows.insert(key, entry)) }
        };
        match &mut fresh {
            Some(rows) => apply(rows),
            None => {
                apply(&mut lock(&mirror.rows));
                mirror.version.fetch_add(1, Ordering::AcqRel);
            }
        }
        if place.pending == 0
            && let Some(rows) = fresh.take()
        {
            replace(mirror, rows, ready);
        }
    }
    Ok(())
}

/// Puts a whole new copy in place, and says that it is there.
fn replace(mirror: &BucketCopy, rows: BTreeMap<String, BucketEntry>, ready: &mpsc::Sender<()>) {
    *lock(&mirror.rows) = rows;
    mirror.version.fetch_add(1, Ordering::AcqRel);
    let mut read = lock(&mirror.read);
    *read = (read.0 + 1, Some(Instant::now()));
    drop(read);
    // Whoever opened the bucket may have given up.
    let _ = ready.send(());
}

/// Where a message stands, as the subject for its acknowledgement tells.
#[derive(Debug, PartialEq, Eq)]
pub struct AckPlace {
    /// How often it was delivered.
    pub times: u64,
    /// Its number in the stream.
    pub seq: u64,
    /// Its number among those of the consumer.
    pub delivered: u64,
    /// How many wait behind it.
    pub pending: u64,
}

impl AckPlace {
    /// Reads `$JS.ACK.[DOMAIN.ACCOUNT.]STREAM.CONSUMER.TIMES.SEQ.DELIVERED.TIME.PENDING[.TOKEN]`.
    pub fn from_message(message: &Message) -> Option<AckPlace> {
        let words: Vec<&str> = message.reply.as_ref()?.split('.').collect();
        // Newer servers put domain and account in front.
        let at = if words.len() >= 11 { 6 } else { 4 };
        let number = |i: usize| words.get(at + i)?.parse().ok();
        Some(AckPlace { times: number(0)?, seq: number(1)?, delivered: number(2)?, pending: number(4)? })
    }
}

/// Fails unless this is a part of a key that NATS takes.
pub fn expect_key(key: &str) -> Result<()> {
    let fits = !key.is_empty()
        && key.len() <= 64
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    if fits {
        Ok(())
    } else {
        Err(Error::invalid(format!("`{}` is no name here", key.escape_debug()))
            .with_hint("names have 1 to 64 letters, digits, `-` and `_`"))
    }
}
