//! Quantises the weights of a model: which ones ([`Scheme`]), and how the numbers become words and scales (`pack`). A packed
//! weight is made when somebody asks for it, so that a checkpoint of any size passes through.
//!
//! Quantisation needs no data: the error of each weight itself is made small. Which operators read a packed
//! weight is decided by the graph's rewrite.

mod choose;
mod pack;
mod scheme;
mod write;

pub use choose::{Class, Kept};
pub use scheme::{FORMS_HELP, Form, Scheme};
pub use write::{Written, write};

use tapml_graph::{Derived, Graph, Model, Result, rewrite};

/// The model with its weights quantised as `scheme` says, and what stays as it is. Fails if nothing can be quantised.
pub fn quantize(model: &Model, scheme: &Scheme) -> Result<(Model, Vec<Kept>)> {
    let (graph, kept) = quantize_graph(model.graph(), scheme)?;
    Ok((derive(model, graph)?, kept))
}

/// The graph that [`quantize`] gives a model of this graph, and what stays as it is: types alone, no value is needed.
pub fn quantize_graph(graph: &Graph, scheme: &Scheme) -> Result<(Graph, Vec<Kept>)> {
    let chosen = choose::choose(graph, scheme)?;
    let graph = rewrite::quantize(graph, &|weight| chosen.packings.get(&weight.name).copied())?;
    Ok((graph, chosen.kept))
}

/// The model under a graph whose weights may be packed: those that the model holds as numbers are made from these. A suite
/// that was carved from a quantised model gets its weights from the checkpoint in this way.
pub fn derive(model: &Model, graph: Graph) -> Result<Model> {
    let mut derived = Vec::new();
    for (_, value) in graph.weights() {
        let Some(packing) = value.ty.dtype.packing() else { continue };
        let Some(ty) = model.weight_type(&value.name).filter(|ty| ty.dtype.is_float()) else { continue };
        if ty.shape != value.ty.shape {
            continue;
        }
        let (source, weight) = (model.clone(), value.name.clone());
        let make = move || Ok(vec![pack::pack(&source.weight(&weight)?, packing)?]);
        derived.push((vec![value.name.clone()], Derived::new(vec![value.ty.clone()], make)));
    }
    model.derive_again(graph, derived)
}
