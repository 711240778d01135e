//! A sharded graph on its ranks, each in a thread of its own.

use super::meeting::{Meeting, Stopped, late_error, wait_timeout};
use super::parts::RankParts;
use super::worker::{RankAnswer, RankJob, RankThread};
use crate::{LoadOptions, Loaded, Observer, Platform};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tapml_graph::{Error, Model, Result, Symbols, Tensor};

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
        options: &LoadOptions,
    ) -> Result<RanksLoaded> {
        let meeting = Arc::new(Meeting::new(platforms.len()));
        let (answer, answers) = channel();
        let mut workers = Vec::with_capacity(platforms.len());
        for (rank, platform) in platforms.iter_mut().enumerate() {
            let parts = RankParts::load(platform.as_mut(), model, (rank, capacity), options)?;
            workers.push(RankThread::start(parts, rank, meeting.clone(), answer.clone())?);
        }
        Ok(RanksLoaded { workers, answers, meeting, job: 0, broken: false, hanging: Vec::new() })
    }

    /// Gives all ranks a job and waits for it; gives what the first rank says.
    fn give_job(&mut self, job: RankJob) -> Result<HashMap<String, Tensor>> {
        self.job += 1;
        for (rank, worker) in self.workers.iter().enumerate() {
            if !worker.send(self.job, job.clone()) {
                return Err(Error::bug(format!("the thread of rank {rank} has ended")));
            }
        }
        let (began, mut first, mut failed) = (Instant::now(), HashMap::new(), None);
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
                Ok(outputs) if rank == 0 => first = outputs,
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
            (None, None) => Ok(first),
        }
    }
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
        if self.broken {
            return Err(Error::invalid(
                "an earlier step failed, so that the states of the ranks are undefined",
            )
            .with_hint("reset and feed the tokens again"));
        }
        let outputs = self.give_job(RankJob::Step(symbols.clone(), inputs.clone()));
        self.broken = outputs.is_err();
        outputs
    }

    fn reset(&mut self) -> Result<()> {
        self.broken = true;
        // Nobody may wait at a meeting of the step that failed.
        self.meeting.fail();
        self.give_job(RankJob::Reset)?;
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
