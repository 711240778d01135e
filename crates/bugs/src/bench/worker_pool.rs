//! The workers of the bench: each has devices of its own, takes the next item when it is done with one, and gets other
//! devices when a fault has cost it those that it had.

use super::mutation_run::platform;
use super::op_case::replay;
use super::ops::OpCases;
use super::run_options::RunOptions;
use crate::device::Workbench;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use tapml_graph::{Context, Error, Result};
use tapml_migrate::{Progress, Stop};

/// The devices of one worker.
pub(super) struct WorkerDevices<'a> {
    /// How further devices are opened.
    options: &'a RunOptions<'a>,
    /// The device under test.
    pub bench: Workbench,
    /// The device that checks while it runs, if there is one.
    pub checker: Option<Workbench>,
}

impl<'a> WorkerDevices<'a> {
    /// Opens the devices of a worker.
    fn open(options: &'a RunOptions<'a>) -> Result<WorkerDevices<'a>> {
        let checker = options.checker.map(|open| Ok(Workbench::new(open()?))).transpose()?;
        Ok(WorkerDevices { options, bench: Workbench::new((options.open)()?), checker })
    }

    /// Takes other devices in the place of lost ones.
    pub fn renew(&mut self) -> Result<()> {
        *self = WorkerDevices::open(self.options)?;
        Ok(())
    }

    /// Fails unless the device runs these calls without a fault: what it was lost by was then the fault.
    pub fn prove(&self, cases: &OpCases) -> Result<()> {
        let outputs = replay(&mut platform(&self.bench, &[]), &cases.checked)?;
        let ran = outputs.into_iter().collect::<Result<Vec<_>>>();
        ran.map(drop).context(|| format!("operator `{}` without a fault, after a device was lost", cases.op))
    }
}

/// Does the work for each item in its order, several at once. After an error nothing new is begun. The result tells whether
/// all was done: the time may have been too short.
///
/// # Errors
///
/// The first error of a worker in their order, a request to stop, or a worker that panicked.
pub(super) fn run_each<'a, T: Sync>(
    title: &str,
    items: &[T],
    options: &'a RunOptions<'a>,
    work: &(dyn Fn(&mut WorkerDevices<'a>, &T) -> Result<()> + Sync),
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<bool> {
    progress.stage(title, items.len() as u64);
    let (next, failed, late) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let take = || -> Result<Option<&T>> {
        stop.check()?;
        if options.until.is_some_and(|until| Instant::now() >= until) {
            // Items that are begun already are finished.
            late.store(true, Ordering::Relaxed);
        }
        // The number of an item is taken only if the item is done.
        let over = late.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
        Ok(if over { None } else { items.get(next.fetch_add(1, Ordering::Relaxed)) })
    };
    let all = || -> Result<()> {
        // In the worker's thread, so that devices open at the same time.
        let mut hands = WorkerDevices::open(options)?;
        while let Some(item) = take()? {
            work(&mut hands, item)?;
            progress.advance(1);
        }
        Ok(())
    };
    // Other workers see it before they take the next item.
    let worker = || all().inspect_err(|_| failed.store(true, Ordering::Relaxed));
    let ran: Vec<Result<()>> = std::thread::scope(|scope| {
        let count = options.workers.clamp(1, items.len().max(1));
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(worker)).collect();
        let crashed = |_| Err(Error::bug("a worker of the bench panicked"));
        // A panic becomes an error, so that other results are kept.
        workers.into_iter().map(|w| w.join().unwrap_or_else(crashed)).collect()
    });
    ran.into_iter().collect::<Result<()>>()?;
    Ok(!late.into_inner())
}
