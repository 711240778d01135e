//! A platform that runs whole operators itself, in whatever way: it is asked for one node after the other, and holds
//! tensors for them. The rest of the graph is run here, as a plain loop.
//!
//! The other side may be a runtime behind an agent, or evaluations in this process. It sees one node at a
//! time and no graph, except for regions.

mod held;
mod loaded;
mod plan;
mod server;

use crate::again::repeat;
use crate::platform::longest_chain;
use crate::{Call, KernelChoice, LoadOptions, Loaded, Platform, PlatformInfo, Region, Sink};
use held::ServerWeights;
pub use server::{Gave, NodeCall, NodeInput, NodeServer, ServedOp};
use std::collections::BTreeSet;
use std::fmt;
use tapml_device::Finding;
use tapml_graph::op::{Foreign, Fused};
use tapml_graph::{
    Context, DType, Dim, Error, ErrorKind, Model, Node, Op, Result, Symbols, Tensor, TensorType,
};
use tapml_kernels::{Accumulate, Phase};

/// The platform made of a server of nodes. What it has loaded shares the server and keeps it alive.
pub struct OperatorPlatform {
    /// As the server describes itself.
    info: PlatformInfo,
    /// Asked one time: what a server serves does not change.
    ops: Vec<ServedOp>,
    /// The server, with the weights that it holds.
    shared: ServerWeights,
}

impl OperatorPlatform {
    /// A platform on this server, without any weights yet.
    pub fn new(server: Box<dyn NodeServer>) -> OperatorPlatform {
        let (info, ops) = (server.describe().clone(), server.ops().to_vec());
        OperatorPlatform { info, ops, shared: ServerWeights::new(server) }
    }

    /// The operators that it runs.
    pub fn ops(&self) -> &[ServedOp] {
        &self.ops
    }

    /// What is declared of nodes of others' operators that run as one model: the coarsest of what is declared of each.
    fn kernel_for_nodes(&self, fused: &Fused, phase: Phase) -> Result<KernelChoice> {
        let body = fused.body();
        let choose = |node: &Node| self.kernel_for(&node.op, &body.input_types(node), phase);
        let all: Vec<KernelChoice> = body.nodes().iter().map(choose).collect::<Result<_>>()?;
        let coarseness = |dtype: &DType| dtype.unit_roundoff();
        let dtypes = all.iter().map(|choice| choice.accumulate.dtype);
        let dtype = dtypes.max_by(|a, b| coarseness(a).total_cmp(&coarseness(b))).unwrap_or(DType::F32);
        let terms = all.iter().filter_map(|choice| choice.accumulate.chain.as_const()).max().unwrap_or(0);
        // Sorted, so that the order of nodes does not matter.
        let hashes: BTreeSet<&str> = all.iter().map(|choice| choice.hash.as_str()).collect();
        Ok(KernelChoice {
            name: format!("{}/{}", fused.name(), self.word()),
            hash: hashes.into_iter().collect::<Vec<_>>().join("+"),
            accumulate: Accumulate::new(dtype, Dim::from(terms)),
            regimes: Vec::new(),
        })
    }

    /// One call with its weights held by the server and its other inputs sent along.
    fn run_call(&self, call: &Call) -> Result<Vec<Tensor>> {
        call.check()?;
        // Refused here, so that a call that is not served costs no round trip.
        self.kernel_for(&call.op, &call.input_types, Phase::of_run(&call.symbols))?;
        if let Op::Fused(fused) = &call.op {
            return self.shared.run_region(&Region::of_call(call, fused)?);
        }
        let weights = call.inputs.iter().zip(&call.weights);
        let weights = weights
            .map(|(tensor, name)| name.as_ref().map(|name| self.shared.weight(name, tensor)).transpose());
        let weights = weights.collect::<Result<Vec<_>>>()?;
        let inputs = call.inputs.iter().zip(&weights).map(|(tensor, weight)| match weight {
            Some(held) => NodeInput::Held(held.id()),
            None => NodeInput::Here(tensor),
        });
        let outputs: Vec<TensorType> =
            call.output_types.iter().map(|ty| ty.bind(&call.symbols)).collect::<Result<_>>()?;
        let gave = self.shared.call(&NodeCall {
            node: &call.node,
            op: &call.op,
            symbols: &call.symbols,
            inputs: inputs.collect(),
            constants: call.weights.iter().map(Option::is_some).collect(),
            // All outputs come back: they are to be judged.
            keep: vec![false; outputs.len()],
            outputs,
        })?;
        gave.into_iter().map(held::ValuePlace::tensor).collect()
    }
}

impl Platform for OperatorPlatform {
    fn word(&self) -> &str {
        &self.info.platform
    }

    fn describe(&self) -> PlatformInfo {
        self.info.clone()
    }

    fn kernel_for(&self, op: &Op, inputs: &[TensorType], phase: Phase) -> Result<KernelChoice> {
        if let (Op::Fused(fused), true) = (op, op.is_foreign()) {
            return self.kernel_for_nodes(fused, phase);
        }
        let (word, name) = (self.word(), op.name());
        let served = self.ops.iter().find(|served| served.is(name)).ok_or_else(|| {
            let known: Vec<&str> = self.ops.iter().map(|served| served.name.as_str()).collect();
            Error::unsupported(format!("`{word}` does not serve `{name}`"))
                .with_hint(format!("it serves: {}", known.join(", ")))
        })?;
        let outputs = op.infer(inputs)?;
        // Outputs as well: a server may read a dtype that it cannot write.
        let refused = |ty: &&TensorType| !served.dtypes.contains(&ty.dtype);
        if let Some(ty) = inputs.iter().chain(&outputs).find(refused) {
            let (dtypes, found) = (DTypeNames(&served.dtypes), ty.dtype);
            return Err(Error::unsupported(format!("`{word}` serves `{name}` on {dtypes}, not on {found}")));
        }
        // Sums of others' operators follow from the operator and the types.
        let chain = match op {
            op if op.is_foreign() => Dim::from(tapml_reference::foreign::terms(op, inputs)),
            _ => longest_chain(op, inputs),
        };
        let accumulate = Accumulate::new(served.accumulate, chain);
        let (name, hash) = (format!("{name}/{word}"), served.version.clone());
        Ok(KernelChoice { name, hash, accumulate, regimes: Vec::new() })
    }

    fn replay(&mut self, calls: &[Call], sink: &mut Sink<'_>) -> Result<()> {
        for (i, call) in calls.iter().enumerate() {
            let outputs = repeat(&mut self.shared.clone(), |_| self.run_call(call));
            match outputs.context(|| format!("node `{}`", call.node)) {
                // Nothing more can be run; the calls behind it are not this call's fault.
                Err(error) if error.kind() == ErrorKind::DeviceLost => return Err(error),
                outputs => sink(i, outputs),
            }
        }
        Ok(())
    }

    fn load(&mut self, model: &Model, capacity: &Symbols) -> Result<Box<dyn Loaded>> {
        self.load_with(model, capacity, &LoadOptions::default())
    }

    fn load_with(
        &mut self,
        model: &Model,
        _capacity: &Symbols,
        options: &LoadOptions,
    ) -> Result<Box<dyn Loaded>> {
        for node in model.graph().nodes() {
            // Every node is asked for before a weight is sent.
            let choice = self.kernel_for(&node.op, &model.graph().input_types(node), Phase::Prefill);
            choice.context(|| format!("node `{}`", node.name))?;
        }
        // Repeated from the start if the server is lost meanwhile.
        let new = |shared: &mut ServerWeights| loaded::OperatorLoaded::new(model, shared, &options.trace);
        Ok(Box::new(repeat(&mut self.shared.clone(), new)?))
    }

    fn discover(&mut self, node: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>> {
        self.shared.discover(node, op, inputs)
    }

    fn runs_regions(&self) -> bool {
        true
    }

    fn run_region(&mut self, region: &Region) -> Result<Vec<Tensor>> {
        repeat(&mut self.shared.clone(), |shared| shared.run_region(region))
    }

    fn take_findings(&mut self) -> Vec<Finding> {
        Vec::new()
    }

    fn memory(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// Dtypes as a list for people.
struct DTypeNames<'a>(&'a [DType]);

impl fmt::Display for DTypeNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(|dtype| dtype.name()).collect();
        f.write_str(&names.join(", "))
    }
}
