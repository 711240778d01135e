//! Which part of a graph is the same in every step: the encoder of an image.

use crate::graph::{Graph, NodeId, Origin, TensorType, ValueId};

impl Graph {
    /// For each node whether its results are the same in every step with the same inputs of constant sizes, such as the
    /// pixels of an image: it reads these and weights alone, directly or through other such nodes. Such a node has to run
    /// only when these inputs change.
    ///
    /// A node that reads weights alone counts only if all that use its results do. So no node counts in a graph whose
    /// inputs all depend on the step.
    pub fn loop_invariant_nodes(&self) -> Vec<bool> {
        let constant = |ty: &TensorType| ty.shape.iter().all(|size| size.as_const().is_some());
        // `fixed`: the same in every step. `fed`: made of an input, and not of weights alone.
        let (mut fixed, mut fed) = (vec![false; self.values().len()], vec![false; self.values().len()]);
        for (i, value) in self.values().iter().enumerate() {
            let input = value.origin == Origin::Input && constant(&value.ty);
            (fixed[i], fed[i]) = (input || value.origin == Origin::Weight, input);
        }
        let at = |id: &ValueId| id.0 as usize;
        let (mut fixed_nodes, mut once) = (Vec::new(), Vec::new());
        for node in self.nodes() {
            let same = node.inputs.iter().all(|id| fixed[at(id)])
                && node.outputs.iter().all(|&id| constant(&self.value(id).ty));
            let from_input = same && node.inputs.iter().any(|id| fed[at(id)]);
            for id in &node.outputs {
                (fixed[at(id)], fed[at(id)]) = (same, from_input);
            }
            fixed_nodes.push(same);
            once.push(from_input);
        }
        self.add_weights_of(&fixed_nodes, &mut once);
        once
    }

    /// Adds the nodes on weights alone whose results nobody else needs.
    fn add_weights_of(&self, fixed: &[bool], once: &mut [bool]) {
        let users = self.users();
        // Backwards, so that users are known before what they use.
        for (i, node) in self.nodes().iter().enumerate().rev().filter(|(i, _)| fixed[*i]) {
            let result = self.outputs().iter().any(|output| node.outputs.contains(&output.value));
            let mut using = node.outputs.iter().flat_map(|id| &users[id.0 as usize]).peekable();
            once[i] |= !result && using.peek().is_some() && using.all(|user| once[user.0 as usize]);
        }
    }

    /// The values that nodes which count for [`Graph::loop_invariant_nodes`] give to others, and those of them that are results.
    pub fn cached_values(&self) -> Vec<ValueId> {
        let once = self.loop_invariant_nodes();
        let users = self.users();
        let outside = |id: &ValueId| {
            let result = self.outputs().iter().any(|output| output.value == *id);
            result || users[id.0 as usize].iter().any(|user: &NodeId| !once[user.0 as usize])
        };
        let nodes = self.nodes().iter().zip(&once).filter(|(_, once)| **once);
        nodes.flat_map(|(node, _)| node.outputs.iter().copied()).filter(outside).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::Graph;

    const TEXT: &str = "graph g
input pixels: f32[2,3]
input x: f32[n,3]
weight w: f32[2,3]
weight v: f32[3,3]
scaled: f32[2,3] = silu(w)
rows: f32[2,3] = add(pixels, scaled)
other: f32[3,3] = silu(v)
image: f32[2,3] = silu(rows)
text: f32[n,3] = linear(x, other)
y: f32[n,2] = linear(text, image)
output y = y
";

    #[test]
    fn an_encoder_runs_once() {
        let graph = Graph::parse(TEXT).unwrap();
        let names = |graph: &Graph| -> Vec<String> {
            let nodes = graph.nodes().iter().zip(graph.loop_invariant_nodes());
            nodes.filter(|(_, once)| *once).map(|(node, _)| node.name.clone()).collect()
        };
        assert_eq!(names(&graph), ["scaled", "rows", "image"], "`other` belongs to the step");
        let kept: Vec<&str> =
            graph.cached_values().into_iter().map(|id| graph.value(id).name.as_str()).collect();
        assert_eq!(kept, ["image"]);
        let text_only =
            Graph::parse(&TEXT.replace("input pixels: f32[2,3]", "weight pixels: f32[2,3]")).unwrap();
        assert!(names(&text_only).is_empty());
    }
}
