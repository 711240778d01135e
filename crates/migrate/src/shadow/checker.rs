//! The verdict of a recorded live call: what the source gives, what is exact, what the kernel allows itself.

use super::cases::{CaseFolder, Left};
use super::counts::{ShadowState, increment};
use super::queue::RecordedCall;
use super::queue::ShadowQueue;
use crate::judged::judge_call;
use crate::oracle::Oracles;
use crate::verdict::{Judgement, Precision};
use std::collections::HashMap;
use std::sync::Arc;
use tapml_exec::{Call, KernelChoice, Platform};
use tapml_graph::{Error, ErrorKind, Result, Tensor};

/// See the module.
pub(super) struct ShadowChecker {
    pub(super) source: Box<dyn Platform>,
    pub(super) oracles: Oracles,
    pub(super) kernels: Arc<HashMap<String, KernelChoice>>,
    pub(super) cases: CaseFolder,
    /// Word of the platform that serves.
    pub(super) target: String,
    pub(super) report: Box<dyn Fn(&str) + Send>,
    pub(super) state: Arc<ShadowState>,
    pub(super) queue: Arc<ShadowQueue>,
}

/// What the source says of a call.
struct Judged {
    /// The verdict, or why what the target gave deserves none.
    outcome: Result<Judgement>,
    /// What the source gave.
    expected: Vec<Tensor>,
}

impl ShadowChecker {
    /// Gives a verdict, counts it, and leaves a suite if it fails.
    pub fn check(&mut self, recorded: RecordedCall) {
        match self.judge(&recorded) {
            Ok(Some(Judged { outcome, expected })) => {
                increment(&self.state.calls);
                if !outcome.as_ref().is_ok_and(Judgement::passes) {
                    self.note_failure(&recorded, &outcome, &expected);
                }
            }
            Ok(None) => increment(&self.state.skipped),
            Err(error) => {
                increment(&self.state.skipped);
                let node = &recorded.call.node;
                (self.report)(&format!("shadow: the call of `{node}` could not be checked: {error}"));
            }
        }
        self.queue.release(&recorded.kernel, recorded.bytes);
    }

    /// `None` if nobody can say.
    fn judge(&mut self, recorded: &RecordedCall) -> Result<Option<Judged>> {
        let RecordedCall { call, outputs, .. } = recorded;
        let Some(kernel) = self.kernels.get(&call.node) else { return Ok(None) };
        let target = precision(kernel, call)?;
        let mut expected = None;
        self.source.replay(std::slice::from_ref(call), &mut |_, outputs| expected = Some(outputs))?;
        let expected = match expected {
            Some(Ok(expected)) => expected,
            Some(Err(error)) if error.kind() == ErrorKind::Unsupported => return Ok(None),
            Some(Err(error)) => return Err(error),
            None => return Err(Error::bug("the source gave no result")),
        };
        // The number of the node decides the disturbances, as in the suite that is left of the call.
        match self.oracles.exact(call, 0) {
            Ok(exact) => {
                let outcome = judge_call(call, &exact, outputs, target, &expected);
                Ok(Some(Judged { outcome, expected }))
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Counts and tells a failing call, and leaves its suite.
    fn note_failure(&mut self, recorded: &RecordedCall, outcome: &Result<Judgement>, expected: &[Tensor]) {
        let (op, kernel) = (recorded.call.op.name(), &recorded.kernel);
        self.state.add_failure(op, kernel);
        let what = match outcome {
            Ok(judged) => format!("{:.3} times the allowed error", judged.ratio),
            Err(error) => error.to_string(),
        };
        let next = match self.cases.write(recorded, expected, kernel) {
            Ok(Left::Case(path)) => {
                format!("`tapml check {} --target {}` repeats it", path.display(), self.target)
            }
            Ok(Left::Nothing(why)) => {
                increment(&self.state.unwritten);
                format!("no case is left: {why}")
            }
            Err(error) => {
                increment(&self.state.unwritten);
                format!("no case could be left: {error}")
            }
        };
        let (node, symbols) = (&recorded.call.node, &recorded.call.symbols);
        (self.report)(&format!(
            "shadow: `{op}` by {kernel} is wrong in node `{node}` at {symbols:?}: {what}; {next}"
        ));
    }
}

/// The precision that a kernel declares for a call.
fn precision(kernel: &KernelChoice, call: &Call) -> Result<Precision> {
    // A chain longer than `usize` allows is as good as endless.
    let terms = usize::try_from(kernel.accumulate.chain.eval(&call.symbols)?).unwrap_or(usize::MAX);
    Ok(Precision { accumulate: kernel.accumulate.dtype, terms })
}
