//! The thread of one rank.

use super::job::{RankJob, RankResult};
use super::meeting::{Meeting, Stopped, catch_panic};
use super::on_device::DeviceRank;
use super::parts::RankParts;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use tapml_graph::{Error, Result};

/// What runs on a rank's platform.
pub enum RankWork {
    /// Parts between meetings on the host.
    Parts(RankParts),
    /// All of it, with meetings on the devices.
    Device(DeviceRank),
}

impl RankWork {
    fn run(&mut self, job: RankJob, meeting: &Meeting) -> std::result::Result<RankResult, Stopped> {
        match (self, job) {
            (RankWork::Device(rank), job) => rank.run(job).map_err(Stopped::from),
            (RankWork::Parts(parts), RankJob::Step(symbols, inputs)) => {
                parts.run(&symbols, inputs, meeting).map(RankResult::Outputs)
            }
            (RankWork::Parts(parts), RankJob::Reset) => Ok(parts.reset().map(|()| RankResult::Done)?),
            (RankWork::Parts(_), RankJob::Clear) => Ok(RankResult::Done),
            (RankWork::Parts(_), RankJob::Rows(..) | RankJob::ReadRow(..) | RankJob::Greedy(..)) => {
                Err(Error::bug("ranks that meet on the host were asked for what devices do").into())
            }
        }
    }
}

/// What a rank says, with the number of the job.
pub struct RankAnswer {
    pub job: u64,
    pub rank: usize,
    pub outcome: std::result::Result<RankResult, Stopped>,
}

/// See the module.
pub struct RankThread {
    jobs: Sender<(u64, RankJob)>,
    thread: JoinHandle<()>,
}

impl RankThread {
    /// Starts the thread, which answers every job.
    pub fn start(
        work: RankWork,
        rank: usize,
        meeting: Arc<Meeting>,
        answers: Sender<RankAnswer>,
    ) -> Result<RankThread> {
        let (jobs, received) = channel();
        let work = move || serve(work, rank, (&meeting, &received), &answers);
        let thread = Builder::new().name(format!("rank {rank}")).spawn(work);
        let thread = thread.map_err(|e| Error::bug(format!("no thread for rank {rank}: {e}")))?;
        Ok(RankThread { jobs, thread })
    }

    /// Whether the thread takes the job: not if it has ended.
    pub fn send(&self, number: u64, job: RankJob) -> bool {
        self.jobs.send((number, job)).is_ok()
    }

    /// Lets the thread end; waits for that unless it hangs.
    pub fn end(self, hangs: bool) {
        drop(self.jobs);
        if !hangs {
            // A panic was told when it happened.
            drop(self.thread.join());
        }
    }
}

/// Does jobs until there are no more.
fn serve(
    mut on_rank: RankWork,
    rank: usize,
    (meeting, jobs): (&Meeting, &Receiver<(u64, RankJob)>),
    answers: &Sender<RankAnswer>,
) {
    while let Ok((number, job)) = jobs.recv() {
        let work = || on_rank.run(job, meeting);
        let outcome = catch_panic(work).map_err(|e| Stopped::Failed(e.context(format!("rank {rank}"))));
        let outcome = outcome.and_then(|outcome| outcome);
        if outcome.is_err() {
            meeting.fail();
        }
        if answers.send(RankAnswer { job: number, rank, outcome }).is_err() {
            return;
        }
    }
}
