//! Plans of single nodes, compiled, by operator and input types.
//!
//! A plan is made and compiled at its first call and serves all later ones, whatever their symbols are.

use crate::Call;
use std::collections::HashMap;
use std::sync::Arc;
use tapml_device::{BufferId, Device, DeviceInfo, KernelId};
use tapml_graph::{Context, Op, Result, TensorType};
use tapml_kernels::{KernelCache, NodePlan, Overrides, Phase, plan_node};

/// A plan whose kernels are compiled and whose constants are on the device.
pub(super) struct CompiledPlan {
    pub plan: NodePlan,
    /// One per launch.
    pub kernels: Vec<KernelId>,
    /// One per constant of the plan.
    pub constants: Vec<BufferId>,
}

/// What decides a plan on one device.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct PlanKey {
    /// Operator with attributes, as text.
    op: String,
    inputs: Vec<TensorType>,
    phase: Phase,
}

impl PlanKey {
    /// That of a call.
    pub fn of_call(call: &Call) -> PlanKey {
        PlanKey {
            op: call.op.identity(),
            inputs: call.input_types.clone(),
            phase: Phase::of_run(&call.symbols),
        }
    }
}

/// Compiled plans.
#[derive(Default)]
pub(super) struct Plans(HashMap<PlanKey, Arc<CompiledPlan>>);

impl Plans {
    /// The plan of this key, made at the first request.
    pub fn get(
        &mut self,
        key: &PlanKey,
        op: &Op,
        (info, overrides): (&DeviceInfo, &Overrides),
        device: &mut dyn Device,
        kernels: &mut KernelCache,
    ) -> Result<Arc<CompiledPlan>> {
        if let Some(planned) = self.0.get(key) {
            return Ok(planned.clone());
        }
        let plan = plan_node(op, &key.inputs, key.phase, info, overrides)?;
        let compiled =
            plan.launches.iter().map(|launch| kernels.get(device, &launch.desc)).collect::<Result<_>>()?;
        let mut constants = Vec::new();
        for bytes in &plan.constants {
            match constant(device, &plan.kernel, bytes) {
                Ok(buffer) => constants.push(buffer),
                Err(e) => {
                    // What was uploaded before the failure is freed.
                    constants.into_iter().for_each(|b| drop(device.destroy_buffer(b)));
                    return Err(e);
                }
            }
        }
        let planned = Arc::new(CompiledPlan { plan, kernels: compiled, constants });
        self.0.insert(key.clone(), planned.clone());
        Ok(planned)
    }

    /// Forgets all plans and frees their constants.
    pub fn clear(&mut self, device: &mut dyn Device) -> Result<()> {
        let buffers: Vec<BufferId> =
            self.0.drain().flat_map(|(_, planned)| planned.constants.clone()).collect();
        buffers.into_iter().try_for_each(|buffer| device.destroy_buffer(buffer))
    }
}

/// Uploads one constant.
fn constant(device: &mut dyn Device, kernel: &str, bytes: &[u8]) -> Result<BufferId> {
    let label = format!("constant of {kernel}");
    let buffer = device.create_buffer(&label, bytes.len().max(4) as u64)?;
    match device.write(buffer, 0, bytes).context(|| label) {
        Ok(()) => Ok(buffer),
        Err(e) => {
            drop(device.destroy_buffer(buffer));
            Err(e)
        }
    }
}
