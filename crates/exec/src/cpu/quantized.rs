//! Nodes whose weights are packed, computed from the packed bytes: the numbers of a whole weight are never in memory.
//!
//! A packed row is unpacked into a small buffer, multiplied and forgotten.

use super::weights::{ConvertedWeights, PackedStack};
use std::sync::Arc;
use tapml_graph::op::Silu;
use tapml_graph::{Error, Graph, Model, Node, Op, Origin, Result, Symbols, ValueId};
use tapml_reference::{PackedRows, Value, eval};

/// A node with packed weights.
pub(super) struct Quantized {
    /// With its weights.
    kind: QuantizedKind,
    /// Inputs of the node that are no packed weights: the first, experts, the bias.
    pub inputs: Vec<ValueId>,
}

/// The operators that read packed weights.
enum QuantizedKind {
    /// Rows by id.
    Table(Arc<PackedStack>),
    /// One product.
    Linear(Arc<PackedStack>),
    /// Gate and up.
    Gated([Arc<PackedStack>; 2]),
    /// One matrix for each expert.
    Experts(Arc<PackedStack>),
    /// Gate and up of each expert.
    GatedExperts([Arc<PackedStack>; 2]),
}

impl Quantized {
    /// The node with its weights in the order of vectors; `None` if it is of another kind, if they are packed in a way that
    /// is unpacked as a whole, or if they are no weights of the model.
    pub fn from_node(node: &Node, model: &Model, shared: &ConvertedWeights) -> Result<Option<Quantized>> {
        let graph = model.graph();
        let weights = node.op.packed_inputs();
        let Some(packed) = node.inputs.get(weights.clone()).filter(|packed| !packed.is_empty()) else {
            return Ok(None);
        };
        // A packed value that is computed, and no weight, is left to the reference.
        let served = |&id: &ValueId| {
            let value = graph.value(id);
            value.origin == Origin::Weight && value.ty.dtype.packing().is_some_and(PackedRows::serves)
        };
        if !packed.iter().all(served) {
            return Ok(None);
        }
        let stacks = packed.iter().map(|&id| shared.get_packed(model, &graph.value(id).name));
        let stacks: Vec<Arc<PackedStack>> = stacks.collect::<Result<_>>()?;
        let mut inputs = node.inputs[..weights.start].to_vec();
        // What stands in front of the weights, then what stands behind.
        inputs.extend_from_slice(&node.inputs[weights.end..]);
        let kind = match (&node.op, stacks.as_slice()) {
            (Op::Embedding(_), [table]) => QuantizedKind::Table(table.clone()),
            (Op::Linear(_), [w]) => QuantizedKind::Linear(w.clone()),
            (Op::GatedLinear(_), [gate, up]) => QuantizedKind::Gated([gate.clone(), up.clone()]),
            (Op::ExpertLinear(_), [w]) => QuantizedKind::Experts(w.clone()),
            (Op::ExpertGatedLinear(_), [gate, up]) => QuantizedKind::GatedExperts([gate.clone(), up.clone()]),
            // Any other operator is computed from whole numbers.
            _ => return Ok(None),
        };
        Ok(Some(Quantized { kind, inputs }))
    }

    /// The node's output for the values of [`Quantized::inputs`].
    pub fn eval(&self, symbols: &Symbols, inputs: &[Value<f32>]) -> Result<Value<f32>> {
        let input = |i: usize| inputs.get(i).ok_or_else(|| Error::bug("an input is missing"));
        match &self.kind {
            QuantizedKind::Table(table) => rows_of(single_matrix(table)?, input(0)?.as_ids()?),
            QuantizedKind::Linear(w) => product(single_matrix(w)?, input(0)?, inputs.get(1)),
            QuantizedKind::Gated([gate, up]) => {
                let (gate, x) = (single_matrix(gate)?, input(0)?.as_float()?);
                let n = x.shape().first().copied().unwrap_or(0);
                Value::float(
                    vec![n, gate.rows()],
                    PackedRows::gated_product(gate, single_matrix(up)?, x.values(), n)?,
                )
            }
            QuantizedKind::Experts(w) => multiply_chosen(w, input(0)?, input(1)?, inputs.get(2)),
            QuantizedKind::GatedExperts([gate, up]) => {
                let (x, experts) = (input(0)?, input(1)?);
                multiply_gate(
                    symbols,
                    multiply_chosen(gate, x, experts, None)?,
                    multiply_chosen(up, x, experts, None)?,
                )
            }
        }
    }
}

/// The only matrix of a weight that is no stack.
fn single_matrix(stack: &PackedStack) -> Result<&PackedRows> {
    stack.first().ok_or_else(|| Error::bug("a weight without rows"))
}

/// `silu(gate) · up`.
fn multiply_gate(symbols: &Symbols, gate: Value<f32>, up: Value<f32>) -> Result<Value<f32>> {
    let mut silu = eval(&Silu {}.into(), symbols, &[gate])?;
    let gate = silu.pop().ok_or_else(|| Error::bug("silu gave nothing"))?;
    let (a, b) = (gate.as_float()?, up.as_float()?);
    let values = a.values().iter().zip(b.values()).map(|(a, b)| a * b).collect();
    Value::float(a.shape().to_vec(), values)
}

/// `x · wᵀ (+ b)`.
fn product(w: &PackedRows, x: &Value<f32>, bias: Option<&Value<f32>>) -> Result<Value<f32>> {
    let x = x.as_float()?;
    let n = x.shape().first().copied().unwrap_or(0);
    let mut y = w.times(x.values(), n)?;
    if let Some(bias) = bias {
        let bias = bias.as_float()?.values();
        for row in y.chunks_exact_mut(w.rows().max(1)) {
            row.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
        }
    }
    Value::float(vec![n, w.rows()], y)
}

/// Rows of a table.
fn rows_of(table: &PackedRows, ids: &[u32]) -> Result<Value<f32>> {
    let mut values = vec![0.0; ids.len() * table.k()];
    for (position, (&id, row)) in ids.iter().zip(values.chunks_exact_mut(table.k())).enumerate() {
        if id as usize >= table.rows() {
            let size = table.rows();
            let text = format!("id {id} at position {position} is outside the vocabulary of {size}");
            return Err(Error::invalid(text).with_hint("use the tokenizer that belongs to the checkpoint"));
        }
        table.unpack(id as usize, row);
    }
    Value::float(vec![ids.len(), table.k()], values)
}

/// For each slot of each row, its block of `x`, or the row if all slots share it, times the matrix of its expert.
fn multiply_chosen(
    stack: &PackedStack,
    x: &Value<f32>,
    experts: &Value<f32>,
    bias: Option<&Value<f32>>,
) -> Result<Value<f32>> {
    let &[n, slots] = experts.shape() else { return Err(Error::bug("experts of another rank")) };
    let (first, x) = (single_matrix(stack)?, x.as_float()?);
    let (k, outputs) = (first.k(), first.rows());
    // All slots of a row share one input, or each has a block of its own.
    let shared = x.row_len() == k;
    let mut places = vec![Vec::new(); stack.len()];
    for (place, &expert) in experts.as_ids()?.iter().enumerate() {
        let known = places.get_mut(expert as usize).ok_or_else(|| {
            let (row, slot, count) = (place / slots, place % slots, stack.len());
            Error::invalid(format!(
                "expert {expert} in slot {slot} of row {row} is none of the {count} experts"
            ))
        })?;
        known.push(place);
    }
    // Rows are gathered by expert, so that each matrix is unpacked one time.
    let used: Vec<(usize, Vec<usize>)> =
        places.into_iter().enumerate().filter(|(_, places)| !places.is_empty()).collect();
    let products = used.iter().map(|(expert, places)| {
        let row = |&place: &usize| {
            let at = if shared { place / slots } else { place } * k;
            &x.values()[at..at + k]
        };
        let gathered: Vec<f32> = places.iter().flat_map(row).copied().collect();
        stack[*expert].times(&gathered, places.len())
    });
    let products: Vec<Vec<f32>> = products.collect::<Result<_>>()?;
    let bias = bias.map(|bias| bias.as_float()).transpose()?;
    let mut values = vec![0.0; n * slots * outputs];
    for ((expert, places), product) in used.iter().zip(&products) {
        // Back to the places that the rows came from.
        for (&place, from) in places.iter().zip(product.chunks_exact(outputs)) {
            let to = &mut values[place * outputs..(place + 1) * outputs];
            to.copy_from_slice(from);
            if let Some(bias) = bias {
                let bias = &bias.values()[expert * outputs..(expert + 1) * outputs];
                to.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
            }
        }
    }
    Value::float(vec![n, slots * outputs], values)
}

/// Whether every use of each value is by a node of this kind, so that nobody needs it as numbers.
pub(super) fn only_packed(graph: &Graph, quantized: &[Option<Quantized>]) -> Vec<bool> {
    let mut packed = vec![true; graph.values().len()];
    let mut needed = |id: &ValueId| packed[id.0 as usize] = false;
    for (node, quantized) in graph.nodes().iter().zip(quantized) {
        match quantized {
            Some(quantized) => quantized.inputs.iter().for_each(&mut needed),
            None => node.inputs.iter().for_each(&mut needed),
        }
    }
    // A caller may ask for a weight as an output.
    graph.outputs().iter().for_each(|output| needed(&output.value));
    packed
}

#[cfg(test)]
mod tests {
    use crate::{CpuPlatform, Platform};
    use std::collections::HashMap;
    use tapml_graph::op::{OPS, Sample};
    use tapml_graph::{Builder, DType, Model, Tensor};
    use tapml_reference::{Value, eval};

    /// A model of this one call: what has constant sizes is a weight.
    fn model(sample: &Sample, tensors: &[Tensor]) -> (Model, HashMap<String, Tensor>) {
        let mut b = Builder::new("one");
        let (mut weights, mut inputs, mut values) = (HashMap::new(), HashMap::new(), Vec::new());
        for (i, (ty, tensor)) in sample.types().into_iter().zip(tensors).enumerate() {
            let name = format!("in{i}");
            let constant = ty.shape.iter().all(|dim| dim.as_const().is_some());
            values.push(if constant { b.weight(&name, ty).unwrap() } else { b.input(&name, ty).unwrap() });
            let to = if constant { &mut weights } else { &mut inputs };
            to.insert(name, tensor.clone());
        }
        let y = b.node("y", sample.op.clone(), &values).unwrap();
        b.output("y", y);
        (Model::new(b.finish().unwrap(), weights).unwrap(), inputs)
    }

    #[test]
    fn packed_nodes_compute_what_the_reference_does() {
        let (mut cases, mut platform) = (0, CpuPlatform::new());
        for info in OPS {
            let packed = |sample: &Sample| sample.types().iter().any(|ty| ty.dtype.packing().is_some());
            for sample in (info.samples)().into_iter().filter(packed) {
                let tensors = sample.tensors(7).unwrap();
                let (model, inputs) = model(&sample, &tensors);
                let mut loaded = platform.load(&model, &sample.symbols).unwrap();
                let y = &loaded.run(&sample.symbols, &inputs, None).unwrap()["y"];
                let exact: Vec<Value<f64>> = tensors.iter().map(|t| Value::from_tensor(t).unwrap()).collect();
                let exact = eval(&sample.op, &sample.symbols, &exact).unwrap();
                let exact = exact[0].as_float().unwrap().values();
                let size = exact.iter().fold(0.0f64, |size, v| size.max(v.abs()));
                let allowed = size * if y.dtype() == DType::F32 { 1e-5 } else { 1e-3 };
                for (at, (got, want)) in y.to_f32().iter().zip(exact).enumerate() {
                    let off = (f64::from(*got) - want).abs();
                    assert!(off <= allowed, "{} `{}` [{at}]: {got}, expected {want}", info.name, sample.name);
                }
                cases += 1;
            }
        }
        assert!(cases > 20, "{cases} cases");
    }

    #[test]
    fn weights_are_packed_once_for_all_graphs_that_name_them() {
        let info = OPS.iter().find(|info| info.name == "linear").unwrap();
        let packed = |sample: &Sample| sample.types()[1].dtype.packing().is_some();
        let sample = (info.samples)().into_iter().find(packed).unwrap();
        let (model, _) = model(&sample, &sample.tensors(1).unwrap());
        let shared = super::ConvertedWeights::default();
        let packed = |model: &Model| {
            let node = &model.graph().nodes()[0];
            match super::Quantized::from_node(node, model, &shared).unwrap().unwrap().kind {
                super::QuantizedKind::Linear(stack) => stack,
                _ => panic!("another kind"),
            }
        };
        assert!(std::sync::Arc::ptr_eq(&packed(&model), &packed(&model.clone())));
    }
}
