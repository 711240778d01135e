//! Bytes that a step cannot do without moving: of the whole graph, and of single nodes.

use tapml_graph::{DType, Error, Graph, Node, Op, Origin, Result, Symbols, Value, byte_len};

/// Bytes of weights and states that a step reads at least: each weight once, of tables the rows that are looked up, of
/// stacks of experts those that are chosen, if all tokens choose different ones; each state once, as it is before the step.
pub fn of_step(graph: &Graph, symbols: &Symbols) -> Result<u64> {
    let mut sum = 0u64;
    let mut read: Vec<&str> = Vec::new();
    // Tables that are also the head are read whole there.
    let tables_last = |node: &&Node| is_table(&node.op);
    let nodes =
        graph.nodes().iter().filter(|n| !tables_last(n)).chain(graph.nodes().iter().filter(tables_last));
    for node in nodes {
        for &input in &node.inputs {
            let value = graph.value(input);
            if value.origin == Origin::Weight && !read.contains(&value.name.as_str()) {
                read.push(&value.name);
                sum = sum.saturating_add(weight(graph, node, value, symbols)?);
            }
        }
    }
    for state in graph.states() {
        sum = sum.saturating_add(bytes(graph.value(state.input), symbols)?);
    }
    Ok(sum)
}

/// Bytes that a node reads and writes at least if nothing is kept from the nodes before it.
pub fn of_node(graph: &Graph, node: &Node, symbols: &Symbols) -> Result<u64> {
    if node.op.name() == "append" {
        // It writes the new rows behind the old ones, which stay where they are.
        let rows = node.inputs.get(1).map(|&rows| bytes(graph.value(rows), symbols)).transpose()?;
        return Ok(2 * rows.unwrap_or(0));
    }
    let mut sum = 0u64;
    for &input in &node.inputs {
        let value = graph.value(input);
        sum += match value.origin {
            Origin::Weight => weight(graph, node, value, symbols)?,
            _ => bytes(value, symbols)?,
        };
    }
    let fused = matches!(node.op, Op::Fused(_));
    for &output in &node.outputs {
        // A cache that a fused operator appends to stays where it is; the new rows are few.
        if !(fused && graph.states().iter().any(|state| state.output == output)) {
            sum += bytes(graph.value(output), symbols)?;
        }
    }
    Ok(sum)
}

fn is_table(op: &Op) -> bool {
    op.name().ends_with("embedding")
}

/// Bytes of a weight that a node reads at least.
fn weight(graph: &Graph, node: &Node, value: &Value, symbols: &Symbols) -> Result<u64> {
    let all = bytes(value, symbols)?;
    let n = symbols.get(tapml_graph::Symbol::N).unwrap_or(1);
    let rows = value.ty.shape.first().and_then(|d| d.as_const()).unwrap_or(1).max(1);
    let share = |read: u64| (u128::from(all) * u128::from(read.min(rows)) / u128::from(rows)) as u64;
    if is_table(&node.op) {
        return Ok(share(n));
    }
    let chosen = node
        .inputs
        .iter()
        .map(|&input| graph.value(input))
        .find(|v| v.origin != Origin::Weight && v.ty.dtype == DType::U32 && v.ty.shape.len() == 2);
    match chosen.and_then(|v| v.ty.shape[1].as_const()) {
        Some(experts) if value.ty.shape.len() == 3 => Ok(share(n.saturating_mul(experts))),
        _ => Ok(all),
    }
}

fn bytes(value: &Value, symbols: &Symbols) -> Result<u64> {
    let sizes = value.ty.sizes(symbols)?;
    let len = byte_len(value.ty.dtype, &sizes);
    len.map(|len| len as u64).ok_or_else(|| Error::invalid(format!("`{}` is too large", value.name)))
}
