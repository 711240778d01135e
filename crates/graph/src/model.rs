//! A model: a graph and the values of its weights.

use crate::dim::Symbols;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::tensor::Tensor;
use std::collections::HashMap;
use std::sync::Arc;

/// A graph with its weights. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Model {
    graph: Arc<Graph>,
    weights: Arc<HashMap<String, Tensor>>,
}

impl Model {
    /// Fails with a list of every weight that is missing or of another type than the graph says.
    /// Weights the graph does not name are ignored.
    pub fn new(graph: Graph, weights: HashMap<String, Tensor>) -> Result<Model> {
        let mut errors = Vec::new();
        for (_, value) in graph.weights() {
            match weights.get(&value.name) {
                None => errors.push(format!("weight `{}` ({}) is missing", value.name, value.ty)),
                Some(tensor) => {
                    let sizes = value.ty.sizes(&Symbols::new())?;
                    if tensor.dtype() != value.ty.dtype || tensor.shape() != sizes {
                        let (dtype, shape) = (tensor.dtype(), tensor.shape());
                        errors.push(format!(
                            "weight `{}`: expected {}, found {dtype}{shape:?}",
                            value.name, value.ty
                        ));
                    }
                }
            }
        }
        match errors.is_empty() {
            true => Ok(Model { graph: Arc::new(graph), weights: Arc::new(weights) }),
            false => Err(Error::invalid(errors.join("\n  "))),
        }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The value of a weight.
    pub fn weight(&self, name: &str) -> Result<&Tensor> {
        self.weights.get(name).ok_or_else(|| Error::invalid(format!("weight `{name}` is missing")))
    }

    /// The same weights under another graph, such as a rewritten one.
    pub fn with_graph(&self, graph: Graph) -> Result<Model> {
        let weights = self.weights.as_ref().clone();
        Model::new(graph, weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn graph() -> Graph {
        let text = "graph g\nweight a: f32[2]\nweight b: f32[2,3]\nc: f32[2,3] = silu(b)\noutput c = c\n";
        Graph::parse(text).unwrap()
    }

    #[test]
    fn every_missing_or_wrong_weight_is_told() {
        let transposed = Tensor::from_f32(vec![3, 2], vec![0.0; 6]).unwrap();
        let error = Model::new(graph(), HashMap::from([("b".into(), transposed)])).unwrap_err().to_string();
        assert!(error.contains("weight `a` (f32[2]) is missing"), "{error}");
        assert!(error.contains("weight `b`: expected f32[2,3], found f32[3, 2]"), "{error}");
        let narrow = Tensor::from_f64(DType::F16, vec![2], &[0.0; 2]).unwrap();
        let wide = Tensor::from_f32(vec![2, 3], vec![0.0; 6]).unwrap();
        let weights = HashMap::from([("a".into(), narrow), ("b".into(), wide)]);
        let error = Model::new(graph(), weights).unwrap_err().to_string();
        assert_eq!(error, "weight `a`: expected f32[2], found f16[2]");
    }

    #[test]
    fn a_rewritten_graph_keeps_the_weights_it_names() {
        let weight = |shape: Vec<usize>, len| Tensor::from_f32(shape, vec![1.0; len]).unwrap();
        let weights =
            [("a", weight(vec![2], 2)), ("b", weight(vec![2, 3], 6)), ("unnamed", weight(vec![1], 1))];
        let model = Model::new(graph(), weights.map(|(n, t)| (n.to_string(), t)).into()).unwrap();
        let fused = model.with_graph(crate::fuse(model.graph()).unwrap()).unwrap();
        assert!(fused.graph().find_value("a").is_none());
        assert_eq!(fused.weight("b").unwrap().shape(), [2, 3]);
        assert!(fused.weight("other").unwrap_err().to_string().contains("weight `other` is missing"));
    }
}
