//! The whole job: does the call fail, how steadily, how small does it get, and how simple.
//!
//! The order matters: first sizes, then operators and attributes, then values, then what the failure depends on.

use crate::aspect::{Aspect, aspects};
use crate::plain::plain;
use crate::rule::{SizeRule, size_rules};
use crate::search::Search;
use crate::simplify::{Simplified, simplify};
use crate::specimen::Specimen;
use crate::trial::{Failure, Trials};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use tapml_exec::{Call, Phase, Platform};
use tapml_graph::{DType, Result, Tensor};
use tapml_migrate::verdict::{Precision, judge};
use tapml_migrate::{Oracles, Stop, terms};

/// Runs that must all fail for a failure to count as steady.
/// A failure that shows in all of them is taken to show in one run of each smaller call.
const STEADY: usize = 3;
/// Runs of each smaller call if the failure is not steady: one that fails is enough.
/// More runs would find rarer failures and take longer for each step.
const FLAKY: usize = 10;
/// Runs of the smallest call that tell how often it fails.
const FINAL: usize = 20;

/// How to reduce.
#[derive(Clone, Debug)]
pub struct ReduceOptions {
    /// After this time the smallest call so far is taken. What the failure depends on is sought for half as long again.
    pub limit: Duration,
    /// Whether to look for simpler values as well.
    pub simplify: bool,
}

impl Default for ReduceOptions {
    fn default() -> ReduceOptions {
        ReduceOptions { limit: Duration::from_secs(10), simplify: true }
    }
}

/// In how many runs a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stability {
    /// Runs that failed.
    pub failed: usize,
    /// Runs in all.
    pub runs: usize,
}

impl Stability {
    /// Whether every run failed.
    pub fn steady(self) -> bool {
        self.failed == self.runs
    }
}

/// A failing call that was made smaller.
#[derive(Clone, Debug)]
pub struct Reduced {
    /// The call as it was.
    pub whole: Specimen,
    /// How it failed.
    pub whole_failure: Failure,
    /// The smallest call, with real values.
    pub smallest: Specimen,
    /// How it fails.
    pub failure: Failure,
    /// How often.
    pub stability: Stability,
    /// Whether it is proven that no single index of any axis can go; else time ran out, or the user asked to stop.
    pub minimal: bool,
    /// The smallest call with simpler values.
    pub simplified: Option<Simplified>,
    /// With which sizes a call of an operator of others fails; see [`SizeRule`].
    pub sizes: Vec<SizeRule>,
    /// On what else its failure depends; see [`Aspect`].
    pub aspects: Vec<Aspect>,
    /// Calls that were run.
    pub trials: u64,
    /// Time taken.
    pub seconds: f64,
}

/// Shrinks a call that fails on the platform; `recorded` are the source platform's outputs. `None` if it does not fail. On a
/// request to stop, gives the smallest call so far. `oracles` evaluate operators of others.
///
/// Fails if the platform does not run the operator, or can run nothing any more.
///
/// # Errors
///
/// See above, and a suite or oracle that cannot evaluate the whole call.
pub fn reduce(
    call: Call,
    recorded: &[Tensor],
    platform: &mut dyn Platform,
    oracles: &Oracles,
    options: &ReduceOptions,
    stop: &Stop,
) -> Result<Option<Reduced>> {
    let start = Instant::now();
    let whole = Specimen::new(call);
    let phase = Phase::of_run(&whole.call.symbols);
    platform.kernel_for(&whole.call.op, &whole.call.input_types, phase)?;
    let mut trials = Trials::new(platform, oracles, stop, start + options.limit);
    let (failed, failure) = trials.failures(&whole, STEADY)?;
    // A call that the source's own rounding excuses passes a check, so it is no failure to reduce.
    let Some(whole_failure) = failure.filter(|f| !is_excused(&whole.call, f, recorded)) else {
        return Ok(None);
    };
    // From here on smaller calls must fail in the same way.
    trials.expect(&whole_failure, if failed == STEADY { 1 } else { FLAKY });
    let mut search = Search::new(&mut trials, whole.clone(), whole_failure.clone());
    search.run()?;
    // Each may open a way for the other; both only make the call smaller, so this ends.
    while plain(&mut search)? {
        search.run()?;
    }
    let (smallest, failure, minimal) = (search.best, search.failure, search.minimal);
    let (failed, _) = trials.failures(&smallest, FINAL)?;
    // Simplifying judges single runs, so the failure must be steady.
    let simplified = match &failure {
        Failure::Wrong(_) if options.simplify && failed == FINAL && stop.check().is_ok() => {
            simplify(&mut trials, &smallest, &failure)?
        }
        _ => None,
    };
    // What it depends on has time of its own, so that a long search does not leave it out.
    trials.extend(options.limit / 2);
    let sizes = size_rules(&mut trials, &whole, &whole_failure)?;
    let aspects = aspects(&mut trials, &whole)?;
    Ok(Some(Reduced {
        whole,
        whole_failure,
        smallest,
        failure,
        stability: Stability { failed, runs: FINAL },
        minimal,
        simplified,
        sizes,
        aspects,
        trials: trials.count(),
        seconds: start.elapsed().as_secs_f64(),
    }))
}

/// Whether the source platform's own error, which a check of the recorded call counts, allows for what was found.
fn is_excused(call: &Call, failure: &Failure, recorded: &[Tensor]) -> bool {
    let Failure::Wrong(wrong) = failure else { return false };
    let source = Precision { accumulate: DType::F32, terms: terms(call) };
    let judged = judge(&wrong.exact, &wrong.observed, wrong.precision, Some((recorded, source)));
    judged.is_ok_and(|j| j.passes())
}
