//! One model on several platforms at once: a rank on each, which computes its share of every matrix (tensor parallelism).
//!
//! The graph is shared out by [`tapml_graph::Graph::shard`] and cut where ranks meet. What they bring goes through the host and
//! is added up in the order of ranks, so that results repeat bit by bit. Any platform can be a rank: the `cpu`, a device of
//! this machine, one elsewhere. Devices that read each other's memory meet there instead, and each runs its rank as one program.

mod job;
mod loaded;
mod meeting;
mod on_device;
mod parts;
mod worker;

use crate::platform::longest_chain;
use crate::{Call, KernelChoice, LoadOptions, Loaded, Platform, PlatformInfo, Sink};
use job::RanksOptions;
use loaded::RanksLoaded;
use on_device::create_memories;
use std::collections::HashMap;
use tapml_device::Finding;
use tapml_graph::op::Foreign;
use tapml_graph::{
    Builder, Context, DType, Error, Graph, Model, NodeId, Op, Result, Symbols, Tensor, TensorType,
};
use tapml_kernels::{Accumulate, NodePlan, Phase};

/// Several platforms that run a model together, each as a rank.
pub struct RanksPlatform {
    /// In the order of ranks; never empty.
    ranks: Vec<Box<dyn Platform>>,
    /// Whether graphs are shared out already, or are parts of such a graph.
    shared: bool,
    /// Whether ranks meet on their devices.
    on_devices: bool,
}

impl RanksPlatform {
    /// A platform of these ranks. Fails if there are fewer than 2, or a device has no room for the memory in which they meet.
    pub fn new(mut ranks: Vec<Box<dyn Platform>>) -> Result<RanksPlatform> {
        if ranks.len() < 2 {
            return Err(Error::invalid(format!("expected 2 ranks or more, found {}", ranks.len())));
        }
        let on_devices = create_memories(&mut ranks)?.is_some();
        Ok(RanksPlatform { ranks, shared: false, on_devices })
    }

    /// The same for graphs that are shared out already, and for parts of them: nothing is shared out again. A part in which
    /// ranks do not meet runs on the first one.
    pub fn with_shared_graphs(mut self) -> RanksPlatform {
        self.shared = true;
        self
    }

    /// The model shared out among the ranks, unless it is already.
    fn shard(&self, model: &Model) -> Result<Model> {
        let ranks = self.ranks.len();
        match model.graph().ranks() {
            None => model.with_graph(model.graph().shard(u32::try_from(ranks).unwrap_or(u32::MAX))?),
            Some(found) if found as usize == ranks => Ok(model.clone()),
            Some(found) => Err(Error::invalid(format!(
                "graph `{}` is shared out among {found} ranks, and there are {ranks}",
                model.graph().name()
            ))),
        }
    }
}

impl RanksPlatform {
    /// An operator at which ranks meet on their devices as the first of them runs it, with the types of its inputs.
    fn first_rank_node(&self, op: &Op, inputs: &[TensorType]) -> Option<(Op, Vec<TensorType>)> {
        let ranks = op.meeting_ranks().filter(|_| self.on_devices)?;
        let memory = TensorType::new(DType::U32, [tapml_kernels::meeting::words(ranks)?]);
        let first = inputs.first()?.clone();
        let inputs = std::iter::once(first).chain(std::iter::repeat_n(memory, ranks as usize)).collect();
        Some((op.for_rank(0)?, inputs))
    }

    /// A call at which ranks meet, on all devices, each of which must give the same bits.
    fn run_on_devices(&mut self, call: &Call) -> Result<Vec<Tensor>> {
        call.check()?;
        let mut graph = Builder::new("meeting");
        let (mut ids, mut inputs) = (Vec::new(), HashMap::new());
        // Sizes stay symbols, so that the kernel is that of the whole model.
        for (rank, (tensor, ty)) in call.inputs.iter().zip(&call.input_types).enumerate() {
            let name = format!("x_{rank}");
            ids.push(graph.input(&name, ty.clone())?);
            inputs.insert(name, tensor.clone());
        }
        let y = graph.node(&call.node, call.op.clone(), &ids)?;
        graph.output("y", y);
        let model = Model::new(graph.finish()?, HashMap::new())?;
        let how = RanksOptions { options: &LoadOptions::default(), on_devices: true, compared: true };
        let mut loaded = RanksLoaded::load(&mut self.ranks, &model, &call.symbols, how)?;
        let y = loaded.run(&call.symbols, &inputs, None)?.remove("y");
        Ok(vec![y.ok_or_else(|| Error::bug("a meeting of ranks without a result"))?])
    }
}

/// A call at which ranks meet, as the host computes it: in f32, rounded one time.
fn run_meeting(call: &Call) -> Result<Vec<Tensor>> {
    call.check()?;
    let dtypes: Vec<DType> = call.output_types.iter().map(|ty| ty.dtype).collect();
    tapml_reference::run_node(&call.op, &call.symbols, &call.inputs, &dtypes)
        .context(|| format!("node `{}`", call.node))
}

impl Platform for RanksPlatform {
    fn word(&self) -> &str {
        self.ranks[0].word()
    }

    fn describe(&self) -> PlatformInfo {
        let all: Vec<PlatformInfo> = self.ranks.iter().map(|rank| rank.describe()).collect();
        let devices: Vec<&str> = all.iter().map(|info| info.device.as_str()).collect();
        let device = if devices.iter().all(|device| *device == devices[0]) {
            format!("{} ranks of {}", devices.len(), devices[0])
        } else {
            format!("ranks of {}", devices.join(" and "))
        };
        PlatformInfo { device, ..all[0].clone() }
    }

    fn kernel_for(&self, op: &Op, inputs: &[TensorType], phase: Phase) -> Result<KernelChoice> {
        if op.meeting_ranks().is_none() {
            return self.ranks[0].kernel_for(op, inputs, phase);
        }
        if let Some((op, inputs)) = self.first_rank_node(op, inputs) {
            return self.ranks[0].kernel_for(&op, &inputs, phase);
        }
        op.infer(inputs)?;
        let hash = concat!("reference-", env!("CARGO_PKG_VERSION")).into();
        let accumulate = Accumulate::new(DType::F32, longest_chain(op, inputs));
        Ok(KernelChoice { name: format!("{}/host", op.name()), hash, accumulate, regimes: Vec::new() })
    }

    fn plan(&self, op: &Op, inputs: &[TensorType], phase: Phase) -> Result<NodePlan> {
        if let Some((op, inputs)) = self.first_rank_node(op, inputs) {
            return self.ranks[0].plan(&op, &inputs, phase);
        }
        match op.meeting_ranks() {
            None => self.ranks[0].plan(op, inputs, phase),
            Some(_) => Err(Error::unsupported(format!("the host runs `{}` without kernels", op.name()))),
        }
    }

    fn prepare(&mut self, nodes: &[(&Graph, NodeId, Phase)]) {
        let alone = |(graph, id, _): &&(&Graph, NodeId, Phase)| graph.node(*id).op.meeting_ranks().is_none();
        let nodes: Vec<_> = nodes.iter().filter(alone).copied().collect();
        self.ranks[0].prepare(&nodes);
    }

    /// All ranks have the same kernels: the first one runs what a rank computes alone.
    fn replay(&mut self, calls: &[Call], sink: &mut Sink<'_>) -> Result<()> {
        let (mut own, mut places) = (Vec::new(), Vec::new());
        for (index, call) in calls.iter().enumerate() {
            if call.op.meeting_ranks().is_some() {
                sink(index, if self.on_devices { self.run_on_devices(call) } else { run_meeting(call) });
            } else {
                own.push(call.clone());
                places.push(index);
            }
        }
        self.ranks[0].replay(&own, &mut |at, outputs| sink(places[at], outputs))
    }

    fn discover(&mut self, node: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>> {
        self.ranks[0].discover(node, op, inputs)
    }

    fn load(&mut self, model: &Model, capacity: &Symbols) -> Result<Box<dyn Loaded>> {
        self.load_with(model, capacity, &LoadOptions::default())
    }

    fn load_with(
        &mut self,
        model: &Model,
        capacity: &Symbols,
        options: &LoadOptions,
    ) -> Result<Box<dyn Loaded>> {
        if !options.trace.is_empty() || options.observable {
            return Err(Error::unsupported("several ranks show no values of single nodes")
                .with_hint("carve the graph of all ranks, which `Graph::shard` gives, on one platform"));
        }
        // Parts of the graph are no language models, which could choose tokens.
        let options = LoadOptions { greedy: options.greedy && self.on_devices, ..options.clone() };
        if self.shared && model.graph().ranks().is_none() {
            return self.ranks[0].load_with(model, capacity, &options);
        }
        let model = self.shard(model)?;
        let how = RanksOptions { options: &options, on_devices: self.on_devices, compared: false };
        Ok(Box::new(RanksLoaded::load(&mut self.ranks, &model, capacity, how)?))
    }

    fn is_software(&self) -> bool {
        self.ranks[0].is_software()
    }

    fn chunk(&self) -> usize {
        self.ranks[0].chunk()
    }

    fn take_findings(&mut self) -> Vec<Finding> {
        self.ranks.iter_mut().flat_map(|rank| rank.take_findings()).collect()
    }

    fn memory(&self) -> (u64, u64) {
        self.ranks
            .iter()
            .map(|rank| rank.memory())
            .fold((0, 0), |(now, most), own| (now.saturating_add(own.0), most.saturating_add(own.1)))
    }
}
