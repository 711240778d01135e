//! Graph to program: plans every node, assigns buffers by lifetime, and lays out the steps.

mod join;
mod trace;

pub use trace::{Traced, is_trace, trace_port};

use crate::memory::Buffers;
use crate::overrides::Overrides;
use crate::plan::{Arg, Launch, NodePlan, SYMBOLS, When};
use crate::planner::Planner;
use crate::program::{Content, Port, Program, SCHEMA, Slice, StatePort, Step, bytes_at_capacity, largest};
use join::Joins;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tapml_device::{DeviceInfo, KernelDesc};
use tapml_graph::{
    Context, Error, ErrorKind, Extent, Graph, Node, Op, Origin, Result, Symbols, TensorType, ValueId,
};

/// A quiet NaN as f32, and as both of two f16 or bf16.
pub const POISON: u32 = 0x7fc1_7fc2;

/// What a program is compiled for.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// The largest `n` and `p` of any run; buffers are sized by it.
    pub capacity: Symbols,
    /// The largest `n + p` of any run, if less than the sum of both capacities: the model's context length.
    pub context: Option<u64>,
    /// Kernels to use instead of the built-in ones.
    pub overrides: Overrides,
    /// Whether a buffer serves several values whose lifetimes do not overlap.
    pub reuse_memory: bool,
    /// Whether a buffer is filled with NaNs before each value is written to it, so that a kernel which reads what nobody
    /// wrote shows. For debugging.
    pub poison: bool,
    /// Names of nodes whose inputs and outputs are copied before and after they run, into further outputs of the program;
    /// see [`trace_port`]. For debugging.
    pub trace: HashSet<String>,
}

impl CompileOptions {
    /// Up to these sizes, with built-in kernels, memory reused, nothing poisoned.
    pub fn new(capacity: Symbols) -> CompileOptions {
        CompileOptions {
            capacity,
            context: None,
            overrides: Overrides::default(),
            reuse_memory: true,
            poison: false,
            trace: HashSet::new(),
        }
    }
}

/// Compiles a graph for devices like this one. One program serves every `n` and `p` up to the capacity.
///
/// A growing state whose new rows an appending operator adds is extended in place, and a fixed state that its last user
/// advances is advanced in place where the kernel can; any other state is copied back at the end of a run. Fails with [`ErrorKind::Unsupported`] and a list of every node that has no kernel at its types.
pub fn compile(graph: &Graph, info: &DeviceInfo, options: &CompileOptions) -> Result<Program> {
    compile_with(graph, &mut Planner::new(info.clone(), options.overrides.clone()), options)
}

/// As [`compile`] with the plans, the device and the user's kernels of a planner, which may have served other graphs.
pub fn compile_with(graph: &Graph, planner: &mut Planner, options: &CompileOptions) -> Result<Program> {
    let plans = plan_all(graph, planner)?;
    let debugged = options.poison || !options.trace.is_empty();
    // Every node's own kernels run where nodes are looked at one by one, or are the user's.
    let joins = match debugged || !options.overrides.is_empty() {
        true => Joins::default(),
        false => Joins::of(graph, &plans, planner.info()),
    };
    let compiled = Compiler::new(graph, planner.info(), options, joins).and_then(|mut compiler| {
        for (index, (node, plan)) in graph.nodes().iter().zip(&plans).enumerate() {
            compiler.node(index, node, plan).context(|| format!("node `{}`", node.name))?;
        }
        compiler.finish()
    });
    let program = compiled.context(|| format!("graph `{}`", graph.name()))?;
    program.check()?;
    Ok(program)
}

/// The plan of every node, or one error that lists all that are unsupported.
fn plan_all(graph: &Graph, planner: &mut Planner) -> Result<Vec<Arc<NodePlan>>> {
    let (mut plans, mut refused) = (Vec::new(), Vec::new());
    for node in graph.nodes() {
        match planner.plan(&node.op, &graph.input_types(node)) {
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

/// Where a value lies.
#[derive(Clone, Copy, PartialEq)]
enum Home {
    /// Not computed yet, or a weight, whose buffers are made part by part as they are bound.
    None,
    /// A buffer that stays: an input, a state, a result.
    Fixed(u32),
    /// A buffer that is given back after the last use.
    Shared(u32),
}

struct Compiler<'a> {
    graph: &'a Graph,
    options: &'a CompileOptions,
    buffers: Buffers,
    homes: Vec<Home>,
    /// The last node that uses each value.
    last_use: Vec<Option<usize>>,
    /// Values that must outlive the last node.
    kept: Vec<bool>,
    weights: HashMap<(ValueId, u64, u64), u32>,
    kernels: Vec<KernelDesc>,
    kernel_index: HashMap<Vec<u8>, u32>,
    steps: Vec<Step>,
    symbols: u32,
    /// Buffers that joined launches keep to themselves, by their size.
    kept_bytes: HashMap<u64, u32>,
    max_groups: u32,
    /// The buffer of each state, and whether the run extends or advances it in place.
    states: Vec<(u32, bool)>,
    traces: Vec<trace::Trace>,
    joins: Joins,
}

impl<'a> Compiler<'a> {
    fn new(
        graph: &'a Graph,
        info: &DeviceInfo,
        options: &'a CompileOptions,
        joins: Joins,
    ) -> Result<Compiler<'a>> {
        let limit = info.limits.max_binding_size.min(info.limits.max_buffer_size);
        let mut buffers = Buffers::new(options.reuse_memory, limit);
        let symbols = buffers.add("symbols", 16, Content::Symbols)?;
        let mut kept = vec![false; graph.values().len()];
        let results = graph.outputs().iter().map(|o| o.value).chain(graph.states().iter().map(|s| s.output));
        results.for_each(|v| kept[v.0 as usize] = true);
        let mut compiler = Compiler {
            graph,
            options,
            buffers,
            homes: vec![Home::None; graph.values().len()],
            last_use: joins.last_uses(graph),
            kept,
            weights: HashMap::new(),
            kernels: Vec::new(),
            kernel_index: HashMap::new(),
            steps: Vec::new(),
            symbols,
            kept_bytes: HashMap::new(),
            max_groups: info.limits.max_groups_per_dim,
            states: Vec::new(),
            traces: Vec::new(),
            joins,
        };
        for (id, value) in graph.inputs() {
            let size = compiler.bytes(&value.name, &value.ty)?;
            let buffer = compiler.buffers.add(&value.name, size, Content::Activation)?;
            compiler.homes[id.0 as usize] = Home::Fixed(buffer);
        }
        for state in graph.states() {
            let after = compiler.bytes(&state.name, &graph.value(state.output).ty)?;
            let size = after.max(compiler.bytes(&state.name, &graph.value(state.input).ty)?);
            let buffer = compiler.buffers.add(&state.name, size, Content::State)?;
            compiler.homes[state.input.0 as usize] = Home::Fixed(buffer);
            compiler.states.push((buffer, state.input == state.output));
        }
        Ok(compiler)
    }

    fn bytes(&self, name: &str, ty: &TensorType) -> Result<u64> {
        bytes_at_capacity(ty, &self.options.capacity, self.options.context).ok_or_else(|| {
            Error::unsupported(format!("the size of `{name}`, {ty}, at {:?}", self.options.capacity))
        })
    }

    fn node(&mut self, index: usize, node: &Node, plan: &NodePlan) -> Result<()> {
        self.trace_inputs(node)?;
        let extended = self.state_in_place(index, node, plan);
        for (k, &output) in node.outputs.iter().enumerate() {
            match extended {
                Some((state, at)) if at == k => {
                    self.homes[output.0 as usize] = Home::Fixed(self.states[state].0);
                }
                _ => self.house(output)?,
            }
        }
        let mut scratch = Vec::new();
        for (k, extent) in plan.scratch.iter().enumerate() {
            let size = largest(&extent.dim, &self.options.capacity, self.options.context);
            let size = size.ok_or_else(|| Error::unsupported("the size of scratch memory overflows"))?;
            let size = size.div_ceil(u64::from(extent.divisor.max(1)));
            scratch.push(self.buffers.take(&format!("{}.scratch{k}", node.name), size)?);
            self.poison(scratch[k]);
        }
        let first = match (extended, plan.in_place) {
            (Some(_), Some(in_place)) => in_place.first_launch,
            _ => 0,
        };
        for launch in plan.launches.iter().skip(first) {
            if let Some(when) = self.joins.remaining(index, launch.when) {
                self.launch(node, launch, when, plan, &scratch)?;
            }
        }
        let joined = self.joined(index, node, &scratch)?;
        self.trace_outputs(node)?;
        if let Some((state, _)) = extended {
            self.states[state].1 = true;
        }
        scratch.into_iter().for_each(|buffer| self.buffers.give(buffer));
        self.release(index, node.inputs.iter().chain(&node.outputs).chain(&joined));
        Ok(())
    }

    /// The state that this node extends or advances in place, and by which output. One that is advanced is lost: nobody
    /// may need it afterwards.
    fn state_in_place(&self, index: usize, node: &Node, plan: &NodePlan) -> Option<(usize, usize)> {
        let in_place = plan.in_place?;
        let before = *node.inputs.get(in_place.input)?;
        let Origin::State(state) = self.graph.value(before).origin else { return None };
        let at = before.0 as usize;
        let uses = node.inputs.iter().filter(|&&v| v == before).count();
        let lost = self.last_use[at] == Some(index) && !self.kept[at] && uses == 1;
        let after = self.graph.states().get(state as usize)?.output;
        let advanced = node.outputs.get(in_place.output) == Some(&after);
        ((node.op.appends() || lost) && advanced).then_some((state as usize, in_place.output))
    }

    /// Gives a value a buffer, unless it has one.
    fn house(&mut self, output: ValueId) -> Result<()> {
        let at = output.0 as usize;
        if self.homes[at] == Home::None {
            let value = self.graph.value(output);
            let size = self.bytes(&value.name, &value.ty)?;
            let buffer = self.buffers.take(&value.name, size)?;
            self.poison(buffer);
            self.homes[at] = if self.kept[at] { Home::Fixed(buffer) } else { Home::Shared(buffer) };
        }
        Ok(())
    }

    fn poison(&mut self, buffer: u32) {
        if self.options.poison {
            self.steps.push(Step::Fill { buffer, word: POISON });
        }
    }

    fn launch(
        &mut self,
        node: &Node,
        launch: &Launch,
        when: When,
        plan: &NodePlan,
        scratch: &[u32],
    ) -> Result<()> {
        let mut bindings = Vec::with_capacity(launch.args.len());
        for arg in &launch.args {
            let whole = |buffer| Slice { buffer, offset: 0, size: 0 };
            bindings.push(match *arg {
                Arg::Input { index, offset, len } => self.input(node.inputs[index], offset, len)?,
                Arg::Output(index) => whole(self.home(node.outputs[index])?),
                Arg::Scratch(index) => whole(scratch[index]),
                Arg::Constant(index) => whole(self.buffers.constant(&plan.constants[index])?),
                Arg::Symbols => whole(self.symbols),
            });
        }
        self.check_groups(launch)?;
        let mut desc = launch.desc.clone();
        desc.overlaps &= !self.computes_weights(node);
        let kernel = self.kernel(&desc)?;
        let groups = launch.groups.clone();
        self.steps.push(Step::Dispatch { node: node.name.clone(), kernel, bindings, groups, when });
        Ok(())
    }

    /// Whether a product's weights are what earlier nodes made: its kernel must not ask for them before these have ended.
    fn computes_weights(&self, node: &Node) -> bool {
        let product = matches!(
            node.op,
            Op::Linear(_) | Op::GatedLinear(_) | Op::QuantizedLinear(_) | Op::QuantizedGatedLinear(_)
        );
        let weight = |&value: &ValueId| self.graph.value(value).origin == Origin::Weight;
        product && !node.inputs.iter().skip(1).all(weight)
    }

    /// Fails now rather than in a run if the grid at capacity is beyond the device's limit.
    fn check_groups(&self, launch: &Launch) -> Result<()> {
        for extent in &launch.groups {
            let most = largest(&extent.dim, &self.options.capacity, self.options.context);
            let most = most.map_or(u64::MAX, |m| m.div_ceil(u64::from(extent.divisor.max(1))));
            if most > u64::from(self.max_groups) {
                let (name, offered) = (&launch.desc.name, self.max_groups);
                return Err(Error::unsupported(format!(
                    "`{name}` takes {most} workgroups, the device allows {offered}"
                ))
                .with_detail("kernel", name)
                .with_detail("limit", "max_groups_per_dim")
                .with_detail("asked", most.to_string())
                .with_detail("offered", offered.to_string())
                .with_hint("compile for fewer tokens at a time"));
            }
        }
        Ok(())
    }

    fn home(&self, value: ValueId) -> Result<u32> {
        match self.homes[value.0 as usize] {
            Home::Fixed(buffer) | Home::Shared(buffer) => Ok(buffer),
            Home::None => {
                let name = &self.graph.value(value).name;
                Err(Error::unsupported(format!("`{name}` is a weight and a result at once")))
            }
        }
    }

    fn input(&mut self, value: ValueId, offset: u64, len: u64) -> Result<Slice> {
        let described = self.graph.value(value);
        if described.origin != Origin::Weight {
            return Ok(Slice { buffer: self.home(value)?, offset, size: len });
        }
        let bytes = self.bytes(&described.name, &described.ty)?;
        let len = if len == 0 { bytes.saturating_sub(offset) } else { len };
        let buffer = match self.weights.get(&(value, offset, len)) {
            Some(&known) => known,
            None => {
                let name = &described.name;
                let content = Content::Weight { name: name.clone(), offset, len };
                let label = if len == bytes { name.clone() } else { format!("{name}@{offset}") };
                let added = self.buffers.add(&label, len, content)?;
                self.weights.insert((value, offset, len), added);
                added
            }
        };
        Ok(Slice { buffer, offset: 0, size: 0 })
    }

    fn kernel(&mut self, desc: &KernelDesc) -> Result<u32> {
        let key = serde_json::to_vec(desc).map_err(|e| Error::bug(format!("kernel `{}`: {e}", desc.name)))?;
        let next = self.kernels.len() as u32;
        let index = *self.kernel_index.entry(key).or_insert(next);
        if index == next {
            self.kernels.push(desc.clone());
        }
        Ok(index)
    }

    /// Gives back the buffers of values that nothing uses after this node.
    fn release<'v>(&mut self, index: usize, values: impl Iterator<Item = &'v ValueId>) {
        for &value in values {
            let at = value.0 as usize;
            if let Home::Shared(buffer) = self.homes[at]
                && self.last_use[at].is_none_or(|last| last <= index)
            {
                self.buffers.give(buffer);
                self.homes[at] = Home::None;
            }
        }
    }

    fn finish(mut self) -> Result<Program> {
        self.copy_states_back()?;
        let graph = self.graph;
        let mut outputs = Vec::new();
        for output in graph.outputs() {
            let value = graph.value(output.value);
            if let Origin::State(state) = value.origin
                && !self.states[state as usize].1
            {
                return Err(Error::unsupported(format!(
                    "output `{}` is a state that the run overwrites",
                    output.name
                )));
            }
            let buffer = self.home(output.value)?;
            outputs.push(Port { name: output.name.clone(), ty: value.ty.clone(), buffer });
        }
        let mut inputs = Vec::new();
        for (id, value) in graph.inputs() {
            inputs.push(Port { name: value.name.clone(), ty: value.ty.clone(), buffer: self.home(id)? });
        }
        outputs.extend(self.trace_ports()?);
        let states = graph.states().iter().zip(&self.states);
        let states = states.map(|(state, &(buffer, _))| StatePort {
            name: state.name.clone(),
            ty: graph.value(state.input).ty.clone(),
            buffer,
            grows: state.grows(graph),
        });
        Ok(Program {
            schema: SCHEMA,
            name: graph.name().into(),
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

    /// States that were not changed in place take over their new values, whole buffers at capacity.
    fn copy_states_back(&mut self) -> Result<()> {
        for (index, state) in self.graph.states().iter().enumerate() {
            let (dst, done) = self.states[index];
            if done {
                continue;
            }
            let src = self.home(state.output)?;
            if self.states.iter().any(|&(buffer, _)| buffer == src) {
                let text = format!("state `{}` takes over what another state holds", state.name);
                return Err(Error::unsupported(text));
            }
            let len = self.bytes(&state.name, &self.graph.value(state.output).ty)?.next_multiple_of(4);
            let len = Extent::of(len.min(self.buffers.size(src)).min(self.buffers.size(dst)));
            let (src_offset, dst_offset) = (Extent::of(0u64), Extent::of(0u64));
            self.steps.push(Step::Copy { src, src_offset, dst, dst_offset, len });
        }
        Ok(())
    }
}
