//! Calls with their verdicts.

use crate::suite::Case;
use crate::verdict::Judgement;
use tapml_exec::Call;
use tapml_graph::{Error, ErrorKind, Result, Tensor};

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

/// Fails unless the platform gave what the graph says.
pub(crate) fn check_types(call: &Call, outputs: &[Tensor]) -> Result<()> {
    let expected = call.output_types.iter().map(|t| t.bind(&call.symbols)).collect::<Result<Vec<_>>>()?;
    let found: Vec<_> = outputs.iter().map(crate::hash::tensor_type).collect();
    if expected == found {
        return Ok(());
    }
    Err(Error::invalid(format!("expected outputs {expected:?}, found {found:?}")))
}
