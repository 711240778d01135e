//! Graph to program: lowers the graph for each phase, plans every node, assigns buffers by lifetime, and lays out the
//! steps.
//!
//! A program holds the steps of both phases. Lists of one phase are told apart by the phase of each step, and share
//! buffers, weights and kernels. Buffers have the sizes that values take at capacity, so that one program serves all
//! smaller runs.

mod list;
mod trace;

pub use trace::{TracedValue, is_trace, trace_port};

use crate::lower::{Fusing, lower};
use crate::memory::Buffers;
use crate::overrides::Overrides;
use crate::plan::{NodePlan, Phase, SYMBOLS};
use crate::planner::Planner;
use crate::program::{Content, Port, Program, ProgramStep, SCHEMA, StatePort, bytes_at_capacity};
use list::StepList;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tapml_device::{DeviceInfo, KernelDesc};
use tapml_graph::{Context, Error, ErrorKind, Graph, Result, Symbols, TensorType};

/// A quiet NaN as f32, and as both of two f16 or bf16.
pub const POISON: u32 = 0x7fc1_7fc2;

/// What a program is compiled for.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// The largest `n` and `p` of any run; buffers are sized by it.
    /// Both must fit 32 bits, because the uniform block holds them as `u32`.
    pub capacity: Symbols,
    /// The largest `n + p` of any run, if less than the sum of both capacities: the model's context length.
    pub context: Option<u64>,
    /// Kernels to use instead of the built-in ones.
    pub overrides: Overrides,
    /// Which fused operators may take the place of nodes.
    pub fusing: Fusing,
    /// Whether a buffer serves several values whose lifetimes do not overlap.
    pub reuse_memory: bool,
    /// Whether a buffer is filled with NaNs before each value is written to it, so that a kernel which reads what nobody
    /// wrote shows. For debugging.
    /// The fills are steps of the program, before the steps of the node that writes the value.
    pub poison: bool,
    /// Names of nodes whose inputs and outputs are copied before and after they run, into further outputs of the program;
    /// see [`trace_port`]. For debugging.
    pub trace: HashSet<String>,
}

impl CompileOptions {
    /// Up to these sizes, with built-in kernels and fusions, memory reused, nothing poisoned.
    /// Nothing is traced, and the context is as long as both capacities together.
    pub fn new(capacity: Symbols) -> CompileOptions {
        CompileOptions {
            capacity,
            context: None,
            overrides: Overrides::default(),
            fusing: Fusing::All,
            reuse_memory: true,
            poison: false,
            trace: HashSet::new(),
        }
    }

    /// The fusions of a program of these options: nodes that someone looks at one by one run by themselves.
    /// A fused operator would hide the values within it.
    fn active_fusions(&self) -> &Fusing {
        let watched = self.poison || !self.trace.is_empty();
        if watched { &Fusing::Off } else { &self.fusing }
    }
}

/// Compiles a graph for devices like this one. One program serves every `n` and `p` up to the capacity.
///
/// A growing state whose new rows an appending operator adds is extended in place, and a fixed state that its last user
/// advances is advanced in place where the kernel can; any other state is copied back at the end of a run. Fails with
/// [`ErrorKind::Unsupported`] and a list of every node that has no kernel at its types.
///
/// The program is checked before it is returned, as one from a file would be.
pub fn compile(graph: &Graph, info: &DeviceInfo, options: &CompileOptions) -> Result<Program> {
    compile_with(graph, &mut Planner::new(info.clone(), options.overrides.clone()), options)
}

/// As [`compile`] with the plans, the device and the user's kernels of a planner, which may have served other graphs.
pub fn compile_with(graph: &Graph, planner: &mut Planner, options: &CompileOptions) -> Result<Program> {
    let prefill = LoweredGraph::from_graph(graph, Phase::Prefill, planner, options)?;
    // Each phase has its own plans even where nothing is fused: kernels of one row serve only the decode phase.
    let decode = LoweredGraph::from_graph(graph, Phase::Decode, planner, options)?;
    let compiled = Compiler::new(graph, planner.info(), options).and_then(|mut compiler| {
        // Where both are the same, one list without a phase serves every run, and the device records it a single
        // time.
        if prefill.runs_as(&decode) {
            compiler.list(&prefill, None)?;
        } else {
            compiler.list(&prefill, Some(Phase::Prefill))?;
            compiler.list(&decode, Some(Phase::Decode))?;
        }
        compiler.finish()
    });
    let program = compiled.context(|| format!("graph `{}`", graph.name()))?;
    program.check()?;
    Ok(program)
}

/// A graph as it runs in one phase, with the plan of every node.
///
/// `plans[i]` belongs to `graph.nodes()[i]`. Names of values are those of the source graph.
struct LoweredGraph {
    graph: Graph,
    plans: Vec<Arc<NodePlan>>,
}

impl LoweredGraph {
    /// Lowers and plans; fails as [`compile`].
    fn from_graph(
        graph: &Graph,
        phase: Phase,
        planner: &mut Planner,
        options: &CompileOptions,
    ) -> Result<LoweredGraph> {
        let graph = lower(graph, phase, options.active_fusions(), planner)?;
        let plans = plan_all(&graph, phase, planner)?;
        Ok(LoweredGraph { graph, plans })
    }

    /// Whether both phases are one: the same nodes by the same kernels.
    /// Equal hashes mean equal launches.
    fn runs_as(&self, other: &LoweredGraph) -> bool {
        let same = |(a, b): (&Arc<NodePlan>, &Arc<NodePlan>)| a.kernel == b.kernel && a.hash == b.hash;
        self.graph == other.graph && self.plans.iter().zip(&other.plans).all(same)
    }
}

/// The plan of every node, or one error that lists all that are unsupported.
///
/// A user sees all that a device lacks at the first attempt. Any error of another kind ends planning at its node.
fn plan_all(graph: &Graph, phase: Phase, planner: &mut Planner) -> Result<Vec<Arc<NodePlan>>> {
    let (mut plans, mut refused) = (Vec::new(), Vec::new());
    for node in graph.nodes() {
        match planner.plan(&node.op, &graph.input_types(node), phase) {
            Ok(plan) => plans.push(plan),
            Err(e) if e.kind() == ErrorKind::Unsupported => {
                refused.push(e.context(format!("node `{}`", node.name)))
            }
            Err(e) => return Err(e.context(format!("node `{}`", node.name))),
        }
    }
    match refused.len() {
        0 => Ok(plans),
        1 => Err(refused.remove(0)),
        count => {
            let lines: Vec<String> = refused.iter().map(|e| format!("\n  {e}")).collect();
            Err(Error::unsupported(format!(
                "{count} nodes are unsupported on {}:{}",
                planner.info().name,
                lines.concat()
            )))
        }
    }
}

/// Part of a weight: its name, first byte and bytes.
type WeightPart = (String, u64, u64);

/// A program in the making: what the lists of both phases share.
///
/// Indices are those of [`Program::buffers`] and [`Program::kernels`].
struct Compiler<'a> {
    /// The graph that is compiled; lowered ones have its inputs, results and states.
    source: &'a Graph,
    /// Sizes at capacity follow from them.
    options: &'a CompileOptions,
    /// All buffers so far; those of activations are shared by both phases too.
    buffers: Buffers,
    /// The buffer of each part of a weight that some launch binds.
    weights: HashMap<WeightPart, u32>,
    /// Distinct descriptions in the order of their first use.
    kernels: Vec<KernelDesc>,
    /// The index of each, by its serialised form.
    kernel_index: HashMap<Vec<u8>, u32>,
    /// The steps so far, those of the prefill phase first.
    steps: Vec<ProgramStep>,
    /// The buffer of the uniform block.
    symbols: u32,
    /// The buffer of each input.
    inputs: Vec<u32>,
    /// The buffer of each state.
    states: Vec<u32>,
    /// The buffers of values that outlive a run, by the values' names.
    results: HashMap<String, u32>,
    /// Memory that rows of the kernel list keep to themselves, by row and bytes.
    kept: HashMap<(String, u64), u32>,
    /// Most workgroups of a dispatch in each dimension.
    max_groups: u32,
    /// Copies for a debugger, whose buffers are added at the end.
    traces: Vec<trace::Trace>,
}

impl<'a> Compiler<'a> {
    /// Adds the buffers that both phases have in common: symbols, inputs and states.
    fn new(source: &'a Graph, info: &DeviceInfo, options: &'a CompileOptions) -> Result<Compiler<'a>> {
        let limit = info.limits.max_binding_size.min(info.limits.max_buffer_size);
        let mut buffers = Buffers::new(options.reuse_memory, limit);
        let symbols = buffers.add("symbols", 16, Content::Symbols)?;
        let mut compiler = Compiler {
            source,
            options,
            buffers,
            weights: HashMap::new(),
            kernels: Vec::new(),
            kernel_index: HashMap::new(),
            steps: Vec::new(),
            symbols,
            inputs: Vec::new(),
            states: Vec::new(),
            results: HashMap::new(),
            kept: HashMap::new(),
            max_groups: info.limits.max_groups_per_dim,
            traces: Vec::new(),
        };
        for (_, value) in source.inputs() {
            let size = compiler.bytes(&value.name, &value.ty)?;
            let buffer = compiler.buffers.add(&value.name, size, Content::Activation)?;
            compiler.inputs.push(buffer);
        }
        for state in source.states() {
            // A growing state is larger behind a run than before it: its type before counts `p` rows, that behind it
            // `n + p`.
            let after = compiler.bytes(&state.name, &source.value(state.output).ty)?;
            let size = after.max(compiler.bytes(&state.name, &source.value(state.input).ty)?);
            let buffer = compiler.buffers.add(&state.name, size, Content::State)?;
            compiler.states.push(buffer);
        }
        Ok(compiler)
    }

    /// The steps of a lowered graph, for one phase or for both.
    fn list(&mut self, lowered: &LoweredGraph, phase: Option<Phase>) -> Result<()> {
        let mut list = StepList::new(self, &lowered.graph, phase)?;
        for (index, (node, plan)) in lowered.graph.nodes().iter().zip(&lowered.plans).enumerate() {
            list.node(index, node, plan).context(|| format!("node `{}`", node.name))?;
        }
        list.finish()
    }

    /// Bytes of a value at capacity.
    fn bytes(&self, name: &str, ty: &TensorType) -> Result<u64> {
        bytes_at_capacity(ty, &self.options.capacity, self.options.context).ok_or_else(|| {
            Error::unsupported(format!("the size of `{name}`, {ty}, at {:?}", self.options.capacity))
        })
    }

    /// The buffer of a part of a weight; 0 bytes mean all from the first on.
    ///
    /// Equal parts share a buffer, in whichever node and phase they are bound.
    fn weight(&mut self, name: &str, ty: &TensorType, offset: u64, len: u64) -> Result<u32> {
        let bytes = self.bytes(name, ty)?;
        let len = if len == 0 { bytes.saturating_sub(offset) } else { len };
        // The length is resolved first, so that a part which is all of a weight shares the buffer of the whole.
        let key = (name.to_string(), offset, len);
        if let Some(&known) = self.weights.get(&key) {
            return Ok(known);
        }
        let content = Content::Weight { name: name.into(), offset, len };
        // Labels tell parts apart in traces.
        let label = if len == bytes { name.to_string() } else { format!("{name}@{offset}") };
        let added = self.buffers.add(&label, len, content)?;
        self.weights.insert(key, added);
        Ok(added)
    }

    /// The index of a description, which is added at its first use.
    fn kernel(&mut self, desc: &KernelDesc) -> Result<u32> {
        // Descriptions hold floats, which have no hash; their serialised form does.
        let key = serde_json::to_vec(desc).map_err(|e| Error::bug(format!("kernel `{}`: {e}", desc.name)))?;
        let next = self.kernels.len() as u32;
        let index = *self.kernel_index.entry(key).or_insert(next);
        if index == next {
            self.kernels.push(desc.clone());
        }
        Ok(index)
    }

    /// The memory of this size that a row of the kernel list keeps to itself.
    /// Only launches of that row use it, in any phase, so that nothing else disturbs what they leave there.
    fn reserve_memory(&mut self, row: &str, bytes: u64) -> Result<u32> {
        let key = (row.to_string(), bytes);
        if let Some(&buffer) = self.kept.get(&key) {
            return Ok(buffer);
        }
        let buffer = self.buffers.add("kept", bytes, Content::Activation)?;
        self.kept.insert(key, buffer);
        Ok(buffer)
    }

    /// Resolves ports and states. Fails if a weight is an output of the graph itself, since nothing would write it
    /// there.
    fn finish(mut self) -> Result<Program> {
        let source = self.source;
        let result = |name: &str, results: &HashMap<String, u32>| {
            // Results were noted by the lists: only a value that no node makes is missing.
            let found = results.get(name).copied();
            found.ok_or_else(|| Error::unsupported(format!("`{name}` is a weight and a result at once")))
        };
        let mut outputs = Vec::new();
        for output in source.outputs() {
            let value = source.value(output.value);
            let buffer = result(&value.name, &self.results)?;
            outputs.push(Port { name: output.name.clone(), ty: value.ty.clone(), buffer });
        }
        let inputs = source.inputs().zip(&self.inputs);
        let inputs = inputs.map(|((_, value), &buffer)| Port {
            name: value.name.clone(),
            ty: value.ty.clone(),
            buffer,
        });
        let inputs = inputs.collect();
        // Traces follow the results, so that the indices of these do not depend on what is traced.
        outputs.extend(self.trace_ports()?);
        let states = source.states().iter().zip(&self.states);
        let states = states.map(|(state, &buffer)| StatePort {
            name: state.name.clone(),
            ty: source.value(state.input).ty.clone(),
            buffer,
            grows: state.grows(source),
        });
        Ok(Program {
            schema: SCHEMA,
            name: source.name().into(),
            symbols: SYMBOLS.to_vec(),
            capacity: self.options.capacity.clone(),
            context: self.options.context,
            states: states.collect(),
            buffers: self.buffers.finish(),
            kernels: self.kernels,
            steps: self.steps,
            inputs,
            outputs,
        })
    }
}
