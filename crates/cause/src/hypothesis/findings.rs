//! What a checking device reported, what differs between repeats, and choices that are close.

use crate::Cause;
use crate::trials::{Rank, Trials};

/// Words in a finding's kind, the cause, and whether the finding by itself leaves no doubt about it: an index outside a
/// buffer or memory that nobody wrote is as often the consequence of another defect.
const KINDS: &[(&str, Cause, bool)] = &[
    ("race", Cause::Race, true),
    ("barrier", Cause::Race, false),
    ("bound", Cause::OutOfBounds, false),
    ("uninit", Cause::Uninitialised, false),
];

/// A checking device saw it.
pub(super) fn reported(trials: &mut Trials<'_, '_>) {
    for finding in trials.study.evidence.findings {
        let kind = finding.kind.to_lowercase();
        let Some(&(_, cause, proof)) = KINDS.iter().find(|(word, ..)| kind.contains(word)) else { continue };
        let place = if finding.line > 0 { format!(" at line {}", finding.line) } else { String::new() };
        let note = format!("the device reports {}{place}: {}", finding.kind, finding.message);
        match proof {
            true => trials.proven(cause, Rank::Named, note),
            false => trials.statistical(cause, Rank::Fitted, note, 1.0),
        }
    }
}

/// The same call gives other results when it is repeated.
pub(super) fn repeats_differ(trials: &mut Trials<'_, '_>) {
    let Some((first, rest)) = trials.study.evidence.observed.split_first() else { return };
    let mut differ = 0;
    for repeat in rest {
        for (a, b) in first.iter().zip(repeat) {
            let size = a.dtype().size();
            let (a, b) = (a.bytes().chunks(size), b.bytes().chunks(size));
            differ = differ.max(a.zip(b).filter(|(a, b)| a != b).count());
        }
    }
    if differ > 0 {
        let count = trials.study.evidence.observed.len();
        let note = format!("{differ} elements differ between {count} repeats of the same call");
        trials.statistical(Cause::Race, Rank::Named, note, 1.0);
    }
}

/// How many times the allowed disturbance two choices may be apart to be called near.
const NEAR: f64 = 64.0;

/// Another choice that is nearly as good.
pub(super) fn near_tie(trials: &mut Trials<'_, '_>) {
    for (o, out) in trials.study.full.outs.iter().enumerate() {
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
