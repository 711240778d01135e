//! A call that is ready to run.

use crate::Call;
use crate::device::plans::CompiledPlan;
use std::sync::Arc;

/// A call that is ready to run.
pub(super) struct ReadyCall<'a> {
    /// The caller's index.
    pub index: usize,
    pub call: &'a Call,
    /// Shared by calls of the same plan.
    pub planned: Arc<CompiledPlan>,
}
