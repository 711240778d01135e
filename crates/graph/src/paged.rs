//! A language model's graph for steps that hold rows of several texts, whose keys and values lie in pages.
//!
//! Where a row stands, to which text it belongs and where its keys and values go are inputs, and the pages are states: what
//! a server does with its memory is part of the graph, so that it is recorded, checked and diagnosed as all else is.

use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::error::{Context, Error, Result};
use crate::graph::{Builder, Graph, Node, NodeId, Origin, State, TensorType, ValueId};
use crate::op::{
    Attention, Op, PagedAppend, PagedAttention, PagedRecurrence, Recurrence, RopeAngles, TakeRows,
};
use crate::top_logits::{add_top_logits, has_top_logits};
use std::collections::{HashMap, HashSet};

mod images;
mod projected;
mod single_text;
#[cfg(test)]
mod tests;
mod window;

pub use images::{IMAGE_ROWS, IMAGE_SLOTS};
pub use single_text::SingleText;

use images::ImageRows;
use projected::{ProjectedRows, appends_to_state};

/// Name of the input that says at which position of its text each row stands: `u32[n]`.
pub const POSITIONS: &str = "positions";
/// Name of the input that says to which text each row belongs: `u32[n]`.
pub const TEXTS: &str = "texts";
/// Name of the input that says to which row of the caches each row's keys and values go: `u32[n]`.
pub const SLOTS: &str = "cache_slots";
/// Name of the input that lists the pages of each text: `u32[texts, blocks]`.
pub const PAGES: &str = "pages";
/// Name of the input that says how long each row's text is, tokens, where rotary embeddings depend on it: `u32[n]`.
pub const LENGTHS: &str = "text_lengths";
/// Name of the input that says for each text from which slot its state is read, and to which it goes: `u32[texts, 2]`.
pub const STATES: &str = "state_slots";
/// Name of the input that says which rows' logits are wanted: `u32[s]`, or of as many as the layout says.
pub const WANTED: &str = "wanted";
/// Name of the input that says by which factor each wanted row's logits are multiplied before exponentials of them are added up,
/// as [`crate::PART_SUMS`]: `f32[s]`, or of as many as the layout says. It is one over the temperature, and 0 where no sums are
/// wanted.
pub const SCALES: &str = "logit_scales";
/// Name of the logits of a language model, and of the only output.
const LOGITS: &str = "logits";

/// The inputs of paged graphs beside tokens, of which each graph has those that it needs.
const INPUTS: [&str; 10] =
    [POSITIONS, TEXTS, SLOTS, PAGES, LENGTHS, STATES, WANTED, SCALES, IMAGE_ROWS, IMAGE_SLOTS];

/// The sizes of the caches of a paged graph, and of its table of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    /// Positions in one page.
    pub page: u32,
    /// Pages of the caches.
    pub pages: u32,
    /// Most texts of one step.
    pub texts: u32,
    /// Most pages of one text.
    pub blocks: u32,
    /// Rows whose logits every step gives; as many as a step asks for, `s`, if absent.
    pub wanted: Option<u32>,
    /// Slots for the states of recurrences; 0 serves models that have none.
    pub states: u32,
}

impl PageLayout {
    /// Rows of a cache.
    fn rows(&self) -> u64 {
        u64::from(self.page) * u64::from(self.pages)
    }
}

/// Whether an input of this name is one of a paged graph's.
pub fn is_paged_input(name: &str) -> bool {
    INPUTS.contains(&name)
}

impl Graph {
    /// The graph of a language model for steps with rows of several texts: [`PagedAppend`] and [`PagedAttention`] take the
    /// places of `append` and `attention`, [`PagedRecurrence`] that of a recurrence, positions are an input, and only the rows
    /// that are wanted get logits. Keys and values that are made of cached rows, as those of latent attention, are made of the
    /// new rows alone, and pages hold them in the place of those caches. The other operators treat each row by itself and stay.
    /// Beside its logits each wanted row gives its most likely tokens, as [`crate::TOP_LOGITS`] and [`crate::TOP_TOKENS`], and
    /// what a softmax divides by, as [`crate::PART_MAXIMA`] and [`crate::PART_SUMS`], if logits are f32. A model that sees
    /// images takes the rows that [`Graph::image_encoder`] gives, as [`IMAGE_ROWS`] and [`IMAGE_SLOTS`].
    ///
    /// The new graph's symbols are `n`, the rows, and `s`, those whose logits are wanted. Its inputs beside the ids are those
    /// of the constants of this module that it needs.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unsupported`], with the node, if rows see each other in another way, or if the graph takes more
    /// than ids and an image. [`crate::ErrorKind::InvalidInput`] if a size of the layout is 0 that the graph needs.
    pub fn to_paged(&self, layout: PageLayout) -> Result<Graph> {
        self.build_paged(layout, false)
    }

    /// As [`Graph::to_paged`] with the encoder of images in the graph, which takes pixels as before: for records that hold the
    /// calls of both. The same graph if the model sees no images.
    ///
    /// # Errors
    /// As [`Graph::to_paged`].
    pub fn to_paged_with_encoder(&self, layout: PageLayout) -> Result<Graph> {
        self.build_paged(layout, true)
    }

    fn build_paged(&self, layout: PageLayout, keeps_encoder: bool) -> Result<Graph> {
        let paging = Paging::new(self, layout, keeps_encoder).and_then(Paging::build);
        paging.context(|| format!("graph `{}` for several texts", self.name()))
    }

    /// Whether the length of a text decides on the rotary embeddings of its rows: the longest text for which it does not;
    /// `None` if it never does.
    pub fn length_limit(&self) -> Option<u32> {
        let limits = self.nodes().iter().filter_map(|node| match &node.op {
            Op::RopeAngles(RopeAngles { long: Some(long), .. }) => Some(long.after),
            Op::RopeAngles(RopeAngles { dynamic: Some(dynamic), .. }) => Some(dynamic.original),
            _ => None,
        });
        limits.min()
    }

    /// Whether texts leave states of recurrences.
    pub fn is_recurrent(&self) -> bool {
        self.nodes()
            .iter()
            .any(|node| matches!(node.op, Op::PagedRecurrence(_)) || Recurrence::from_op(&node.op).is_some())
    }
}

/// The new inputs, those that the graph needs.
#[derive(Default)]
struct PagedInputs {
    given: HashMap<&'static str, ValueId>,
}

impl PagedInputs {
    /// The input of this name.
    fn get(&self, name: &str) -> Result<ValueId> {
        self.given.get(name).copied().ok_or_else(|| Error::bug(format!("the graph has no input `{name}`")))
    }
}

/// Names of the inputs that a node needs in a paged graph.
fn inputs_of(node: &Node) -> &'static [&'static str] {
    match &node.op {
        Op::Append(_) => &[SLOTS],
        Op::Attention(_) => &[POSITIONS, TEXTS, PAGES],
        Op::RopeAngles(RopeAngles { long: None, dynamic: None, .. }) => &[POSITIONS],
        Op::RopeAngles(_) => &[POSITIONS, LENGTHS],
        Op::Positions(_) | Op::PositionScale(_) => &[POSITIONS],
        Op::MergeRows(_) => &[IMAGE_ROWS, IMAGE_SLOTS],
        op if Recurrence::from_op(op).is_some() => &[TEXTS, STATES],
        _ => &[],
    }
}

/// The nodes that logits and states are made of; without the encoder, those that make nothing but rows of images are not
/// among them.
fn needed_nodes(graph: &Graph, keeps_encoder: bool) -> HashSet<NodeId> {
    let ends = graph.outputs().iter().filter(|output| output.name == LOGITS).map(|output| output.value);
    let mut values: Vec<ValueId> = ends.chain(graph.states().iter().map(|state| state.output)).collect();
    let mut needed = HashSet::new();
    while let Some(value) = values.pop() {
        let Origin::Node { node: id, .. } = graph.value(value).origin else { continue };
        if needed.insert(id) {
            let node = graph.node(id);
            let own_rows = matches!(node.op, Op::MergeRows(_)) && !keeps_encoder;
            let count = if own_rows { 1 } else { node.inputs.len() };
            values.extend(&node.inputs[..count]);
        }
    }
    needed
}

/// The work on one graph.
struct Paging<'a> {
    graph: &'a Graph,
    layout: PageLayout,
    builder: Builder,
    inputs: PagedInputs,
    /// The new value of each old one.
    values: HashMap<ValueId, ValueId>,
    /// The value whose wanted rows are taken, and the nodes that use these in its place.
    taken: Option<(ValueId, HashSet<NodeId>)>,
    /// The taken rows, once they are there.
    rows: Option<ValueId>,
    /// The nodes that the new graph has.
    needed: HashSet<NodeId>,
    /// The nodes of the encoder that stay as they are.
    encoder: HashSet<NodeId>,
    /// Keys and values that are made of caches.
    projected: ProjectedRows,
}

/// Whether rows of images take the places of tokens by a node.
fn is_merge(node: &Node) -> bool {
    matches!(node.op, Op::MergeRows(_))
}

fn unsupported(what: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("{what}: rows of several texts cannot share a step"))
}

impl<'a> Paging<'a> {
    /// The new inputs, and nothing else yet.
    fn new(graph: &'a Graph, layout: PageLayout, keeps_encoder: bool) -> Result<Paging<'a>> {
        let images = ImageRows::from_graph(graph)?;
        let needed = needed_nodes(graph, keeps_encoder);
        let once = (0..).map(NodeId).zip(graph.loop_invariant_nodes());
        let encoder: HashSet<NodeId> =
            once.filter(|(id, once)| *once && needed.contains(id)).map(|(id, _)| id).collect();
        let used: HashSet<&str> = (0..)
            .map(NodeId)
            .zip(graph.nodes())
            .filter(|(id, node)| {
                needed.contains(id) && !encoder.contains(id) && !(keeps_encoder && is_merge(node))
            })
            .flat_map(|(_, node)| inputs_of(node).iter().copied())
            .chain([WANTED])
            .chain(logits(graph).is_ok_and(|id| has_top_logits(&graph.value(id).ty)).then_some(SCALES))
            .collect();
        let PageLayout { page, pages, texts, blocks, wanted, states } = layout;
        let states_needed = if used.contains(STATES) { states } else { 1 };
        let sizes = [page, pages, texts, blocks, wanted.unwrap_or(1), states_needed];
        if sizes.contains(&0) || page.checked_mul(pages).is_none() {
            return Err(Error::invalid(format!(
                "every size of a page layout must be above 0, found {layout:?}"
            )));
        }
        let mut builder = Builder::new(graph.name());
        let n = || Dim::symbol(Symbol::N);
        let mut given = HashMap::new();
        for name in INPUTS.into_iter().filter(|name| used.contains(name)) {
            let shape = match name {
                PAGES => vec![u64::from(texts).into(), u64::from(blocks).into()],
                STATES => vec![u64::from(texts).into(), 2u64.into()],
                WANTED | SCALES => {
                    vec![wanted.map_or(Dim::symbol(Symbol::S), |count| u64::from(count).into())]
                }
                IMAGE_ROWS => vec![n(), images.as_ref().map_or(0, |images| images.columns).into()],
                _ => vec![n()],
            };
            let of_rows = images.as_ref().filter(|_| name == IMAGE_ROWS);
            let numbers = if name == SCALES { DType::F32 } else { DType::U32 };
            let dtype = of_rows.map_or(numbers, |images| images.dtype);
            given.insert(name, builder.input(name, TensorType { dtype, shape })?);
        }
        let inputs = PagedInputs { given };
        let taken = rows_taken(graph)?;
        let values = HashMap::new();
        let (rows, projected) = (None, ProjectedRows::from_graph(graph));
        Ok(Paging { graph, layout, builder, inputs, values, taken, rows, needed, encoder, projected })
    }

    fn build(mut self) -> Result<Graph> {
        let graph = self.graph;
        let ids = TensorType::new(DType::U32, [Symbol::N]);
        let users = graph.users();
        let needs = |id: ValueId, user: &NodeId| {
            let node = graph.node(*user);
            // Of a merge whose encoder is not here, only the tokens' own rows are read.
            let merged = is_merge(node) && self.inputs.given.contains_key(IMAGE_ROWS);
            self.needed.contains(user) && (!merged || node.inputs.first() == Some(&id))
        };
        let only_dead = |id: ValueId| {
            let users = &users[id.0 as usize];
            !users.is_empty() && users.iter().all(|user| !needs(id, user))
        };
        let of_image = |id: ValueId| {
            let user = |user: &NodeId| self.encoder.contains(user) || is_merge(graph.node(*user));
            users[id.0 as usize].iter().any(user)
        };
        let mut ids_found = false;
        for (id, input) in graph.inputs().filter(|(id, _)| !only_dead(*id)) {
            if !of_image(id) && (input.ty != ids || std::mem::replace(&mut ids_found, true)) {
                return Err(unsupported(format!("input `{}` ({})", input.name, input.ty)));
            }
            let new = self.builder.input(&input.name, input.ty.clone())?;
            self.values.insert(id, new);
        }
        for (id, weight) in graph.weights().filter(|(id, _)| !only_dead(*id)) {
            let new = self.builder.weight(&weight.name, weight.ty.clone())?;
            self.values.insert(id, new);
        }
        let kept = |state: &&State| !self.projected.replaces(state.input);
        let kept: Vec<&State> = graph.states().iter().filter(kept).collect();
        for state in &kept {
            self.state(state.input)?;
        }
        let rows = self.layout.rows();
        self.projected.add_states(graph, &mut self.builder, rows)?;
        for (id, node) in (0..).map(NodeId).zip(graph.nodes()) {
            if !self.needed.contains(&id) {
                continue;
            }
            self.node(id, node).context(|| format!("node `{}`", node.name))?;
        }
        for state in kept {
            self.builder.set_state(self.values[&state.input], self.values[&state.output])?;
        }
        let logits = logits(graph)?;
        let ty = &graph.value(logits).ty;
        let logits = self.values[&logits];
        self.builder.output(LOGITS, logits);
        if has_top_logits(ty) {
            add_top_logits(&mut self.builder, logits, ty, self.inputs.get(SCALES)?)?;
        }
        self.builder.finish()
    }

    /// A cache of rows becomes one of pages, and a recurrence's state becomes slots.
    fn state(&mut self, id: ValueId) -> Result<()> {
        let value = self.graph.value(id);
        let [rows, width] = value.ty.shape.as_slice() else {
            return Err(unsupported(format!("state `{}` ({})", value.name, value.ty)));
        };
        let rows = if *rows == Dim::symbol(Symbol::P) {
            self.layout.rows()
        } else {
            let all = rows.as_const().and_then(|rows| rows.checked_mul(u64::from(self.layout.states)));
            all.ok_or_else(|| unsupported(format!("state `{}` ({})", value.name, value.ty)))?
        };
        let ty = TensorType { dtype: value.ty.dtype, shape: vec![rows.into(), width.clone()] };
        let new = self.builder.state(&value.name, ty)?;
        self.values.insert(id, new);
        Ok(())
    }

    /// The new value of an input of a node; the taken rows of one whose rows are taken.
    fn input(&self, user: NodeId, id: ValueId) -> Result<ValueId> {
        if let Some((taken, users)) = &self.taken
            && *taken == id
            && users.contains(&user)
        {
            return self.rows.ok_or_else(|| Error::bug("the wanted rows are used before they are taken"));
        }
        self.values.get(&id).copied().ok_or_else(|| Error::bug("a value is used before it is made"))
    }

    /// A node in the new graph.
    fn node(&mut self, id: NodeId, node: &Node) -> Result<()> {
        if self.projected.passes_rows(id) {
            let rows = self.input(id, node.inputs[1])?;
            self.values.insert(node.outputs[0], rows);
            return Ok(());
        }
        let merges = is_merge(node) && self.inputs.given.contains_key(IMAGE_ROWS);
        let count = if merges { 1 } else { node.inputs.len() };
        let inputs = node.inputs[..count].iter().map(|&input| self.input(id, input));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        if self.encoder.contains(&id) || (is_merge(node) && !merges) {
            return self.add(node, node.op.clone(), &inputs);
        }
        let inputs =
            if matches!(node.op, Op::Attention(_)) { self.with_written_rows(node, inputs)? } else { inputs };
        let own = inputs_of(node).iter().map(|name| self.inputs.get(name)).collect::<Result<Vec<_>>>()?;
        let with_own = |given: usize| -> Vec<ValueId> {
            inputs[..given].iter().chain(&own).chain(&inputs[given..]).copied().collect()
        };
        let recurrence = Recurrence::from_op(&node.op);
        let (op, inputs): (Op, Vec<ValueId>) = match &node.op {
            Op::Append(_) if self.is_cache(node.inputs[0]) => (PagedAppend {}.into(), with_own(2)),
            Op::Attention(op) => {
                self.expect_own_keys(op, node)?;
                (PagedAttention { attention: op.clone(), page: self.layout.page }.into(), with_own(3))
            }
            Op::Positions(_) | Op::RopeAngles(_) if inputs.is_empty() => (node.op.clone(), with_own(0)),
            Op::PositionScale(_) if inputs.len() == 1 => (node.op.clone(), with_own(1)),
            Op::MergeRows(_) => (node.op.clone(), with_own(1)),
            Op::LastRow(_) => (TakeRows {}.into(), vec![inputs[0], self.inputs.get(WANTED)?]),
            op => match recurrence {
                Some(recurrence) if self.is_cache(node.inputs[recurrence.state_input()]) => {
                    (PagedRecurrence { recurrence, slots: self.layout.states }.into(), with_own(inputs.len()))
                }
                // Each row of a table is chosen by an id of its own. A state has no row for each row.
                _ if !node.inputs.iter().any(|&input| self.is_cache(input))
                    && (op.row_wise() || matches!(op, Op::Embedding(_))) =>
                {
                    (op.clone(), inputs)
                }
                _ => return Err(unsupported(format!("`{}` looks beyond its own row", op.name()))),
            },
        };
        self.add(node, op, &inputs)
    }

    /// The inputs of an attention, of which keys and values that are made of caches are read from pages.
    fn with_written_rows(&mut self, node: &Node, mut inputs: Vec<ValueId>) -> Result<Vec<ValueId>> {
        for (input, &old) in inputs.iter_mut().zip(&node.inputs).skip(1).take(2) {
            if self.projected.holds(old) {
                let rows = [*input, self.inputs.get(SLOTS)?];
                *input = self.projected.write((self.graph, &mut self.builder), old, rows)?;
            }
        }
        Ok(inputs)
    }

    /// Adds a node, and takes the wanted rows of what it gives if they are those.
    fn add(&mut self, node: &Node, op: Op, inputs: &[ValueId]) -> Result<()> {
        let names: Vec<String> = node.outputs.iter().map(|&id| self.graph.value(id).name.clone()).collect();
        let outputs = self.builder.node_multi(&node.name, op, inputs, &names)?;
        self.values.extend(node.outputs.iter().copied().zip(outputs));
        let taken = self.taken.as_ref().map(|(value, _)| *value);
        if let Some(value) = taken.filter(|value| node.outputs.contains(value)) {
            let wanted = self.inputs.get(WANTED)?;
            self.rows = Some(self.builder.node(WANTED_ROWS, TakeRows {}, &[self.values[&value], wanted])?);
        }
        Ok(())
    }

    /// Whether a value is a state before the run.
    fn is_cache(&self, value: ValueId) -> bool {
        matches!(self.graph.value(value).origin, Origin::State(_))
    }

    /// Fails unless an attention sees the rows that caches keep, and those of this step behind them.
    fn expect_own_keys(&self, op: &Attention, node: &Node) -> Result<()> {
        let cached = |value: ValueId| match self.graph.value(value).origin {
            Origin::Node { node, .. } => appends_to_state(self.graph, self.graph.node(node)),
            _ => false,
        };
        let kept = |&value: &ValueId| cached(value) || self.projected.holds(value);
        if op.causal && node.inputs[1..3].iter().all(kept) {
            return Ok(());
        }
        Err(unsupported("`attention` sees keys that no cache keeps"))
    }
}

/// The logits of a language model.
fn logits(graph: &Graph) -> Result<ValueId> {
    let logits = graph.outputs().iter().find(|output| output.name == LOGITS);
    logits.map(|output| output.value).ok_or_else(|| Error::unsupported("the graph gives no `logits`"))
}

/// Name of the node that takes the rows whose logits are wanted.
const WANTED_ROWS: &str = "wanted_rows";

/// Where the wanted rows are taken, of a graph that computes logits of all: the first value before the logits that many
/// rows would be computed from in vain, and the nodes that use its rows. `None` if the graph takes a last row itself.
fn rows_taken(graph: &Graph) -> Result<Option<(ValueId, HashSet<NodeId>)>> {
    if graph.nodes().iter().any(|node| matches!(node.op, Op::LastRow(_))) {
        return Ok(None);
    }
    let mut value = logits(graph)?;
    let users = graph.users();
    let mut below = HashSet::new();
    while let Origin::Node { node: id, .. } = graph.value(value).origin {
        let node = graph.node(id);
        // Only what this chain alone uses may have fewer rows.
        let only_user = users[value.0 as usize].iter().all(|user| below.contains(user));
        let rows = node.inputs.iter().filter(|&&input| graph.value(input).origin != Origin::Weight);
        let [input] = rows.copied().collect::<Vec<_>>()[..] else { break };
        if !node.op.row_wise() || !only_user || node.outputs.len() > 1 {
            break;
        }
        below.insert(id);
        value = input;
    }
    if below.is_empty() {
        return Err(Error::unsupported("the logits are not made row by row"));
    }
    // Rows are taken for the nodes of the chain that use the value, and for no others.
    let direct = users[value.0 as usize].iter().copied().filter(|user| below.contains(user)).collect();
    Ok(Some((value, direct)))
}
