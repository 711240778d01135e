//! The graph of all ranks, from what is shared out.

use super::columns::ColumnSet;
use super::rules::{self, PartNeed};
use super::slice::{SliceAxis, WeightSlice};
use super::splits::Splits;
use crate::Dim;
use crate::error::{Context, Error, Result};
use crate::graph::{Builder, Graph, Node, NodeId, Origin, State, TensorType, Value, ValueId};
use crate::op::{AllGather, AllReduce, Op};
use std::collections::HashMap;

/// See the module.
pub fn build(splits: &Splits<'_>) -> Result<Graph> {
    let graph = splits.graph;
    let mut ranked = RankedGraph {
        splits,
        builder: Builder::new(graph.name()),
        whole: HashMap::new(),
        parts: HashMap::new(),
    };
    for (id, value) in (0..).map(ValueId).zip(graph.values()) {
        match value.origin {
            Origin::Input => {
                let new = ranked.builder.input(&value.name, value.ty.clone())?;
                ranked.whole.insert(id, new);
            }
            Origin::State(_) => ranked.state(id, value)?,
            // Added where they are used, whole or in slices.
            Origin::Weight => {}
            Origin::Node { output: 0, node: id } => {
                let node = graph.node(id);
                ranked.node(id, node).context(|| format!("node `{}`", node.name))?;
            }
            // Added with the node's first.
            Origin::Node { .. } => {}
        }
    }
    for output in graph.outputs() {
        let value = ranked.take(output.value)?;
        ranked.builder.output(&output.name, value);
    }
    for state in graph.states() {
        ranked.keep(state)?;
    }
    ranked.builder.finish()
}

/// The graph under construction.
struct RankedGraph<'a> {
    splits: &'a Splits<'a>,
    builder: Builder,
    /// What stands for a value that every rank has.
    whole: HashMap<ValueId, ValueId>,
    /// What stands for a value of which each rank has a part.
    parts: HashMap<ValueId, Vec<ValueId>>,
}

/// Name of what a node or value is for a rank.
fn name_of(name: &str, rank: usize) -> String {
    format!("{name}@{rank}")
}

impl RankedGraph<'_> {
    /// A state: of each rank if it is shared out.
    fn state(&mut self, id: ValueId, value: &Value) -> Result<()> {
        let Some(parts) = self.splits.columns.get(&id) else {
            let new = self.builder.state(&value.name, value.ty.clone())?;
            self.whole.insert(id, new);
            return Ok(());
        };
        let mut states = Vec::with_capacity(parts.len());
        for (rank, part) in parts.iter().enumerate() {
            let mut ty = value.ty.clone();
            if let Some(last) = ty.shape.last_mut() {
                *last = Dim::from(part.count());
            }
            states.push(self.builder.state(name_of(&value.name, rank), ty)?);
        }
        self.parts.insert(id, states);
        Ok(())
    }

    /// Sets what a state holds after the run.
    fn keep(&mut self, state: &State) -> Result<()> {
        let Some(before) = self.parts.get(&state.input).cloned() else {
            let after = self.take(state.output)?;
            let before = self.take(state.input)?;
            return self.builder.set_state(before, after);
        };
        for (rank, before) in before.into_iter().enumerate() {
            let after = self.part(state.output, rank)?;
            self.builder.set_state(before, after)?;
        }
        Ok(())
    }

    /// A value that every rank has.
    fn take(&mut self, id: ValueId) -> Result<ValueId> {
        if let Some(&value) = self.whole.get(&id) {
            return Ok(value);
        }
        let value = self.splits.graph.value(id);
        match value.origin {
            Origin::Weight => self.builder.weight(&value.name, value.ty.clone()),
            _ => Err(Error::bug(format!("`{}` is taken whole, and no rank has it", value.name))),
        }
    }

    /// A rank's part of a value.
    fn part(&self, id: ValueId, rank: usize) -> Result<ValueId> {
        let part = self.parts.get(&id).and_then(|parts| parts.get(rank)).copied();
        part.ok_or_else(|| {
            Error::bug(format!("rank {rank} has no part of `{}`", self.splits.graph.value(id).name))
        })
    }

    /// A slice of a weight; the weight itself if the slice is all of it.
    fn slice(&mut self, id: ValueId, axis: SliceAxis, places: &ColumnSet) -> Result<ValueId> {
        let value = self.splits.graph.value(id);
        let slice = WeightSlice { of: value.name.clone(), axis, places: places.clone() };
        let ty = slice.ty(&value.ty)?;
        if ty == value.ty {
            return self.take(id);
        }
        self.builder.weight(slice.name(), ty)
    }

    /// A node of the graph, for all ranks.
    fn node(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let splits = self.splits;
        if splits.tails.contains(&id) {
            return self.tail(node);
        }
        if let Some(columns) = splits.sums.get(&id) {
            return self.product(node, columns);
        }
        if let Some((head, columns)) = &splits.head
            && *head == id
        {
            return self.head(node, columns);
        }
        if splits.nodes.contains(&id) {
            return self.node_in_parts(node);
        }
        let inputs = node.inputs.iter().map(|&input| self.take(input)).collect::<Result<Vec<_>>>()?;
        let names: Vec<String> = node.outputs.iter().map(|&v| splits.graph.value(v).name.clone()).collect();
        let outputs = self.builder.node_multi(&node.name, node.op.clone(), &inputs, &names)?;
        self.whole.extend(node.outputs.iter().copied().zip(outputs));
        Ok(())
    }

    /// A node of which each rank computes some columns of the only output.
    fn node_in_parts(&mut self, node: &Node) -> Result<()> {
        let output = node.outputs[0];
        let columns = self.splits.columns.get(&output).ok_or_else(|| Error::bug("its output is whole"))?;
        let needs = rules::needs(self.splits.graph, node, columns)?;
        let mut made = Vec::with_capacity(columns.len());
        for (rank, part) in columns.iter().enumerate() {
            let inputs = node.inputs.iter().zip(&needs).map(|(&input, need)| match need {
                PartNeed::Whole => self.take(input),
                PartNeed::Columns(_) => self.part(input, rank),
                PartNeed::Rows(parts) => self.slice(input, SliceAxis::Rows, &parts[rank]),
                PartNeed::WeightColumns(parts) => self.slice(input, SliceAxis::Columns, &parts[rank]),
            });
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            let first = node.inputs.first().and_then(|first| self.splits.columns.get(first)?.get(rank));
            let op = rules::part_of_op(self.splits.graph, node, part, first.unwrap_or(part))?;
            made.push(self.rank_node((node, output), op, &inputs, rank)?);
        }
        self.parts.insert(output, made);
        Ok(())
    }

    /// A node for one rank.
    fn rank_node(
        &mut self,
        (node, output): (&Node, ValueId),
        op: Op,
        inputs: &[ValueId],
        rank: usize,
    ) -> Result<ValueId> {
        let value = name_of(&self.splits.graph.value(output).name, rank);
        let made = self.builder.node_multi(name_of(&node.name, rank), op, inputs, &[value])?;
        made.first().copied().ok_or_else(|| Error::bug("a node without an output"))
    }

    /// A product of which each rank computes terms of all sums. The first rank adds the bias.
    fn product(&mut self, node: &Node, columns: &[ColumnSet]) -> Result<()> {
        let (output, bias_at) = (node.outputs[0], if matches!(node.op, Op::Linear(_)) { 2 } else { 3 });
        let width = self.splits.graph.value(node.inputs[1]).ty.shape.last().and_then(|size| size.as_const());
        let width = width.unwrap_or(0);
        let mut made = Vec::with_capacity(columns.len());
        for (rank, part) in columns.iter().enumerate() {
            let block =
                part.block(width, part.ranges().last().map_or(0, |last| last.end.div_ceil(width.max(1))));
            let block = block.ok_or_else(|| Error::bug("blocks of a rank differ"))?;
            let mut inputs = vec![self.part(node.inputs[0], rank)?];
            inputs.push(self.slice(node.inputs[1], SliceAxis::Columns, &block)?);
            for (at, &input) in node.inputs.iter().enumerate().skip(2) {
                if at != bias_at || rank == 0 {
                    inputs.push(self.take(input)?);
                }
            }
            made.push(self.rank_node((node, output), node.op.clone(), &inputs, rank)?);
        }
        self.parts.insert(output, made);
        if self.splits.tail(node).is_some() {
            return Ok(());
        }
        self.meet(node, AllReduce { ranks: self.splits.ranks, rank: None }.into())
    }

    /// A node that adds up blocks of terms.
    fn tail(&mut self, node: &Node) -> Result<()> {
        let output = node.outputs[0];
        let mut made = Vec::new();
        for rank in 0..self.splits.ranks as usize {
            let mut inputs = vec![self.part(node.inputs[0], rank)?];
            for &input in &node.inputs[1..] {
                inputs.push(self.take(input)?);
            }
            made.push(self.rank_node((node, output), node.op.clone(), &inputs, rank)?);
        }
        self.parts.insert(output, made);
        self.meet(node, AllReduce { ranks: self.splits.ranks, rank: None }.into())
    }

    /// The product behind the logits, of which each rank computes some columns.
    fn head(&mut self, node: &Node, columns: &[ColumnSet]) -> Result<()> {
        let output = node.outputs[0];
        let mut made = Vec::new();
        for (rank, part) in columns.iter().enumerate() {
            let mut inputs = vec![self.take(node.inputs[0])?];
            for &weight in &node.inputs[1..] {
                inputs.push(self.slice(weight, SliceAxis::Rows, part)?);
            }
            made.push(self.rank_node((node, output), node.op.clone(), &inputs, rank)?);
        }
        self.parts.insert(output, made);
        self.meet(node, AllGather { ranks: self.splits.ranks, rank: None }.into())
    }

    /// The node at which the ranks bring what they have of a node's output together, as a value of the output's name.
    fn meet(&mut self, node: &Node, op: Op) -> Result<()> {
        let output = node.outputs[0];
        let inputs = self.parts.get(&output).cloned().unwrap_or_default();
        let name = format!("{}.{}", node.name, op.name());
        let value = self.splits.graph.value(output);
        let made = self.builder.node_multi(name, op, &inputs, std::slice::from_ref(&value.name))?;
        let made = made.first().copied().ok_or_else(|| Error::bug("a meeting of ranks without a result"))?;
        expect_type(self.builder.ty(made), value)?;
        self.whole.insert(output, made);
        Ok(())
    }
}

/// Fails unless what the ranks have together is what one rank had.
fn expect_type(found: &TensorType, value: &Value) -> Result<()> {
    if *found == value.ty {
        return Ok(());
    }
    Err(Error::bug(format!("`{}` is {}, and of all ranks together {found}", value.name, value.ty)))
}
