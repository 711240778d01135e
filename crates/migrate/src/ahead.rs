//! What a migration computes while a device works: how far results may move, and exact results of the calls that are checked last.
//!
//! None of it needs a device, and all of it depends on recorded values and declared precisions alone. So it is the same whenever
//! it is computed.

use crate::choices::KernelChoices;
use crate::hash::Hash;
use crate::noise::MovementLimits;
use crate::oracle::Oracles;
use crate::stop::Stop;
use crate::suite::{Case, Suite};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Scope;
use std::time::Duration;
use tapml_graph::{Error, Model, NodeId, Result, Symbols};

/// Threads of a pool up to which the work may have as many of its own. More would be in the way of the pool.
const SMALL_POOL: usize = 4;

/// How often whoever waits looks for a request to stop.
const PAUSE: Duration = Duration::from_millis(100);

/// What is to be computed.
pub(crate) struct AheadWork<'a> {
    pub(crate) suite: &'a Suite,
    pub(crate) model: &'a Model,
    pub(crate) oracles: &'a Oracles,
    pub(crate) choices: &'a KernelChoices,
    /// What the limits depend on, if they are not known.
    pub(crate) limits: Option<Hash>,
    /// Views of the suite, and calls in them whose exact results will be asked for.
    pub(crate) calls: Vec<ViewCalls<'a>>,
}

/// Calls of a view of a suite.
pub(crate) struct ViewCalls<'a> {
    pub(crate) suite: &'a Suite,
    pub(crate) oracles: &'a Oracles,
    pub(crate) cases: Vec<Case>,
}

/// Work on another thread. It ends soon after this is dropped.
pub(crate) struct Ahead {
    /// Gives the limits of this key, once.
    limits: Option<(Hash, Receiver<Result<MovementLimits>>)>,
    /// Ends the limits.
    stop: Stop,
    /// Ends the calls.
    calls: Stop,
}

impl Ahead {
    /// Begins with the work.
    pub(crate) fn start<'scope>(scope: &'scope Scope<'scope, '_>, work: AheadWork<'scope>) -> Ahead {
        let (stop, calls) = (Stop::new(), Stop::new());
        let (sender, limits) = channel();
        let limits = work.limits.map(|key| (key, limits));
        let (stop_of, calls_of) = (stop.clone(), calls.clone());
        if limits.is_some() || !work.calls.is_empty() {
            scope.spawn(move || {
                on_own_pool(|| {
                    if work.limits.is_some() {
                        // Nobody waits for limits that were given up.
                        drop(sender.send(measure(&work, &stop_of)));
                    }
                    for ViewCalls { suite, oracles, cases } in &work.calls {
                        oracles.compute_ahead(suite, work.model, cases, &calls_of);
                    }
                });
            });
        }
        Ahead { limits, stop, calls }
    }

    /// Waits for the limits; `None` if those of another key, or none, are computed.
    pub(crate) fn take_limits(&mut self, key: Hash, stop: &Stop) -> Option<Result<MovementLimits>> {
        let (_, limits) = self.limits.take_if(|(own, _)| *own == key)?;
        loop {
            match limits.recv_timeout(PAUSE) {
                Ok(found) => return Some(found),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = stop.check() {
                        return Some(Err(error));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Some(Err(Error::bug("no limits were measured")));
                }
            }
        }
    }

    /// Nobody will ask for the calls.
    pub(crate) fn give_up_calls(&self) {
        self.calls.request();
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.stop.request();
        self.calls.request();
    }
}

/// Runs `f` on threads of its own, half as many as the pool has. On the pool itself its small tasks would come before the verdicts
/// that a device's calls wait for.
fn on_own_pool(f: impl FnOnce() + Send) {
    let threads = match rayon::current_num_threads() {
        all @ ..=SMALL_POOL => all,
        many => many / 2,
    };
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build() {
        Ok(pool) => pool.install(f),
        // The system gives no more threads.
        Err(_) => f(),
    }
}

/// The limits by the precisions that the kernels declare.
fn measure(work: &AheadWork<'_>, stop: &Stop) -> Result<MovementLimits> {
    let precision = |node: NodeId, symbols: &Symbols| work.choices.declared_precision(node, symbols);
    MovementLimits::measure(work.suite, work.model, work.oracles, &precision, stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Sender;
    use tapml_graph::ErrorKind;

    /// Somebody who waits for the limits of this key, and who gives them.
    fn ahead_of(key: &str) -> (Ahead, Sender<Result<MovementLimits>>) {
        let (sender, limits) = channel();
        let limits = Some((Hash::compute(key.as_bytes()), limits));
        (Ahead { limits, stop: Stop::new(), calls: Stop::new() }, sender)
    }

    #[test]
    fn limits_are_given_once_and_only_for_their_key() {
        let (mut ahead, sender) = ahead_of("a");
        let (key, stop) = (Hash::compute(b"a"), Stop::new());
        let limits = MovementLimits { moved: vec![vec![1.0]], source: vec![vec![2.0]] };
        assert!(ahead.take_limits(Hash::compute(b"b"), &stop).is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(2 * PAUSE);
                sender.send(Ok(limits.clone())).unwrap();
            });
            assert_eq!(ahead.take_limits(key, &stop).unwrap().unwrap(), limits);
        });
        assert!(ahead.take_limits(key, &stop).is_none());
    }

    #[test]
    fn who_waits_hears_a_request_to_stop_and_the_end_of_the_work() {
        let (key, stop) = (Hash::compute(b"a"), Stop::new());
        let (mut ahead, sender) = ahead_of("a");
        stop.request();
        assert_eq!(ahead.take_limits(key, &stop).unwrap().unwrap_err().kind(), ErrorKind::Interrupted);
        drop(sender);
        let (mut ahead, _) = ahead_of("a");
        assert_eq!(ahead.take_limits(key, &Stop::new()).unwrap().unwrap_err().kind(), ErrorKind::Bug);
    }

    #[test]
    fn the_work_ends_when_nobody_waits_for_it() {
        let (ahead, _) = ahead_of("a");
        let (stop, calls) = (ahead.stop.clone(), ahead.calls.clone());
        ahead.give_up_calls();
        assert!(stop.check().is_ok() && calls.check().is_err());
        drop(ahead);
        assert!(stop.check().is_err());
    }

    #[test]
    fn the_threads_are_not_those_of_the_pool() {
        for (pool, own) in [(1, 1), (4, 4), (16, 8)] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(pool).build().unwrap();
            let mut threads = 0;
            pool.install(|| on_own_pool(|| threads = rayon::current_num_threads()));
            assert_eq!(threads, own);
        }
    }
}
