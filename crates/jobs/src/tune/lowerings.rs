//! The graphs among which fused operators are chosen: as the device runs the model with all of them, and with some of
//! them left as the operators that they stand for.

use tapml_device::DeviceInfo;
use tapml_graph::{Graph, Node, Op, Result, TensorType};
use tapml_kernels::{Choice, Fusing, Overrides, Phase, Planner, TuningCache, UNFUSED, lower};

/// An operator at the types of its inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct TunePlace {
    /// The operator.
    pub op: Op,
    /// Types of its inputs.
    pub inputs: Vec<TensorType>,
}

impl TunePlace {
    /// Where a node of a graph stands.
    pub fn from_node(graph: &Graph, node: &Node) -> TunePlace {
        TunePlace { op: node.op.clone(), inputs: graph.input_types(node) }
    }

    /// Whether the operator stands for several.
    fn is_fused(&self) -> bool {
        matches!(self.op, Op::Fused(_))
    }
}

/// The graph in one phase without some fused operators.
#[derive(Clone, Debug)]
pub struct Lowering {
    /// The fused operators that are left out.
    pub without: Vec<TunePlace>,
    /// The graph.
    pub graph: Graph,
    /// What stands in it, with the number of nodes.
    pub places: Vec<(TunePlace, usize)>,
}

/// A fused operator of the whole lowering, and the lowerings without it.
#[derive(Clone, Debug)]
pub struct Unfused {
    /// The operator.
    pub place: TunePlace,
    /// The graph without it, without it and what takes its place, and so on.
    pub lowerings: Vec<Lowering>,
}

/// What lowers a model's graph for a device in one phase.
pub struct Lowerer<'a> {
    graph: Graph,
    info: &'a DeviceInfo,
    phase: Phase,
}

impl<'a> Lowerer<'a> {
    /// For the graph as it is deployed.
    pub fn new(graph: &Graph, info: &'a DeviceInfo, phase: Phase) -> Result<Lowerer<'a>> {
        // A language model is deployed with the choice of the next token behind its logits.
        let graph = graph.greedy()?.unwrap_or_else(|| graph.clone());
        Ok(Lowerer { graph, info, phase })
    }

    /// The graph without these fused operators.
    pub fn lower_without(&self, without: Vec<TunePlace>) -> Result<Lowering> {
        let mut choices = TuningCache::new(self.info);
        for TunePlace { op, inputs } in &without {
            choices.add(Choice::new(op, inputs, UNFUSED, Vec::new()));
        }
        let mut overrides = Overrides::default();
        overrides.choose(choices);
        let mut planner = Planner::new(self.info.clone(), overrides);
        let graph = lower(&self.graph, self.phase, &Fusing::All, &mut planner)?;
        let mut places: Vec<(TunePlace, usize)> = Vec::new();
        for place in graph.nodes().iter().map(|node| TunePlace::from_node(&graph, node)) {
            match places.iter_mut().find(|(known, _)| *known == place) {
                Some((_, count)) => *count += 1,
                None => places.push((place, 1)),
            }
        }
        Ok(Lowering { without, graph, places })
    }

    /// For each fused operator of the whole lowering the lowerings without it.
    pub fn find_unfused(&self, whole: &Lowering) -> Result<Vec<Unfused>> {
        let fused = whole.places.iter().map(|(place, _)| place).filter(|place| place.is_fused());
        fused
            .map(|place| Ok(Unfused { place: place.clone(), lowerings: self.lower_place(whole, place)? }))
            .collect()
    }

    /// Ends because each round leaves out at least one more operator of a finite list.
    fn lower_place(&self, whole: &Lowering, place: &TunePlace) -> Result<Vec<Lowering>> {
        let mut lowerings: Vec<Lowering> = Vec::new();
        let mut without = vec![place.clone()];
        loop {
            let next = self.lower_without(without.clone())?;
            // Other fused operators may have taken its place.
            let new: Vec<TunePlace> = next
                .places
                .iter()
                .map(|(place, _)| place)
                .filter(|place| place.is_fused() && !whole.has(place) && !without.contains(place))
                .cloned()
                .collect();
            lowerings.push(next);
            if new.is_empty() {
                return Ok(lowerings);
            }
            without.extend(new);
        }
    }
}

impl Lowering {
    /// Whether a node of the graph stands at such a place.
    pub fn has(&self, place: &TunePlace) -> bool {
        self.nodes(place) > 0
    }

    /// The number of nodes at such a place.
    pub fn nodes(&self, place: &TunePlace) -> usize {
        self.places.iter().find(|(known, _)| known == place).map_or(0, |(_, count)| *count)
    }

    /// What this graph has more nodes of than another, and less, with the numbers.
    pub fn difference(&self, other: &Lowering) -> Vec<(TunePlace, i64)> {
        let mut all: Vec<(TunePlace, i64)> = Vec::new();
        let own = self.places.iter().map(|(place, count)| (place, *count as i64));
        for (place, count) in own.chain(other.places.iter().map(|(place, count)| (place, -(*count as i64)))) {
            match all.iter_mut().find(|(known, _)| known == place) {
                Some((_, sum)) => *sum += count,
                None => all.push((place.clone(), count)),
            }
        }
        all.retain(|(_, count)| *count != 0);
        all
    }
}
