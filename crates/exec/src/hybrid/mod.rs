//! One graph on two platforms: nodes placed on the source or the target, values copied between them, results of the
//! target fed back into the source.
//!
//! A placement splits the graph into parts; each is loaded as a graph of its own. Parts that two placements
//! share are loaded one time, which makes trying one operator after another cheap. After a failed step the
//! hybrid is broken until it is reset.

mod segment;
mod side;
mod split;

use crate::cached_encoder;
use crate::interface::{Interface, LOGITS, PIXELS};
use crate::session::fits;
use crate::{LoadOptions, Platform, TracedNode};
use segment::Segment;
pub use side::HybridSide;
use split::HybridPart;
pub(crate) use split::split;
use std::collections::HashMap;
use tapml_graph::{
    Context, Error, ErrorKind, Graph, Model, Node, NodeId, Origin, Result, State, Symbol, Symbols, Tensor,
    ValueId,
};

/// For how many placements a segment is kept that they do not use: trying an operator, rejecting it and trying the next
/// comes back to what was there before.
const KEPT: u32 = 2;

/// A language model whose nodes run partly on one platform, partly on another.
///
/// A state lives on a platform if all nodes that touch it are in one segment there, else on the host between segments.
pub struct Hybrid {
    model: Model,
    /// Of the whole graph.
    interface: Interface,
    capacity: Symbols,
    /// How the target loads its segments.
    options: LoadOptions,
    /// In execution order.
    segments: Vec<Segment>,
    /// Segments of the placements before this one.
    spare: Vec<Segment>,
    /// States that live on the host, by name.
    states: HashMap<String, Tensor>,
    /// What the encoder of images gave last, by name; zeros if there was no image.
    kept: HashMap<String, Tensor>,
    /// All values of the last run that were given or crossed between segments, by name, if nodes are traced.
    crossed: HashMap<String, Tensor>,
    /// Whether the last run was given an image.
    encoded: bool,
    /// Tokens in the states.
    position: usize,
    /// Whether `segments` are the whole graph.
    placed: bool,
    broken: bool,
}

impl Hybrid {
    /// Splits the graph by `placement` and loads each part on its platform, for runs of at most `capacity` (`n` tokens
    /// after `p` others). Fails if a platform cannot run a node placed on it.
    pub fn new(
        model: &Model,
        source: &mut dyn Platform,
        target: &mut dyn Platform,
        placement: &dyn Fn(&Node) -> HybridSide,
        capacity: &Symbols,
    ) -> Result<Hybrid> {
        Hybrid::with_options(model, source, target, placement, capacity, LoadOptions::default())
    }

    /// As [`Hybrid::new`]; the target loads its parts with these options.
    pub fn with_options(
        model: &Model,
        source: &mut dyn Platform,
        target: &mut dyn Platform,
        placement: &dyn Fn(&Node) -> HybridSide,
        capacity: &Symbols,
        options: LoadOptions,
    ) -> Result<Hybrid> {
        let mut hybrid = Hybrid {
            model: model.clone(),
            interface: Interface::from_graph(model.graph())?,
            capacity: capacity.clone(),
            options,
            segments: Vec::new(),
            spare: Vec::new(),
            states: HashMap::new(),
            kept: HashMap::new(),
            crossed: HashMap::new(),
            encoded: false,
            position: 0,
            placed: false,
            broken: false,
        };
        hybrid.place(source, target, placement)?;
        Ok(hybrid)
    }

    /// Changes the placement and starts from position 0. Parts that this placement shares with the two before it are
    /// not loaded again; both platforms must be those that the hybrid was made with. After a failure the hybrid has its
    /// old placement, unless that had to be freed because memory ran out: then it runs nothing until it is placed again.
    pub fn place(
        &mut self,
        source: &mut dyn Platform,
        target: &mut dyn Platform,
        placement: &dyn Fn(&Node) -> HybridSide,
    ) -> Result<()> {
        let model = self.model.clone();
        let graph = model.graph();
        let parts = split(graph, &|id| placement(graph.node(id)));
        // Everything new is loaded before anything old is given up: a failure leaves the old placement.
        let mut fresh: Vec<Segment> = Vec::new();
        for part in &parts {
            if self.segments.iter().chain(&self.spare).any(|s| s.part == *part) {
                continue;
            }
            fresh.push(self.load(source, target, part, &parts)?);
        }
        // From here on nothing can fail but by a bug.
        let mut old: Vec<Segment> =
            self.segments.drain(..).chain(self.spare.drain(..)).chain(fresh).collect();
        for part in &parts {
            let at = old.iter().position(|s| s.part == *part);
            let mut segment =
                old.remove(at.ok_or_else(|| Error::bug("a part of the placement was not loaded"))?);
            segment.unused = 0;
            self.segments.push(segment);
        }
        old.iter_mut().for_each(|s| s.unused += 1);
        // Segments hold weights on the device: not all can be kept.
        old.retain(|s| s.unused <= KEPT);
        self.spare = old;
        self.placed = true;
        self.reset()
    }

    /// Loads one of the parts of the next placement. While memory does not suffice, segments that it does not need are
    /// freed: those kept for later first, then those of the present placement.
    fn load(
        &mut self,
        source: &mut dyn Platform,
        target: &mut dyn Platform,
        part: &HybridPart,
        parts: &[HybridPart],
    ) -> Result<Segment> {
        loop {
            let result = match part.side {
                HybridSide::Source => {
                    Segment::load(&self.model, source, part, &self.capacity, &LoadOptions::default())
                }
                HybridSide::Target => Segment::load(&self.model, target, part, &self.capacity, &self.options),
            };
            match result {
                // Ends, because each turn frees a segment at least.
                Err(e) if e.kind() == ErrorKind::OutOfMemory && self.free_some(parts) => {}
                other => return other,
            }
        }
    }

    /// Whether there was anything to free.
    fn free_some(&mut self, parts: &[HybridPart]) -> bool {
        let keep = |segments: &mut Vec<Segment>| {
            let before = segments.len();
            segments.retain(|s| parts.contains(&s.part));
            segments.len() < before
        };
        // Spare ones first: without one of the present segments the hybrid cannot run.
        if keep(&mut self.spare) {
            return true;
        }
        let freed = keep(&mut self.segments);
        self.placed &= !freed;
        freed
    }

    /// One step with these tokens: all outputs of the graph by name. Advances `p` by the number of tokens.
    ///
    /// After a failure the hybrid must be [`reset`](Hybrid::reset), except that wrong ids, more tokens than `capacity`
    /// has `n`, and more positions than it allows are refused before anything runs.
    pub fn run(&mut self, ids: &[u32]) -> Result<HashMap<String, Tensor>> {
        self.feed(self.interface.inputs(ids)?)
    }

    /// As [`Hybrid::run`], with all inputs of the step by name.
    pub fn feed(&mut self, inputs: HashMap<String, Tensor>) -> Result<HashMap<String, Tensor>> {
        if !self.placed {
            return Err(Error::invalid("the hybrid has no placement: the last one did not fit into memory")
                .with_hint("place it again with fewer nodes on that platform"));
        }
        if self.broken {
            return Err(Error::invalid("an earlier step failed, so that the hybrid's state is undefined")
                .with_hint("reset the hybrid and feed the tokens again"));
        }
        // A model of arrays has no positions and no capacity to exceed.
        let Some(name) = self.interface.ids() else {
            let result = self.step(0, inputs);
            self.broken = result.is_err();
            return result;
        };
        let ids = inputs.get(name).ok_or_else(|| Error::invalid(format!("input `{name}` is missing")))?;
        let ids = ids.to_u32()?;
        self.interface.check(&ids)?;
        let most = |symbol| {
            self.capacity.get(symbol).map_or(usize::MAX, |v| usize::try_from(v).unwrap_or(usize::MAX))
        };
        if ids.len() > most(Symbol::N) {
            return Err(Error::invalid(format!(
                "a step of {} tokens exceeds the capacity n = {}",
                ids.len(),
                most(Symbol::N)
            )));
        }
        // Capacity `p` counts the rows before a run, so one more position is allowed.
        fits(ids.len(), self.position, most(Symbol::P).saturating_add(1).max(most(Symbol::N)))?;
        let result = self.step(ids.len(), inputs);
        self.broken = result.is_err();
        result
    }

    /// Logits of these tokens, fed behind those fed so far in as many steps as the capacity demands: `[ids.len(), vocab]`,
    /// or `[1, vocab]` if the graph computes the last position only.
    pub fn logits(&mut self, ids: &[u32]) -> Result<Tensor> {
        self.interface.expect_logits()?;
        self.interface.check(ids)?;
        let chunk =
            self.capacity.get(Symbol::N).and_then(|n| usize::try_from(n).ok()).unwrap_or(ids.len()).max(1);
        let mut parts = Vec::new();
        // The results are the same for any chunk, up to rounding.
        for ids in ids.chunks(chunk) {
            let logits = self.run(ids)?.remove(LOGITS);
            parts.push(logits.ok_or_else(|| Error::bug("the hybrid gave no `logits`"))?);
        }
        match (parts.len(), self.interface.last_only()) {
            (2.., false) => Tensor::concat_rows(&parts),
            _ => parts.pop().ok_or_else(|| Error::bug("a hybrid ran no step")),
        }
    }

    /// Forgets all tokens.
    pub fn reset(&mut self) -> Result<()> {
        for segment in &mut self.segments {
            segment.loaded.reset()?;
        }
        self.states = host_states(self.model.graph(), &self.segments)?;
        self.kept = cached_encoder::zeros(self.model.graph())?;
        (self.position, self.broken) = (0, false);
        Ok(())
    }

    /// Runs the segments in order on values by name.
    fn step(&mut self, tokens: usize, inputs: HashMap<String, Tensor>) -> Result<HashMap<String, Tensor>> {
        let graph = self.model.graph();
        let symbols = self.interface.symbols(tokens, self.position);
        // All nodes of a model that takes arrays run in every step.
        let image = inputs.contains_key(PIXELS) || self.interface.ids().is_none();
        self.encoded = image;
        let mut values = inputs;
        // An encoder that does not run in this step has left them.
        values.extend(self.kept.clone());
        for state in graph.states() {
            if let Some(tensor) = self.states.get(&state.name) {
                values.insert(graph.value(state.input).name.clone(), tensor.clone());
            }
        }
        for segment in self.segments.iter_mut().filter(|s| image || !s.part.loop_invariant) {
            segment.run(&symbols, &mut values).context(|| format!("{} segment", segment.part.side.name()))?;
        }
        let get = |id: ValueId| {
            let value = graph.value(id);
            match (values.get(&value.name), value.origin) {
                (Some(tensor), _) => Ok(tensor.clone()),
                (None, Origin::Weight) => self.model.weight(&value.name),
                (None, _) => Err(Error::bug(format!("no segment gave `{}`", value.name))),
            }
        };
        for state in graph.states() {
            if let Some(tensor) = self.states.get_mut(&state.name) {
                *tensor = get(state.output)?;
            }
        }
        for (name, kept) in &mut self.kept {
            if let Some(value) = values.get(name) {
                *kept = value.clone();
            }
        }
        self.position += tokens;
        // Values are shared and not copied; without a trace they are freed here.
        if !self.options.trace.is_empty() {
            self.crossed = values.clone();
        }
        graph.outputs().iter().map(|o| Ok((o.name.clone(), get(o.value)?))).collect()
    }

    /// The values of the target's nodes that the options name, as the last run found and left them.
    pub fn traced_nodes(&mut self) -> Result<Vec<TracedNode>> {
        let mut nodes = Vec::new();
        let ran = |s: &Segment| s.part.side == HybridSide::Target && (self.encoded || !s.part.loop_invariant);
        for segment in self.segments.iter_mut().filter(|s| ran(s)) {
            nodes.append(&mut segment.loaded.traced_nodes()?);
        }
        Ok(nodes)
    }

    /// What the last run gave to its segments, or took from them, under this name: inputs, states that live on the host,
    /// and values that one segment left for another. `None` if there is no such value, or if no nodes are traced.
    pub fn crossing_value(&self, name: &str) -> Option<&Tensor> {
        self.crossed.get(name)
    }

    /// The place of a node's segment in the order in which they run: what nodes of one segment leave for those of another
    /// crosses between the platforms.
    pub fn segment_of(&self, node: NodeId) -> Option<usize> {
        self.segments.iter().position(|s| s.part.nodes.contains(&node))
    }

    /// Tokens fed since the last reset.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The segments in execution order: side and number of nodes.
    pub fn segments(&self) -> impl Iterator<Item = (HybridSide, usize)> + '_ {
        self.segments.iter().map(|s| (s.part.side, s.part.nodes.len()))
    }
}

/// Empty states for those that live in no segment.
fn host_states(graph: &Graph, segments: &[Segment]) -> Result<HashMap<String, Tensor>> {
    let outside = |name: &String| !segments.iter().any(|s| s.states.contains(name));
    let states = graph.states().iter().filter(|s| outside(&s.name));
    let empty = |state: &State| {
        let ty = &graph.value(state.input).ty;
        let sizes = ty.sizes(&Symbols::np(0, 0))?;
        let zeros = vec![0.0; sizes.iter().product()];
        Ok((state.name.clone(), Tensor::from_f64(ty.dtype, sizes, &zeros)?))
    };
    states.map(empty).collect()
}
