//! What a planner is asked for.

use super::needs::RowCount;
use super::settings::Setting;
use crate::plan::{NodePlan, Phase};
use tapml_device::DeviceInfo;
use tapml_graph::{Dim, Op, Result, Symbol, TensorType};

/// Plans an operator at these types of inputs by the kernel list.
pub type PlanStep = fn(&Op, &[TensorType], Phase, &DeviceInfo) -> Result<NodePlan>;

/// What a planner is asked for: an operator at these types on such a device.
pub struct Request<'a> {
    /// The operator.
    pub op: &'a Op,
    /// Types of its inputs.
    pub inputs: &'a [TensorType],
    /// Types of its outputs.
    pub outputs: &'a [TensorType],
    /// The device.
    pub info: &'a DeviceInfo,
    /// The phase in which the node runs.
    pub phase: Phase,
    /// Sizes of the kernel that are not its defaults.
    pub setting: Setting,
    /// Plans a step of an operator that is planned by its definition. The list of kernels stands above the planners, which cannot name it.
    pub plan_step: PlanStep,
}

impl Request<'_> {
    /// How many rows the first input, or else the first output, has in such a run.
    pub fn row_count(&self) -> RowCount {
        let rows = self.inputs.first().or(self.outputs.first()).and_then(|ty| ty.shape.first());
        match rows {
            Some(rows) if rows.as_const() == Some(1) => RowCount::One,
            // In the decode phase `n` is 1. A size such as `n + p` is not one, whatever the phase.
            Some(rows) if *rows == Dim::symbol(Symbol::N) && self.phase == Phase::Decode => RowCount::One,
            _ => RowCount::Many,
        }
    }
}
