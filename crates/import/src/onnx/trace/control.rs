//! Nodes with graphs within them: the branch that is taken, and bodies once for each turn.
//!
//! A loop is unrolled while it stays small; else it becomes one operator (`opaque`), and a note says why.
//! Only `Unsupported` leads there: a model that is wrong stays an error.

use super::{Scope, Tracer, ValuePlace, Versions};
use crate::onnx::messages::{Attribute, Graph, Node};
use serde_json::{Map, Value, json};
use tapml_graph::{Context, DType, Error, ErrorKind, Result, Tensor, ValueId};

// Bounds the graph. A loop with more turns becomes one operator.
/// Turns of a loop that is unrolled, at most.
const MAX_ITERATIONS: i64 = 256;
/// Nodes that a loop may become.
const MAX_UNROLLED: usize = 1 << 13;

impl Tracer<'_, '_> {
    /// `If`, `Loop` and `Scan`: what ran stands in their places, or else one node that has the graphs within it.
    pub(super) fn control<'n>(
        &mut self,
        node: &'n Node,
        scope: &mut Scope<'_, 'n>,
        versions: &Versions<'_>,
    ) -> Result<()> {
        // To go back to, if the loop turns out too long.
        let mark = self.mark();
        let unrolled = match node.op_type.as_str() {
            "If" => self.branch(node, scope, versions),
            "Loop" => self.unroll(node, scope, versions),
            _ => self.scan(node, scope, versions),
        };
        let made = match unrolled {
            Ok(made) => made,
            Err(why) if why.kind() == ErrorKind::Unsupported => {
                // What was added before the bound was met must not stay in the graph.
                self.rewind(mark);
                let turns = self.most_iterations(node, scope)?;
                let Ok(made) = self.opaque(node, scope, versions, turns) else {
                    // What is told is why it could not be unrolled.
                    return Err(why);
                };
                self.note(node, &format!("it stays one node: {why}"));
                made
            }
            Err(error) => return Err(error),
        };
        for (name, id) in node.output.iter().zip(made).filter(|(name, _)| !name.is_empty()) {
            scope.names.insert(name, ValuePlace::Value(id));
        }
        Ok(())
    }

    /// How often the graphs within a node run at most, where its inputs say so.
    fn most_iterations(&mut self, node: &Node, scope: &Scope<'_, '_>) -> Result<Option<u64>> {
        // The first input of a `Loop` is its trip count; an `If` runs one graph one time.
        let Some(name) = node.input.first().filter(|name| !name.is_empty() && node.op_type == "Loop") else {
            return Ok(None);
        };
        let id = self.value(name, scope)?;
        Ok(self.tensor(id).to_i64()?.first().and_then(|&turns| u64::try_from(turns).ok()))
    }

    /// A sentence for the report on what became of a node.
    fn note(&mut self, node: &Node, what: &str) {
        let called = crate::onnx::check::describe_node(node);
        self.unrolled.push(format!("{called}: {what}"));
    }

    /// The nodes of a body, with these values for its inputs; gives its outputs.
    fn body<'n>(
        &mut self,
        graph: &'n Graph,
        inputs: &[ValueId],
        prefix: String,
        scope: &Scope<'_, 'n>,
        versions: &Versions<'_>,
    ) -> Result<Vec<ValueId>> {
        if graph.input.len() != inputs.len() {
            let text = format!("its graph takes {} inputs, and is given {}", graph.input.len(), inputs.len());
            return Err(Error::invalid(text));
        }
        // A body sees the names around it, unlike a function.
        let mut inner = Scope { names: Default::default(), outer: Some(scope), prefix };
        for (value, &id) in graph.input.iter().zip(inputs) {
            inner.names.insert(&value.name, ValuePlace::Value(id));
        }
        self.initializers(graph, &mut inner)?;
        self.nodes(&graph.node, &mut inner, versions)?;
        graph.output.iter().map(|output| self.value(&output.name, &inner)).collect()
    }

    /// The graph holds for inputs that take the same branch.
    fn branch<'n>(
        &mut self,
        node: &'n Node,
        scope: &Scope<'_, 'n>,
        versions: &Versions<'_>,
    ) -> Result<Vec<ValueId>> {
        let condition = self.truth(node.input.first(), scope)?;
        let name = if condition { "then_branch" } else { "else_branch" };
        self.note(node, &format!("the branch `{name}` stands in its place"));
        let prefix = self.prefix(node, scope);
        self.body(graph(node, name)?, &[], prefix, scope, versions)
    }

    /// A truth of one element; true where the input is left out.
    fn truth(&mut self, name: Option<&String>, scope: &Scope<'_, '_>) -> Result<bool> {
        // An absent condition of a `Loop` means that it goes on.
        let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(true) };
        let id = self.value(name, scope)?;
        self.truth_of(id).context(|| format!("condition `{name}`"))
    }

    /// The value of one bool.
    fn truth_of(&self, id: ValueId) -> Result<bool> {
        let tensor = self.tensor(id);
        match (tensor.dtype(), tensor.to_i64()?.as_slice()) {
            (DType::Bool, &[value]) => Ok(value != 0),
            (dtype, _) => {
                Err(Error::invalid(format!("expected one bool, found {dtype}{:?}", tensor.shape())))
            }
        }
    }

    /// `Loop`: carried values, then one stacked output for each that is scanned.
    fn unroll<'n>(
        &mut self,
        node: &'n Node,
        scope: &Scope<'_, 'n>,
        versions: &Versions<'_>,
    ) -> Result<Vec<ValueId>> {
        let body = graph(node, "body")?;
        let most = match node.input.first().filter(|name| !name.is_empty()) {
            None => i64::MAX,
            Some(name) => {
                let id = self.value(name, scope)?;
                let values = self.tensor(id).to_i64()?;
                values.first().copied().ok_or_else(|| Error::invalid("the number of turns is empty"))?
            }
        };
        let mut go_on = self.truth(node.input.get(1), scope)?;
        // A loop that computes its own end may stop early, so it is tried.
        if go_on && most > MAX_ITERATIONS && !ends_itself(body) {
            return Err(Error::unsupported(format!("its {most} turns are more than {MAX_ITERATIONS}")));
        }
        // The first two inputs are the trip count and the condition.
        let (start, given) = (self.nodes, node.input.iter());
        let given = given.skip(2).filter(|name| !name.is_empty());
        let mut carried = given.map(|name| self.value(name, scope)).collect::<Result<Vec<_>>>()?;
        let (count, prefix) = (carried.len(), self.prefix(node, scope));
        // The first output of the body is the condition.
        let mut stacked: Vec<Vec<ValueId>> = vec![Vec::new(); body.output.len().saturating_sub(count + 1)];
        let mut turn = 0;
        while go_on && turn < most {
            if turn == MAX_ITERATIONS {
                return Err(Error::unsupported(format!("it has more than {MAX_ITERATIONS} turns")));
            }
            // Before each turn: a body may be large.
            self.expect_bounded(start)?;
            let own = format!("{prefix}{turn}/");
            let number = Tensor::from_i64(DType::I64, vec![], &[turn])?;
            let condition = Tensor::from_i64(DType::Bool, vec![], &[1])?;
            let mut inputs = vec![
                // The turn's number and the condition are constants once the loop is unrolled.
                self.weight(&format!("{own}turn"), number)?,
                self.weight(&format!("{own}condition"), condition)?,
            ];
            inputs.extend(&carried);
            let made = self.body(body, &inputs, own, scope, versions).context(|| format!("turn {turn}"))?;
            let (head, tail) = made.split_at_checked(count + 1).ok_or_else(|| {
                Error::invalid(format!("its body gives {} outputs, expected {}", made.len(), count + 1))
            })?;
            go_on = self.truth_of(head[0]).context(|| "the condition".to_string())?;
            carried = head[1..].to_vec();
            stacked.iter_mut().zip(tail).for_each(|(rows, &row)| rows.push(row));
            turn += 1;
        }
        self.note(node, &format!("its body stands in its place {turn} times"));
        for (at, rows) in stacked.iter().enumerate() {
            carried.push(self.stack(node, rows, 0, &format!("{prefix}stack{at}"), versions)?);
        }
        Ok(carried)
    }

    /// `Scan` from version 9 on: states, then slices of the scanned inputs.
    fn scan<'n>(
        &mut self,
        node: &'n Node,
        scope: &Scope<'_, 'n>,
        versions: &Versions<'_>,
    ) -> Result<Vec<ValueId>> {
        if versions.get("") < 9 {
            return Err(Error::unsupported("a `Scan` of version 8, which has a batch"));
        }
        let body = graph(node, "body")?;
        let find = |name: &str| node.attribute.iter().find(|attribute| attribute.name == name);
        let count = find("num_scan_inputs").and_then(|a| usize::try_from(a.i).ok()).unwrap_or(0);
        // States come first, scanned inputs behind them.
        let states = node.input.len().checked_sub(count).filter(|_| count > 0);
        let states = states.ok_or_else(|| Error::invalid("`num_scan_inputs` is not that of its inputs"))?;
        let list =
            |name: &str, at: usize| find(name).and_then(|a: &Attribute| a.ints.get(at).copied()).unwrap_or(0);
        let ids = node.input.iter().map(|name| self.value(name, scope)).collect::<Result<Vec<_>>>()?;
        let (mut carried, scanned) = (ids[..states].to_vec(), ids[states..].to_vec());
        let mut sizes = Vec::new();
        for (at, &id) in scanned.iter().enumerate() {
            let shape = self.tensor(id).shape().to_vec();
            let axis = axis(list("scan_input_axes", at), shape.len())?;
            sizes.push((axis, shape[axis] as i64));
        }
        let turns = sizes.first().map_or(0, |(_, size)| *size);
        if sizes.iter().any(|(_, size)| *size != turns) {
            return Err(Error::invalid(format!("its inputs have {sizes:?} turns, expected the same of all")));
        }
        if turns > MAX_ITERATIONS {
            return Err(Error::unsupported(format!("its {turns} turns are more than {MAX_ITERATIONS}")));
        }
        let start = self.nodes;
        let prefix = self.prefix(node, scope);
        let mut stacked: Vec<Vec<ValueId>> = vec![Vec::new(); body.output.len().saturating_sub(states)];
        for turn in 0..turns {
            self.expect_bounded(start)?;
            let own = format!("{prefix}{turn}/");
            let mut inputs = carried.clone();
            for (at, (&id, (axis, _))) in scanned.iter().zip(&sizes).enumerate() {
                // 1 is backwards.
                let row = if list("scan_input_directions", at) == 1 { turns - 1 - turn } else { turn };
                let row =
                    self.weight(&format!("{own}row{at}"), Tensor::from_i64(DType::I64, vec![], &[row])?)?;
                let attributes = Map::from_iter([("axis".to_string(), json!(axis))]);
                let taken = (&[Some(id), Some(row)][..], format!("{own}in{at}"));
                inputs.push(self.helper("Gather", attributes, taken, versions)?);
            }
            let made = self.body(body, &inputs, own, scope, versions).context(|| format!("turn {turn}"))?;
            let (head, tail) = made.split_at_checked(states).ok_or_else(|| {
                Error::invalid(format!("its body gives {} outputs, expected {states}", made.len()))
            })?;
            carried = head.to_vec();
            stacked.iter_mut().zip(tail).for_each(|(rows, &row)| rows.push(row));
        }
        self.note(node, &format!("its body stands in its place {turns} times"));
        for (at, rows) in stacked.iter_mut().enumerate() {
            if list("scan_output_directions", at) == 1 {
                rows.reverse();
            }
            let axis = list("scan_output_axes", at);
            carried.push(self.stack(node, rows, axis, &format!("{prefix}stack{at}"), versions)?);
        }
        Ok(carried)
    }

    /// Fails if a loop has become too many nodes, of which there were `start` before it.
    fn expect_bounded(&self, start: usize) -> Result<()> {
        if self.nodes - start > MAX_UNROLLED {
            Err(Error::unsupported(format!("its turns are more than {MAX_UNROLLED} nodes")))
        } else {
            Ok(())
        }
    }

    /// The rows of all turns as one tensor with a size for the turns at `axis`.
    fn stack(
        &mut self,
        node: &Node,
        rows: &[ValueId],
        axis: i64,
        name: &str,
        versions: &Versions<'_>,
    ) -> Result<ValueId> {
        // The size of a row is known only from one.
        if rows.is_empty() {
            let text = format!("`{}` without turns has outputs of unknown sizes", node.op_type);
            return Err(Error::unsupported(text));
        }
        let mut widened = Vec::new();
        for (turn, &row) in rows.iter().enumerate() {
            let own = format!("{name}/{turn}");
            // `Unsqueeze` takes its axes as an attribute before opset 13, as an input from then on.
            let (attributes, mut inputs) = match versions.get("") {
                ..13 => (Map::from_iter([("axes".to_string(), json!([axis]))]), vec![Some(row)]),
                _ => (Map::new(), vec![Some(row)]),
            };
            if versions.get("") >= 13 {
                let axes = Tensor::from_i64(DType::I64, vec![1], &[axis])?;
                inputs.push(Some(self.weight(&format!("{own}/axes"), axes)?));
            }
            widened.push(Some(self.helper("Unsqueeze", attributes, (&inputs, own), versions)?));
        }
        let attributes: Map<String, Value> = Map::from_iter([("axis".to_string(), json!(axis))]);
        self.helper("Concat", attributes, (&widened, name.to_string()), versions)
    }

    /// Adds a node that only brings values into shape.
    fn helper(
        &mut self,
        op: &str,
        attributes: Map<String, Value>,
        (inputs, name): (&[Option<ValueId>], String),
        versions: &Versions<'_>,
    ) -> Result<ValueId> {
        let node = Node { op_type: op.into(), name: name.clone(), ..Node::default() };
        // The name is whole already.
        let bare = Scope { names: Default::default(), outer: None, prefix: String::new() };
        let made = self.run(&node, &versions.kind(&node), attributes, inputs, &[&name], &bare)?;
        made.first().copied().ok_or_else(|| Error::bug("a node without an output"))
    }
}

/// Whether the body of a loop computes whether there is a next turn: it hands on what it was given otherwise.
fn ends_itself(body: &Graph) -> bool {
    let (given, gives) = (body.input.get(1), body.output.first());
    given.map(|value| &value.name) != gives.map(|value| &value.name)
}

/// The graph that a node holds under this name.
fn graph<'n>(node: &'n Node, name: &str) -> Result<&'n Graph> {
    let found = node.attribute.iter().find(|attribute| attribute.name == name);
    found
        .and_then(|attribute| attribute.g.as_ref())
        .ok_or_else(|| Error::invalid(format!("it has no `{name}`")))
}

/// Negative axes count from the end.
fn axis(axis: i64, rank: usize) -> Result<usize> {
    let from_end = if axis < 0 { axis + rank as i64 } else { axis };
    let found = usize::try_from(from_end).ok().filter(|&axis| axis < rank);
    found.ok_or_else(|| Error::invalid(format!("axis {axis} of a tensor of rank {rank}")))
}
