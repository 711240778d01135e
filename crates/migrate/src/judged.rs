//! Calls with their verdicts.

use crate::oracle::terms;
use crate::suite::Case;
use crate::verdict::{Exact, Judgement, Precision, as_one_chain, judge};
use tapml_exec::Call;
use tapml_graph::{DType, Error, ErrorKind, Result, Tensor};

/// Precision in which the source platform computes: the CPU reference sums in f32.
const SOURCE_ACCUMULATE: DType = DType::F32;

/// The verdict of one case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The case.
    pub case: Case,
    /// The verdict, or why the call could not be run.
    pub outcome: std::result::Result<Judgement, Error>,
}

impl CaseResult {
    /// Observed error over allowed error; infinite if the call could not be run.
    pub fn ratio(&self) -> f64 {
        self.outcome.as_ref().map_or(f64::INFINITY, |j| j.ratio)
    }

    /// Whether nobody knows the exact result, so that the call says nothing for or against the platform.
    pub(crate) fn is_unjudged(&self) -> bool {
        self.outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported)
    }

    /// Whether the call was wrong or could not be run.
    pub fn is_failed(&self) -> bool {
        !self.outcome.as_ref().is_ok_and(Judgement::passes)
    }
}

/// A call of a check with its verdict.
pub struct JudgedCall<'a> {
    /// Operator.
    pub op: &'a str,
    /// Name of the case.
    pub case: String,
    /// Name of the node.
    pub node: &'a str,
    /// The kernel that ran it, if it is known.
    pub kernel: Option<&'a str>,
    /// The verdict, or why the call could not be run.
    pub result: &'a CaseResult,
}

/// The verdict of what a platform of this precision gave for a call, beside what the source gave.
pub(crate) fn judge_call(
    call: &Call,
    exact: &[Exact],
    outputs: &[Tensor],
    target: Precision,
    expected: &[Tensor],
) -> Result<Judgement> {
    check_types(call, outputs)?;
    let source = Precision { accumulate: SOURCE_ACCUMULATE, terms: terms(call) };
    let mut judged = judge(exact, outputs, target, Some((expected, source)))?;
    if !judged.passes() {
        judged.one_chain = as_one_chain(exact, outputs, target, source.terms)?;
    }
    Ok(judged)
}

/// Fails unless the platform gave what the graph says.
pub(crate) fn check_types(call: &Call, outputs: &[Tensor]) -> Result<()> {
    let expected = call.output_types.iter().map(|t| t.bind(&call.symbols)).collect::<Result<Vec<_>>>()?;
    let found: Vec<_> = outputs.iter().map(crate::hash::tensor_type).collect();
    if expected == found {
        return Ok(());
    }
    Err(Error::invalid(format!("expected outputs {expected:?}, found {found:?}")))
}
