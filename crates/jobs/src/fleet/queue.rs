//! The work of a fleet: items of a few cases each, taken by whoever is free, given back when a device is lost, and what
//! came out of them, once per case.
//!
//! Whoever implements it decides how long an item may be silent before it comes again; see
//! [`FleetQueue::renew`].

use super::record::{Record, Records};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tapml_graph::Result;

/// Some cases of one operator.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Item {
    /// Whose work it is: every case is wanted once per lane.
    pub lane: String,
    /// Names of cases.
    pub cases: Vec<String>,
}

/// An item that somebody has taken.
#[derive(Clone, Debug)]
pub struct Task {
    /// The item.
    pub item: Item,
    /// How often it was taken before.
    pub lost: u32,
    /// How the queue knows it.
    pub token: String,
}

/// A queue of items, in this process or shared by many. An item that is neither finished nor given back comes again: cases
/// are delivered at least once, and the first record of a case stays.
pub trait FleetQueue: Send + Sync {
    /// Adds items. Those that a queue of many has already may be added again.
    fn put(&self, items: Vec<Item>) -> Result<()>;
    /// The next item of a lane; `None` if there is none now.
    fn take(&self, lane: &str) -> Result<Option<Task>>;
    /// Says that a task is still being worked on.
    fn renew(&self, task: &Task) -> Result<()>;
    /// Keeps what came out, and forgets the item.
    fn finish(&self, task: Task, records: Vec<Record>) -> Result<()>;
    /// The task's device is lost: somebody else shall have the item, in these pieces.
    fn give_back(&self, task: Task, pieces: Vec<Item>) -> Result<()>;
    /// All records so far, by lane and case.
    fn records(&self) -> Result<Records>;
    /// How many cases of a lane have a record.
    fn count(&self, lane: &str) -> Result<usize>;
    /// Whether a lane has items that nobody has finished, as far as the queue knows.
    fn busy(&self, lane: &str) -> Result<bool>;
}

/// A queue in this process.
///
/// Items are never silent here: a worker that ends gives its item back.
#[derive(Default)]
pub struct Memory(Mutex<QueueState>);

/// Behind one lock.
#[derive(Default)]
struct QueueState {
    /// With how often each was lost.
    waiting: VecDeque<(Item, u32)>,
    /// Lanes by token.
    taken: BTreeMap<String, String>,
    /// By lane and case.
    records: Records,
    /// The last token given.
    next: u64,
}

impl Memory {
    /// A panic of another thread is no reason to stop.
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FleetQueue for Memory {
    fn put(&self, items: Vec<Item>) -> Result<()> {
        self.state().waiting.extend(items.into_iter().map(|item| (item, 0)));
        Ok(())
    }

    fn take(&self, lane: &str) -> Result<Option<Task>> {
        let mut state = self.state();
        let Some(at) = state.waiting.iter().position(|(item, _)| item.lane == lane) else { return Ok(None) };
        let Some((item, lost)) = state.waiting.remove(at) else { return Ok(None) };
        state.next += 1;
        let token = state.next.to_string();
        state.taken.insert(token.clone(), item.lane.clone());
        Ok(Some(Task { item, lost, token }))
    }

    fn renew(&self, _: &Task) -> Result<()> {
        Ok(())
    }

    fn finish(&self, task: Task, records: Vec<Record>) -> Result<()> {
        let mut state = self.state();
        state.taken.remove(&task.token);
        for record in records {
            // A record that is there stays: cases may be delivered twice.
            state.records.entry((record.lane.clone(), record.case.clone())).or_insert(record);
        }
        Ok(())
    }

    fn give_back(&self, task: Task, pieces: Vec<Item>) -> Result<()> {
        let mut state = self.state();
        state.taken.remove(&task.token);
        // Behind all others, so that an item that takes devices down does not come at once.
        state.waiting.extend(pieces.into_iter().map(|item| (item, task.lost + 1)));
        Ok(())
    }

    fn records(&self) -> Result<Records> {
        Ok(self.state().records.clone())
    }

    fn count(&self, lane: &str) -> Result<usize> {
        Ok(self.state().records.keys().filter(|(of, _)| of == lane).count())
    }

    fn busy(&self, lane: &str) -> Result<bool> {
        let state = self.state();
        Ok(state.waiting.iter().any(|(item, _)| item.lane == lane) || state.taken.values().any(|l| l == lane))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_until_they_are_finished_and_records_stay() {
        let queue = Memory::default();
        let item = Item { lane: "a".into(), cases: vec!["x".into(), "y".into()] };
        queue.put(vec![item.clone()]).unwrap();
        assert!(queue.take("b").unwrap().is_none());
        let task = queue.take("a").unwrap().unwrap();
        assert!(queue.take("a").unwrap().is_none() && queue.busy("a").unwrap());
        queue.give_back(task, vec![item]).unwrap();
        let task = queue.take("a").unwrap().unwrap();
        assert_eq!(task.lost, 1);
        let record = |ratio| Record { lane: "a".into(), case: "x".into(), ratio, ..Record::default() };
        queue.finish(task.clone(), vec![record(0.5)]).unwrap();
        queue.finish(task, vec![record(0.7)]).unwrap();
        let records = queue.records().unwrap();
        assert_eq!(records.values().map(|r| r.ratio).collect::<Vec<_>>(), [0.5], "the first one stays");
        assert!(!queue.busy("a").unwrap());
    }
}
