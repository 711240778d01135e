//! A sharded graph on its ranks, each in a thread of its own.

use super::job::{RankJob, RankResult, RanksOptions};
use super::meeting::{Meeting, Stopped, late_error, wait_timeout};
use super::on_device::{DeviceRank, create_memories, expect_equal};
use super::parts::RankParts;
use super::worker::{RankAnswer, RankThread, RankWork};
use crate::platform::slice_outputs;
use crate::{Loaded, Observer, Platform, RankMeeting};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tapml_graph::{Error, Model, Result, Symbols, Tensor};
use tapml_kernels::OutputRows;

/// See the module.
pub struct RanksLoaded {
    /// In the order of ranks.
    workers: Vec<RankThread>,
    answers: Receiver<RankAnswer>,
    meeting: Arc<Meeting>,
    /// Number of the last job.
    job: u64,
    /// Whether a step has failed since the last reset.
    broken: bool,
    /// Ranks that did not answer in time.
    hanging: Vec<usize>,
    /// Whether they meet on their devices.
    on_devices: bool,
    /// Whether all must give the same bits.
    compared: bool,
}

impl RanksLoaded {
    /// Loads each rank's part on its platform, one after the other.
    ///
    /// # Errors
    /// As [`Platform::load_with`], with the rank.
    pub fn load(
        platforms: &mut [Box<dyn Platform>],
        model: &Model,
        capacity: &Symbols,
        settings: RanksOptions<'_>,
    ) -> Result<RanksLoaded> {
        let RanksOptions { options, on_devices, compared } = settings;
        let meeting = Arc::new(Meeting::new(platforms.len()));
        let (answer, answers) = channel();
        let mut workers = Vec::with_capacity(platforms.len());
        let works: Vec<RankWork> = if on_devices {
            load_on_devices(platforms, model, capacity, &settings)?
        } else {
            let load = |(rank, platform): (usize, &mut Box<dyn Platform>)| {
                RankParts::load(platform.as_mut(), model, (rank, capacity), options).map(RankWork::Parts)
            };
            platforms.iter_mut().enumerate().map(load).collect::<Result<_>>()?
        };
        for (rank, work) in works.into_iter().enumerate() {
            workers.push(RankThread::start(work, rank, meeting.clone(), answer.clone())?);
        }
        let (broken, hanging) = (false, Vec::new());
        Ok(RanksLoaded { workers, answers, meeting, job: 0, broken, hanging, on_devices, compared })
    }

    /// A job after which the states are undefined if it fails.
    fn give_step(&mut self, job: RankJob) -> Result<RankResult> {
        if self.broken {
            return Err(Error::invalid(
                "an earlier step failed, so that the states of the ranks are undefined",
            )
            .with_hint("reset and feed the tokens again"));
        }
        let outputs = self.give_job(job);
        self.broken = outputs.is_err();
        outputs
    }

    /// Gives all ranks a job and waits for it; gives what the first rank says.
    fn give_job(&mut self, job: RankJob) -> Result<RankResult> {
        self.job += 1;
        for (rank, worker) in self.workers.iter().enumerate() {
            if !worker.send(self.job, job.clone()) {
                return Err(Error::bug(format!("the thread of rank {rank} has ended")));
            }
        }
        let (began, mut failed) = (Instant::now(), None);
        let mut results: Vec<Option<RankResult>> = vec![None; self.workers.len()];
        let mut missing: Vec<usize> = (0..self.workers.len()).collect();
        // How long others may take is known once one is done.
        let mut until: Option<Instant> = None;
        while !missing.is_empty() {
            let answer = match until {
                None => self.answers.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(until) => self.answers.recv_timeout(until.saturating_duration_since(Instant::now())),
            };
            let Ok(RankAnswer { job, rank, outcome }) = answer else { break };
            // An answer to a job that was given up.
            if job != self.job {
                continue;
            }
            missing.retain(|of| *of != rank);
            match outcome {
                Ok(result) => results[rank] = Some(result),
                Err(Stopped::Failed(error)) if failed.is_none() => failed = Some(error),
                _ => {}
            }
            // Others stop at their next meeting; who fails need not wait for them as long as for work.
            let wait = if failed.is_some() { Duration::from_secs(1) } else { wait_timeout(began.elapsed()) };
            until = Some(until.map_or(Instant::now() + wait, |until| until.min(Instant::now() + wait)));
        }
        self.hanging.clone_from(&missing);
        match (failed, missing.first()) {
            (Some(error), _) => Err(error),
            (None, Some(&rank)) => {
                self.meeting.fail();
                Err(late_error(rank, "the end of the step", began.elapsed()))
            }
            (None, None) => {
                if self.compared || matches!(results[0], Some(RankResult::Tokens(_))) {
                    expect_equal(&results)?;
                }
                Ok(results.swap_remove(0).unwrap_or(RankResult::Done))
            }
        }
    }
}

/// Loads all ranks with memory in which their devices meet.
fn load_on_devices(
    platforms: &mut [Box<dyn Platform>],
    model: &Model,
    capacity: &Symbols,
    settings: &RanksOptions<'_>,
) -> Result<Vec<RankWork>> {
    let own = create_memories(platforms)?
        .ok_or_else(|| Error::unsupported("a device has no memory in which the ranks could meet"))?;
    let memories: Vec<_> = own.iter().map(|memory| memory.memory()).collect();
    let load = |((rank, memory), platform): ((usize, _), &mut Box<dyn Platform>)| {
        let meeting = RankMeeting { rank: rank as u32, memories: memories.clone() };
        DeviceRank::load(platform.as_mut(), model, capacity, memory, meeting, settings).map(RankWork::Device)
    };
    own.into_iter().enumerate().zip(platforms).map(load).collect()
}

impl Loaded for RanksLoaded {
    fn run(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        observer: Option<&mut dyn Observer>,
    ) -> Result<HashMap<String, Tensor>> {
        if observer.is_some() {
            return Err(Error::unsupported("several ranks show no single nodes")
                .with_hint("carve the graph of all ranks, which `Graph::shard` gives, on one platform"));
        }
        match self.give_step(RankJob::Step(symbols.clone(), inputs.clone()))? {
            RankResult::Outputs(outputs) => Ok(outputs),
            other => Err(Error::bug(format!("a step of ranks gave {other:?}"))),
        }
    }

    fn run_rows(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        wanted: &[OutputRows<'_>],
        observer: Option<&mut dyn Observer>,
    ) -> Result<Vec<Tensor>> {
        if !self.on_devices || observer.is_some() {
            return slice_outputs(&self.run(symbols, inputs, observer)?, wanted);
        }
        let wanted = wanted.iter().map(|wanted| (wanted.name.to_string(), wanted.rows.clone())).collect();
        match self.give_step(RankJob::Rows(symbols.clone(), inputs.clone(), wanted))? {
            RankResult::Rows(rows) => Ok(rows),
            other => Err(Error::bug(format!("a step of ranks gave {other:?}"))),
        }
    }

    fn keeps_outputs(&self) -> bool {
        self.on_devices
    }

    fn read_row(&mut self, output: &str, row: usize, columns: Range<usize>) -> Result<Tensor> {
        match self.give_step(RankJob::ReadRow(output.into(), row, columns))? {
            RankResult::Rows(rows) if rows.len() == 1 => Ok(rows[0].clone()),
            other => Err(Error::bug(format!("a row of ranks is {other:?}"))),
        }
    }

    fn generate_greedily(&mut self, at: (u64, u32), count: u64) -> Result<Option<Vec<u32>>> {
        if !self.on_devices {
            return Ok(None);
        }
        match self.give_step(RankJob::Greedy(at, count))? {
            RankResult::Tokens(tokens) => Ok(tokens),
            other => Err(Error::bug(format!("steps of ranks gave {other:?}"))),
        }
    }

    fn reset(&mut self) -> Result<()> {
        self.broken = true;
        // Nobody may wait at a meeting of the step that failed.
        self.meeting.fail();
        self.give_job(RankJob::Reset)?;
        // Nobody is at work any more, so that nobody writes where others meet.
        self.give_job(RankJob::Clear)?;
        self.meeting.reset();
        self.broken = false;
        Ok(())
    }
}

impl Drop for RanksLoaded {
    fn drop(&mut self) {
        self.meeting.fail();
        for (rank, worker) in self.workers.drain(..).enumerate() {
            worker.end(self.hanging.contains(&rank));
        }
    }
}
