//! What hypotheses were tested, and how well each explains what was observed.
//!
//! Families of hypotheses add trials through [`Trials`], which bounds their work and knows when a call needs no more of them.

use crate::Cause;
use crate::context::CallContext;
use crate::fit::{Score, explains_wrong, score};
use crate::output_view::{OutputView, Prediction};
use tapml_graph::Op;
use tapml_reference::Value;

/// How much a hypothesis assumes: of two that fit the simpler one is believed.
///
/// The numbers are the cost of an assumption; gaps leave a named hypothesis and a placed one closer than a fitted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// A named defect without a free number.
    Named = 1,
    /// One of several places or small numbers.
    Placed = 2,
    /// A number found by fitting.
    Fitted = 4,
    /// What describes the wrong elements rather than predicts them.
    Descriptive = 6,
    /// What is likely from the size and kind of the errors alone: the nearest candidate, never a cause.
    Guessed = 8,
}

/// A hypothesis that was tested.
///
/// A family adds one for each place or number that it tries.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// What it would be called.
    pub cause: Cause,
    /// How much it assumes.
    pub rank: Rank,
    /// What was assumed, as a clause.
    pub note: String,
    /// When it shows, as a condition on the call, if that is known.
    pub rule: Option<String>,
    /// How well it explains what was observed.
    pub score: Score,
    /// Whether the hypothesis, if it fits, leaves no doubt by itself. Statistical ones do not.
    pub decisive: bool,
}

/// The fit of a hypothesis that explains the wrong elements and not the right ones.
/// It is named, but is not certain: why the right elements are right is open.
const IN_PART: f64 = 0.9;

/// Work that the hypotheses about one call may take, in multiplications.
/// A count instead of a time keeps explanations the same on every machine.
const WORK: usize = 120_000_000;

/// The hypotheses tested so far.
pub(crate) struct Trials<'s, 'a> {
    /// The call that all of them are about.
    pub context: &'s CallContext<'a>,
    /// In the order in which they were tested; those that explain nothing are left out.
    pub done: Vec<Trial>,
    /// Multiplications so far, as the cut estimates them.
    work: usize,
}

impl<'s, 'a> Trials<'s, 'a> {
    /// Nothing tested yet.
    pub fn new(study: &'s CallContext<'a>) -> Trials<'s, 'a> {
        Trials { context: study, done: Vec::new(), work: 0 }
    }

    /// Tests a prediction of every element.
    /// "Full" is the whole output, not the cut, so that a prediction needs no evaluation. It costs no work.
    pub fn full(
        &mut self,
        cause: Cause,
        rank: Rank,
        note: impl Into<String>,
        prediction: &Prediction,
    ) -> Score {
        let (score, note) = (self.score(prediction), note.into());
        self.of_wrong(cause, rank, &note, score, explains_wrong(&self.context.full, prediction));
        self.add(cause, rank, note, score, true)
    }

    /// As [`Trials::full`], with the condition under which it shows.
    pub fn add_with_rule(
        &mut self,
        cause: Cause,
        rank: Rank,
        note: String,
        rule: String,
        prediction: &Prediction,
    ) -> Score {
        let from = self.done.len();
        let score = self.full(cause, rank, note, prediction);
        // One test may add two trials; both have the condition.
        self.done[from..].iter_mut().for_each(|trial| trial.rule = Some(rule.clone()));
        score
    }

    /// Adds that a hypothesis without a free number explains the wrong elements, and not the right ones.
    fn of_wrong(&mut self, cause: Cause, rank: Rank, note: &str, score: Score, explains: bool) {
        if explains && rank <= Rank::Placed && score.fit < IN_PART {
            let part = Score { fit: IN_PART, ratio: f64::INFINITY };
            self.add(cause, Rank::Fitted, format!("{note}, in the wrong elements alone"), part, false);
        }
    }

    /// As [`Trials::full`], of what other causes predict too.
    pub fn possible(
        &mut self,
        cause: Cause,
        rank: Rank,
        note: impl Into<String>,
        prediction: &Prediction,
    ) -> Score {
        let score = self.score(prediction);
        self.add(cause, rank, note.into(), score, false)
    }

    /// How well a prediction of every element fits.
    fn score(&self, prediction: &Prediction) -> Score {
        let prediction = of_wrong_outputs(&self.context.full, prediction.clone());
        score(&self.context.full, &prediction, self.context.evidence.precision)
    }

    /// Tests a prediction of every element that follows the observed ones too closely to leave no doubt.
    pub fn add_described(&mut self, cause: Cause, note: impl Into<String>, prediction: &Prediction) -> Score {
        self.possible(cause, Rank::Fitted, note, prediction)
    }

    /// Tests a prediction of the cut's elements.
    /// `None` is a change that could not be evaluated; it is not added, and its score is [`Score::NONE`].
    pub fn cut(
        &mut self,
        cause: Cause,
        rank: Rank,
        note: impl Into<String>,
        prediction: Option<Prediction>,
    ) -> Score {
        self.of_cut(cause, rank, note.into(), prediction, true)
    }

    /// As [`Trials::cut`], of what something else, if there is a `rival`, predicts too.
    pub fn subsample_with_rival(
        &mut self,
        cause: Cause,
        rank: Rank,
        note: impl Into<String>,
        prediction: Option<Prediction>,
        rival: Option<&str>,
    ) -> Score {
        let note = match rival {
            Some(rival) => format!("{} ({rival})", note.into()),
            None => note.into(),
        };
        self.of_cut(cause, rank, note, prediction, rival.is_none())
    }

    /// Tests a prediction of the cut's elements. `decisive` says whether it leaves no doubt if it fits.
    fn of_cut(
        &mut self,
        cause: Cause,
        rank: Rank,
        note: String,
        prediction: Option<Prediction>,
        decisive: bool,
    ) -> Score {
        // Zeros have too many reasons to tell for any of them.
        let largest = |values: &[Vec<f64>]| values.iter().flatten().fold(0.0f64, |m, v| m.max(v.abs()));
        let exact =
            self.context.cut.view.outs.iter().flat_map(|out| &out.exact).fold(0.0f64, |m, v| m.max(v.abs()));
        let told = |p: &Prediction| largest(p) > 1e-6 * exact || p.iter().flatten().any(|v| v.is_nan());
        let Some(prediction) = prediction.filter(told) else { return Score::NONE };
        let prediction = of_wrong_outputs(&self.context.cut.view, prediction);
        let score = score(&self.context.cut.view, &prediction, self.context.evidence.precision);
        self.of_wrong(cause, rank, &note, score, explains_wrong(&self.context.cut.view, &prediction));
        self.add(cause, rank, note, score, decisive)
    }

    /// Adds a hypothesis that explains this share of the wrong elements without predicting their values.
    /// A fit of 1 counts as a full explanation, but never as certain.
    pub fn statistical(&mut self, cause: Cause, rank: Rank, note: impl Into<String>, fit: f64) {
        self.add(
            cause,
            rank,
            note.into(),
            Score { fit, ratio: if fit >= 1.0 { 1.0 } else { f64::INFINITY } },
            false,
        );
    }

    /// Adds the nearest candidate where nothing else is known; `weight` orders several.
    pub fn add_guess(&mut self, cause: Cause, note: impl Into<String>, weight: f64) {
        let score = Score { fit: weight, ratio: f64::INFINITY };
        self.add(cause, Rank::Guessed, note.into(), score, false);
    }

    /// As [`Trials::statistical`], of what leaves no doubt.
    pub fn add_proven(&mut self, cause: Cause, rank: Rank, note: impl Into<String>) {
        self.add(cause, rank, note.into(), Score { fit: 1.0, ratio: 1.0 }, true);
    }

    /// What the cut's call gives with another operator or other inputs; `None` if the operator refuses them, or if no
    /// work is left.
    pub fn eval(&mut self, op: &Op, inputs: &[Value<f64>]) -> Option<Prediction> {
        self.spend()?;
        self.context.cut.eval(op, &self.context.cut.symbols, inputs)
    }

    /// What the cut's call gives with one other input.
    pub fn with_input(&mut self, i: usize, input: Option<Value<f64>>) -> Option<Prediction> {
        let input = input?;
        self.spend()?;
        self.context.cut.with_input(i, input)
    }

    /// Counts one evaluation of the cut; `None` if no work is left.
    /// Once it is used up every further evaluation is refused, and the explanation is not certain any more.
    pub fn spend(&mut self) -> Option<()> {
        // The constant is for what an evaluation costs beside multiplications.
        self.work += self.context.cut.work + 1000;
        (self.work <= WORK).then_some(())
    }

    /// Whether hypotheses were left untested because no work was left.
    pub fn is_exhausted(&self) -> bool {
        self.work > WORK
    }

    /// Whether a hypothesis that needs no fitting explains everything already.
    /// Searches for numbers are then skipped, which take the most work.
    pub fn is_settled(&self) -> bool {
        self.done.iter().any(|t| t.score.fits() && t.rank < Rank::Fitted && t.decisive)
    }

    /// Keeps a trial that explains anything.
    fn add(&mut self, cause: Cause, rank: Rank, note: String, score: Score, decisive: bool) -> Score {
        if score.fit > 0.0 && score.fit.is_finite() {
            self.done.push(Trial { cause, rank, note, rule: None, score, decisive });
        }
        score
    }
}

/// The prediction for outputs that are wrong, and the exact result for those that are right: a defect may lie behind the
/// place where they part.
fn of_wrong_outputs(view: &OutputView, mut prediction: Prediction) -> Prediction {
    // With one output, or with nothing wrong, there is no part to tell apart.
    if prediction.len() > 1 && view.wrong() > 0 {
        for (out, values) in view.outs.iter().zip(&mut prediction) {
            if out.wrong().next().is_none() {
                values.clone_from(&out.exact);
            }
        }
    }
    prediction
}
