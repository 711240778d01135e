//! A failing call prepared for hypotheses: its outputs against the exact ones, and a smaller call that shows the fault.
//!
//! It is made once per call and shared by all hypotheses, which only read it.

use crate::Evidence;
use crate::cut::Subsample;
use crate::output_view::{Out, OutputView};
use tapml_graph::{Error, Result, Tensor};
use tapml_migrate::Oracles;
use tapml_migrate::verdict::{Judgement, judge};

/// A failing call, prepared.
pub(crate) struct CallContext<'a> {
    /// What the caller knows.
    pub evidence: &'a Evidence<'a>,
    /// Who evaluates operators of others.
    pub oracles: Option<&'a Oracles>,
    /// The verdict of the repeat that departs most, which is the one looked at.
    pub judged: Judgement,
    /// Every element.
    /// Predictions that need no evaluation are compared with it.
    pub full: OutputView,
    /// Few rows and columns, with a call that computes them.
    /// Predictions that evaluate the operator are compared with it.
    pub cut: Subsample,
}

impl<'a> CallContext<'a> {
    /// Fails if the outputs are not of the shapes of the exact ones, or if the exact ones cannot be computed.
    ///
    /// Of several repeats the worst is looked at: the others may show less of the same fault.
    pub fn new(evidence: &'a Evidence<'a>, oracles: Option<&'a Oracles>) -> Result<CallContext<'a>> {
        let mut worst: Option<(Judgement, &[Tensor])> = None;
        for observed in evidence.observed {
            let judged = judge(evidence.exact, observed, evidence.precision, None)?;
            if worst.as_ref().is_none_or(|(old, _)| judged.ratio > old.ratio) {
                worst = Some((judged, observed));
            }
        }
        let (judged, observed) = worst.ok_or_else(|| Error::invalid("no outputs were observed"))?;
        let outs = evidence.exact.iter().zip(observed).map(|(e, o)| Out::new(e, o, evidence.precision));
        let full = OutputView::new(outs.collect::<Result<_>>()?);
        let cut = Subsample::new(evidence.call, &full)?;
        Ok(CallContext { evidence, oracles, judged, full, cut })
    }
}
