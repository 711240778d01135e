//! Epilogues: what nodes of the ONNX standard compute element by element of a result, and of nothing that depends on it in
//! another way, can be computed before the result is stored.
//!
//! A node with the result as its only input, or with other inputs that are known before, joins. Every node of an epilogue has
//! the type of the result, so that one index reaches all of its values.

use super::rule::Site;
use super::uses::Uses;
use crate::graph::{Graph, Node, NodeId, TensorType, ValueId};
use crate::op::Op;
use std::collections::HashSet;

/// Operators that compute each element from the same one of their inputs, or from one that stretches to it.
pub const ELEMENTWISE: [&str; 24] = [
    "Add",
    "BatchNormalization",
    "Clip",
    "Div",
    "Elu",
    "Erf",
    "Exp",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LeakyRelu",
    "Max",
    "Min",
    "Mul",
    "Neg",
    "PRelu",
    "Pow",
    "Relu",
    "Selu",
    "Sigmoid",
    "Softplus",
    "Sqrt",
    "Sub",
    "Tanh",
];

/// Nodes of an epilogue at most.
const LONGEST: usize = 12;

/// The name of an operator of the ONNX standard.
pub fn standard_name(node: &Node) -> Option<&'static str> {
    match &node.op {
        Op::Foreign(op) if op.domain() == "onnx" => Some(op.name()),
        _ => None,
    }
}

/// The places where operators of these names have an epilogue, the longest first. One value leaves each: where nodes
/// outside use one within, the epilogue ends with it.
pub fn sites(uses: &Uses<'_>, names: &[&str]) -> Vec<Site> {
    let named =
        uses.nodes().filter(|(_, node)| standard_name(node).is_some_and(|name| names.contains(&name)));
    named.filter_map(|(id, node)| site(uses, id, node)).collect()
}

/// The place at node `id`, with every length of its epilogue that one value leaves.
fn site(uses: &Uses<'_>, id: NodeId, node: &Node) -> Option<Site> {
    // Operators with further outputs would need more than one value to leave.
    let [y] = node.outputs[..] else { return None };
    let all: Vec<NodeId> = std::iter::once(id).chain(epilogue_nodes(uses, id, y)).collect();
    // Shorter ones are tried where a longer one is not served.
    let counts = (2..=all.len()).rev().filter(|&count| gives_one(uses, &all[..count]));
    let ways: Vec<_> = counts.map(|count| vec![all[..count].to_vec()]).collect();
    (!ways.is_empty()).then_some(Site { ways })
}

/// The nodes that may be computed with the result of a node, in order.
fn epilogue_nodes(uses: &Uses<'_>, first: NodeId, y: ValueId) -> Vec<NodeId> {
    let ty = &uses.graph.value(y).ty;
    // `beyond` holds values that depend on the result through a node outside: a node that needs one cannot join.
    let (mut inside, mut beyond, mut found) = (HashSet::from([y]), HashSet::new(), Vec::new());
    for (id, node) in uses.nodes().skip(first.0 as usize + 1) {
        let reads = |values: &HashSet<ValueId>| node.inputs.iter().any(|value| values.contains(value));
        let depends = reads(&beyond);
        // A node behind the limit counts as one outside.
        if reads(&inside) && !depends && found.len() < LONGEST && is_elementwise(uses.graph, node, ty) {
            found.push(id);
            inside.extend(&node.outputs);
        } else if depends || reads(&inside) {
            beyond.extend(node.outputs.iter().copied());
        }
    }
    found
}

/// Whether a node computes each element by itself and gives exactly the type `ty`.
fn is_elementwise(graph: &Graph, node: &Node, ty: &TensorType) -> bool {
    let known = standard_name(node).is_some_and(|name| ELEMENTWISE.contains(&name));
    known && matches!(node.outputs[..], [y] if graph.value(y).ty == *ty)
}

/// Whether one value of these nodes is all that others use.
fn gives_one(uses: &Uses<'_>, nodes: &[NodeId]) -> bool {
    let outside = |user: &NodeId| !nodes.contains(user);
    let leaves = |value: &ValueId| uses.is_kept(*value) || uses.users(*value).iter().any(outside);
    let values = nodes.iter().flat_map(|&id| &uses.graph.node(id).outputs);
    values.filter(|value| leaves(value)).count() == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fusion::find;

    const HEAD: &str = "graph g\ninput x: f32[1,2,4,4]\ninput r: f32[1,2,4,4]\nweight w: f32[2,2,1,1]\n";

    /// The operators of a graph whose fusions are all served.
    fn fused_operators(nodes: &str) -> Vec<&'static str> {
        let graph = Graph::parse(&format!("{HEAD}{nodes}")).unwrap();
        let fused = find("conv_epilogue").unwrap().apply(&graph, &mut |_, _| true).unwrap().unwrap_or(graph);
        crate::verify::check(&fused).unwrap();
        fused.nodes().iter().map(|node| node.op.name()).collect()
    }

    #[test]
    fn a_value_that_others_use_ends_the_epilogue() {
        let silu = "c: f32[1,2,4,4] = onnx.Conv@11(x, w)\ns: f32[1,2,4,4] = onnx.Sigmoid@13(c)\n\
                    m: f32[1,2,4,4] = onnx.Mul@14(c, s)\n";
        assert_eq!(fused_operators(&format!("{silu}output m = m\n")), ["conv_epilogue"]);
        assert_eq!(
            fused_operators(&format!("{silu}output m = m\noutput c = c\n")),
            ["onnx.Conv@11", "onnx.Sigmoid@13", "onnx.Mul@14"],
            "the convolution's own result is an output"
        );
        let residual = "a: f32[1,2,4,4] = onnx.Add@14(r, m)\n";
        assert_eq!(fused_operators(&format!("{silu}{residual}output a = a\n")), ["conv_epilogue"]);
        assert_eq!(
            fused_operators(&format!("{silu}{residual}output a = a\noutput m = m\n")),
            ["conv_epilogue", "onnx.Add@14"]
        );
    }

    #[test]
    fn what_depends_on_the_result_in_another_way_stays_outside() {
        let gate = "c: f32[1,2,4,4] = onnx.Conv@11(x, w)\nq: f32[1,2,1,1] = onnx.GlobalAveragePool@1(c)\n\
                    g: f32[1,2,1,1] = onnx.Sigmoid@13(q)\nm: f32[1,2,4,4] = onnx.Mul@14(c, g)\noutput m = m\n";
        assert_eq!(
            fused_operators(gate),
            ["onnx.Conv@11", "onnx.GlobalAveragePool@1", "onnx.Sigmoid@13", "onnx.Mul@14"]
        );
    }

    #[test]
    fn of_two_convolutions_that_are_added_one_takes_the_sum() {
        let nodes = "a: f32[1,2,4,4] = onnx.Conv@11(x, w)\nb: f32[1,2,4,4] = onnx.Conv@11(r, w)\n\
                     s: f32[1,2,4,4] = onnx.Add@14(a, b)\ny: f32[1,2,4,4] = onnx.Relu@14(s)\noutput y = y\n";
        assert_eq!(fused_operators(nodes), ["onnx.Conv@11", "conv_epilogue"]);
    }
}
