//! Quantises the weights of a model: which ones ([`Scheme`]), and how the numbers become words and scales (`pack`). Words
//! and scales are made when somebody asks for them, so that a checkpoint of any size passes through.

mod choose;
mod float;
mod pack;
mod scheme;
mod write;

pub use choose::{Class, Kept};
pub use scheme::{Form, Scheme};
pub use write::{Written, write};

use std::collections::HashMap;
use tapml_graph::op::Packing;
use tapml_graph::rewrite::{PART_NAMES, packed_types};
use tapml_graph::{Derived, Error, Graph, Model, Origin, Result, TensorType, rewrite};

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

/// The model under a graph that names the words and scales of some of its weights: those that the model lacks are made
/// from the weight of their name, packed as their types say. A suite that was carved from a quantised model gets its
/// weights from the checkpoint in this way.
pub fn derive(model: &Model, graph: Graph) -> Result<Model> {
    let mut derived = Vec::new();
    for (name, packing) in packings(&graph) {
        if graph.find_value(&name).is_some_and(|v| graph.value(v).origin == Origin::Weight) {
            return Err(Error::invalid(format!("`{name}` is a weight and has words of its own")));
        }
        let Some(ty) = model.weight_type(&name) else { continue };
        let names: Vec<String> = parts_of(&name, packing);
        if names.iter().all(|part| model.weight_type(part).is_some()) {
            continue;
        }
        let (source, weight) = (model.clone(), name.clone());
        let make = move || pack::pack(&source.weight(&weight)?, packing);
        derived.push((names, Derived::new(packed_types(&ty, packing)?, make)));
    }
    model.rederived(graph, derived)
}

/// Numbers that the weights of a graph stand for: those of a quantised weight count, its words and scales do not.
pub fn parameters(graph: &Graph) -> u64 {
    let packed = packings(graph);
    let mut sum = 0u64;
    for (_, weight) in graph.weights() {
        let elements = weight.ty.elements().and_then(|elements| elements.as_const()).unwrap_or(0);
        let part = weight.name.rsplit_once('.').and_then(|(name, part)| Some((packed.get(name)?, part)));
        let numbers = match part {
            Some((packing, "q")) => elements.saturating_mul(u64::from(packing.per_word())),
            Some((_, "scale" | "zero")) => 0,
            _ => elements,
        };
        sum = sum.saturating_add(numbers);
    }
    sum
}

/// The names of words, scales and zeros of a weight.
pub(crate) fn parts_of(weight: &str, packing: Packing) -> Vec<String> {
    PART_NAMES.iter().take(packing.parts()).map(|part| format!("{weight}.{part}")).collect()
}

/// How words and scales, and perhaps zeros, of these types are packed, if they can be those of one weight with rows of
/// `k` elements, which are numbers if `float`.
pub(crate) fn packing_of(
    k: u64,
    words: &TensorType,
    scales: &TensorType,
    zeros: bool,
    float: bool,
) -> Option<Packing> {
    let last = |ty: &TensorType| ty.shape.last()?.as_const().filter(|&size| size > 0);
    let bits = last(words)?.checked_mul(32)?.checked_div(k)?;
    let group = k.checked_div(last(scales)?)?;
    let packing = Packing { bits: bits.try_into().ok()?, group: group.try_into().ok()?, zeros, float };
    packing.check().is_ok().then_some(packing)
}

/// The weights of a graph that operators read as words and scales, with their packing.
pub(crate) fn packings(graph: &Graph) -> HashMap<String, Packing> {
    use tapml_graph::Op;
    let mut found = HashMap::new();
    for node in graph.nodes() {
        let packing = match &node.op {
            Op::Dequantize(op) => op.packing(),
            Op::QuantizedLinear(op) => op.packing(),
            Op::QuantizedGatedLinear(op) => op.packing(),
            Op::QuantizedEmbedding(op) => op.packing(),
            Op::QuantizedExpertLinear(op) => op.packing(),
            Op::QuantizedExpertGatedLinear(op) => op.packing(),
            _ => continue,
        };
        for &input in &node.inputs {
            let value = graph.value(input);
            if let (Origin::Weight, Some((name, "q"))) = (value.origin, value.name.rsplit_once('.')) {
                found.insert(name.to_string(), packing);
            }
        }
    }
    found
}
