//! Functions that saturate: the exponentials that they are made of overflow far from zero, where the exact result is
//! finite. No recorded input reaches that far.

use crate::graph::{Graph, Origin, TensorType};

/// How a call is made whose inputs reach as far as their dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Each element of the output depends on the same element of the input, which takes any number.
    Any,
    /// Elements are sums over rows of the input: recorded rows, scaled.
    Scaled,
}

/// The input that decides how far a saturating function goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saturation {
    /// Its place among the inputs.
    pub input: usize,
    /// How it is made large.
    pub reach: Reach,
}

impl Saturation {
    /// That of an elementwise function.
    pub const ELEMENTWISE: Option<Saturation> = Some(Saturation { input: 0, reach: Reach::Any });

    /// That of the first saturating function within a graph, by the graph's input behind it.
    pub(crate) fn find_in_graph(body: &Graph) -> Option<Saturation> {
        let own = |node: &crate::graph::Node| {
            let types: Vec<TensorType> = node.inputs.iter().map(|&v| body.value(v).ty.clone()).collect();
            Some(node.inputs[node.op.saturation(&types)?.input])
        };
        let mut at = body.nodes().iter().find_map(own)?;
        // From the saturating function back to an input of the graph, by the inputs that decide sizes.
        while let Origin::Node { node, .. } = body.value(at).origin {
            let node = body.node(node);
            at = *node.inputs.get(node.op.size_from())?;
        }
        // A weight or a state is no input that can be made large.
        let input = body.inputs().position(|(id, _)| id == at)?;
        Some(Saturation { input, reach: Reach::Scaled })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::OPS;

    #[test]
    fn what_is_made_of_exponentials_declares_it_and_what_is_defined_by_such_inherits_it() {
        let mut found = Vec::new();
        for info in OPS {
            let reach = (info.samples)().iter().find_map(|sample| {
                let types: Vec<TensorType> = sample.inputs.iter().map(|input| input.ty.clone()).collect();
                sample.op.saturation(&types)
            });
            found.extend(reach.map(|how| (info.name, how.input, how.reach)));
        }
        found.sort_by_key(|(name, ..)| *name);
        assert_eq!(
            found,
            [
                ("attention", 0, Reach::Scaled),
                ("expert_gated_linear", 0, Reach::Scaled),
                ("gated_linear", 0, Reach::Scaled),
                ("gelu", 0, Reach::Any),
                ("paged_attention", 0, Reach::Scaled),
                ("sigmoid", 0, Reach::Any),
                ("silu", 0, Reach::Any),
                ("softcap", 0, Reach::Any),
                ("softplus", 0, Reach::Any),
                ("tanh", 0, Reach::Any),
            ]
        );
    }
}
