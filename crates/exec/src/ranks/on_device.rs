//! A rank that meets the others in the memory of their devices, within one program.

use super::job::{RankJob, RankResult, RanksOptions};
use super::meeting::late_error;
use crate::{LateRank, LoadOptions, Loaded, Platform, RankMeeting, RankMemory};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tapml_graph::{Context, Error, ErrorKind, Graph, Model, Result, Symbols, Tensor};
use tapml_kernels::OutputRows;
use tapml_kernels::meeting::WAIT_TIMEOUT;

/// How far the clocks of host and device may differ in that time.
const CLOCK_ERROR: Duration = Duration::from_millis(500);

/// See the module.
pub struct DeviceRank {
    rank: u32,
    loaded: Box<dyn Loaded>,
    memory: RankMemory,
    /// Names of the inputs that the rank reads.
    inputs: Vec<String>,
    /// Names of the nodes at which ranks meet, in their order.
    places: Vec<String>,
    /// Whether it gives what the first rank gives, too.
    compared: bool,
}

/// The memories of all ranks, in their order; `None` if they meet on the host, as a device has no memory that others use, or
/// there are more ranks than any kernel serves.
///
/// # Errors
/// If a device that could have such memory has no room for it.
pub fn create_memories(platforms: &mut [Box<dyn Platform>]) -> Result<Option<Vec<RankMemory>>> {
    let words = u32::try_from(platforms.len()).ok().and_then(tapml_kernels::meeting::words);
    let Some(words) = words else { return Ok(None) };
    let made = platforms.iter_mut().map(|platform| platform.create_rank_memory(words));
    match made.collect::<Result<Vec<_>>>() {
        Err(e) if e.kind() == ErrorKind::Unsupported => Ok(None),
        made => {
            let made = made?;
            Ok(reach_each_other(&made)?.then_some(made))
        }
    }
}

/// Whether each device can use the memory of every other one.
fn reach_each_other(memories: &[RankMemory]) -> Result<bool> {
    for (rank, own) in memories.iter().enumerate() {
        for (_, other) in memories.iter().enumerate().filter(|(other, _)| *other != rank) {
            if !own.reaches(&other.memory())? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

impl DeviceRank {
    /// Loads a rank of a graph of all ranks, which meets the others in its own `memory` and theirs.
    ///
    /// # Errors
    /// As [`Platform::load_with`].
    pub fn load(
        platform: &mut dyn Platform,
        model: &Model,
        capacity: &Symbols,
        memory: RankMemory,
        meeting: RankMeeting,
        &RanksOptions { options, compared, .. }: &RanksOptions<'_>,
    ) -> Result<DeviceRank> {
        // Only its inputs are looked at, which do not depend on how much memory there is.
        let (rank, own) = (meeting.rank, model.graph().rank_graph(meeting.rank, 1)?);
        let options = LoadOptions { meeting: Some(meeting), ..options.clone() };
        let loaded = platform.load_with(model, capacity, &options).context(|| format!("rank {rank}"))?;
        let inputs = own.inputs().map(|(_, value)| value.name.clone()).collect();
        Ok(DeviceRank { rank, loaded, memory, inputs, places: meeting_places(model.graph()), compared })
    }

    /// Does a job. Ranks other than the first give nothing.
    pub fn run(&mut self, job: RankJob) -> Result<RankResult> {
        let since = Instant::now();
        // Faults of this rank, and waits in vain, are told with the step that they belong to.
        let done = self.work(job).and_then(|result| self.memory.wait().map(|()| result));
        // Whoever waited in vain goes on with wrong numbers, which nobody may see.
        if since.elapsed() >= WAIT_TIMEOUT.saturating_sub(CLOCK_ERROR)
            && let Some(LateRank { rank, call }) = self.memory.late_rank()?
        {
            let count = self.places.len().max(1);
            let at = (call as usize).saturating_sub(1) % count;
            let place = self.places.get(at).map_or("a meeting", String::as_str);
            return Err(late_error(rank as usize, &format!("`{place}`"), since.elapsed()));
        }
        done.context(|| format!("rank {}", self.rank))
    }

    fn work(&mut self, job: RankJob) -> Result<RankResult> {
        let speaks = self.rank == 0 || self.compared;
        match job {
            RankJob::Step(symbols, inputs) if speaks => {
                let inputs = self.own_inputs(inputs);
                self.loaded.run(&symbols, &inputs, None).map(RankResult::Outputs)
            }
            RankJob::Rows(symbols, inputs, wanted) if speaks => {
                let inputs = self.own_inputs(inputs);
                let rows =
                    |(name, rows): &(String, Option<std::ops::Range<usize>>)| (name.clone(), rows.clone());
                let wanted: Vec<_> = wanted.iter().map(rows).collect();
                let wanted: Vec<OutputRows<'_>> =
                    wanted.iter().map(|(name, rows)| OutputRows { name, rows: rows.clone() }).collect();
                self.loaded.run_rows(&symbols, &inputs, &wanted, None).map(RankResult::Rows)
            }
            RankJob::Step(symbols, inputs) | RankJob::Rows(symbols, inputs, _) => {
                let inputs = self.own_inputs(inputs);
                self.loaded.run_rows(&symbols, &inputs, &[], None).map(|_| RankResult::Done)
            }
            RankJob::ReadRow(output, row, columns) if speaks => {
                self.loaded.read_row(&output, row, columns).map(|row| RankResult::Rows(vec![row]))
            }
            RankJob::ReadRow(..) => Ok(RankResult::Done),
            RankJob::Greedy(at, count) => self.loaded.generate_greedily(at, count).map(RankResult::Tokens),
            RankJob::Reset => self.loaded.reset().map(|()| RankResult::Done),
            RankJob::Clear => self.memory.clear().map(|()| RankResult::Done),
        }
    }

    fn own_inputs(&self, mut inputs: HashMap<String, Tensor>) -> HashMap<String, Tensor> {
        inputs.retain(|name, _| self.inputs.contains(name));
        inputs
    }
}

/// Names of the nodes at which ranks meet.
fn meeting_places(graph: &Graph) -> Vec<String> {
    let meets = |node: &&tapml_graph::Node| node.op.meeting_ranks().is_some();
    graph.nodes().iter().filter(meets).map(|node| node.name.clone()).collect()
}

/// Fails unless all ranks gave the same.
pub fn expect_equal(results: &[Option<RankResult>]) -> Result<()> {
    let Some(Some(first)) = results.first() else { return Ok(()) };
    let differs = |result: &Option<RankResult>| !result.as_ref().is_some_and(|result| result.equals(first));
    let Some(rank) = results.iter().position(differs) else { return Ok(()) };
    Err(Error::invalid(format!("rank {rank} has other results than rank 0 where they meet"))
        .with_hint("`tapml device check` tells which device computes wrong results"))
}
