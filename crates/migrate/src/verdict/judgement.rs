//! The verdict of one node call.

use super::bound::JudgedElement;
use super::criterion::Criterion;
use super::pattern::Pattern;
use crate::filter::Lost;

/// The verdict of one node call.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Observed over allowed of the criterion that decided; above 1 fails. Infinite for NaN where none belongs.
    pub ratio: f64,
    /// The criterion that decided.
    pub criterion: Criterion,
    /// Observed over allowed of the worst single element, and that element.
    pub element_ratio: f64,
    /// The worst element.
    pub worst: JudgedElement,
    /// Slope of the platform's values on the exact ones, minus 1.
    pub slope: f64,
    /// How wrong elements are spread; absent if it passed.
    pub pattern: Option<Pattern>,
    /// Observed over allowed of the source platform's recorded output; above 1 the source itself departs.
    pub source_ratio: Option<f64>,
    /// Indices that may go either way because a rounding decides them.
    pub undecided: usize,
    /// The attribute that many calls together show to be lost, where every element passes; see [`crate::filter`].
    pub lost: Option<Lost>,
    /// That a call which fails as the kernel declares would pass as sums of all terms one after the other.
    pub one_chain: Option<OneChain>,
}

/// A call that fails, judged again as if its kernel declared to add up all terms one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneChain {
    /// Terms of a sum.
    pub terms: usize,
    /// Observed over allowed error then; at most 1.
    pub ratio: f64,
}

impl OneChain {
    /// One sentence.
    pub fn text(&self) -> String {
        format!(
            "it passes as sums of {} terms one after the other ({:.2} of what these allow): a kernel that means to add so declares \
             it in its file, `// accumulate: f32 serial`",
            self.terms, self.ratio
        )
    }
}

impl Judgement {
    /// Whether the call passes.
    pub fn passes(&self) -> bool {
        self.ratio <= 1.0
    }

    /// The verdict of a call whose elements pass, after the matched filter found an attribute lost.
    pub fn with_lost_attribute(self, lost: Lost) -> Judgement {
        let pattern = Some(Pattern::of_rows(lost.rows, lost.text()));
        let ratio = lost.share / lost.least_factor();
        let criterion = if lost.is_rounding() { Criterion::Rounding } else { Criterion::Attribute };
        Judgement { ratio, criterion, pattern, lost: Some(lost), ..self }
    }
}
