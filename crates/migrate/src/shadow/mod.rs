//! Live calls of a deployed program, replayed on the source beside the service: some are recorded while the program runs, and a
//! thread of its own gives each the verdict that `check` gives recorded calls.
//!
//! The service never waits: a call that finds no room among those that wait is dropped, and counted. Verdicts go round the
//! kernels. A call that fails leaves a suite of one call, bounded in number and bytes.

mod alone;
mod cases;
mod checker;
mod counts;
mod queue;
mod sampler;

pub use counts::{ShadowCounts, ShadowFailures};
pub use sampler::ShadowSampler;

use crate::identity::ModelIdentity;
use crate::oracle::Oracles;
use cases::CaseFolder;
use checker::ShadowChecker;
use counts::ShadowState;
use queue::ShadowQueue;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tapml_exec::{KernelChoice, Phase, Platform};
use tapml_graph::{Error, ErrorKind, Graph, Model, Result};

/// Calls that may wait for their verdict.
const QUEUE_CALLS: usize = 64;
/// Their bytes, weights not counted.
const QUEUE_BYTES: u64 = 256 << 20;
/// The share of all processors that verdicts take in the long run: one takes far longer than its call. Calls that come
/// meanwhile are dropped when no more may wait.
const PROCESSOR_SHARE: f64 = 0.03;
// The same calls in every run of a test.
/// What the choice of calls is made from.
const SEED: u64 = 29;

/// What is checked, by whom, and where failing calls are left.
pub struct ShadowOptions {
    /// The expected share of calls: above 0, at most 1.
    pub share: f64,
    /// The model that is served.
    pub model: Model,
    /// Who the model is, for the suites.
    pub identity: ModelIdentity,
    /// Where it is known to work.
    pub source: Box<dyn Platform>,
    /// Word of the platform that serves, for messages.
    pub target: String,
    /// The kernel of each node of the deployed graph, by name; see [`deployed_kernels`].
    pub kernels: HashMap<String, KernelChoice>,
    /// The folder for suites of failing calls.
    pub cases: PathBuf,
    /// Tells a person what went wrong.
    pub report: Box<dyn Fn(&str) + Send>,
}

/// The kernels of a graph as a platform deploys it for steps of several texts, by the names of the nodes.
///
/// # Errors
/// If the graph cannot be lowered, or the platform cannot say, such as for a source that does not compile.
pub fn deployed_kernels(platform: &dyn Platform, graph: &Graph) -> Result<HashMap<String, KernelChoice>> {
    // Every run of an observable program takes the kernels for few rows; see `LoadOptions::row_invariant`.
    let phase = Phase::Decode;
    let lowered = platform.lower(graph, phase)?;
    let lowered = lowered.as_ref().unwrap_or(graph);
    let mut kernels = HashMap::new();
    for node in lowered.nodes() {
        match platform.kernel_for(&node.op, &lowered.input_types(node), phase) {
            Ok(choice) => drop(kernels.insert(node.name.clone(), choice)),
            // Of a node that the graph has for generation alone; the program would not have been compiled otherwise.
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            Err(error) => return Err(error.context(format!("node `{}`", node.name))),
        }
    }
    Ok(kernels)
}

/// The counts of a running check, to be asked from outside.
#[derive(Clone)]
pub struct Shadow {
    state: Arc<ShadowState>,
    queue: Arc<ShadowQueue>,
}

impl Shadow {
    /// Starts the thread that gives verdicts; it ends when the sampler is gone and what waits is done.
    ///
    /// # Errors
    /// If the share is none, or no thread can be started.
    pub fn start(options: ShadowOptions) -> Result<(Shadow, ShadowSampler)> {
        let ShadowOptions { share, model, identity, source, target, kernels, cases, report } = options;
        if !(share > 0.0 && share <= 1.0) {
            return Err(Error::invalid(format!("the share must be above 0 and at most 1, found {share}")));
        }
        let state = Arc::new(ShadowState::default());
        let names: BTreeSet<String> = kernels.values().map(|choice| choice.name.clone()).collect();
        let queue = Arc::new(ShadowQueue::new(QUEUE_CALLS, QUEUE_BYTES, names));
        let kernels = Arc::new(kernels);
        let sampler = ShadowSampler::new(state.clone(), queue.clone(), kernels.clone(), share, SEED);
        let cases = CaseFolder::new(cases, model, identity, source.describe());
        // Results are not kept: the same call does not come twice.
        let oracles = Oracles::new(0);
        let shadow = Shadow { state: state.clone(), queue: queue.clone() };
        let mut checker = ShadowChecker { source, oracles, kernels, cases, target, report, state, queue };
        // One thread: the service needs the others.
        let pool =
            rayon::ThreadPoolBuilder::new().num_threads(1).thread_name(|_| "shadow-pool".into()).build();
        let unavailable = |what: String| Error::new(ErrorKind::Unavailable, what);
        let pool = pool.map_err(|e| unavailable(format!("could not start a thread for verdicts: {e}")))?;
        let thread = thread::Builder::new().name("shadow".into()).spawn(move || {
            let processors = thread::available_parallelism().map_or(1, usize::from);
            while let Some(recorded) = checker.queue.pop() {
                let work = pool.install(|| {
                    let begun = thread_time();
                    checker.check(recorded);
                    thread_time().saturating_sub(begun)
                });
                thread::sleep(rest_after(work, processors));
            }
        });
        thread.map_err(|e| unavailable(format!("could not start a thread for verdicts: {e}")))?;
        Ok((shadow, sampler))
    }

    /// What has been found so far.
    pub fn counts(&self) -> ShadowCounts {
        self.state.counts(self.queue.calls())
    }
}

/// The processor time that this thread has taken. Time that goes by while others have the processor is not its work.
#[cfg(unix)]
fn thread_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// The time that has gone by since the first call, where the system does not tell a thread's own.
#[cfg(not(unix))]
fn thread_time() -> Duration {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed()
}

/// How long a thread rests after its work, so that it takes its share of the processors.
fn rest_after(work: Duration, processors: usize) -> Duration {
    let share = (PROCESSOR_SHARE * processors as f64).min(1.0);
    work.mul_f64(1.0 / share - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_rest_is_no_work() {
        let begun = thread_time();
        thread::sleep(Duration::from_millis(300));
        assert!(thread_time() - begun < Duration::from_millis(150));
        let mut sum = 0.0f64;
        while thread_time() - begun < Duration::from_millis(150) {
            sum += std::hint::black_box(1.0);
        }
        assert!(sum > 0.0);
    }

    #[test]
    fn verdicts_take_their_share_of_the_processors() {
        let seconds = |processors| rest_after(Duration::from_secs(3), processors).as_secs_f64();
        assert!((seconds(1) - 97.0).abs() < 1e-6, "{}", seconds(1));
        assert!((seconds(10) - 7.0).abs() < 1e-6, "{}", seconds(10));
        assert_eq!(seconds(64), 0.0);
    }
}
