//! A work queue of JetStream: a message comes again until it is acknowledged, to whoever asks next.
//!
//! Retention is by work: a message is gone when it is acknowledged. A consumer stands for each lane of each
//! run. Delivery is at least once, so whoever takes work must bear repetition.

use crate::bucket::{AckPlace, expect_key};
use crate::client::{Client, unavailable};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tapml_graph::Result;

/// The stream of all work.
const STREAM: &str = "TAPML_WORK";

// Another release may have made it with other settings; it works as well.
/// Settings of a stream or consumer that exists differ.
const EXISTS: [u64; 2] = [10_058, 10_148];

// A run that nobody continues must not stay for ever.
/// How long work is kept that nobody does.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// See the module.
pub struct Queue {
    client: Arc<Client>,
    /// Part of every subject: runs do not see each other's work.
    run: String,
    /// How long a message may be out without a word.
    wait: Duration,
    /// Lanes whose consumer is known to be there.
    lanes: Mutex<HashSet<String>>,
}

/// A message that was taken.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The message.
    pub payload: Vec<u8>,
    /// How often it was taken before.
    pub before: u64,
    /// Where it is acknowledged.
    pub token: String,
}

impl Queue {
    /// The queue of a run. A message that was taken comes again after `wait` without a word about it.
    ///
    /// # Errors
    /// If `run` is no key or the stream cannot be made.
    pub fn open(client: Arc<Client>, run: &str, wait: Duration) -> Result<Queue> {
        expect_key(run)?;
        let config = json!({
            "name": STREAM, "subjects": ["tapml.work.>"], "retention": "workqueue", "storage": "file",
            "max_age": KEPT.as_nanos() as u64, "max_msgs": -1, "max_bytes": -1, "max_consumers": -1,
            "max_msg_size": -1, "discard": "old", "num_replicas": 1,
        });
        match client.api(&format!("STREAM.CREATE.{STREAM}"), &config)? {
            Err(code) if !EXISTS.contains(&code) => {
                Err(unavailable(&format!("the work queue cannot be made: error {code}")))
            }
            _ => Ok(Queue { client, run: run.into(), wait, lanes: Mutex::default() }),
        }
    }

    /// Adds a message to a lane.
    pub fn put(&self, lane: &str, payload: &[u8]) -> Result<()> {
        self.lane(lane)?;
        let kept = self.client.keep(&self.subject(lane), &[], payload)?;
        kept.map(drop).map_err(|code| unavailable(&format!("error {code}")))
    }

    /// The next message of a lane, if there is one now.
    pub fn take(&self, lane: &str) -> Result<Option<Delivery>> {
        self.lane(lane)?;
        let next = json!({ "batch": 1, "no_wait": true }).to_string();
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{}", self.durable(lane));
        let message = self.client.request(&subject, &[], next.as_bytes())?;
        if message.status.is_some() {
            return Ok(None);
        }
        let place = AckPlace::from_message(&message).ok_or_else(|| unavailable(&"a message has no place"))?;
        Ok(Some(Delivery {
            before: place.times.saturating_sub(1),
            token: message.reply.map_or_else(String::new, |reply| reply.to_string()),
            payload: message.payload.into(),
        }))
    }

    /// A message is done with. Waits until the broker knows.
    ///
    /// # Errors
    /// If the broker does not answer: the message may then come again.
    pub fn finish(&self, token: &str) -> Result<()> {
        self.client.request(token, &[], b"+ACK").map(drop)
    }

    /// A message is still being worked on.
    pub fn renew(&self, token: &str) -> Result<()> {
        self.client.publish(token, b"+WPI")
    }

    /// Whether a lane has messages that are not done with.
    pub fn busy(&self, lane: &str) -> Result<bool> {
        self.lane(lane)?;
        let what = format!("CONSUMER.INFO.{STREAM}.{}", self.durable(lane));
        match self.client.api(&what, &Value::Null)? {
            Ok(info) => Ok(info["num_pending"] != 0 || info["num_ack_pending"] != 0),
            Err(_) => {
                // The broker was emptied: the consumer is made again the next time.
                self.lanes.lock().unwrap_or_else(PoisonError::into_inner).remove(lane);
                Ok(false)
            }
        }
    }

    /// Makes the lane's consumer unless it is known to be there.
    fn lane(&self, lane: &str) -> Result<()> {
        expect_key(lane)?;
        if self.lanes.lock().unwrap_or_else(PoisonError::into_inner).contains(lane) {
            return Ok(());
        }
        let durable = self.durable(lane);
        let config = json!({ "stream_name": STREAM, "config": {
            "durable_name": durable, "filter_subject": self.subject(lane), "ack_policy": "explicit",
            "ack_wait": self.wait.as_nanos() as u64, "deliver_policy": "all", "replay_policy": "instant",
            "max_ack_pending": 10_000, "max_deliver": -1,
        }});
        match self.client.api(&format!("CONSUMER.DURABLE.CREATE.{STREAM}.{durable}"), &config)? {
            Err(code) if !EXISTS.contains(&code) => {
                Err(unavailable(&format!("the lane {lane} cannot be made: error {code}")))
            }
            _ => {
                self.lanes.lock().unwrap_or_else(PoisonError::into_inner).insert(lane.into());
                Ok(())
            }
        }
    }

    /// Where a lane's messages go.
    fn subject(&self, lane: &str) -> String {
        format!("tapml.work.{}.{lane}", self.run)
    }

    /// The name of a lane's consumer.
    fn durable(&self, lane: &str) -> String {
        format!("{}_{lane}", self.run)
    }
}
