//! Operators whose outputs are sums of products and nothing more: in which order such a sum is formed, chosen inputs can
//! tell.

/// The inputs of dot products: each element of the output is that of a row of one with a row of the other. Further inputs are
/// added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DotProduct {
    /// The place of the activations among the inputs.
    pub activations: usize,
    /// The place of the weights, with rows of the same length.
    pub weights: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::TensorType;
    use crate::op::OPS;

    #[test]
    fn the_rows_of_a_dot_product_are_of_one_length() {
        let mut found = Vec::new();
        for info in OPS {
            let samples = (info.samples)();
            let Some(of) = samples.first().and_then(|sample| sample.op.dot_product()) else { continue };
            for sample in &samples {
                let types: Vec<TensorType> = sample.inputs.iter().map(|input| input.ty.clone()).collect();
                let terms = |at: usize| types[at].shape.last().cloned();
                assert_eq!(sample.op.dot_product(), Some(of), "`{}` of `{}`", sample.name, info.name);
                assert_eq!(terms(of.activations), terms(of.weights), "`{}` of `{}`", sample.name, info.name);
            }
            found.push((info.name, of));
        }
        assert_eq!(found, [("linear", DotProduct { activations: 0, weights: 1 })]);
    }
}
