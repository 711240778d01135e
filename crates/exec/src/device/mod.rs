//! A platform made of a device and the kernels for it.
//!
//! The platform and everything loaded on it share one device behind one lock. Plans, compiled kernels and
//! uploaded weights are kept there and are gone with the device.

mod loaded;
mod meeting;
mod plans;
mod replay;
mod state;
mod trace;
mod weights;

pub use loaded::REOPENED;
pub use meeting::{LateRank, RankMemory};

use crate::again::{repeat, repeat_from};
use crate::platform::reduction;
use crate::{Call, KernelChoice, Launched, LoadOptions, Loaded, Platform, PlatformInfo, RankMeeting, Sink};
use plans::Plans;
use state::{PlatformState, SharedState, lock};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use tapml_device::{AdapterKind, Device, DeviceInfo, Finding};
use tapml_graph::{Dim, Graph, Model, NodeId, Op, Result, Symbol, Symbols, TensorType};
use tapml_kernels::{
    Accumulate, CompileOptions, DeclaredChain, Fusing, KernelCache, NodePlan, Overrides, Phase, Planner,
    ProgramStep, compile, compile_observable, lower, plan_node, regimes,
};
use weights::WeightBuffers;

/// The words that memory holds before a kernel writes it: outputs of replayed calls, and buffers of loaded graphs where
/// they are filled with a signalling pattern.
pub const UNWRITTEN: [u32; 2] = [replay::POISON, tapml_kernels::POISON];

/// A device with its kernels. What it has loaded shares the device and keeps it alive.
pub struct DevicePlatform {
    /// What plans are made for.
    info: DeviceInfo,
    /// As the device was opened, for reports.
    options: String,
    overrides: Overrides,
    /// Of graphs that are loaded from here on.
    reuse_memory: bool,
    /// Likewise.
    poison: bool,
    shared: SharedState,
}

impl DevicePlatform {
    /// A platform on this device with the built-in kernels, except for operators that `overrides` names.
    pub fn new(device: Box<dyn Device>, overrides: Overrides) -> DevicePlatform {
        let info = device.info().clone();
        let inner = PlatformState {
            device,
            kernels: KernelCache::new(),
            plans: Plans::default(),
            weights: WeightBuffers::new(weights::BUDGET),
            findings: Vec::new(),
            generation: 0,
        };
        DevicePlatform {
            info,
            options: String::new(),
            overrides,
            reuse_memory: true,
            poison: false,
            shared: Arc::new(Mutex::new(inner)),
        }
    }

    /// Names the options under which the device was opened. They are part of the platform's identity: evidence gathered
    /// without checks does not hold for a run with them.
    pub fn with_options(mut self, options: impl Into<String>) -> DevicePlatform {
        self.options = options.into();
        self
    }

    /// Chooses how loaded graphs use memory: whether buffers serve several values (on at first), and whether they are
    /// filled with a signalling pattern before use (off at first).
    pub fn with_memory(mut self, reuse: bool, poison: bool) -> DevicePlatform {
        (self.reuse_memory, self.poison) = (reuse, poison);
        self
    }

    /// Other overrides from now on. What is loaded keeps the kernels it has.
    pub fn set_overrides(&mut self, overrides: Overrides) -> Result<()> {
        self.overrides = overrides;
        repeat(&mut *lock(&self.shared), |inner| {
            let PlatformState { device, plans, .. } = inner;
            // Plans were chosen by the overrides from before.
            plans.clear(device.as_mut())
        })
    }

    /// The kernels of graphs that are loaded with these options.
    fn overrides_for(&self, options: &LoadOptions) -> Overrides {
        let overrides = self.overrides.clone();
        if options.row_invariant { overrides.with_row_invariance() } else { overrides }
    }

    /// What the device tells about itself.
    pub fn device_info(&self) -> &DeviceInfo {
        &self.info
    }
}

/// The graph that is compiled: with the choice of the next token if it is wanted and the graph is a language model's.
fn deployed_graph(graph: &Graph, greedy: bool) -> Result<Cow<'_, Graph>> {
    let choosing = if greedy { graph.greedy()? } else { None };
    Ok(choosing.map_or(Cow::Borrowed(graph), Cow::Owned))
}

/// The graph of one rank, if one of several is to be loaded.
fn rank_graph(graph: &Graph, meeting: Option<&RankMeeting>) -> Result<Option<Graph>> {
    let Some(RankMeeting { rank, memories }) = meeting else { return Ok(None) };
    let words = memories.first().map_or(0, |memory| memory.size() / 4);
    graph.rank_graph(*rank, words).map(Some)
}

// More than one row, so that prefill has its own kernels.
/// Rows of the program whose launches are counted; no kernel depends on it.
const DEPLOYED_ROWS: u64 = 2;
/// Tokens of a prompt that a run on a device with CUDA's kernels takes at most.
const CUDA_CHUNK: usize = 512;

impl Platform for DevicePlatform {
    fn word(&self) -> &str {
        &self.info.platform
    }

    fn describe(&self) -> PlatformInfo {
        let device = match self.options.as_str() {
            "" => self.info.name.clone(),
            options => format!("{} [{options}]", self.info.name),
        };
        PlatformInfo { platform: self.info.platform.clone(), device, driver: self.info.driver.clone() }
    }

    fn is_software(&self) -> bool {
        self.info.kind == AdapterKind::Cpu
    }

    fn chunk(&self) -> usize {
        // Tensor cores are filled by tiles of rows that share what they read.
        if self.info.features.cuda.is_some() { CUDA_CHUNK } else { crate::CHUNK }
    }

    fn kernel_for(&self, op: &Op, inputs: &[TensorType], phase: Phase) -> Result<KernelChoice> {
        let plan = self.plan(op, inputs, phase)?;
        let regimes = regimes(&plan, inputs);
        Ok(KernelChoice { name: plan.kernel, hash: plan.hash, accumulate: plan.accumulate, regimes })
    }

    fn plan(&self, op: &Op, inputs: &[TensorType], phase: Phase) -> Result<NodePlan> {
        let mut plan = plan_node(op, inputs, phase, &self.info, &self.overrides)?;
        // A user's kernel may declare how it adds up, which decides the allowed error.
        if let Some(sums) = self.overrides.sums(&plan.kernel) {
            let chain = match sums.chain {
                DeclaredChain::Serial => reduction(op, inputs),
                DeclaredChain::Longest(count) => Dim::from(count),
            };
            plan.accumulate = Accumulate::new(sums.dtype, chain);
        }
        Ok(plan)
    }

    fn prepare(&mut self, nodes: &[(&Graph, NodeId, Phase)]) {
        // Layers repeat the same few plans.
        let mut seen = HashSet::new();
        let mut descs = Vec::new();
        for &(graph, id, phase) in nodes {
            let node = graph.node(id);
            let inputs = graph.input_types(node);
            if seen.insert((node.op.identity(), inputs.clone(), phase)) {
                // What has no plan is told to whoever asks for its kernel.
                let launches = self.plan(&node.op, &inputs, phase).map_or(Vec::new(), |plan| plan.launches);
                descs.extend(launches.into_iter().map(|launch| launch.desc));
            }
        }
        let PlatformState { device, kernels, .. } = &mut *lock(&self.shared);
        kernels.prepare(device.as_mut(), descs);
    }

    fn lower(&self, graph: &Graph, phase: Phase) -> Result<Option<Graph>> {
        let mut planner = Planner::new(self.info.clone(), self.overrides.clone());
        lower(deployed_graph(graph, true)?.as_ref(), phase, &Fusing::All, &mut planner).map(Some)
    }

    fn launches(&self, graph: &Graph, options: &LoadOptions) -> Result<Option<Vec<Launched>>> {
        let deployed = Symbols::np(DEPLOYED_ROWS, DEPLOYED_ROWS).with_symbol(Symbol::S, DEPLOYED_ROWS);
        let compiled = CompileOptions {
            overrides: self.overrides_for(options),
            fusing: options.fusing.clone(),
            ..CompileOptions::new(deployed)
        };
        let program = compile(deployed_graph(graph, options.greedy)?.as_ref(), &self.info, &compiled)?;
        let mut found: Vec<Launched> = Vec::new();
        for phase in Phase::ALL {
            for step in program.steps.iter().filter(|step| step.runs_in(phase)) {
                let ProgramStep::Dispatch { row, .. } = step else { continue };
                match found.iter_mut().find(|known| known.phase == phase && known.row == *row) {
                    Some(known) => known.launches += 1,
                    None => found.push(Launched { phase, row: row.clone(), launches: 1 }),
                }
            }
        }
        Ok(Some(found))
    }

    fn replay(&mut self, calls: &[Call], sink: &mut Sink<'_>) -> Result<()> {
        let seen: Vec<Cell<bool>> = vec![Cell::new(false); calls.len()];
        let mut sink = |index: usize, outputs| {
            seen[index].set(true);
            sink(index, outputs);
        };
        let progress = || seen.iter().filter(|seen| seen.get()).count();
        repeat_from(&mut *lock(&self.shared), &progress, |inner| {
            let rest = calls.iter().enumerate().filter(|(index, _)| !seen[*index].get());
            replay::replay(inner, &self.info, &self.overrides, rest, &mut sink)
        })
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
        let compiled = CompileOptions {
            overrides: self.overrides_for(options),
            reuse_memory: options.reuse_memory.unwrap_or(self.reuse_memory),
            poison: options.poison.unwrap_or(self.poison),
            trace: options.trace.clone(),
            fusing: options.fusing.clone(),
            ..CompileOptions::new(capacity.clone())
        };
        let of_rank = rank_graph(model.graph(), options.meeting.as_ref())?;
        let graph = deployed_graph(of_rank.as_ref().unwrap_or(model.graph()), options.greedy)?;
        let (mut program, nodes) = if options.observable {
            let (program, nodes) = compile_observable(graph.as_ref(), &self.info, &compiled)?;
            (program, Some(nodes))
        } else {
            (compile(graph.as_ref(), &self.info, &compiled)?, None)
        };
        if let Some(fill) = options.fill {
            trace::refill(&mut program, fill);
        }
        let memories = options.meeting.as_ref().map_or(Vec::new(), |meeting| meeting.memories.clone());
        Ok(Box::new(loaded::DeviceLoaded::new(&self.shared, &program, nodes, model, memories)?))
    }

    fn create_rank_memory(&mut self, words: u64) -> Result<RankMemory> {
        RankMemory::create(&self.shared, words)
    }

    fn take_findings(&mut self) -> Vec<Finding> {
        let mut inner = lock(&self.shared);
        let mut found = std::mem::take(&mut inner.findings);
        found.extend(inner.device.take_findings());
        found
    }

    fn memory(&self) -> (u64, u64) {
        lock(&self.shared).device.memory()
    }
}
