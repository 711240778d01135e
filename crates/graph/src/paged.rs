//! A language model's graph for steps that hold rows of several texts, whose keys and values lie in pages.
//!
//! Where a row stands, to which text it belongs and where its keys and values go are inputs, and the pages are states: what
//! a server does with its memory is part of the graph, so that it is recorded, checked and diagnosed as all else is.

use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::error::{Context, Error, Result};
use crate::graph::{Builder, Graph, Node, NodeId, Origin, TensorType, ValueId};
use crate::op::{Attention, Op, PagedAppend, PagedAttention, Positions, RopeAngles, TakeRows};
use crate::tensor::Tensor;
use crate::top_logits::add_top_logits;
use std::collections::{HashMap, HashSet};

/// Name of the input that says at which position of its text each row stands: `u32[n]`.
pub const POSITIONS: &str = "positions";
/// Name of the input that says to which text each row belongs: `u32[n]`.
pub const TEXTS: &str = "texts";
/// Name of the input that says to which row of the caches each row's keys and values go: `u32[n]`.
pub const SLOTS: &str = "cache_slots";
/// Name of the input that lists the pages of each text: `u32[texts, blocks]`.
pub const PAGES: &str = "pages";
/// Name of the input that says which rows' logits are wanted: `u32[s]`, or of as many as the layout says.
pub const WANTED: &str = "wanted";
/// Name of the logits of a language model, and of the only output.
const LOGITS: &str = "logits";

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
}

/// How a paged graph's single text lies in pages, for runs of one text at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleText {
    layout: PageLayout,
}

impl SingleText {
    /// The layout of a paged graph; `None` of any other.
    ///
    /// # Errors
    /// If the graph's sizes do not fit together, or a step may ask for any number of logits.
    pub fn from_graph(graph: &Graph) -> Result<Option<SingleText>> {
        let Some(page) = graph.nodes().iter().find_map(|node| match &node.op {
            Op::PagedAttention(op) => Some(op.page),
            _ => None,
        }) else {
            return Ok(None);
        };
        let sizes = |name: &str| {
            let shape = graph.find_value(name).map(|id| &graph.value(id).ty.shape);
            shape.and_then(|shape| {
                shape.iter().map(|dim| u32::try_from(dim.as_const()?).ok()).collect::<Option<Vec<u32>>>()
            })
        };
        let rows = graph
            .states()
            .iter()
            .filter_map(|state| graph.value(state.input).ty.shape.first()?.as_const())
            .min();
        let found = (sizes(PAGES), sizes(WANTED), rows.and_then(|rows| u32::try_from(rows).ok()));
        let (Some(table), Some(wanted), Some(rows)) = found else {
            return Err(Error::unsupported("a graph with pages whose steps give a varying number of logits"));
        };
        let ([texts, blocks], [1]) = (&table[..], &wanted[..]) else {
            return Err(Error::unsupported(format!(
                "a graph with pages: `{PAGES}` of {table:?}, `{WANTED}` of {wanted:?}"
            )));
        };
        let layout = PageLayout { page, pages: rows / page, texts: *texts, blocks: *blocks, wanted: Some(1) };
        Ok(Some(SingleText { layout }))
    }

    /// Most positions of the text.
    pub fn context(&self) -> u64 {
        u64::from(self.layout.page) * u64::from(self.layout.blocks.min(self.layout.pages))
    }

    /// The inputs of a step of `rows` tokens behind `position` others, by name. Pages are taken from the last one on, so that
    /// no two lie one behind the other: what reads a cache without its pages reads something else.
    ///
    /// # Errors
    /// If the text grows beyond [`SingleText::context`].
    pub fn inputs(&self, rows: usize, position: usize) -> Result<Vec<(&'static str, Tensor)>> {
        let PageLayout { page, pages, texts, blocks, .. } = self.layout;
        let end = position.saturating_add(rows) as u64;
        if rows == 0 || end > self.context() {
            let most = self.context();
            return Err(Error::invalid(format!("a text of {end} tokens, and pages for {most}"))
                .with_hint("shorten the prompt, or take fewer steps"));
        }
        let place = |block: u32| pages - 1 - block;
        let positions: Vec<u32> = (position as u64..end).map(|at| at as u32).collect();
        let slots = positions.iter().map(|at| place(at / page) * page + at % page).collect();
        let table =
            (0..texts * blocks).map(|at| if at < blocks.min(pages) { place(at) } else { 0 }).collect();
        let vector = |values: Vec<u32>| Tensor::from_u32(vec![values.len()], values);
        Ok(vec![
            (POSITIONS, vector(positions)?),
            (TEXTS, vector(vec![0; rows])?),
            (SLOTS, vector(slots)?),
            (PAGES, Tensor::from_u32(vec![texts as usize, blocks as usize], table)?),
            (WANTED, vector(vec![rows as u32 - 1])?),
        ])
    }
}

/// Whether an input of this name is one of a paged graph's.
pub fn is_paged_input(name: &str) -> bool {
    [POSITIONS, TEXTS, SLOTS, PAGES, WANTED].contains(&name)
}

impl Graph {
    /// The graph of a language model for steps with rows of several texts: [`PagedAppend`] and [`PagedAttention`] take the
    /// places of `append` and `attention`, positions are an input, and only the rows that are wanted get logits. The other
    /// operators treat each row by itself and stay. Beside its logits each wanted row gives its most likely tokens, as
    /// [`crate::TOP_LOGITS`] and [`crate::TOP_TOKENS`].
    ///
    /// The new graph's symbols are `n`, the rows, and `s`, those whose logits are wanted.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unsupported`], with the node, if rows see each other in another way, as in recurrences, or if
    /// the graph takes more than ids.
    pub fn to_paged(&self, layout: PageLayout) -> Result<Graph> {
        Paging::new(self, layout)?.build().context(|| format!("graph `{}` for several texts", self.name()))
    }
}

/// The new inputs.
struct PagedInputs {
    positions: ValueId,
    texts: ValueId,
    slots: ValueId,
    pages: ValueId,
    wanted: ValueId,
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
}

fn unsupported(what: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("{what}: rows of several texts cannot share a step"))
}

impl<'a> Paging<'a> {
    /// The new inputs, and nothing else yet.
    fn new(graph: &'a Graph, layout: PageLayout) -> Result<Paging<'a>> {
        let PageLayout { page, pages, texts, blocks, wanted } = layout;
        if [page, pages, texts, blocks, wanted.unwrap_or(1)].contains(&0) || page.checked_mul(pages).is_none()
        {
            return Err(Error::invalid(format!(
                "every size of a page layout must be above 0, found {layout:?}"
            )));
        }
        let mut builder = Builder::new(graph.name());
        let n = || Dim::symbol(Symbol::N);
        let mut input =
            |name: &str, shape: Vec<Dim>| builder.input(name, TensorType { dtype: DType::U32, shape });
        let inputs = PagedInputs {
            positions: input(POSITIONS, vec![n()])?,
            texts: input(TEXTS, vec![n()])?,
            slots: input(SLOTS, vec![n()])?,
            pages: input(PAGES, vec![u64::from(texts).into(), u64::from(blocks).into()])?,
            wanted: input(
                WANTED,
                vec![wanted.map_or(Dim::symbol(Symbol::S), |count| u64::from(count).into())],
            )?,
        };
        let taken = rows_taken(graph)?;
        Ok(Paging { graph, layout, builder, inputs, values: HashMap::new(), taken, rows: None })
    }

    fn build(mut self) -> Result<Graph> {
        let graph = self.graph;
        let ids = TensorType::new(DType::U32, [Symbol::N]);
        for (at, (id, input)) in graph.inputs().enumerate() {
            if input.ty != ids || at > 0 {
                return Err(unsupported(format!("input `{}` ({})", input.name, input.ty)));
            }
            let new = self.builder.input(&input.name, input.ty.clone())?;
            self.values.insert(id, new);
        }
        for (id, weight) in graph.weights() {
            let new = self.builder.weight(&weight.name, weight.ty.clone())?;
            self.values.insert(id, new);
        }
        for state in graph.states() {
            self.state(state.input)?;
        }
        for (index, node) in graph.nodes().iter().enumerate() {
            self.node(NodeId(index as u32), node).context(|| format!("node `{}`", node.name))?;
        }
        for state in graph.states() {
            self.builder.set_state(self.values[&state.input], self.values[&state.output])?;
        }
        let logits = graph.outputs().iter().find(|output| output.name == LOGITS);
        let logits = logits.ok_or_else(|| Error::unsupported("the graph gives no `logits`"))?;
        let ty = &graph.value(logits.value).ty;
        let logits = self.values[&logits.value];
        self.builder.output(LOGITS, logits);
        add_top_logits(&mut self.builder, logits, ty)?;
        self.builder.finish()
    }

    /// A cache of rows becomes one of pages.
    fn state(&mut self, id: ValueId) -> Result<()> {
        let value = self.graph.value(id);
        let [rows, width] = value.ty.shape.as_slice() else {
            return Err(unsupported(format!("state `{}` ({})", value.name, value.ty)));
        };
        if *rows != Dim::symbol(Symbol::P) {
            return Err(unsupported(format!(
                "state `{}` ({}) keeps no rows for each token",
                value.name, value.ty
            )));
        }
        let rows = u64::from(self.layout.page) * u64::from(self.layout.pages);
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
        let inputs = node.inputs.iter().map(|&input| self.input(id, input)).collect::<Result<Vec<_>>>()?;
        let PagedInputs { positions, texts, slots, pages, wanted } = self.inputs;
        let (op, inputs): (Op, Vec<ValueId>) = match &node.op {
            Op::Append(_) if self.is_cache(node.inputs[0]) => {
                (PagedAppend {}.into(), vec![inputs[0], inputs[1], slots])
            }
            Op::Attention(op) => {
                self.expect_own_keys(op, node)?;
                let own = [positions, texts, pages];
                let all = inputs[..3].iter().chain(&own).chain(&inputs[3..]).copied().collect();
                (PagedAttention { attention: op.clone(), page: self.layout.page }.into(), all)
            }
            Op::Positions(Positions { offset }) if inputs.is_empty() => {
                (Positions { offset: *offset }.into(), vec![positions])
            }
            Op::RopeAngles(RopeAngles { long: None, dynamic: None, .. }) if inputs.is_empty() => {
                (node.op.clone(), vec![positions])
            }
            Op::LastRow(_) => (TakeRows {}.into(), vec![inputs[0], wanted]),
            // Each row of a table is chosen by an id of its own.
            op if op.row_wise() || matches!(op, Op::Embedding(_)) => (op.clone(), inputs),
            op => return Err(unsupported(format!("`{}` looks beyond its own row", op.name()))),
        };
        let names: Vec<String> = node.outputs.iter().map(|&id| self.graph.value(id).name.clone()).collect();
        let outputs = self.builder.node_multi(&node.name, op, &inputs, &names)?;
        self.values.extend(node.outputs.iter().copied().zip(outputs));
        let taken = self.taken.as_ref().map(|(value, _)| *value);
        if let Some(value) = taken.filter(|value| node.outputs.contains(value)) {
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
            Origin::Node { node, .. } => {
                let maker = self.graph.node(node);
                matches!(maker.op, Op::Append(_)) && self.is_cache(maker.inputs[0])
            }
            _ => false,
        };
        if op.causal && node.inputs[1..3].iter().all(|&value| cached(value)) {
            return Ok(());
        }
        Err(unsupported("`attention` sees keys that no cache keeps"))
    }
}

/// Name of the node that takes the rows whose logits are wanted.
const WANTED_ROWS: &str = "wanted_rows";

/// Where the wanted rows are taken, of a graph that computes logits of all: the first value before the logits that many
/// rows would be computed from in vain, and the nodes that use its rows. `None` if the graph takes a last row itself.
fn rows_taken(graph: &Graph) -> Result<Option<(ValueId, HashSet<NodeId>)>> {
    if graph.nodes().iter().any(|node| matches!(node.op, Op::LastRow(_))) {
        return Ok(None);
    }
    let logits = graph.outputs().iter().find(|output| output.name == LOGITS);
    let mut value = logits.ok_or_else(|| Error::unsupported("the graph gives no `logits`"))?.value;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    const TEXT: &str = "graph g
input ids: u32[n]
weight table: f32[9,4]
weight head: f32[9,4]
state k: f32[p,4] -> keys
state v: f32[p,4] -> values
x: f32[n,4] = embedding(ids, table) {\"dtype\":\"f32\"}
keys: f32[n+p,4] = append(k, x)
values: f32[n+p,4] = append(v, x)
y: f32[n,4] = attention(x, keys, values) {\"heads\":2,\"kv_heads\":2,\"head_dim\":2,\"scale\":1.0}
logits: f32[n,9] = linear(y, head)
output logits = logits
";
    const LAYOUT: PageLayout = PageLayout { page: 4, pages: 6, texts: 3, blocks: 2, wanted: None };

    #[test]
    fn caches_become_pages_and_wanted_rows_get_logits() {
        let paged = Graph::parse(TEXT).unwrap().to_paged(LAYOUT).unwrap();
        assert_eq!(Graph::parse(&paged.to_text()).unwrap(), paged);
        let text = paged.to_text();
        for line in [
            "input pages: u32[3,2]",
            "input wanted: u32[s]",
            "state k: f32[24,4] -> keys",
            "keys: f32[24,4] = paged_append(k, x, cache_slots)",
            "y: f32[n,4] = paged_attention(x, keys, values, positions, texts, pages)",
            "wanted_rows: f32[s,4] = take_rows(y, wanted)",
            "logits: f32[s,9] = linear(wanted_rows, head)",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn what_looks_beyond_its_row_is_refused_with_its_node() {
        for (from, to, told) in [
            ("\"scale\":1.0", "\"scale\":1.0,\"causal\":false", "node `y`: `attention` sees keys"),
            ("input ids: u32[n]", "input ids: u32[n]\ninput more: f32[n]", "input `more` (f32[n])"),
        ] {
            let error = Graph::parse(&TEXT.replace(from, to)).unwrap().to_paged(LAYOUT).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(told), "{error}");
        }
        assert_eq!(SingleText::from_graph(&Graph::parse(TEXT).unwrap()).unwrap(), None);
        let zero = PageLayout { page: 0, ..LAYOUT };
        assert!(Graph::parse(TEXT).unwrap().to_paged(zero).unwrap_err().to_string().contains("above 0"));
    }
    #[test]
    fn a_single_text_lies_backward_in_its_pages() {
        let one = PageLayout { wanted: Some(1), ..LAYOUT };
        let paged = Graph::parse(TEXT).unwrap().to_paged(one).unwrap();
        let single = SingleText::from_graph(&paged).unwrap().unwrap();
        assert_eq!(single, SingleText { layout: one });
        let inputs = single.inputs(3, 3).unwrap();
        let found: Vec<(&str, Vec<u32>)> =
            inputs.iter().map(|(name, tensor)| (*name, tensor.to_u32().unwrap())).collect();
        let expected: [(&str, &[u32]); 5] = [
            (POSITIONS, &[3, 4, 5]),
            (TEXTS, &[0, 0, 0]),
            (SLOTS, &[23, 16, 17]),
            (PAGES, &[5, 4, 0, 0, 0, 0]),
            (WANTED, &[2]),
        ];
        assert_eq!(found, expected.map(|(name, values)| (name, values.to_vec())));
        assert!(single.inputs(6, 3).unwrap_err().to_string().contains("9 tokens, and pages for 8"));
        let any = Graph::parse(TEXT).unwrap().to_paged(LAYOUT).unwrap();
        assert!(SingleText::from_graph(&any).is_err());
    }
}
