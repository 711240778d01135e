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
