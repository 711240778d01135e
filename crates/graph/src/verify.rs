//! The verifier: what must hold of every graph. Reports all errors with node names, not only the first.
//!
//! Graphs are deserialized from files, so that no id, type or name in one may be trusted before this. Each check guards its own
//! look-ups: a wrong id is a violation and never a panic.

use crate::dim::{Dim, Symbol, Symbols};
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Origin, TensorType, ValueId};
use crate::op::Op;
use crate::tensor::byte_len;
use std::collections::HashSet;

/// Longest name, in bytes.
pub(crate) const MAX_NAME: usize = 1024;
/// Most sizes of a type.
pub(crate) const MAX_RANK: usize = 8;
/// Most inputs of a node.
pub(crate) const MAX_INPUTS: usize = 256;
/// Most values of a graph.
pub(crate) const MAX_VALUES: usize = 1 << 18;

/// Most violations that one error spells out; the rest are counted.
const MAX_REPORTED: usize = 50;

/// Fails with the violations found, one per line.
pub fn check(graph: &Graph) -> Result<()> {
    let errors = violations(graph);
    match errors.len() {
        0 => Ok(()),
        // One error reads as any other error of the crate.
        1 => Err(Error::invalid(errors[0].clone()).context(format!("graph `{}`", graph.name()))),
        n => {
            let told = errors[..n.min(MAX_REPORTED)].join("\n  ");
            let more =
                if n > MAX_REPORTED { format!("\n  and {} more", n - MAX_REPORTED) } else { String::new() };
            Err(Error::invalid(format!("{n} errors in graph `{}`:\n  {told}{more}", graph.name())))
        }
    }
}

/// All violations, in graph order.
pub fn violations(graph: &Graph) -> Vec<String> {
    let mut errors = Vec::new();
    names(graph, &mut errors);
    limits(graph, &mut errors);
    nodes(graph, &mut errors);
    origins(graph, &mut errors);
    states(graph, &mut errors);
    outputs(graph, &mut errors);
    errors
}

/// Values have distinct names, and so have nodes. A node may have the name of a value.
fn names(graph: &Graph, errors: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for value in graph.values() {
        if !seen.insert(value.name.as_str()) {
            errors.push(format!("two values are named `{}`", value.name));
        }
    }
    let mut seen = HashSet::new();
    for node in graph.nodes() {
        if !seen.insert(node.name.as_str()) {
            errors.push(format!("two nodes are named `{}`", node.name));
        }
    }
}

/// Bounds that keep the text form readable by every reader, and hostile graphs small.
fn limits(graph: &Graph, errors: &mut Vec<String>) {
    if graph.values().len() > MAX_VALUES {
        errors.push(format!("{} values, at most {MAX_VALUES} are allowed", graph.values().len()));
    }
    let names = std::iter::once(&graph.name)
        .chain(graph.values().iter().map(|v| &v.name))
        .chain(graph.nodes().iter().map(|n| &n.name))
        .chain(graph.outputs().iter().map(|o| &o.name));
    // Only a part of such a name is shown.
    for name in names.filter(|n| n.len() > MAX_NAME) {
        let start: String = name.chars().take(40).collect();
        errors.push(format!("the name `{start}…` has {} bytes, at most {MAX_NAME} are allowed", name.len()));
    }
    for value in graph.values().iter().filter(|v| v.ty.shape.len() > MAX_RANK) {
        let rank = value.ty.shape.len();
        errors.push(format!("`{}` has {rank} sizes, at most {MAX_RANK} are allowed", value.name));
    }
    for node in graph.nodes().iter().filter(|n| n.inputs.len() > MAX_INPUTS) {
        let count = node.inputs.len();
        errors.push(format!("node `{}` has {count} inputs, at most {MAX_INPUTS} are allowed", node.name));
    }
}

/// Whether an id names a value.
fn exists(graph: &Graph, id: ValueId) -> bool {
    (id.0 as usize) < graph.values().len()
}

/// Nodes use what stands before them, have attributes that can be written, and give the types that they infer.
fn nodes(graph: &Graph, errors: &mut Vec<String>) {
    for (i, node) in graph.nodes().iter().enumerate() {
        let name = &node.name;
        if let Some(bad) = node.inputs.iter().chain(&node.outputs).find(|&&v| !exists(graph, v)) {
            errors.push(format!("node `{name}`: no value {}", bad.0));
            continue;
        }
        for &input in &node.inputs {
            let value = graph.value(input);
            if let Origin::Node { node: from, .. } = value.origin
                && from.0 as usize >= i
            {
                errors.push(format!("node `{name}` uses `{}` before it is computed", value.name));
            }
        }
        attributes(node, errors);
        match node.op.infer(&graph.input_types(node)) {
            Err(e) => errors.push(format!("node `{name}`: {e}")),
            Ok(types) => node_outputs(graph, i, &types, errors),
        }
    }
}

/// Attributes must survive the text form; NaN and infinities, which JSON cannot hold, do not.
fn attributes(node: &Node, errors: &mut Vec<String>) {
    let text = node.op.attributes_text();
    // An operator of others has its places as attributes of the node.
    let (inputs, outputs) = match &node.op {
        Op::Foreign(op) => (op.inputs().to_vec(), op.outputs().to_vec()),
        _ => Default::default(),
    };
    if !Op::parse_node(node.op.name(), &text, inputs, outputs).is_ok_and(|op| op == node.op) {
        errors.push(format!(
            "node `{}`: the attributes of {} hold a number that is not finite: {:?}",
            node.name,
            node.op.name(),
            node.op
        ));
    }
}

/// The outputs of a node have the inferred `types`, and name it as their origin.
fn node_outputs(graph: &Graph, index: usize, types: &[TensorType], errors: &mut Vec<String>) {
    let node = &graph.nodes()[index];
    if types.len() != node.outputs.len() {
        let (have, want) = (node.outputs.len(), types.len());
        errors.push(format!(
            "node `{}`: {} gives {want} outputs, {have} are named",
            node.name,
            node.op.name()
        ));
        return;
    }
    for (k, (&output, ty)) in node.outputs.iter().zip(types).enumerate() {
        let value = graph.value(output);
        if value.ty != *ty {
            errors.push(format!(
                "node `{}`: `{}` is {}, {} gives {ty}",
                node.name,
                value.name,
                value.ty,
                node.op.name()
            ));
        }
        if !matches!(value.origin, Origin::Node { node, output } if (node.0 as usize, output as usize) == (index, k))
        {
            errors.push(format!("node `{}`: `{}` says that it comes from elsewhere", node.name, value.name));
        }
    }
}

/// Values name their origin rightly and stand in the order of nodes and states.
///
/// The text form has no other order: a graph in another one would come back as a different graph.
fn origins(graph: &Graph, errors: &mut Vec<String>) {
    // The node and the output that the next computed value has to be.
    let mut next = (0, 0);
    let mut next_state = 0;
    for (i, value) in graph.values().iter().enumerate() {
        let id = ValueId(i as u32);
        match value.origin {
            Origin::Node { node, output } => {
                let from = graph.nodes().get(node.0 as usize);
                if from.and_then(|n| n.outputs.get(output as usize)) != Some(&id) {
                    errors.push(format!(
                        "`{}` says that it is output {output} of node {}, which it is not",
                        value.name, node.0
                    ));
                } else if (node.0, output) != next {
                    errors.push(format!("`{}` is not in the order of the nodes", value.name));
                }
                // Behind the last output of a node comes the first one of the next node.
                let last = from.is_none_or(|n| output as usize + 1 >= n.outputs.len());
                next = if last { (node.0.saturating_add(1), 0) } else { (node.0, output.saturating_add(1)) };
            }
            Origin::State(s) if graph.states().get(s as usize).is_none_or(|s| s.input != id) => {
                errors.push(format!("`{}` says that it is state {s}, which it is not", value.name));
            }
            Origin::State(s) => {
                if s != next_state {
                    errors.push(format!("`{}` is not in the order of the states", value.name));
                }
                next_state = s + 1;
            }
            Origin::Weight => weight(&value.name, &value.ty, errors),
            Origin::Input => {}
        }
        // A leaf between two outputs of one node would have no place in the text form.
        if !matches!(value.origin, Origin::Node { .. }) && next.1 > 0 {
            errors.push(format!("`{}` stands between the outputs of node {}", value.name, next.0));
        }
    }
}

/// A weight has constant sizes, and its bytes fit in the address space.
fn weight(name: &str, ty: &TensorType, errors: &mut Vec<String>) {
    if ty.shape.iter().any(|d| d.as_const().is_none()) {
        errors.push(format!("weight `{name}` has a symbolic size: {ty}"));
    } else if !ty.sizes(&Symbols::new()).is_ok_and(|sizes| byte_len(ty.dtype, &sizes).is_some()) {
        errors.push(format!("weight `{name}` exceeds the address space: {ty}"));
    }
}

/// States start as their own value and hold a value of the right type after the run.
fn states(graph: &Graph, errors: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for (index, state) in graph.states().iter().enumerate() {
        if !seen.insert(state.name.as_str()) {
            errors.push(format!("two states are named `{}`", state.name));
        }
        if !exists(graph, state.input) || !exists(graph, state.output) {
            errors.push(format!("state `{}` names a value that does not exist", state.name));
            continue;
        }
        let held = graph.value(state.input);
        if held.name != state.name || !matches!(held.origin, Origin::State(i) if i as usize == index) {
            errors.push(format!("state `{}` starts as `{}`, which is another value", state.name, held.name));
        }
        let (before, after) = (&graph.value(state.input).ty, &graph.value(state.output).ty);
        let expected = after_step(before);
        if *after != expected {
            errors.push(format!(
                "state `{}` is {before} before the run and {after} after it, expected {expected}",
                state.name
            ));
        }
    }
}

/// The type of a state after a run, from its type before: `p` rows become `n+p`, anything else stays.
fn after_step(before: &TensorType) -> TensorType {
    let mut after = before.clone();
    if let Some(first) = after.shape.first_mut()
        && *first == Dim::symbol(Symbol::P)
    {
        // `p + n` does not overflow; the default only avoids a panic.
        *first = first.checked_add(&Dim::symbol(Symbol::N)).unwrap_or_default();
    }
    after
}

/// Outputs have distinct names and name values that exist.
fn outputs(graph: &Graph, errors: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for output in graph.outputs() {
        if !seen.insert(output.name.as_str()) {
            errors.push(format!("two outputs are named `{}`", output.name));
        }
        if !exists(graph, output.value) {
            errors.push(format!("output `{}` names a value that does not exist", output.name));
        }
    }
}

#[cfg(test)]
mod tests;
