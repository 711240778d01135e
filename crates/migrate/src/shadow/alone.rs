//! The graph of a single call, so that what is kept of it is small and is replayed as any suite.

use std::collections::HashMap;
use tapml_graph::paged::PAGES;
use tapml_graph::{Builder, Graph, Node, Origin, Result, TensorType, ValueId};

/// The node alone, with inputs of these types, which may be those of fewer parts of pools. What other nodes compute is an input,
/// and a state stays one if the node gives what it holds after the run. The node is the only one of the new graph. The table of pages
/// stays an input, since by it a graph is known as one of several texts, which has kernels of its own.
pub(super) fn node_alone(graph: &Graph, node: &Node, input_types: &[TensorType]) -> Result<Graph> {
    let mut builder = Builder::new(graph.name());
    let mut ids: HashMap<ValueId, ValueId> = HashMap::new();
    let mut states = Vec::new();
    for (&old, ty) in node.inputs.iter().zip(input_types) {
        if ids.contains_key(&old) {
            continue;
        }
        let (value, ty) = (graph.value(old), ty.clone());
        let after = match value.origin {
            Origin::State(at) => graph.states().get(at as usize).map(|state| state.output),
            _ => None,
        };
        let after = after.and_then(|after| node.outputs.iter().position(|&output| output == after));
        let new = match (value.origin, after) {
            (Origin::Weight, _) => builder.weight(&value.name, ty)?,
            (_, Some(after)) => {
                let new = builder.state(&value.name, ty)?;
                states.push((new, after));
                new
            }
            _ => builder.input(&value.name, ty)?,
        };
        ids.insert(old, new);
    }
    if let Some(table) = graph.find_value(PAGES).filter(|table| !ids.contains_key(table)) {
        builder.input(PAGES, graph.value(table).ty.clone())?;
    }
    let inputs: Vec<ValueId> = node.inputs.iter().map(|old| ids[old]).collect();
    let names: Vec<String> = node.outputs.iter().map(|&old| graph.value(old).name.clone()).collect();
    let outputs = builder.node_multi(&node.name, node.op.clone(), &inputs, &names)?;
    for &(state, after) in &states {
        builder.set_state(state, outputs[after])?;
    }
    for (at, name) in names.into_iter().enumerate() {
        if !states.iter().any(|(_, after)| *after == at) {
            builder.output(name, outputs[at]);
        }
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "graph g
input new: f32[n,2]
input slots: u32[n]
input pages: u32[2,4]
weight w: f32[2]
state cache: f32[8,2] -> after
x: f32[n,2] = mul(new, new)
after: f32[8,2] = paged_append(cache, x, slots)
output x = x
";

    #[test]
    fn a_node_keeps_its_state_and_gets_the_rest_as_inputs() {
        let graph = Graph::parse(TEXT).unwrap();
        let append = &graph.nodes()[1];
        let mut types = graph.input_types(append);
        append.op.pools(&types).unwrap().narrow_types(&mut types, 3);
        let alone = node_alone(&graph, append, &types).unwrap();
        assert_eq!(alone.nodes().len(), 1);
        assert_eq!(alone.states().len(), 1);
        assert_eq!(alone.input_types(&alone.nodes()[0]), types);
        assert_eq!(
            alone.inputs().map(|(_, input)| input.name.as_str()).collect::<Vec<_>>(),
            ["x", "slots", "pages"]
        );
        let square = node_alone(&graph, &graph.nodes()[0], &graph.input_types(&graph.nodes()[0])).unwrap();
        assert_eq!((square.inputs().count(), square.outputs().len()), (2, 1));
    }
}
