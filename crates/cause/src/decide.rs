//! Which of the tested hypotheses is believed, and whether beyond doubt.
//!
//! A hypothesis is certain only if it fits everything, predicts values, has no rival of nearly the same simplicity, and nothing was left
//! untested.

use crate::Cause;
use crate::context::CallContext;
use crate::explanation::Tested;
use crate::trials::{Rank, Trial};

/// Elements that must be wrong by far for a hypothesis without a free number to be certain.
/// Chance makes many hypotheses fit a single number.
const STRONG: usize = 6;
/// The same for one with numbers found by fitting.
/// Each fitted number takes away some of the evidence.
const STRONG_FITTED: usize = 24;
/// A hypothesis that explains less is no more than the nearest one.
/// The cause is then unknown, and the nearest hypothesis is told beside it.
const NAMED_FROM: f64 = 0.6;

/// The hypothesis that is believed.
pub(crate) struct Decision<'t> {
    /// The best one, whether or not it is good enough to be named.
    pub best: Option<&'t Trial>,
    /// Whether the best one is good enough.
    pub named: bool,
    /// Whether it is beyond doubt.
    pub certain: bool,
    /// The best hypothesis of another cause that fits as well.
    pub rival: Option<&'t Trial>,
    /// The same of another input that fits as well: values cannot tell which of the two it is.
    pub twin: Option<&'t Trial>,
}

impl Decision<'_> {
    /// The cause to report.
    pub fn cause(&self) -> Cause {
        self.best.filter(|_| self.named).map_or(Cause::Unknown, |b| b.cause)
    }
}

/// Decides between trials; `complete` if every hypothesis was tested.
///
/// Without a trial there is nothing to decide, and the cause is unknown. A call that passes its verdict has no wrong elements; there a
/// device's report counts as shown.
pub(crate) fn decide<'t>(study: &CallContext<'_>, done: &'t [Trial], complete: bool) -> Decision<'t> {
    // Of equal ones the first: the table of hypotheses lists the more telling ones first.
    let best = done.iter().reduce(|a, b| if worth(b) > worth(a) { b } else { a });
    // No hypothesis explains anything.
    let Some(found) = best else {
        return Decision { best: None, named: false, certain: false, rival: None, twin: None };
    };
    let rivals = done
        .iter()
        // A rival may be one rank less simple: a difference of one decides nothing.
        .filter(|t| t.cause != found.cause && t.score.fits() && t.rank as u8 <= found.rank as u8 + 1);
    let rival = rivals.min_by_key(|t| t.rank);
    let strong = study.full.strong();
    // A search always finds some number, so it needs more elements to agree.
    let enough = if found.rank >= Rank::Fitted { STRONG_FITTED } else { STRONG };
    let predicts = found.decisive && found.rank < Rank::Descriptive;
    // Without wrong values only a device's report is left, and that is about itself.
    let shown = strong >= enough || study.judged.passes();
    let certain = found.score.fits() && predicts && rival.is_none() && shown && complete;
    let named = found.score.fit >= NAMED_FROM && found.rank < Rank::Guessed;
    Decision { best, named, certain, rival, twin: twin(found, done) }
}

/// A hypothesis of the same cause and no more assumptions, of another input.
/// Both are named, since values alone cannot decide between them.
fn twin<'t>(found: &Trial, done: &'t [Trial]) -> Option<&'t Trial> {
    let own = input(&found.note).filter(|_| found.score.fits())?;
    let other = |t: &&Trial| input(&t.note).is_some_and(|input| input != own);
    let mut alike = done.iter().filter(|t| t.cause == found.cause && t.score.fits() && t.rank <= found.rank);
    alike.find(other)
}

/// The input that a note names first.
/// Notes are made for people; that an input is named `input N` in all of them is what this relies on.
fn input(note: &str) -> Option<&str> {
    let from = note.find("input ")? + "input ".len();
    let digits = note[from..].find(|c: char| !c.is_ascii_digit()).unwrap_or(note.len() - from);
    (digits > 0).then(|| &note[from..from + digits])
}

/// Orders trials: those that fit before those that do not, the simpler before the less simple, the better fitting first.
/// A rank costs a hundredth, so that simplicity decides only between nearly equal fits.
fn worth(trial: &Trial) -> f64 {
    let simple = 0.01 * f64::from(trial.rank as u8);
    if trial.score.fits() { 3.0 - simple } else { trial.score.fit - simple }
}

/// The best trial of each cause, best first.
pub(crate) fn best_trials(done: &[Trial]) -> Vec<Tested> {
    let mut best: Vec<&Trial> = Vec::new();
    // A guess has no fit that could be compared.
    for trial in done.iter().filter(|t| t.rank < Rank::Guessed) {
        match best.iter_mut().find(|t| t.cause == trial.cause) {
            Some(old) if worth(trial) > worth(old) => *old = trial,
            Some(_) => {}
            None => best.push(trial),
        }
    }
    best.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    best.iter().map(|t| Tested { cause: t.cause, fit: t.score.fit, note: t.note.clone() }).collect()
}
