//! What the workers of a fleet share: the cases that are wanted, and how many are done.

use super::queue::{FleetQueue, Item};
use super::setup::Fleet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use tapml_graph::Result;
use tapml_migrate::Progress;

/// Cases of an item: enough that opening a batch costs little, few enough that a lost device costs little.
const ITEM: usize = 16;

/// What the workers share.
pub(super) struct Board<'a> {
    /// Names of cases with their operators.
    pub(super) wanted: &'a [(String, &'static str)],
    pub(super) lanes: &'a BTreeSet<String>,
    pub(super) work: &'a dyn FleetQueue,
    /// How many done cases progress has been told of, over all threads.
    pub(super) reported: AtomicUsize,
}

impl Board<'_> {
    /// Puts what is missing into the queue.
    pub(super) fn put(&self, fleet: &Fleet<'_>) -> Result<()> {
        let missing: BTreeSet<(String, String)> = self.missing()?.into_iter().collect();
        let mut by_op: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
        for (case, op) in self.wanted {
            by_op.entry(op).or_default().push(case);
        }
        let mut items = Vec::new();
        let longest = by_op.values().map(Vec::len).max().unwrap_or(0);
        for lane in self.lanes.iter().filter(|lane| !self.work.busy(lane).unwrap_or(false)) {
            for at in (0..longest).step_by(ITEM) {
                for cases in by_op.values() {
                    let piece = cases.iter().skip(at).take(ITEM).map(|case| case.to_string());
                    let cases: Vec<String> =
                        piece.filter(|case| missing.contains(&(lane.clone(), case.clone()))).collect();
                    if !cases.is_empty() {
                        items.push(Item { lane: lane.clone(), cases });
                    }
                }
            }
        }
        fleet.stop.check()?;
        self.work.put(items)
    }

    /// Cases without a record, by lane.
    pub(super) fn missing(&self) -> Result<Vec<(String, String)>> {
        let records = self.work.records()?;
        let all = self.lanes.iter().flat_map(|l| self.wanted.iter().map(|(c, _)| (l.clone(), c.clone())));
        Ok(all.filter(|key| !records.contains_key(key)).collect())
    }

    /// Whether a lane's cases are all done. Tells how many are, of all lanes.
    pub(super) fn done(&self, lane: &str, progress: &dyn Progress) -> Result<bool> {
        let counts =
            self.lanes.iter().map(|of| Ok((of, self.work.count(of)?))).collect::<Result<Vec<_>>>()?;
        let all = counts.iter().map(|(_, count)| count).sum();
        // `fetch_max` gives each new case to one thread, so that progress counts it one time.
        let told = self.reported.fetch_max(all, Ordering::AcqRel);
        if all > told {
            log::info!("{all} of {} cases are done", self.wanted.len() * self.lanes.len());
        }
        progress.advance(all.saturating_sub(told) as u64);
        Ok(counts.iter().any(|(of, count)| *of == lane && *count >= self.wanted.len()))
    }
}
