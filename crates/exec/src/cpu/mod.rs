//! The `cpu` platform: the reference in `f32`, threaded. The source of most migrations. An observer sees
//! every node as it runs.
//!
//! It has no launches, plans no memory and fuses nothing: a graph runs as it is written. Weights are
//! converted one time for all graphs.

mod foreign;
mod loaded;
mod quantized;
mod rows;
mod weights;

use crate::platform::longest_chain;
use crate::{Call, KernelChoice, Loaded, OperatorPlatform, Platform, PlatformInfo, Sink};
use tapml_device::Finding;
use tapml_graph::op::Foreign;
use tapml_graph::{Context, DType, Dim, Model, Op, Result, Symbols, Tensor, TensorType};
use tapml_kernels::{Accumulate, Phase};
use tapml_reference::{Value, eval};
use weights::ConvertedWeights;

/// The reference in `f32` on this machine's processor.
#[derive(Default)]
pub struct CpuPlatform {
    /// Shared with everything that is loaded.
    weights: ConvertedWeights,
}

impl CpuPlatform {
    /// A platform without any weights yet.
    pub fn new() -> CpuPlatform {
        CpuPlatform::default()
    }
}

/// The outputs of one call, each rounded to its dtype.
fn evaluate_call(weights: &ConvertedWeights, call: &Call) -> Result<Vec<Tensor>> {
    call.check()?;
    if call.op.is_foreign() {
        return tapml_reference::foreign::run_any(&call.op, &call.symbols, &call.inputs, &[]);
    }
    let named = call.inputs.iter().zip(&call.weights);
    let inputs = named.map(|(tensor, name)| match name {
        Some(name) => weights.get(name, tensor),
        None => Value::from_tensor(tensor),
    });
    let outputs = eval(&call.op, &call.symbols, &inputs.collect::<Result<Vec<_>>>()?)?;
    outputs.iter().zip(&call.output_types).map(|(output, ty)| output.to_tensor(ty.dtype)).collect()
}

impl Platform for CpuPlatform {
    fn word(&self) -> &str {
        "cpu"
    }

    fn describe(&self) -> PlatformInfo {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        PlatformInfo {
            platform: "cpu".into(),
            device: format!("{} processor, {threads} threads", std::env::consts::ARCH),
            driver: concat!("tapml reference ", env!("CARGO_PKG_VERSION")).into(),
        }
    }

    fn kernel_for(&self, op: &Op, inputs: &[TensorType], _phase: Phase) -> Result<KernelChoice> {
        op.infer(inputs)?;
        let hash = concat!("reference-", env!("CARGO_PKG_VERSION")).into();
        // The reference adds up in blocks, which err less than a chain.
        let chain = match op {
            op if op.is_foreign() => Dim::from(tapml_reference::foreign::terms(op, inputs)),
            op => longest_chain(op, inputs),
        };
        let accumulate = Accumulate::new(DType::F32, chain);
        Ok(KernelChoice { name: format!("{}/reference", op.name()), hash, accumulate, regimes: Vec::new() })
    }

    fn replay(&mut self, calls: &[Call], sink: &mut Sink<'_>) -> Result<()> {
        for (i, call) in calls.iter().enumerate() {
            sink(i, evaluate_call(&self.weights, call).context(|| format!("node `{}`", call.node)));
        }
        Ok(())
    }

    fn discover(&mut self, node: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>> {
        let inputs: Vec<Tensor> = inputs.iter().map(|(tensor, _)| tensor.clone()).collect();
        tapml_reference::foreign::evaluate(op, &inputs).context(|| format!("node `{node}` ({})", op.kind()))
    }

    fn load(&mut self, model: &Model, capacity: &Symbols) -> Result<Box<dyn Loaded>> {
        if foreign::is_in(model.graph()) {
            let server = foreign::CpuServer::new(self.describe(), model.graph());
            return OperatorPlatform::new(Box::new(server)).load(model, capacity);
        }
        Ok(Box::new(loaded::CpuLoaded::new(model, &self.weights)?))
    }

    fn take_findings(&mut self) -> Vec<Finding> {
        Vec::new()
    }

    fn memory(&self) -> (u64, u64) {
        (0, 0)
    }
}
