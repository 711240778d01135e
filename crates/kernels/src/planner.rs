//! Plans for one device, made once: layers of a model repeat the same operators at the same types.

use crate::overrides::Overrides;
use crate::plan::{NodePlan, plan_node};
use std::collections::HashMap;
use std::sync::Arc;
use tapml_device::DeviceInfo;
use tapml_graph::{Op, Result, TensorType};

/// Makes plans for devices like one, each distinct one once.
#[derive(Debug)]
pub struct Planner {
    info: DeviceInfo,
    overrides: Overrides,
    plans: HashMap<Key, Result<Arc<NodePlan>>>,
}

/// What decides a plan on one device: the operator's name and attributes, and the types of its inputs.
type Key = (&'static str, String, Vec<TensorType>);

impl Planner {
    /// No plans yet; the user's kernels are used where there are some.
    pub fn new(info: DeviceInfo, overrides: Overrides) -> Planner {
        Planner { info, overrides, plans: HashMap::new() }
    }

    /// The device that is planned for.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// As [`plan_node`], made at the first request.
    pub fn plan(&mut self, op: &Op, inputs: &[TensorType]) -> Result<Arc<NodePlan>> {
        let Planner { info, overrides, plans } = self;
        let plan = plans
            .entry((op.name(), op.attributes_text(), inputs.to_vec()))
            .or_insert_with(|| plan_node(op, inputs, info, overrides).map(Arc::new));
        plan.clone()
    }
}
