//! Graphs of two stages: the encoder of an image runs when an image is given, the rest in every step.
//!
//! Splitting is done for every platform in the same way, so that hybrids, sessions and suites agree on
//! which nodes a run holds.

use crate::{LoadOptions, Loaded, NodeEvent, Observer, Platform};
use std::collections::HashMap;
use tapml_graph::{Context, Error, ErrorKind, Graph, Model, NodeId, Result, Symbols, Tensor, ValueId};

/// Loads a model for runs of at most `capacity`, as [`Platform::load`] does, so that nodes which no step changes (see
/// [`Graph::loop_invariant_nodes`]) run only when their inputs are given: all of them, or none. Without them the results of the last
/// time count, zeros after a reset.
pub fn load(platform: &mut dyn Platform, model: &Model, capacity: &Symbols) -> Result<Box<dyn Loaded>> {
    load_by(load_part, platform, model, capacity)
}

/// As [`load`], so that [`Loaded::generate_greedily`] serves a language model where the platform can; see [`LoadOptions::greedy`].
pub fn load_greedy(
    platform: &mut dyn Platform,
    model: &Model,
    capacity: &Symbols,
) -> Result<Box<dyn Loaded>> {
    load_by(load_part_greedily, platform, model, capacity)
}

/// As [`load`], for runs with an [`Observer`]: a device, which runs a graph as a whole, then keeps every node's values.
pub fn load_watched(
    platform: &mut dyn Platform,
    model: &Model,
    capacity: &Symbols,
) -> Result<Box<dyn Loaded>> {
    load_by(load_part_watched, platform, model, capacity)
}

/// How a graph, or a part of one, is loaded.
pub(crate) type Load = fn(&mut dyn Platform, &Model, &Symbols) -> Result<Box<dyn Loaded>>;

fn load_part(platform: &mut dyn Platform, model: &Model, capacity: &Symbols) -> Result<Box<dyn Loaded>> {
    platform.load(model, capacity)
}

fn load_part_greedily(
    platform: &mut dyn Platform,
    model: &Model,
    capacity: &Symbols,
) -> Result<Box<dyn Loaded>> {
    platform.load_with(model, capacity, &LoadOptions { greedy: true, ..LoadOptions::default() })
}

fn load_part_watched(
    platform: &mut dyn Platform,
    model: &Model,
    capacity: &Symbols,
) -> Result<Box<dyn Loaded>> {
    let trace = model.graph().nodes().iter().map(|node| node.name.clone()).collect();
    let options = LoadOptions { trace, ..LoadOptions::default() };
    match platform.load_with(model, capacity, &options) {
        // It shows nodes as they run, or not at all, which the run says.
        // Whether an observer is served is then known when the graph runs.
        Err(error) if error.kind() == ErrorKind::Unsupported => platform.load(model, capacity),
        loaded => loaded,
    }
}

/// Loads the graph in one piece, or in two stages.
fn load_by(
    load: Load,
    platform: &mut dyn Platform,
    model: &Model,
    capacity: &Symbols,
) -> Result<Box<dyn Loaded>> {
    let once = model.graph().loop_invariant_nodes();
    // One stage alone is the graph itself.
    if !once.contains(&true) || !once.contains(&false) {
        return load(platform, model, capacity);
    }
    let nodes = |wanted: bool| -> Vec<NodeId> {
        (0u32..).zip(&once).filter(|(_, once)| **once == wanted).map(|(i, _)| NodeId(i)).collect()
    };
    let first = Stage::load(load, platform, model, &nodes(true), capacity);
    let first = first.context(|| "the encoder".to_string())?;
    let every = Stage::load(load, platform, model, &nodes(false), capacity)?;
    let kept = zeros(model.graph())?;
    Ok(Box::new(CachedEncoder { model: model.clone(), first, every, kept }))
}

/// Zeros for every value that the encoder gives to the rest, by name.
pub(crate) fn zeros(graph: &Graph) -> Result<HashMap<String, Tensor>> {
    let zero = |id: ValueId| {
        let value = graph.value(id);
        let sizes = value.ty.sizes(&Symbols::new())?;
        let zeros = vec![0.0; sizes.iter().product()];
        Ok((value.name.clone(), Tensor::from_f64(value.ty.dtype, sizes, &zeros)?))
    };
    graph.cached_values().into_iter().map(zero).collect()
}

/// Whether the inputs of an encoder, of these names, are given. Fails if only some are.
pub(crate) fn has_encoder_inputs<'a>(
    mut names: impl Iterator<Item = &'a String>,
    inputs: &HashMap<String, Tensor>,
) -> Result<bool> {
    let Some(first) = names.next() else { return Ok(true) };
    let found = inputs.contains_key(first);
    match names.find(|name| inputs.contains_key(*name) != found) {
        None => Ok(found),
        Some(other) => {
            let (here, missing) = if found { (first, other) } else { (other, first) };
            Err(Error::invalid(format!("input `{here}` is given without `{missing}`")))
        }
    }
}

struct CachedEncoder {
    /// The whole model, for names.
    model: Model,
    /// The encoder.
    first: Stage,
    /// What runs in each step.
    every: Stage,
    /// What the encoder gave last, by name.
    kept: HashMap<String, Tensor>,
}

impl Loaded for CachedEncoder {
    fn run(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        mut observer: Option<&mut dyn Observer>,
    ) -> Result<HashMap<String, Tensor>> {
        let graph = self.model.graph();
        if has_encoder_inputs(self.first.inputs.iter(), inputs)? {
            // Not through `map`: the observer is needed again.
            let watch: Option<&mut dyn Observer> = match &mut observer {
                Some(observer) => Some(&mut **observer),
                None => None,
            };
            self.kept.extend(self.first.run(graph, symbols, &[inputs], watch)?);
        }
        let results = self.every.run(graph, symbols, &[inputs, &self.kept], observer)?;
        let output = |o: &tapml_graph::Output| {
            let name = &graph.value(o.value).name;
            // An output may be a value of the encoder, or an input itself.
            let found = results.get(name).or_else(|| self.kept.get(name)).or_else(|| inputs.get(name));
            let found = found.ok_or_else(|| Error::bug(format!("no stage gave `{name}`")))?;
            Ok((o.name.clone(), found.clone()))
        };
        graph.outputs().iter().map(output).collect()
    }

    fn reset(&mut self) -> Result<()> {
        self.kept = zeros(self.model.graph())?;
        self.first.loaded.reset()?;
        self.every.loaded.reset()
    }
}

/// A part of the graph, loaded.
struct Stage {
    loaded: Box<dyn Loaded>,
    /// Names of the values that it takes.
    inputs: Vec<String>,
    /// For each of its nodes, which one of the whole graph it is.
    nodes: Vec<NodeId>,
}

impl Stage {
    /// Cuts the nodes out of the graph and loads them.
    fn load(
        load: Load,
        platform: &mut dyn Platform,
        model: &Model,
        nodes: &[NodeId],
        capacity: &Symbols,
    ) -> Result<Stage> {
        let whole = model.graph();
        let graph = whole.extract(nodes)?;
        let known: HashMap<&str, NodeId> =
            nodes.iter().map(|&id| (whole.node(id).name.as_str(), id)).collect();
        let nodes = graph.nodes().iter().map(|node| known.get(node.name.as_str()).copied());
        let nodes =
            nodes.collect::<Option<_>>().ok_or_else(|| Error::bug("a stage has a node of its own"))?;
        let inputs = graph.inputs().map(|(_, value)| value.name.clone()).collect();
        Ok(Stage { loaded: load(platform, &model.with_graph(graph)?, capacity)?, inputs, nodes })
    }

    /// Runs on values by name; the first map that has one counts. The results go by the names of values, too.
    fn run(
        &mut self,
        graph: &Graph,
        symbols: &Symbols,
        values: &[&HashMap<String, Tensor>],
        observer: Option<&mut dyn Observer>,
    ) -> Result<HashMap<String, Tensor>> {
        let take = |name: &String| {
            let found = values.iter().find_map(|map| map.get(name));
            let missing = || Error::invalid(format!("input `{name}` is missing"));
            Ok((name.clone(), found.ok_or_else(missing)?.clone()))
        };
        let inputs: HashMap<String, Tensor> = self.inputs.iter().map(take).collect::<Result<_>>()?;
        match observer {
            None => self.loaded.run(symbols, &inputs, None),
            Some(observer) => {
                let mut within = Within { graph, nodes: &self.nodes, observer };
                self.loaded.run(symbols, &inputs, Some(&mut within))
            }
        }
    }
}

/// Tells an observer of the whole graph what happens in a stage.
struct Within<'a> {
    graph: &'a Graph,
    nodes: &'a [NodeId],
    observer: &'a mut dyn Observer,
}

impl Observer for Within<'_> {
    fn node(&mut self, event: &NodeEvent<'_>) -> Result<()> {
        let id = self.nodes.get(event.id.0 as usize).copied();
        let id = id.ok_or_else(|| Error::bug("a stage ran a node that it does not have"))?;
        self.observer.node(&NodeEvent { graph: self.graph, id, node: self.graph.node(id), ..*event })
    }

    fn watches(&mut self, _graph: &Graph, id: NodeId, symbols: &Symbols) -> bool {
        let id = self.nodes.get(id.0 as usize);
        id.is_some_and(|&id| self.observer.watches(self.graph, id, symbols))
    }
}
