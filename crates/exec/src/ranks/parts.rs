//! What one rank runs: its part of the graph, cut where ranks meet.

use super::meeting::{Meeting, Stopped, catch_panic};
use crate::hybrid::{HybridSide, split};
use crate::{LoadOptions, Loaded, Platform};
use std::collections::{HashMap, HashSet};
use std::time::Instant;
use tapml_graph::{Context, DType, Error, Graph, Model, NodeId, Origin, Result, Symbols, Tensor};

/// What a rank does between two meetings, and the meeting behind it.
struct RankStage {
    /// What it computes, if anything.
    part: Option<LoadedPart>,
    /// The nodes at which ranks meet.
    meetings: Vec<NodeId>,
    /// Their names, for people.
    place: String,
    /// Names of values that nobody needs afterwards.
    dead: Vec<String>,
}

struct LoadedPart {
    loaded: Box<dyn Loaded>,
    /// Names of the values that it takes.
    inputs: Vec<String>,
}

/// All that one rank runs.
pub struct RankParts {
    rank: usize,
    model: Model,
    stages: Vec<RankStage>,
}

impl RankParts {
    /// Loads a rank's part of a sharded model.
    ///
    /// # Errors
    /// As [`Platform::load_with`], and if a state would have to cross between parts.
    pub fn load(
        platform: &mut dyn Platform,
        model: &Model,
        (rank, capacity): (usize, &Symbols),
        options: &LoadOptions,
    ) -> Result<RankParts> {
        let graph = model.graph();
        let ranks = graph.node_ranks();
        // The parts of a hybrid model fit: what runs alone, and in turn what needs all ranks.
        let side = |id: NodeId| match graph.node(id).op.meeting_ranks() {
            Some(_) => HybridSide::Target,
            None => HybridSide::Source,
        };
        let mine = |id: &NodeId| ranks[id.0 as usize].is_none_or(|of| of as usize == rank);
        let mut stages: Vec<RankStage> = Vec::new();
        for part in split(graph, &side) {
            if part.side == HybridSide::Target {
                let place = part.nodes.iter().map(|&id| format!("`{}`", graph.node(id).name));
                let place = place.collect::<Vec<_>>().join(", ");
                // A stage is a part with the meetings that follow it; ranks may meet before they have
                // computed anything.
                match stages.last_mut().filter(|stage| stage.meetings.is_empty()) {
                    Some(stage) => (stage.meetings, stage.place) = (part.nodes, place),
                    None => {
                        stages.push(RankStage { part: None, meetings: part.nodes, place, dead: Vec::new() })
                    }
                }
                continue;
            }
            // A node of no rank is computed by all, which costs less than a meeting.
            let nodes: Vec<NodeId> = part.nodes.into_iter().filter(mine).collect();
            let loaded = LoadedPart::load(platform, model, (&nodes, rank), (capacity, options));
            let first = nodes.first().map_or("", |&id| graph.node(id).name.as_str());
            let loaded = loaded.context(|| format!("rank {rank}: {} nodes from `{first}`", nodes.len()))?;
            stages.push(RankStage {
                part: loaded,
                meetings: Vec::new(),
                place: "the end of the step".into(),
                dead: Vec::new(),
            });
        }
        mark_dead(graph, &mut stages);
        let parts = RankParts { rank, model: model.clone(), stages };
        parts.expect_values()?;
        Ok(parts)
    }

    /// Fails if a part takes what nobody gives before it, such as a state that lies across parts.
    fn expect_values(&self) -> Result<()> {
        let graph = self.model.graph();
        let ids: HashMap<&str, Origin> =
            graph.values().iter().map(|value| (value.name.as_str(), value.origin)).collect();
        let inputs = self.stages.iter().filter_map(|stage| stage.part.as_ref()).flat_map(|part| &part.inputs);
        for name in inputs {
            if let Some(Origin::State(_)) = ids.get(name.as_str()) {
                return Err(Error::unsupported(format!(
                    "state `{name}` is used on both sides of a meeting of ranks"
                )));
            }
        }
        Ok(())
    }

    /// One step; gives the graph's outputs by name.
    pub fn run(
        &mut self,
        symbols: &Symbols,
        inputs: HashMap<String, Tensor>,
        meeting: &Meeting,
    ) -> std::result::Result<HashMap<String, Tensor>, Stopped> {
        let mut values = inputs;
        let rank = self.rank;
        for stage in &mut self.stages {
            let since = Instant::now();
            if let Some(part) = &mut stage.part {
                // Here the place is known.
                let ran = catch_panic(|| part.run(symbols, &mut values)).and_then(|ran| ran);
                ran.context(|| format!("rank {rank} on its way to {}", stage.place))?;
            }
            if !stage.meetings.is_empty() {
                let graph = self.model.graph();
                // All nodes that follow each other share one meeting: waiting for the others takes longer
                // than the sums.
                let brought = stage.meetings.iter().map(|&id| take(graph, &values, id, rank));
                let brought = brought.collect::<Result<Vec<_>>>()?;
                let join = |all: &[Vec<Tensor>]| join(graph, &stage.meetings, symbols, all);
                let joined = meeting.join(rank, brought, (&stage.place, since.elapsed()), join)?;
                for (&id, tensor) in stage.meetings.iter().zip(joined.iter()) {
                    let name = &graph.value(graph.node(id).outputs[0]).name;
                    values.insert(name.clone(), tensor.clone());
                }
            }
            for name in &stage.dead {
                values.remove(name);
            }
        }
        let graph = self.model.graph();
        let output = |output: &tapml_graph::Output| {
            let value = graph.value(output.value);
            let tensor = match (values.get(&value.name), value.origin) {
                (Some(tensor), _) => tensor.clone(),
                (None, Origin::Weight) => self.model.weight(&value.name)?,
                (None, _) => return Err(Error::bug(format!("rank {rank} gave no `{}`", value.name))),
            };
            Ok((output.name.clone(), tensor))
        };
        Ok(graph.outputs().iter().map(output).collect::<Result<_>>()?)
    }

    /// Empties the states.
    pub fn reset(&mut self) -> Result<()> {
        let rank = self.rank;
        for part in self.stages.iter_mut().filter_map(|stage| stage.part.as_mut()) {
            part.loaded.reset().context(|| format!("rank {rank}"))?;
        }
        Ok(())
    }
}

impl LoadedPart {
    /// `None` if there are no nodes.
    fn load(
        platform: &mut dyn Platform,
        model: &Model,
        (nodes, rank): (&[NodeId], usize),
        (capacity, options): (&Symbols, &LoadOptions),
    ) -> Result<Option<LoadedPart>> {
        if nodes.is_empty() {
            return Ok(None);
        }
        let graph = model.graph().extract_rank(nodes, rank as u32)?;
        let inputs = graph.inputs().map(|(_, value)| value.name.clone()).collect();
        let loaded = platform.load_with(&model.with_graph(graph)?, capacity, options)?;
        Ok(Some(LoadedPart { loaded, inputs }))
    }

    /// Runs it on `values`, by name, and adds what it computes to them.
    fn run(&mut self, symbols: &Symbols, values: &mut HashMap<String, Tensor>) -> Result<()> {
        let take = |name: &String| {
            let missing = || Error::invalid(format!("input `{name}` is missing"));
            Ok((name.clone(), values.get(name).cloned().ok_or_else(missing)?))
        };
        let inputs: HashMap<String, Tensor> = self.inputs.iter().map(take).collect::<Result<_>>()?;
        values.extend(self.loaded.run(symbols, &inputs, None)?);
        Ok(())
    }
}

/// What a rank brings to a node.
fn take(graph: &Graph, values: &HashMap<String, Tensor>, id: NodeId, rank: usize) -> Result<Tensor> {
    let missing = || Error::bug(format!("rank {rank} has nothing for `{}`", graph.node(id).name));
    let input = graph.node(id).inputs.get(rank).ok_or_else(missing)?;
    values.get(&graph.value(*input).name).cloned().ok_or_else(missing)
}

/// The results of the nodes at which ranks meet, of what each rank has brought.
fn join(graph: &Graph, nodes: &[NodeId], symbols: &Symbols, all: &[Vec<Tensor>]) -> Result<Vec<Tensor>> {
    let one = |(at, &id): (usize, &NodeId)| {
        let node = graph.node(id);
        let inputs: Vec<Tensor> = all.iter().filter_map(|brought| brought.get(at).cloned()).collect();
        let dtypes: Vec<DType> = node.outputs.iter().map(|&id| graph.value(id).ty.dtype).collect();
        let outputs = tapml_reference::run_node(&node.op, symbols, &inputs, &dtypes);
        let first = outputs.map(|outputs| outputs.into_iter().next());
        let first = first.context(|| format!("node `{}`", node.name))?;
        first.ok_or_else(|| Error::bug(format!("node `{}` gave nothing", node.name)))
    };
    nodes.iter().enumerate().map(one).collect()
}

/// Finds what nobody needs behind each stage: what is held for longer takes memory.
fn mark_dead(graph: &Graph, stages: &mut [RankStage]) {
    let mut wanted: HashSet<String> =
        graph.outputs().iter().map(|output| graph.value(output.value).name.clone()).collect();
    for stage in stages.iter_mut().rev() {
        let met = stage.meetings.iter().flat_map(|&id| &graph.node(id).inputs);
        let used: Vec<String> = met.map(|&id| graph.value(id).name.clone()).collect();
        let taken = stage.part.iter().flat_map(|part| part.inputs.iter().cloned());
        // The last stage that uses a value drops it.
        let used: Vec<String> = used.into_iter().chain(taken).collect();
        stage.dead = used.iter().filter(|name| !wanted.contains(*name)).cloned().collect();
        wanted.extend(used);
    }
}
