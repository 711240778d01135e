//! The whole way from a failing call to its cause.
//!
//! Hypotheses are tested in the order of their table. One that fits does not end the tests, since another may fit as well; only the
//! searches for numbers are then left out.

use crate::context::CallContext;
use crate::decide::{Decision, best_trials, decide};
use crate::hypothesis::HYPOTHESES;
use crate::trials::{Rank, Trials};
use crate::words::number;
use crate::{Cause, ErrorMap, Evidence, Explanation};
use std::sync::OnceLock;
use tapml_graph::{Context, Result};
use tapml_migrate::Oracles;

/// Tests every named hypothesis on a failing call and says which one explains it.
///
/// Fails if the evidence contradicts itself: outputs of other shapes than the exact ones, or none at all. A call that
/// passes its verdict, and on which no device reported a finding, has no cause: [`Cause::Unknown`] with a fit of 0.
///
/// # Errors
///
/// See above, and exact results that cannot be evaluated.
pub fn explain(evidence: &Evidence<'_>) -> Result<Explanation> {
    explain_by(evidence, None)
}

/// As [`explain`], of a call of an operator of others, which `oracles` evaluate.
pub fn explain_foreign(evidence: &Evidence<'_>, oracles: &Oracles) -> Result<Explanation> {
    explain_by(evidence, Some(oracles))
}

/// Tests on one thread of a pool of its own.
fn explain_by(evidence: &Evidence<'_>, oracles: Option<&Oracles>) -> Result<Explanation> {
    // Hundreds of small evaluations: to wake a second thread for each would take longer than they do.
    static POOL: OnceLock<Option<rayon::ThreadPool>> = OnceLock::new();
    let pool = POOL.get_or_init(|| rayon::ThreadPoolBuilder::new().num_threads(1).build().ok());
    match pool {
        Some(pool) => pool.install(|| on_this_thread(evidence, oracles)),
        // Without the thread the result is the same, but slower.
        None => on_this_thread(evidence, oracles),
    }
}

/// Prepares the call, tests every hypothesis that applies, and decides.
fn on_this_thread(evidence: &Evidence<'_>, oracles: Option<&Oracles>) -> Result<Explanation> {
    let study = CallContext::new(evidence, oracles).context(|| format!("node `{}`", evidence.call.node))?;
    let picture = ErrorMap::from_context(&study);
    let mut trials = Trials::new(&study);
    for hypothesis in HYPOTHESES.iter().filter(|hypothesis| hypothesis.applies(evidence)) {
        // A call that passes has no wrong values, but a device may have reported a defect.
        let values = !study.judged.passes();
        if values || hypothesis.without_values {
            (hypothesis.test)(&mut trials);
        }
    }
    let decision = decide(&study, &trials.done, !trials.is_exhausted());
    Ok(Explanation {
        cause: decision.cause(),
        certain: decision.certain,
        evidence: sentence(&study, &decision, &picture),
        fit: decision.best.filter(|b| b.rank < Rank::Guessed).map_or(0.0, |b| b.score.fit),
        rule: decision.best.filter(|_| decision.named).and_then(|best| best.rule.clone()),
        tested: best_trials(&trials.done),
        error_map: picture,
    })
}

/// The evidence in words: what was assumed, how much of what is wrong it explains, and what else is possible.
/// Four cases: nothing was tested that explains anything, only a guess is left, the nearest hypothesis is too weak, or one is named.
fn sentence(study: &CallContext<'_>, decision: &Decision<'_>, picture: &ErrorMap) -> String {
    let Some(best) = decision.best else {
        return if study.judged.passes() {
            "what was observed is within the allowed error".to_string()
        } else {
            format!("no hypothesis explains any of it; wrong: {}", picture.text)
        };
    };
    if best.rank == Rank::Guessed {
        let cause = describe_cause(best.cause);
        return format!(
            "no hypothesis fits; wrong: {}; the nearest candidate, by the size and kind of the errors alone, is {cause}: {}",
            picture.text, best.note
        );
    }
    if !decision.named {
        let share = percent(best.score.fit);
        return format!(
            "no hypothesis fits; wrong: {}; nearest, explaining {share} of that: {}, {}",
            picture.text,
            describe_cause(best.cause),
            best.note
        );
    }
    let wrong = study.full.wrong();
    let explained = match (best.score.fits(), wrong) {
        // No single element is wrong: the verdict failed on what all elements have in common.
        (true, 0) => "that explains the shift that all elements share".to_string(),
        (true, _) if best.decisive => format!(
            "that explains all wrong elements ({wrong} of {}) to within {} of the allowed error",
            study.full.outs.iter().map(|o| o.exact.len()).sum::<usize>(),
            number(best.score.ratio)
        ),
        _ => format!("that explains {} of what is wrong: {}", percent(best.score.fit), picture.text),
    };
    let rival = match decision.rival {
        Some(rival) => format!("; as well possible: {}, {}", describe_cause(rival.cause), rival.note),
        None => String::new(),
    };
    let twin = match decision.twin {
        Some(twin) => format!("; values cannot tell this from: {}", twin.note),
        None => String::new(),
    };
    format!("{}; {explained}{twin}{rival}", best.note)
}

/// A cause as words of a sentence.
fn describe_cause(cause: Cause) -> String {
    cause.name().replace('_', " ")
}

/// A share in whole per cent.
fn percent(share: f64) -> String {
    // Never rounded up to all of it.
    format!("{:.0} %", (100.0 * share).floor())
}
