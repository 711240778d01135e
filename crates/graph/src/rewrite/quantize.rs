//! `quantize`: chosen weights become `dequantize` of words and scales, which are weights in their place. No rule of the
//! list: it changes what is stored, and with it the numbers.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Context, Error, Result};
use crate::graph::{Builder, Graph, Origin, TensorType, Value, ValueId};
use crate::op::{Dequantize, Packing};

/// What stands behind the name of a weight in the names of its words, scales and zeros.
pub const PART_NAMES: [&str; 3] = ["q", "scale", "zero"];

/// The types of the words, scales and zeros of a weight of this type packed in this way. Fails if the weight is no matrix
/// or stack of matrices of floats, or if its rows are no whole groups.
pub fn packed_types(ty: &TensorType, packing: Packing) -> Result<Vec<TensorType>> {
    packing.check()?;
    let whole =
        ty.shape.last().and_then(Dim::as_const).filter(|k| k.is_multiple_of(u64::from(packing.group)));
    let (rows, k) = match (ty.shape.split_last(), whole) {
        (Some((_, rows)), Some(k)) if matches!(rows.len(), 1 | 2) && ty.dtype.is_float() => (rows, k),
        _ => {
            let text = format!("{ty} is no float matrix whose rows are whole groups of {}", packing.group);
            return Err(Error::invalid(text));
        }
    };
    let part = |dtype, last: u64| TensorType::new(dtype, rows.iter().cloned().chain([Dim::from(last)]));
    let groups = part(DType::F16, k / u64::from(packing.group));
    let words = part(DType::U32, k / u64::from(packing.per_word()));
    let all = [words, groups.clone(), groups];
    Ok(all.into_iter().take(packing.parts()).collect())
}

/// The graph whose weights that `choose` gives a packing for are `dequantize` of [`PART_NAMES`] below their name, in
/// [`packed_types`]. The value keeps the weight's name, and is f32: exact. Fails if an operator takes no weight of f32 in
/// its place, or if a weight is a result.
pub fn quantize(graph: &Graph, choose: &dyn Fn(&Value) -> Option<Packing>) -> Result<Graph> {
    let mut rebuilt = Rebuilt { builder: Builder::new(graph.name()), values: Vec::new() };
    for value in graph.values() {
        let id = match value.origin {
            Origin::Input => rebuilt.builder.input(&value.name, value.ty.clone())?,
            Origin::State(_) => rebuilt.builder.state(&value.name, value.ty.clone())?,
            Origin::Weight => match choose(value) {
                Some(packing) => {
                    rebuilt.packed(value, packing).context(|| format!("weight `{}`", value.name))?
                }
                None => rebuilt.builder.weight(&value.name, value.ty.clone())?,
            },
            Origin::Node { output: 0, node } => {
                let node = graph.node(node);
                let inputs: Vec<ValueId> =
                    node.inputs.iter().map(|&v| rebuilt.of(v)).collect::<Result<_>>()?;
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
        let value = rebuilt.of(output.value)?;
        rebuilt.builder.output(&output.name, value);
    }
    for state in graph.states() {
        let (before, after) = (rebuilt.of(state.input)?, rebuilt.of(state.output)?);
        rebuilt.builder.set_state(before, after)?;
    }
    rebuilt.builder.finish()
}

/// A graph under construction.
struct Rebuilt {
    builder: Builder,
    /// What stands for each value of the old graph.
    values: Vec<ValueId>,
}

impl Rebuilt {
    fn of(&self, old: ValueId) -> Result<ValueId> {
        let found = self.values.get(old.0 as usize).copied();
        found.ok_or_else(|| Error::bug("the outputs of a node do not stand together"))
    }

    fn packed(&mut self, weight: &Value, packing: Packing) -> Result<ValueId> {
        let types = packed_types(&weight.ty, packing)?;
        let parts = types.into_iter().zip(PART_NAMES);
        let parts = parts.map(|(ty, part)| self.builder.weight(format!("{}.{part}", weight.name), ty));
        let parts: Vec<ValueId> = parts.collect::<Result<_>>()?;
        self.builder.node(&weight.name, Dequantize::of(packing), &parts)
    }
}
