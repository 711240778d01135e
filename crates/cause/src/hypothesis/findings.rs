//! What a checking device reported, what differs between repeats, and choices that are close.
//!
//! A report of a device is evidence of a defect, not of the wrong values; shares below 1 say that, and order the causes among each other.

use crate::Cause;
use crate::trials::{Rank, Trials};

/// A checking device saw it. Where values are wrong as well, a wrong index may be behind it: it makes invocations meet,
/// leaves memory unwritten or leads outside.
pub(super) fn try_findings(trials: &mut Trials<'_, '_>) {
    let values = !trials.context.judged.passes();
    let findings = trials.context.evidence.findings;
    let kinds: Vec<String> = findings.iter().map(|f| f.kind.to_lowercase()).collect();
    let has = |word: &str| kinds.iter().any(|k| k.contains(word));
    for (finding, kind) in findings.iter().zip(&kinds) {
        let place = if finding.line > 0 { format!(" at line {}", finding.line) } else { String::new() };
        let note = format!("the device reports {}{place}: {}", finding.kind, finding.message);
        let (cause, fit) = if kind.contains("race") || kind.contains("barrier") {
            // Shares lie closely above what is named, so that a hypothesis that predicts values outweighs them.
            (Cause::Race, 0.62)
        } else if kind.contains("bound") {
            match overshoot(&finding.message) {
                Some(0..NEAR_THE_END) if grows(trials) => (Cause::WrongStride, 0.66),
                Some(0..NEAR_THE_END) => (Cause::OffByOne, 0.66),
                Some(_) => (Cause::WrongStride, 0.64),
                None => (Cause::OutOfBounds, 0.64),
            }
        } else if kind.contains("uninit") && (has("bound") || has("race")) {
            (Cause::WrongStride, 0.63)
        // A word that is not the first is missed by an index, while memory that is never written begins at word 0.
        } else if kind.contains("uninit") && !finding.message.contains("word 0 ") {
            (Cause::OffByOne, 0.65)
        } else if kind.contains("uninit") {
            (Cause::Uninitialised, 0.65)
        } else {
            continue;
        };
        if values {
            trials.statistical(cause, Rank::Descriptive, note, fit)
        } else {
            // Without wrong values the defect is reported as the device names it.
            let seen = if kind.contains("bound") { Cause::OutOfBounds } else { cause };
            trials.add_proven(seen, Rank::Named, note);
        }
    }
}

/// Whether most of an output is wrong, but not where its rows or columns begin: an index that is one too large is so from the
/// first one on, a wrong distance or quotient grows with them.
fn grows(trials: &Trials<'_, '_>) -> bool {
    trials.context.full.outs.iter().any(|out| {
        // An index that is off by one spoils little more than an end.
        let most = 2 * out.wrong().count() > out.exact.len();
        let rows = out.rows() > 1 && (0..out.width).all(|i| !out.is_wrong(i));
        let columns = out.width > 1 && (0..out.rows()).all(|r| !out.is_wrong(r * out.width));
        most && (rows || columns)
    })
}

/// An index so little beyond the end is off by one, perhaps for each of a few lanes.
const NEAR_THE_END: u64 = 4;

/// How far the index of a report like `index 40 of 40 elements` lies beyond the end.
/// `None` for messages of another form, and for an index within the bounds. The form is that of the emulator.
/// An index that is negative as `i32` is written with both readings and is `None` too.
fn overshoot(message: &str) -> Option<u64> {
    let rest = message.split_once("index ")?.1;
    let (index, rest) = rest.split_once(" of ")?;
    let size = rest.split(' ').next()?;
    index.parse::<u64>().ok()?.checked_sub(size.parse().ok()?)
}

/// The same call gives other results when it is repeated.
pub(super) fn repeats_differ(trials: &mut Trials<'_, '_>) {
    let Some((first, rest)) = trials.context.evidence.observed.split_first() else { return };
    let mut differ = 0;
    for repeat in rest {
        // Bits are compared: a race may change the last bit only.
        for (a, b) in first.iter().zip(repeat) {
            let size = a.dtype().size();
            let (a, b) = (a.bytes().chunks(size), b.bytes().chunks(size));
            differ = differ.max(a.zip(b).filter(|(a, b)| a != b).count());
        }
    }
    if differ > 0 {
        let count = trials.context.evidence.observed.len();
        let note = format!("{differ} elements differ between {count} repeats of the same call");
        // What is written outside its place may come before or after what belongs there: the index is wrong.
        let outside = trials.context.evidence.findings.iter().any(|f| f.kind.contains("bound"));
        if outside {
            trials.statistical(Cause::Race, Rank::Descriptive, note, RACE_SHARE)
        } else {
            trials.statistical(Cause::Race, Rank::Named, note, 1.0)
        }
    }
}

/// The share that a race explains where a device saw an index go astray: less than the index does.
const RACE_SHARE: f64 = 0.61;

/// How many times the allowed disturbance two choices may be apart to be called near.
const NEAR: f64 = 64.0;

/// Another choice that is nearly as good.
/// The ratio of a choice says how many times the allowed disturbance would change it.
pub(super) fn near_tie(trials: &mut Trials<'_, '_>) {
    for (o, out) in trials.context.full.outs.iter().enumerate() {
        let wrong: Vec<usize> = out.wrong().collect();
        let near = wrong.iter().filter(|&&i| out.ratios[i] <= NEAR).count();
        if !out.dtype.is_float() && near > 0 {
            let note = format!(
                "output {o}: {near} of {} wrong choices are within {NEAR} times the allowed disturbance of the right one",
                wrong.len()
            );
            trials.statistical(Cause::NearTie, Rank::Descriptive, note, near as f64 / wrong.len() as f64);
        }
    }
}
