//! The thread of one rank.

use super::meeting::{Meeting, Stopped, catch_panic};
use super::parts::RankParts;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use tapml_graph::{Error, Result, Symbols, Tensor};

/// What a rank is asked for.
#[derive(Clone)]
pub enum RankJob {
    Step(Symbols, HashMap<String, Tensor>),
    Reset,
}

/// What a rank says, with the number of the job.
pub struct RankAnswer {
    pub job: u64,
    pub rank: usize,
    pub outcome: std::result::Result<HashMap<String, Tensor>, Stopped>,
}

/// See the module.
pub struct RankThread {
    jobs: Sender<(u64, RankJob)>,
    thread: JoinHandle<()>,
}

impl RankThread {
    /// Starts the thread, which answers every job.
    pub fn start(
        parts: RankParts,
        rank: usize,
        meeting: Arc<Meeting>,
        answers: Sender<RankAnswer>,
    ) -> Result<RankThread> {
        let (jobs, received) = channel();
        let work = move || serve(parts, rank, (&meeting, &received), &answers);
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
    mut parts: RankParts,
    rank: usize,
    (meeting, jobs): (&Meeting, &Receiver<(u64, RankJob)>),
    answers: &Sender<RankAnswer>,
) {
    while let Ok((number, job)) = jobs.recv() {
        let work = || match job {
            RankJob::Step(symbols, inputs) => parts.run(&symbols, inputs, meeting),
            RankJob::Reset => parts.reset().map(|()| HashMap::new()).map_err(Stopped::from),
        };
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
