//! A model: a graph and the values of its weights.

use crate::derived::{Derived, Recent};
use crate::dim::Symbols;
use crate::error::{Context, Error, Result};
use crate::graph::{Graph, TensorType};
use crate::shard::WeightSlice;
use crate::tensor::Tensor;
use std::collections::HashMap;
use std::sync::Arc;

/// A graph with its weights. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Model {
    /// The graph.
    graph: Arc<Graph>,
    /// Its weights, shared by models with other graphs.
    weights: Arc<ModelWeights>,
}

/// Weights by name, as they are stored or as they are made.
#[derive(Debug, Default)]
struct ModelWeights {
    /// Weights that are there.
    given: HashMap<String, Tensor>,
    /// Weights that are made when they are asked for: what makes them, and which of its tensors they are.
    derived: HashMap<String, (Arc<Derived>, usize)>,
    /// What was made most recently.
    recent: Recent,
}

impl ModelWeights {
    /// Dtype and sizes of a weight.
    fn ty(&self, name: &str) -> Option<TensorType> {
        let of = |tensor: &Tensor| TensorType::new(tensor.dtype(), tensor.shape().iter().copied());
        self.given.get(name).map(of).or_else(|| {
            let (derived, part) = self.derived.get(name)?;
            derived.types().get(*part).cloned()
        })
    }

    /// See [`Model::weight`].
    fn tensor(&self, name: &str) -> Result<Tensor> {
        let ModelWeights { given, derived, recent } = self;
        if let Some(tensor) = given.get(name) {
            return Ok(tensor.clone());
        }
        match derived.get(name) {
            Some((derived, part)) => recent.get(derived, *part).context(|| format!("weight `{name}`")),
            None => Err(Error::invalid(format!("weight `{name}` is missing"))),
        }
    }
}

/// These weights, and those of the graph that are slices of them by their names.
fn with_slices(graph: &Graph, weights: Arc<ModelWeights>) -> Result<Arc<ModelWeights>> {
    let mut slices = Vec::new();
    for (_, value) in graph.weights().filter(|(_, value)| weights.ty(&value.name).is_none()) {
        let slice = WeightSlice::parse(&value.name);
        if let Some((slice, of)) = slice.and_then(|slice| weights.ty(&slice.of).map(|of| (slice, of))) {
            let ty = slice.ty(&of).context(|| format!("weight `{}`", value.name))?;
            slices.push((slice, ty));
        }
    }
    if slices.is_empty() {
        return Ok(weights);
    }
    let ModelWeights { given, derived, .. } = weights.as_ref();
    let mut all = ModelWeights { given: given.clone(), derived: derived.clone(), recent: Recent::default() };
    for (slice, ty) in slices {
        let (name, from) = (slice.name(), weights.clone());
        let derived = Derived::new(vec![ty], move || Ok(vec![slice.tensor(&from.tensor(&slice.of)?)?]));
        all.derived.insert(name, (Arc::new(derived), 0));
    }
    Ok(Arc::new(all))
}

impl Model {
    /// Fails with a list of every weight that is missing or of another type than the graph says.
    /// Weights the graph does not name are ignored.
    pub fn new(graph: Graph, weights: HashMap<String, Tensor>) -> Result<Model> {
        Model::with_derived(graph, weights, Vec::new())
    }

    /// As [`Model::new`] with further weights that are made when they are asked for: the names of all that one
    /// [`Derived`] makes, in its order. What it makes is held no longer than somebody uses it.
    pub fn with_derived(
        graph: Graph,
        weights: HashMap<String, Tensor>,
        derived: Vec<(Vec<String>, Derived)>,
    ) -> Result<Model> {
        Model::from_weights(graph, ModelWeights { given: weights, ..ModelWeights::default() }, derived)
    }

    /// These weights under another graph, of which some are made from others, or from those of the same name; see
    /// [`Model::with_derived`].
    pub fn derive_again(&self, graph: Graph, derived: Vec<(Vec<String>, Derived)>) -> Result<Model> {
        let ModelWeights { given, derived: known, .. } = self.weights.as_ref();
        let weights =
            ModelWeights { given: given.clone(), derived: known.clone(), recent: Recent::default() };
        Model::from_weights(graph, weights, derived)
    }

    /// Adds derived weights, which replace given ones of their names.
    fn from_weights(
        graph: Graph,
        mut weights: ModelWeights,
        derived: Vec<(Vec<String>, Derived)>,
    ) -> Result<Model> {
        for (names, derived) in derived {
            let derived = Arc::new(derived);
            // A derived weight takes the place of a given one of its name.
            names.iter().for_each(|name| drop(weights.given.remove(name)));
            let names = names.into_iter().enumerate();
            weights.derived.extend(names.map(|(part, name)| (name, (derived.clone(), part))));
        }
        Model::from_shared(graph, Arc::new(weights))
    }

    /// Checks that every weight of the graph is there with its type. Slices of weights are made when they are asked for.
    fn from_shared(graph: Graph, weights: Arc<ModelWeights>) -> Result<Model> {
        let weights = with_slices(&graph, weights)?;
        let mut errors = Vec::new();
        for (_, value) in graph.weights() {
            let expected = value.ty.bind(&Symbols::new())?;
            match weights.ty(&value.name) {
                None => errors.push(format!("weight `{}` ({}) is missing", value.name, value.ty)),
                // All wrong weights are told together.
                Some(found) if found != expected => {
                    errors.push(format!("weight `{}`: expected {}, found {found}", value.name, value.ty));
                }
                Some(_) => {}
            }
        }
        if errors.is_empty() {
            Ok(Model { graph: Arc::new(graph), weights })
        } else {
            Err(Error::invalid(errors.join("\n  ")))
        }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Dtype and sizes of a weight, whether the graph names it or not.
    pub fn weight_type(&self, name: &str) -> Option<TensorType> {
        self.weights.ty(name)
    }

    /// The value of a weight; made now if it is derived from others and nobody holds it. Fails if the model has none of
    /// this name, or if it cannot be made.
    pub fn weight(&self, name: &str) -> Result<Tensor> {
        self.weights.tensor(name)
    }

    /// The same weights under another graph, such as a rewritten one.
    pub fn with_graph(&self, graph: Graph) -> Result<Model> {
        Model::from_shared(graph, self.weights.clone())
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
        assert!(error.contains("weight `b`: expected f32[2,3], found f32[3,2]"), "{error}");
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
