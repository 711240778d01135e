//! Where ranks meet: each brings its parts and gets what they are together. Who waits in vain says for whom.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result, Tensor};

/// How much longer than itself a rank lets the others work, at least.
const WAIT_TIMEOUT: Duration = Duration::from_secs(6);
/// And how many times as long: ranks do the same work, but a host that is busy may do it one after the other.
const FACTOR: u32 = 4;

/// How long to wait for others that do the same as took so long here.
pub fn wait_timeout(took: Duration) -> Duration {
    WAIT_TIMEOUT.max(took.saturating_mul(FACTOR))
}

/// The error of ranks that do not come.
pub fn late_error(rank: usize, place: &str, waited: Duration) -> Error {
    let text =
        format!("rank {rank} has not come to {place} within {:.1} s of the others", waited.as_secs_f64());
    Error::new(ErrorKind::Timeout, text)
        .with_detail("deadline", format!("{:.1} s", waited.as_secs_f64()))
        .with_hint("its device or its way to it hangs: look for messages of the driver, and start again")
}

/// Why a rank stops.
pub enum Stopped {
    /// An error of its own, or one that it found.
    Failed(Error),
    /// Another rank has failed.
    Elsewhere,
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::Failed(error)
    }
}

/// See the module.
pub struct Meeting {
    state: Mutex<MeetingState>,
    changed: Condvar,
}

struct MeetingState {
    /// What each rank has brought this time.
    brought: Vec<Option<Vec<Tensor>>>,
    /// How often all have met.
    round: u64,
    /// What came of the last time.
    result: Option<Arc<Vec<Tensor>>>,
    /// Whether a rank has failed: nobody waits any more.
    failed: bool,
}

impl Meeting {
    pub fn new(ranks: usize) -> Meeting {
        let state = MeetingState { brought: vec![None; ranks], round: 0, result: None, failed: false };
        Meeting { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// A panic of a rank is its failure, which others are told.
    fn lock(&self) -> MutexGuard<'_, MeetingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings `tensors` and gives what `join` makes of those of all ranks, in their order, which it is given by rank. `place`
    /// names the operators for people, and `took` is how long the rank has worked since the last time.
    pub fn join(
        &self,
        rank: usize,
        tensors: Vec<Tensor>,
        (place, took): (&str, Duration),
        join: impl FnOnce(&[Vec<Tensor>]) -> Result<Vec<Tensor>>,
    ) -> std::result::Result<Arc<Vec<Tensor>>, Stopped> {
        let mut state = self.lock();
        if state.failed {
            return Err(Stopped::Elsewhere);
        }
        let round = state.round;
        state.brought[rank] = Some(tensors);
        if state.brought.iter().all(Option::is_some) {
            let brought: Vec<Vec<Tensor>> = state.brought.iter_mut().filter_map(Option::take).collect();
            // All others wait for this, so that it may be done under the lock.
            let joined = Arc::new(join(&brought)?);
            (state.result, state.round) = (Some(joined.clone()), round + 1);
            self.changed.notify_all();
            return Ok(joined);
        }
        let (since, most) = (Instant::now(), wait_timeout(took));
        while state.round == round && !state.failed {
            let Some(left) = most.checked_sub(since.elapsed()) else {
                let late_rank = state.brought.iter().position(Option::is_none).unwrap_or(0);
                state.failed = true;
                self.changed.notify_all();
                return Err(Stopped::Failed(late_error(late_rank, place, since.elapsed())));
            };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        // The round may have ended before a rank failed behind it.
        match &state.result {
            Some(result) if state.round != round => Ok(result.clone()),
            _ => Err(Stopped::Elsewhere),
        }
    }

    /// Sends everybody home.
    pub fn fail(&self) {
        self.lock().failed = true;
        self.changed.notify_all();
    }

    /// Begins anew; nobody may wait.
    pub fn reset(&self) {
        let mut state = self.lock();
        state.brought.iter_mut().for_each(|brought| *brought = None);
        (state.result, state.failed) = (None, false);
    }
}

/// What `work` gives; a panic as an error.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Error::bug(format!("it panicked: {text}"))
    })
}
