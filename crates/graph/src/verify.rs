//! The verifier: what must hold of every graph. Reports all errors with node names, not only the first.

use crate::dim::{Dim, Symbol};
use crate::error::{Error, Result};
use crate::graph::{Graph, Origin, TensorType, ValueId};
use std::collections::HashSet;

/// Fails with every violation found, one per line.
pub fn check(graph: &Graph) -> Result<()> {
    let errors = violations(graph);
    match errors.len() {
        0 => Ok(()),
        1 => Err(Error::invalid(errors[0].clone()).context(format!("graph `{}`", graph.name()))),
        n => {
            Err(Error::invalid(format!("{n} errors in graph `{}`:\n  {}", graph.name(), errors.join("\n  "))))
        }
    }
}

/// All violations, in graph order.
pub fn violations(graph: &Graph) -> Vec<String> {
    let mut errors = Vec::new();
    names(graph, &mut errors);
    nodes(graph, &mut errors);
    origins(graph, &mut errors);
    states(graph, &mut errors);
    outputs(graph, &mut errors);
    errors
}

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

fn exists(graph: &Graph, id: ValueId) -> bool {
    (id.0 as usize) < graph.values().len()
}

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
        match node.op.infer(&graph.input_types(node)) {
            Err(e) => errors.push(format!("node `{name}`: {e}")),
            Ok(types) => node_outputs(graph, i, &types, errors),
        }
    }
}

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

fn origins(graph: &Graph, errors: &mut Vec<String>) {
    for value in graph.values() {
        match value.origin {
            Origin::Node { node, output } => {
                let from = graph.nodes().get(node.0 as usize);
                if from.and_then(|n| n.outputs.get(output as usize)).is_none() {
                    errors.push(format!(
                        "`{}` comes from output {output} of node {}, which does not exist",
                        value.name, node.0
                    ));
                }
            }
            Origin::State(i) if graph.states().get(i as usize).is_none() => {
                errors.push(format!("`{}` comes from state {i}, which does not exist", value.name));
            }
            Origin::Weight if value.ty.shape.iter().any(|d| d.as_const().is_none()) => {
                errors.push(format!("weight `{}` has a symbolic size: {}", value.name, value.ty));
            }
            _ => {}
        }
    }
}

fn states(graph: &Graph, errors: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for state in graph.states() {
        if !seen.insert(state.name.as_str()) {
            errors.push(format!("two states are named `{}`", state.name));
        }
        if !exists(graph, state.input) || !exists(graph, state.output) {
            errors.push(format!("state `{}` names a value that does not exist", state.name));
            continue;
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
        *first = first.checked_add(&Dim::symbol(Symbol::N)).unwrap_or_default();
    }
    after
}

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
