//! Plans for one device, made once: layers of a model repeat the same operators at the same types.
//!
//! Failures are remembered too: fusing asks again and again for operators that no kernel serves.

use crate::choose::plan_node;
use crate::overrides::Overrides;
use crate::plan::{NodePlan, Phase};
use std::collections::HashMap;
use std::sync::Arc;
use tapml_device::DeviceInfo;
use tapml_graph::{Op, Result, TensorType};

/// Makes plans for devices like one, each distinct one once.
#[derive(Debug)]
pub struct Planner {
    info: DeviceInfo,
    overrides: Overrides,
    /// What [`plan_node`] gave for each key, errors included.
    plans: HashMap<PlanKey, Result<Arc<NodePlan>>>,
}

/// What decides a plan on one device.
///
/// Device and overrides are not part of it, because a planner has one of each for all of its life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PlanKey {
    /// The operator's identity: name, attributes, and what a node declares of an operator of others.
    op: String,
    inputs: Vec<TensorType>,
    phase: Phase,
}

impl Planner {
    /// No plans yet; the user's kernels are used where there are some.
    pub fn new(info: DeviceInfo, overrides: Overrides) -> Planner {
        Planner { info, overrides, plans: HashMap::new() }
    }

    /// The device that is planned for.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The user's kernels.
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// As [`plan_node`], made at the first request.
    pub fn plan(&mut self, op: &Op, inputs: &[TensorType], phase: Phase) -> Result<Arc<NodePlan>> {
        let Planner { info, overrides, plans } = self;
        let key = PlanKey { op: op.identity(), inputs: inputs.to_vec(), phase };
        let plan =
            plans.entry(key).or_insert_with(|| plan_node(op, inputs, phase, info, overrides).map(Arc::new));
        plan.clone()
    }
}
