//! What goes between the engine's thread and all others: requests, cancellations and the wish to end one way, numbers the other.

use super::options::EngineStats;
use super::request::Request;
use super::scheduler::SequenceId;
use crate::sampler::Sampler;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind};

/// What the engine's thread shares with others.
#[derive(Debug)]
pub struct Shared {
    inbox: Mutex<Inbox>,
    /// Something is in the inbox.
    pub arrived: Condvar,
    pub stats: Mutex<EngineStats>,
    /// When the step began that runs now.
    pub step_began: Mutex<Option<Instant>>,
    /// Why no step can run.
    pub fault: Mutex<Option<Error>>,
}

/// What the engine's thread is told.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Whether the thread still looks into it.
    pub open: bool,
    pub arrivals: Vec<Arrival>,
    pub cancelled: Vec<SequenceId>,
    /// When the last request must have ended.
    pub deadline: Option<Instant>,
    /// Requests that wait for their first step or for pages.
    pub waiting: usize,
    pub last_id: SequenceId,
}

/// What the engine's thread takes out of it.
#[derive(Debug)]
pub struct Taken {
    pub arrivals: Vec<Arrival>,
    pub cancelled: Vec<SequenceId>,
    /// When the last request must have ended.
    pub deadline: Option<Instant>,
}

/// A request that was taken.
#[derive(Debug)]
pub struct Arrival {
    pub id: SequenceId,
    pub request: Request,
    pub sampler: Sampler,
    pub at: Instant,
}

impl Shared {
    /// An open inbox, and numbers to begin with.
    pub fn new(stats: EngineStats) -> Shared {
        Shared {
            inbox: Mutex::new(Inbox { open: true, ..Inbox::default() }),
            arrived: Condvar::new(),
            stats: Mutex::new(stats),
            step_began: Mutex::new(None),
            fault: Mutex::new(None),
        }
    }

    pub fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    /// Takes what is in the inbox; first waits for so long until there is something.
    pub fn take(&self, wait: Duration, waiting: usize) -> Taken {
        let nothing = |inbox: &mut Inbox| {
            let nothing = inbox.arrivals.is_empty() && inbox.deadline.is_none();
            if nothing {
                // Requests that are cancelled after their end. One beside an arrival may be of that.
                inbox.cancelled.clear();
            }
            nothing
        };
        let mut inbox = self.inbox();
        if !wait.is_zero() {
            let waited = self.arrived.wait_timeout_while(inbox, wait, nothing);
            inbox = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        inbox.waiting = waiting + inbox.arrivals.len();
        let arrivals = std::mem::take(&mut inbox.arrivals);
        Taken { arrivals, cancelled: std::mem::take(&mut inbox.cancelled), deadline: inbox.deadline }
    }

    /// Says how many requests wait.
    pub fn set_waiting(&self, waiting: usize) {
        self.inbox().waiting = waiting;
    }

    /// Takes no requests any more; gives those that came at last.
    pub fn close(&self) -> Vec<Arrival> {
        let mut inbox = self.inbox();
        inbox.open = false;
        std::mem::take(&mut inbox.arrivals)
    }

    pub fn set_stats(&self, stats: EngineStats) {
        *lock(&self.stats) = stats;
    }

    pub fn set_fault(&self, fault: Option<Error>) {
        *lock(&self.fault) = fault;
    }

    pub fn set_step_began(&self, began: Option<Instant>) {
        *lock(&self.step_began) = began;
    }
}

/// A panic while it was held left nothing half done.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn closed_error() -> Error {
    Error::new(ErrorKind::Unavailable, "the engine is shutting down")
        .with_hint("send the request to another server")
}
