//! Printing a graph as text, so that [`Graph::parse`] gives the same graph again.
//!
//! Values are printed in their order, and a node stands where its first output does.

use super::words::{KEYWORDS, NOTHING, is_bare};
use crate::graph::{Graph, Node, Origin, Value, ValueId};
use crate::op::{DeclaredType, Op};
use std::fmt;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, &|_| None)
    }
}

/// A graph with a comment behind some of its nodes.
pub struct Noted<'a> {
    /// What is printed.
    pub graph: &'a Graph,
    /// Gives the comment of a node; `None` for none.
    pub note: &'a Note<'a>,
}

/// What stands behind a node as a comment.
pub type Note<'a> = dyn Fn(&Node) -> Option<String> + 'a;

impl fmt::Display for Noted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.graph.print(f, self.note)
    }
}

impl Graph {
    /// The whole text. Comments are escaped: a line break in one would begin another line.
    fn print(&self, f: &mut fmt::Formatter<'_>, note: &Note<'_>) -> fmt::Result {
        writeln!(f, "graph {}", Name(&self.name))?;
        for value in &self.values {
            match value.origin {
                Origin::Input => writeln!(f, "input {}", Typed(value))?,
                Origin::Weight => writeln!(f, "weight {}", Typed(value))?,
                Origin::State(i) => {
                    let after = self.value(self.states[i as usize].output);
                    writeln!(f, "state {} -> {}", Typed(value), Name(&after.name))?;
                }
                Origin::Node { node, output: 0 } => {
                    let node = self.node(node);
                    self.print_node(node, f)?;
                    match note(node) {
                        Some(note) => writeln!(f, "  # {}", note.escape_debug())?,
                        None => writeln!(f)?,
                    }
                }
                // Further outputs stand in the line of the first.
                Origin::Node { .. } => {}
            }
        }
        for output in &self.outputs {
            writeln!(f, "output {} = {}", Name(&output.name), Name(&self.value(output.value).name))?;
        }
        Ok(())
    }

    /// The line of a node without its end.
    fn print_node(&self, node: &Node, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (inputs, outputs) = places(node);
        for (i, output) in outputs.into_iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            match output {
                Some(output) => write!(f, "{}", Typed(self.value(output)))?,
                None => f.write_str(NOTHING)?,
            }
        }
        write!(f, " = {}(", node.op.name())?;
        for (i, input) in inputs.into_iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            match input {
                Some(input) => write!(f, "{}", Name(&self.value(input).name))?,
                None => f.write_str(NOTHING)?,
            }
        }
        f.write_str(")")?;
        let attributes = node.op.attributes_text();
        // No attributes are written as none.
        if attributes != "{}" {
            write!(f, " {attributes}")?;
        }
        // The name is left out if the only output has it; a foreign operator may have further outputs that are absent.
        let whole = !matches!(&node.op, Op::Foreign(op) if op.outputs().len() > 1);
        let named_as_output =
            whole && matches!(node.outputs[..], [only] if self.value(only).name == node.name);
        // The node's name is written only where the output does not tell it.
        if !named_as_output {
            write!(f, " as {}", Name(&node.name))?;
        }
        Ok(())
    }
}

/// The values at the places of a node's inputs and outputs.
fn places(node: &Node) -> (Vec<Option<ValueId>>, Vec<Option<ValueId>>) {
    let all = |ids: &[ValueId]| ids.iter().copied().map(Some).collect();
    let Op::Foreign(op) = &node.op else { return (all(&node.inputs), all(&node.outputs)) };
    let mut outputs = node.outputs.iter().copied();
    let output = |declared: &DeclaredType| if declared.is_asked() { outputs.next() } else { None };
    let outputs = op.outputs().iter().map(output).collect();
    (op.place_inputs(node.inputs.iter().copied()), outputs)
}

/// Writes a name, quoted if needed.
struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0;
        if !name.is_empty() && name.chars().all(is_bare) && !KEYWORDS.contains(&name) && name != NOTHING {
            return f.write_str(name);
        }
        f.write_str(&serde_json::to_string(name).map_err(|_| fmt::Error)?)
    }
}

/// Writes a value's name and type.
struct Typed<'a>(&'a Value);

impl fmt::Display for Typed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", Name(&self.0.name), self.0.ty)
    }
}
