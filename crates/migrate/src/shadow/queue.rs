//! Calls that wait for their verdict: bounded in number and bytes, and taken so that each kernel has its turn.
//!
//! A verdict takes far longer than its call, so that a busy service runs far more calls than get one. The next verdict goes to the
//! kernel that has had the fewest, and among these to the one whose call is the smallest. So a wrong kernel is met after one
//! verdict of every other kernel at the latest, however few of the calls are its own. Each kernel has its part of the room, and
//! its first verdict goes to the smallest of its calls that wait. Calls of much work get no verdict but the first of their kernel.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use tapml_exec::Call;
use tapml_graph::{Graph, Tensor};

/// A call with what the target gave.
pub struct RecordedCall {
    /// The node alone, with the pages and slots that the call names.
    pub graph: Graph,
    /// The call.
    pub call: Call,
    /// What runs it; empty if nobody says.
    pub kernel: String,
    /// What the target gave.
    pub outputs: Vec<Tensor>,
    /// The room that it takes while it waits.
    pub bytes: u64,
    /// About its multiplications, by which a verdict's time is guessed.
    pub work: u64,
}

/// Multiplications of a call that gets more than the first verdict of its kernel, at most. A verdict takes some ten times as many,
/// in f64.
const MOST_WORK: u64 = 1 << 28;

/// See the module.
pub(super) struct ShadowQueue {
    most_calls: usize,
    most_bytes: u64,
    waiting: Mutex<WaitingCalls>,
    changed: Condvar,
}

#[derive(Default)]
struct WaitingCalls {
    kernels: BTreeMap<String, KernelTurn>,
    calls: usize,
    bytes: u64,
    is_closed: bool,
}

/// What waits of one kernel, and what it has had.
#[derive(Default)]
struct KernelTurn {
    calls: VecDeque<RecordedCall>,
    /// Calls that have room: those that are being recorded, wait, or are judged.
    taken: usize,
    verdicts: u64,
}

impl KernelTurn {
    /// Which of the calls that wait is next: the smallest for a first verdict, then that which waits longest.
    fn next_call(&self) -> Option<usize> {
        match self.verdicts {
            0 => (0..self.calls.len()).min_by_key(|&at| self.calls[at].work),
            _ => (!self.calls.is_empty()).then_some(0),
        }
    }
}

impl ShadowQueue {
    /// Room for so many calls and bytes, of which each of these kernels has its part.
    pub fn new(most_calls: usize, most_bytes: u64, kernels: impl IntoIterator<Item = String>) -> ShadowQueue {
        let kernels = kernels.into_iter().map(|kernel| (kernel, KernelTurn::default())).collect();
        let waiting = Mutex::new(WaitingCalls { kernels, ..WaitingCalls::default() });
        ShadowQueue { most_calls, most_bytes, waiting, changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, WaitingCalls> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes room for a call of so many bytes; false if there is none, or the kernel has its part already.
    pub fn reserve(&self, kernel: &str, bytes: u64) -> bool {
        let mut waiting = self.lock();
        let part = (self.most_calls / waiting.kernels.len().max(1)).max(1);
        let has_room =
            waiting.calls < self.most_calls && waiting.bytes.saturating_add(bytes) <= self.most_bytes;
        let turn = waiting.kernels.entry(kernel.to_string()).or_default();
        if !has_room || turn.taken >= part {
            return false;
        }
        turn.taken += 1;
        waiting.calls += 1;
        waiting.bytes += bytes;
        true
    }

    /// Gives the room of a call back that gets no verdict.
    pub fn release(&self, kernel: &str, bytes: u64) {
        let mut waiting = self.lock();
        waiting.calls -= 1;
        waiting.bytes -= bytes;
        if let Some(turn) = waiting.kernels.get_mut(kernel) {
            turn.taken -= 1;
        }
    }

    /// Lets a call wait that has room for so many bytes. False, and its room is free again, if it takes more and there is none, or
    /// if it is too much work.
    pub fn push(&self, call: RecordedCall, reserved: u64) -> bool {
        let mut waiting = self.lock();
        let bytes = (waiting.bytes - reserved).saturating_add(call.bytes);
        let turn = waiting.kernels.entry(call.kernel.clone()).or_default();
        let is_first = turn.verdicts == 0 && turn.calls.is_empty();
        if bytes > self.most_bytes || (call.work > MOST_WORK && !is_first) {
            drop(waiting);
            self.release(&call.kernel, reserved);
            return false;
        }
        turn.calls.push_back(call);
        waiting.bytes = bytes;
        drop(waiting);
        self.changed.notify_one();
        true
    }

    /// The next call to be judged, which keeps its room; waits for one. `None` when none will come.
    pub fn pop(&self) -> Option<RecordedCall> {
        let mut waiting = self.lock();
        loop {
            let next = waiting.kernels.values_mut().filter_map(|turn| {
                let at = turn.next_call()?;
                Some(((turn.verdicts, turn.calls[at].work), at, turn))
            });
            if let Some((_, at, turn)) = next.min_by_key(|(order, ..)| *order) {
                turn.verdicts += 1;
                return turn.calls.remove(at);
            }
            if waiting.is_closed {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No call will come.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Calls that have room.
    pub fn calls(&self) -> u64 {
        self.lock().calls as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::op::Silu;
    use tapml_graph::{Op, Symbols};

    fn call_of(kernel: &str, work: u64) -> RecordedCall {
        let call = Call {
            node: kernel.to_string(),
            op: Op::from(Silu {}),
            symbols: Symbols::new(),
            inputs: Vec::new(),
            input_types: Vec::new(),
            weights: Vec::new(),
            output_types: Vec::new(),
        };
        let graph = Graph::parse("graph g\ninput x: f32[2]\noutput x = x\n").unwrap();
        RecordedCall { graph, call, kernel: kernel.to_string(), outputs: Vec::new(), bytes: 1, work }
    }

    fn queue(most_calls: usize, kernels: &[&str]) -> ShadowQueue {
        ShadowQueue::new(most_calls, 100, kernels.iter().map(|kernel| kernel.to_string()))
    }

    #[test]
    fn what_waits_is_bounded_in_calls_and_bytes() {
        let queue = queue(2, &["a", "b"]);
        assert!(!queue.reserve("a", 101));
        assert!(queue.reserve("a", 60) && !queue.reserve("b", 41) && queue.reserve("b", 40));
        assert!(!queue.reserve("c", 0), "two calls wait");
        queue.release("a", 60);
        assert!(queue.reserve("a", 60));
        assert_eq!(queue.calls(), 2);
    }

    #[test]
    fn a_kernel_takes_no_more_than_its_part_of_the_room() {
        let queue = queue(5, &["a", "b"]);
        assert!(queue.reserve("a", 1) && queue.reserve("a", 1) && !queue.reserve("a", 1));
        assert!(queue.reserve("b", 1));
    }

    #[test]
    fn the_kernel_with_the_fewest_verdicts_is_next_and_first_its_smallest_call() {
        let queue = queue(9, &["a", "b", "c"]);
        for (kernel, work) in [("a", 30), ("a", 10), ("b", 20), ("a", 15), ("c", 500), ("b", 5)] {
            assert!(queue.reserve(kernel, 1));
            assert!(queue.push(call_of(kernel, work), 1));
        }
        queue.close();
        let order = std::iter::from_fn(|| queue.pop()).map(|call| (call.kernel, call.work));
        let expected = [("b", 5), ("a", 10), ("c", 500), ("b", 20), ("a", 30), ("a", 15)];
        assert_eq!(order.collect::<Vec<_>>(), expected.map(|(kernel, work)| (kernel.to_string(), work)));
    }

    #[test]
    fn much_work_is_done_for_the_first_verdict_of_a_kernel_alone() {
        let queue = queue(9, &["a"]);
        let offer = |work| {
            assert!(queue.reserve("a", 1));
            queue.push(call_of("a", work), 1)
        };
        assert!(offer(MOST_WORK + 1) && !offer(MOST_WORK + 1) && offer(MOST_WORK));
        assert_eq!(queue.calls(), 2);
        assert_eq!(queue.pop().map(|call| call.work), Some(MOST_WORK));
        assert!(!offer(MOST_WORK + 1));
    }

    #[test]
    fn a_call_that_takes_more_than_it_asked_for_needs_room() {
        let queue = queue(9, &["a"]);
        assert!(queue.reserve("a", 60) && queue.reserve("a", 0));
        let large = RecordedCall { bytes: 41, ..call_of("a", 1) };
        assert!(!queue.push(large, 0));
        assert_eq!(queue.calls(), 1);
        assert!(queue.reserve("a", 0) && queue.push(RecordedCall { bytes: 40, ..call_of("a", 1) }, 0));
        assert!(!queue.reserve("a", 1));
    }
}
