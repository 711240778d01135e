//! Parsing the text form. Memory is bounded by limits on the text and on each of its parts; the verifier judges the
//! graph that results.
//!
//! Lines are read in order. A node's inputs have to stand above it. Results and states may name values below them, so that their
//! names are resolved when all lines are read. Errors name the line and the column.

use super::cursor::Cursor;
use super::words::MAX_TEXT;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, NodeId, Origin, Output, State, TensorType, Value, ValueId};
use crate::op::{DeclaredType, Op};
use crate::verify::{self, MAX_INPUTS, MAX_VALUES};
use std::collections::HashMap;

/// See [`Graph::parse`].
pub fn graph(text: &str) -> Result<Graph> {
    if text.len() > MAX_TEXT {
        let text = format!("graph text of {} bytes, at most {MAX_TEXT} are read", text.len());
        return Err(Error::invalid(text));
    }
    let mut lines =
        text.lines().enumerate().map(|(i, line)| Cursor::new(line, i + 1)).filter(|c| !c.at_end());
    let mut first = lines.next().unwrap_or(Cursor::new("", 1));
    if first.keyword() != Some("graph") {
        return Err(first.expected_error("`graph NAME`"));
    }
    let name = first.name("the graph's name")?;
    first.end("the end of the line")?;
    let mut parser = Parser::new(name);
    for line in lines {
        parser.line(line)?;
    }
    let graph = parser.finish()?;
    verify::check(&graph)?;
    Ok(graph)
}

/// A name that is resolved when all values are known.
struct Later<'a> {
    /// The name of the value.
    name: String,
    /// Where it stands, for an error.
    place: Cursor<'a>,
}

struct Parser<'a> {
    /// The graph so far.
    graph: Graph,
    /// The value of each name.
    names: HashMap<String, ValueId>,
    /// The value that each state holds after the run, in the order of the states.
    after: Vec<Later<'a>>,
    /// The value of each output, in their order.
    results: Vec<Later<'a>>,
}

impl<'a> Parser<'a> {
    fn new(name: String) -> Parser<'a> {
        let graph =
            Graph { name, values: Vec::new(), nodes: Vec::new(), states: Vec::new(), outputs: Vec::new() };
        Parser { graph, names: HashMap::new(), after: Vec::new(), results: Vec::new() }
    }

    /// One line, which its first word tells apart. A node has no keyword.
    fn line(&mut self, mut line: Cursor<'a>) -> Result<()> {
        let start = line;
        match line.keyword() {
            Some("input") => self.value(&mut line, Origin::Input)?,
            Some("weight") => self.value(&mut line, Origin::Weight)?,
            Some("state") => self.state(&mut line)?,
            Some("output") => self.output(&mut line)?,
            Some(_) => return Err(start.expected_error("`input`, `weight`, `state`, `output` or a node")),
            None => self.node(&mut line)?,
        }
        line.end("the end of the line")
    }

    /// The rest of `input NAME: TYPE` or `weight NAME: TYPE`.
    fn value(&mut self, line: &mut Cursor<'a>, origin: Origin) -> Result<()> {
        let place = *line;
        let (name, ty) = parse_typed_name(line)?;
        self.define(place, name, ty, origin).map(drop)
    }

    /// The rest of `state NAME: TYPE -> VALUE`.
    fn state(&mut self, line: &mut Cursor<'a>) -> Result<()> {
        let place = *line;
        let (name, ty) = parse_typed_name(line)?;
        let origin = Origin::State(self.graph.states.len() as u32);
        let input = self.define(place, name.clone(), ty, origin)?;
        line.expect("->")?;
        let place = *line;
        self.after.push(Later { name: line.name("the value that the state holds after the run")?, place });
        // The input stands in for the output until all names are known.
        self.graph.states.push(State { name, input, output: input });
        Ok(())
    }

    /// The rest of `output NAME = VALUE`.
    fn output(&mut self, line: &mut Cursor<'a>) -> Result<()> {
        let name = line.name("an output's name")?;
        line.expect("=")?;
        let place = *line;
        self.results.push(Later { name: line.name("a value's name")?, place });
        // Resolved by `finish`.
        self.graph.outputs.push(Output { name, value: ValueId(0) });
        Ok(())
    }

    /// `NAME: TYPE, … = OPERATOR(INPUT, …) ATTRIBUTES as NAME`.
    ///
    /// Outputs are defined after the inputs are found: a node cannot read itself.
    fn node(&mut self, line: &mut Cursor<'a>) -> Result<()> {
        let node = NodeId(self.graph.nodes.len() as u32);
        let mut given = Vec::new();
        let mut types = Vec::new();
        loop {
            let place = *line;
            if line.take_nothing() {
                types.push(DeclaredType::Absent);
            } else {
                let (name, ty) = parse_typed_name(line)?;
                types.push(DeclaredType::As(ty.clone()));
                given.push((place, name, ty));
            }
            // A bound on the line's memory before the verifier looks at the node.
            if types.len() > MAX_INPUTS {
                return Err(place.expected_error(&format!("`=` after at most {MAX_INPUTS} outputs")));
            }
            if !line.eat(",") {
                break;
            }
        }
        line.expect("=")?;
        let op_place = *line;
        let op_name = line.name("an operator")?;
        let places = self.inputs(line)?;
        // An operator of others has absent inputs and outputs, so that its places are kept apart from its values.
        let (inputs, one) = (places.iter().copied().flatten().collect(), types.len() == 1);
        let taken = places.iter().map(Option::is_some).collect();
        let op = Op::parse_node(&op_name, line.attributes()?, taken, types).map_err(|e| op_place.place(e))?;
        let name = match (line.keyword(), &given[..]) {
            (Some("as"), _) => line.name("the node's name")?,
            // A node with one output has its name by default.
            (None, [(_, only, _)]) if one => only.clone(),
            _ => return Err(line.expected_error("`as NAME`, which a node with several outputs needs")),
        };
        let mut outputs = Vec::new();
        for (i, (place, name, ty)) in given.into_iter().enumerate() {
            outputs.push(self.define(place, name, ty, Origin::Node { node, output: i as u32 })?);
        }
        self.graph.nodes.push(Node { name, op, inputs, outputs });
        Ok(())
    }

    /// The inputs in their brackets, `None` where nothing stands.
    fn inputs(&self, line: &mut Cursor<'a>) -> Result<Vec<Option<ValueId>>> {
        line.expect("(")?;
        let mut inputs = Vec::new();
        while !line.eat(")") {
            if !inputs.is_empty() && !line.eat(",") {
                return Err(line.expected_error("`,` or `)`"));
            }
            if inputs.len() == MAX_INPUTS {
                return Err(line.expected_error(&format!("`)` after at most {MAX_INPUTS} inputs")));
            }
            let place = *line;
            if line.take_nothing() {
                inputs.push(None);
                continue;
            }
            let name = line.name("a value's name or `)`")?;
            inputs.push(Some(self.find(&Later { name, place }, "above this line")?));
        }
        Ok(inputs)
    }

    /// A new value.
    ///
    /// # Errors
    /// If the name is taken, or there are [`MAX_VALUES`] values.
    fn define(&mut self, place: Cursor<'a>, name: String, ty: TensorType, origin: Origin) -> Result<ValueId> {
        let id = ValueId(self.graph.values.len() as u32);
        if self.graph.values.len() == MAX_VALUES {
            return Err(place.place(Error::invalid(format!("more than {MAX_VALUES} values"))));
        }
        if self.names.insert(name.clone(), id).is_some() {
            let text = format!("expected a new name, found a second value named `{name}`");
            return Err(place.place(Error::invalid(text)));
        }
        self.graph.values.push(Value { name, ty, origin });
        Ok(id)
    }

    /// The value of a name; `defined` says where it was looked for.
    fn find(&self, later: &Later<'a>, defined: &str) -> Result<ValueId> {
        self.names.get(&later.name).copied().ok_or_else(|| {
            let text = format!("expected a value defined {defined}, found `{}`", later.name.escape_debug());
            later.place.place(Error::invalid(text))
        })
    }

    /// The graph, with the names of states and results resolved.
    fn finish(mut self) -> Result<Graph> {
        for i in 0..self.after.len() {
            self.graph.states[i].output = self.find(&self.after[i], "in this graph")?;
        }
        for i in 0..self.results.len() {
            self.graph.outputs[i].value = self.find(&self.results[i], "in this graph")?;
        }
        Ok(self.graph)
    }
}

/// `NAME: TYPE`.
fn parse_typed_name(line: &mut Cursor<'_>) -> Result<(String, TensorType)> {
    let name = line.name("a value's name")?;
    line.expect(":")?;
    Ok((name, line.ty()?))
}
