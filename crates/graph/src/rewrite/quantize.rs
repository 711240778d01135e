//! `quantize`: chosen weights become packed ones. No rule of the list: it changes what is stored, and with it the numbers.

use crate::dtype::DType;
use crate::error::{Context, Error, Result};
use crate::graph::{Builder, Graph, Origin, TensorType, Value, ValueId};
use crate::op::{Dequantize, Op};
use crate::packing::Packing;

/// The graph whose weights that `choose` gives a packing for are of that dtype, under the same names. An operator that takes
/// no packed weight in its place gets it through a `dequantize`. Fails if the shape of a weight cannot be packed so.
pub fn quantize(graph: &Graph, choose: &dyn Fn(&Value) -> Option<Packing>) -> Result<Graph> {
    let mut rebuilt =
        Rebuilt { builder: Builder::new(graph.name()), values: Vec::new(), numbers: Vec::new() };
    for value in graph.values() {
        let id = match value.origin {
            Origin::Input => rebuilt.builder.input(&value.name, value.ty.clone())?,
            Origin::State(_) => rebuilt.builder.state(&value.name, value.ty.clone())?,
            // Only weights are packed: activations change in every run.
            Origin::Weight => {
                let ty = match choose(value) {
                    Some(packing) => {
                        packed_type(&value.ty, packing).context(|| format!("weight `{}`", value.name))?
                    }
                    None => value.ty.clone(),
                };
                rebuilt.builder.weight(&value.name, ty)?
            }
            Origin::Node { output: 0, node } => {
                let node = graph.node(node);
                let inputs: Vec<ValueId> = rebuilt.inputs(&node.op, &node.inputs)?;
                let names: Vec<String> = node.outputs.iter().map(|&v| graph.value(v).name.clone()).collect();
                let outputs = rebuilt.builder.node_multi(&node.name, node.op.clone(), &inputs, &names)?;
                rebuilt.values.extend(outputs);
                continue;
            }
            // Added with the node's first.
            Origin::Node { .. } => continue,
        };
        rebuilt.values.push(id);
    }
    for output in graph.outputs() {
        let value = rebuilt.new_value(output.value)?;
        rebuilt.builder.output(&output.name, value);
    }
    for state in graph.states() {
        let (before, after) = (rebuilt.new_value(state.input)?, rebuilt.new_value(state.output)?);
        rebuilt.builder.set_state(before, after)?;
    }
    rebuilt.builder.finish()
}

/// The type of a weight that is packed. Fails if it is no weight of floats, or if its rows are no whole groups.
fn packed_type(ty: &TensorType, packing: Packing) -> Result<TensorType> {
    if !ty.dtype.is_float() {
        return Err(Error::invalid(format!("{ty} holds no floats")));
    }
    // Whether the rows are whole groups.
    packing.sections(&ty.sizes(&crate::Symbols::new())?)?;
    Ok(TensorType { dtype: DType::Packed(packing), shape: ty.shape.clone() })
}

/// A graph under construction.
struct Rebuilt {
    /// The new graph so far.
    builder: Builder,
    /// What stands for each value of the old graph.
    values: Vec<ValueId>,
    /// Packed weights, and the numbers that they stand for where an operator wants these.
    numbers: Vec<(ValueId, ValueId)>,
}

impl Rebuilt {
    /// The value that stands for one of the old graph.
    fn new_value(&self, old: ValueId) -> Result<ValueId> {
        let found = self.values.get(old.0 as usize).copied();
        found.ok_or_else(|| Error::bug("the outputs of a node do not stand together"))
    }

    /// What an operator takes for these values of the old graph.
    fn inputs(&mut self, op: &Op, old: &[ValueId]) -> Result<Vec<ValueId>> {
        let mut inputs = Vec::with_capacity(old.len());
        for (index, &value) in old.iter().enumerate() {
            let value = self.new_value(value)?;
            let Value { name, ty, .. } = self.builder.value(value);
            let takes = ty.dtype.packing().is_none() || op.packed_inputs().contains(&index);
            let name = format!("{name}.numbers");
            inputs.push(match self.numbers.iter().find(|(packed, _)| *packed == value) {
                // One `dequantize` serves all operators that want the numbers.
                _ if takes => value,
                Some(&(_, numbers)) => numbers,
                None => {
                    let numbers = self.builder.node(name, Dequantize {}, &[value])?;
                    self.numbers.push((value, numbers));
                    numbers
                }
            });
        }
        Ok(inputs)
    }
}
