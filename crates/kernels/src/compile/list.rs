//! The steps of one lowered graph: where its values lie, and which launches compute them.
//!
//! Buffers are given out while the list is written. Steps run in this order on the device, so that a buffer whose
//! value has had its last use may be written by the next step.

use super::compiler::{Compiler, POISON};
use super::place::NodePlace;
use crate::plan::{Arg, Launch, NodePlan, Phase, Scratch};
use crate::program::{ProgramStep, Slice, largest};
use std::collections::HashSet;
use tapml_graph::{Error, Extent, Graph, Node, NodeId, Op, Origin, Result, ValueId};

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

/// The steps of a graph in the making.
pub(super) struct StepList<'c, 'a> {
    pub(super) compiler: &'c mut Compiler<'a>,
    pub(super) graph: &'c Graph,
    pub(super) phase: Option<Phase>,
    /// By value.
    homes: Vec<Home>,
    /// The last node that uses each value.
    /// `None` if nothing uses it.
    last_use: Vec<Option<usize>>,
    /// Values that must outlive the last node.
    kept: Vec<bool>,
    /// Whether the run extends or advances each state in place.
    /// Such a state needs no copy at the end of the run.
    in_place: Vec<bool>,
}

impl<'c, 'a> StepList<'c, 'a> {
    /// Places inputs and states, whose buffers the compiler has made; everything else is placed node by node.
    pub(super) fn new(
        compiler: &'c mut Compiler<'a>,
        graph: &'c Graph,
        phase: Option<Phase>,
    ) -> Result<StepList<'c, 'a>> {
        let mut homes = vec![Home::None; graph.values().len()];
        for ((id, _), &buffer) in graph.inputs().zip(&compiler.inputs) {
            homes[id.0 as usize] = Home::Fixed(buffer);
        }
        for (state, &buffer) in graph.states().iter().zip(&compiler.states) {
            homes[state.input.0 as usize] = Home::Fixed(buffer);
        }
        let mut kept = vec![false; graph.values().len()];
        let results = graph.outputs().iter().map(|o| o.value).chain(graph.states().iter().map(|s| s.output));
        results.for_each(|v| kept[v.0 as usize] = true);
        let last = |users: &Vec<NodeId>| users.last().map(|node| node.0 as usize);
        let last_use = graph.users().iter().map(last).collect();
        let in_place = graph.states().iter().map(|state| state.input == state.output).collect();
        Ok(StepList { compiler, graph, phase, homes, last_use, kept, in_place })
    }

    /// The steps of a node.
    ///
    /// The order is: states in place, outputs, scratch, launches, release. Inputs are released last, so that no
    /// output shares a buffer with an input of its own node.
    pub(super) fn node(&mut self, index: usize, node: &Node, plan: &NodePlan) -> Result<()> {
        let first = self.compiler.steps.len();
        let weight = |&value: &ValueId| self.graph.value(value).origin == Origin::Weight;
        let input = |value| if weight(value) { Ok(None) } else { self.home(*value).map(Some) };
        let inputs = node.inputs.iter().map(input).collect::<Result<_>>()?;
        self.trace_inputs(node)?;
        let mut copies = HashSet::new();
        for pair in &plan.in_place {
            let Some(state) = self.state_in_place(index, node, pair.input, pair.output) else { continue };
            self.homes[node.outputs[pair.output].0 as usize] = Home::Fixed(self.compiler.states[state]);
            // A copy of a buffer to itself would bind it twice in one dispatch, which WebGPU forbids.
            copies.extend(pair.copy);
            self.in_place[state] = true;
        }
        for &output in &node.outputs {
            self.place_value(output)?;
        }
        let mut scratch = Vec::new();
        for (k, wanted) in plan.scratch.iter().enumerate() {
            scratch.push(self.scratch(&format!("{}.scratch{k}", node.name), wanted, &plan.kernel)?);
        }
        for (at, launch) in plan.launches.iter().enumerate() {
            if !copies.contains(&at) {
                self.launch(node, launch, plan, &scratch)?;
            }
        }
        self.trace_outputs(node)?;
        let outputs = node.outputs.iter().map(|&value| self.home(value)).collect::<Result<_>>()?;
        let steps = first..self.compiler.steps.len();
        self.compiler.places.push(NodePlace { steps, inputs, outputs });
        for (buffer, wanted) in scratch.into_iter().zip(&plan.scratch) {
            if let Scratch::Temporary(_) = wanted {
                self.compiler.buffers.give(buffer);
            }
        }
        // An output that nothing uses is given back here as well.
        self.release(index, node.inputs.iter().chain(&node.outputs));
        Ok(())
    }

    /// The state that this node extends or advances in place, if it can: from this input to this output. One that is
    /// advanced is lost: nobody may need it afterwards.
    fn state_in_place(&self, index: usize, node: &Node, input: usize, output: usize) -> Option<usize> {
        let (before, after) = (*node.inputs.get(input)?, *node.outputs.get(output)?);
        let Origin::State(state) = self.graph.value(before).origin else { return None };
        let at = before.0 as usize;
        let uses = node.inputs.iter().filter(|&&v| v == before).count();
        let lost = self.last_use[at] == Some(index) && !self.kept[at] && uses == 1;
        // The output must be this state's own next value: an appended copy for something else needs other memory.
        let advanced = self.graph.states().get(state as usize)?.output == after;
        ((node.op.appends() || lost) && advanced).then_some(state as usize)
    }

    /// The buffer of scratch memory, sized at capacity; `row` is the kernel that keeps it, if it is kept.
    fn scratch(&mut self, name: &str, wanted: &Scratch, row: &str) -> Result<u32> {
        let extent = match wanted {
            Scratch::Kept(bytes) => return self.compiler.reserve_memory(row, *bytes),
            Scratch::Temporary(extent) => extent,
        };
        let size = self.largest(extent);
        let size = size.ok_or_else(|| Error::unsupported("the size of scratch memory overflows"))?;
        let buffer = self.compiler.buffers.take(name, size)?;
        self.poison(buffer);
        Ok(buffer)
    }

    /// The most that an extent can be.
    fn largest(&self, extent: &Extent) -> Option<u64> {
        let options = self.compiler.options;
        let most = largest(&extent.dim, &options.capacity, options.context)?;
        Some(most.div_ceil(u64::from(extent.divisor.max(1))))
    }

    /// Gives a value a buffer, unless it has one. A result has the same in both phases.
    fn place_value(&mut self, output: ValueId) -> Result<()> {
        let at = output.0 as usize;
        if self.homes[at] != Home::None {
            return Ok(());
        }
        let value = self.graph.value(output);
        let size = self.compiler.bytes(&value.name, &value.ty)?;
        // The list of the other phase has placed it already; ports name one buffer for both phases.
        let known = self.compiler.results.get(&value.name).copied();
        let buffer = match known.filter(|buffer| !self.compiler.states.contains(buffer)) {
            Some(buffer) => buffer,
            None => self.compiler.buffers.take(&value.name, size)?,
        };
        self.poison(buffer);
        self.homes[at] = if self.kept[at] { Home::Fixed(buffer) } else { Home::Shared(buffer) };
        Ok(())
    }

    /// Fills a buffer with NaNs, if options ask for it, before anything is written there.
    fn poison(&mut self, buffer: u32) {
        if self.compiler.options.poison {
            self.compiler.steps.push(ProgramStep::Fill { buffer, word: POISON, phase: self.phase });
        }
    }

    /// Turns a launch of a plan into a step: arguments into ranges of buffers, the description into a kernel index.
    fn launch(&mut self, node: &Node, launch: &Launch, plan: &NodePlan, scratch: &[u32]) -> Result<()> {
        let mut bindings = Vec::with_capacity(launch.args.len());
        for arg in &launch.args {
            let whole = |buffer| Slice { buffer, offset: 0, size: 0 };
            bindings.push(match *arg {
                Arg::Input { index, offset, len } => self.input(node.inputs[index], offset, len)?,
                Arg::Output(index) => whole(self.home(node.outputs[index])?),
                Arg::Scratch(index) => whole(scratch[index]),
                Arg::Constant(index) => whole(self.compiler.buffers.constant(&plan.constants[index])?),
                Arg::Symbols => whole(self.compiler.symbols),
            });
        }
        self.check_groups(launch)?;
        let mut desc = launch.desc.clone();
        // Programmatic dependent launch lets a kernel begin before the one in front of it has ended.
        desc.dependent_launch &= !self.computes_weights(node);
        let kernel = self.compiler.kernel(&desc)?;
        let (row, groups, phase) = (plan.kernel.clone(), launch.groups.clone(), self.phase);
        let step = ProgramStep::Dispatch { node: node.name.clone(), row, kernel, bindings, groups, phase };
        self.compiler.steps.push(step);
        Ok(())
    }

    /// Whether the weights of a product or of a norm are what earlier nodes made: its kernel must not ask for them before these have
    /// ended.
    fn computes_weights(&self, node: &Node) -> bool {
        let first = match node.op {
            Op::Linear(_) | Op::GatedLinear(_) | Op::RmsNorm(_) => 1,
            Op::AddRmsNorm(_) => 2,
            _ => return false,
        };
        let weight = |&value: &ValueId| self.graph.value(value).origin == Origin::Weight;
        !node.inputs.iter().skip(first).all(weight)
    }

    /// Fails now rather than in a run if the grid at capacity is beyond the device's limit.
    fn check_groups(&self, launch: &Launch) -> Result<()> {
        for extent in &launch.groups {
            let most = self.largest(extent).unwrap_or(u64::MAX);
            let offered = self.compiler.max_groups;
            if most > u64::from(offered) {
                let name = &launch.desc.name;
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

    /// The buffer of a value that has been placed.
    pub(super) fn home(&self, value: ValueId) -> Result<u32> {
        match self.homes[value.0 as usize] {
            Home::Fixed(buffer) | Home::Shared(buffer) => Ok(buffer),
            Home::None => {
                let name = &self.graph.value(value).name;
                Err(Error::unsupported(format!("`{name}` is a weight and a result at once")))
            }
        }
    }

    /// The range of an input, or of the part of a weight, which has a buffer of its own.
    fn input(&mut self, value: ValueId, offset: u64, len: u64) -> Result<Slice> {
        let described = self.graph.value(value);
        if described.origin != Origin::Weight {
            return Ok(Slice { buffer: self.home(value)?, offset, size: len });
        }
        let buffer = self.compiler.weight(&described.name, &described.ty, offset, len)?;
        Ok(Slice { buffer, offset: 0, size: 0 })
    }

    /// Gives back the buffers of values that nothing uses after this node.
    /// Values with a buffer of their own stay where they are.
    fn release<'v>(&mut self, index: usize, values: impl Iterator<Item = &'v ValueId>) {
        for &value in values {
            let at = value.0 as usize;
            if let Home::Shared(buffer) = self.homes[at]
                && self.last_use[at].is_none_or(|last| last <= index)
            {
                self.compiler.buffers.give(buffer);
                self.homes[at] = Home::None;
            }
        }
    }

    /// Ends the list: states that were not changed in place take over their new values, whole buffers at capacity.
    pub(super) fn finish(mut self) -> Result<()> {
        for (index, state) in self.graph.states().iter().enumerate() {
            if self.in_place[index] {
                continue;
            }
            let (src, dst) = (self.home(state.output)?, self.compiler.states[index]);
            // The copies run one after the other: the source might have been overwritten by a copy before this one.
            if self.compiler.states.contains(&src) {
                let text = format!("state `{}` takes over what another state holds", state.name);
                return Err(Error::unsupported(text));
            }
            let ty = &self.graph.value(state.output).ty;
            let len = self.compiler.bytes(&state.name, ty)?.next_multiple_of(4);
            let buffers = &self.compiler.buffers;
            // A growing state is copied with all rows of its capacity: lengths here do not depend on the run.
            let len = Extent::from_dim(len.min(buffers.size(src)).min(buffers.size(dst)));
            let (src_offset, dst_offset) = (Extent::from_dim(0u64), Extent::from_dim(0u64));
            let phase = self.phase;
            self.compiler.steps.push(ProgramStep::Copy { src, src_offset, dst, dst_offset, len, phase });
        }
        self.note_results()
    }

    /// Notes where results lie.
    ///
    /// # Errors
    /// `Unsupported` for an output that is a state as it was before the run, since the run writes over it.
    fn note_results(&mut self) -> Result<()> {
        for output in self.graph.outputs() {
            let value = self.graph.value(output.value);
            if let Origin::State(state) = value.origin
                && !self.in_place[state as usize]
            {
                let text = format!("output `{}` is a state that the run overwrites", output.name);
                return Err(Error::unsupported(text));
            }
            let buffer = self.home(output.value)?;
            let other = self.compiler.results.insert(value.name.clone(), buffer);
            if other.is_some_and(|other| other != buffer) {
                return Err(Error::bug(format!("result `{}` lies in two places", value.name)));
            }
        }
        Ok(())
    }
}
