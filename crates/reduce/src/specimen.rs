//! A node call on its way to a smaller one, and cutting it along an axis.
//!
//! A cut keeps the values of what remains. What a smaller call should give is not cut out of the old result but computed anew.

use crate::axis::{Axis, AxisPlace};
use crate::body::ForeignBody;
use std::collections::HashMap;
use tapml_exec::Call;
use tapml_graph::op::DeclaredType;
use tapml_graph::{Bytes, DType, Dim, Error, Op, Packing, Result, Tensor, TensorType};
use tapml_migrate::{Oracles, tensor_type};

/// A node call and which of its inputs are weights. Inputs that were cut have lost their weight's name, because they no
/// longer have its bytes; an oracle disturbs them as little as before. Those of an operator of others keep it: it says that
/// the input is a constant, of which a runtime may make another program.
#[derive(Clone, Debug)]
pub struct Specimen {
    /// The call.
    pub call: Call,
    /// For each input whether it is a weight.
    pub is_weight: Vec<bool>,
}

impl Specimen {
    /// The call as it was recorded.
    pub fn new(call: Call) -> Specimen {
        let is_weight = call.weights.iter().map(Option::is_some).collect();
        Specimen { call, is_weight }
    }

    /// Elements of all inputs, weights included.
    pub fn elements(&self) -> usize {
        self.call.inputs.iter().map(Tensor::len).sum()
    }

    /// What remains when only the indices `kept`, in rising order, are kept along the axis. Fails if the operator refuses
    /// the sizes that result. `oracles` find the outputs' types of an operator of others, by evaluating it.
    ///
    /// # Errors
    ///
    /// See above, packed rows that would lose parts of groups, and attributes that the operator does not take.
    pub fn cut(&self, axis: &Axis, kept: &[usize], oracles: &Oracles) -> Result<Specimen> {
        let mut cut = self.clone();
        let mut body = ForeignBody::from_call(&self.call);
        let foreign = body.is_some();
        let call = &mut cut.call;
        for place in &axis.inputs {
            let tensor = &mut call.inputs[place.tensor];
            let size = tensor.shape()[place.dim];
            *tensor = take(tensor, place.dim, &positions(place, axis.len, size, kept))?;
            // Without a name the oracle and the platform take the input as it is.
            if !foreign {
                call.weights[place.tensor] = None;
            }
            // Of a symbol the type stays: its value changes.
            if axis.symbol.is_none() {
                call.input_types[place.tensor].shape[place.dim] = Dim::from(tensor.shape()[place.dim]);
            }
        }
        if let Some(symbol) = axis.symbol {
            call.symbols = call.symbols.clone().with_symbol(symbol, kept.len() as u64);
        }
        if !axis.attributes.is_empty() {
            let mut attributes = body.as_ref().map_or_else(|| call.op.attributes(), ForeignBody::attributes);
            axis.attributes.iter().for_each(|a| a.keep(&mut attributes, axis.len, kept));
            match &mut body {
                Some(body) => body.set_attributes(&attributes)?,
                None => call.op = Op::parse(call.op.name(), attributes)?,
            }
        }
        for &(tensor, at) in &axis.values {
            let mut values = call.inputs[tensor].to_i64()?;
            if let Some(value) = values.get_mut(at) {
                *value = *value / axis.len as i64 * kept.len() as i64;
            }
            let (dtype, shape) = (call.inputs[tensor].dtype(), call.inputs[tensor].shape().to_vec());
            call.inputs[tensor] = Tensor::from_i64(dtype, shape, &values)?;
        }
        if let Some(body) = body {
            // Integers may be indices along the axis, or something else: what the operator takes as they are stays.
            // First with the integers as they are, then with those that may be indices moved.
            return cut.clone().inferred_as(body.clone(), oracles).or_else(|error| {
                let mut moved = cut.clone();
                let indices: Vec<usize> =
                    (0..moved.call.inputs.len()).filter(|&i| axis.may_be_indices(&moved.call, i)).collect();
                if indices.is_empty() {
                    return Err(error);
                }
                for i in indices {
                    moved.call.inputs[i] = renumber(&moved.call.inputs[i], axis.len, kept)?;
                }
                moved.inferred_as(body, oracles)
            });
        }
        // TapML's own operators have indices in U32 only.
        for i in axis.indexed_by(call) {
            call.inputs[i] = renumber(&call.inputs[i], axis.len, kept)?;
        }
        call.output_types = call.op.infer(&call.input_types)?;
        call.check()?;
        Ok(cut)
    }

    /// The same call with other values in one input.
    pub fn with_input(&self, input: usize, tensor: Tensor) -> Specimen {
        let mut changed = self.clone();
        changed.call.inputs[input] = tensor;
        if !changed.call.op.is_foreign() {
            changed.call.weights[input] = None;
        }
        changed
    }

    /// The operators of others within the call; `None` if it is of TapML's own.
    pub fn body(&self) -> Option<ForeignBody> {
        ForeignBody::from_call(&self.call)
    }

    /// The call with the types that its inputs have, and with those that its operators of others then give. Fails if one of them
    /// refuses its inputs.
    pub fn infer_types(self, oracles: &Oracles) -> Result<Specimen> {
        let body = self.body().ok_or_else(|| Error::bug("an operator with an inference"))?;
        self.inferred_as(body, oracles)
    }

    /// The same of the call with these operators in the place of its own. Inputs that they do not name are left out.
    ///
    /// # Errors
    ///
    /// An operator refuses its inputs, or a name has no value.
    pub fn inferred_as(mut self, body: ForeignBody, oracles: &Oracles) -> Result<Specimen> {
        let before = self.body().ok_or_else(|| Error::bug("an operator with an inference"))?;
        self.retain_inputs(&before, &body);
        let (body, types) = self.declare_types(body, oracles)?;
        let call = &mut self.call;
        call.input_types = call.inputs.iter().map(tensor_type).collect();
        call.op = body.op(&call.op, &call.input_types)?;
        call.output_types = types;
        call.check()?;
        Ok(self)
    }

    /// Leaves out the inputs that `body` does not name; `before` has the names of those that are there.
    fn retain_inputs(&mut self, before: &ForeignBody, body: &ForeignBody) {
        // From the last on, so that indices stay right.
        for at in (0..before.inputs.len()).rev().filter(|&at| !body.inputs.contains(&before.inputs[at])) {
            let call = &mut self.call;
            drop((call.inputs.remove(at), call.input_types.remove(at), call.weights.remove(at)));
            self.is_weight.remove(at);
        }
    }

    /// The operators with the types that each gives on what it is given here, and the types of what the call gives.
    fn declare_types(
        &self,
        mut body: ForeignBody,
        oracles: &Oracles,
    ) -> Result<(ForeignBody, Vec<TensorType>)> {
        let given = self.call.inputs.iter().cloned().zip(self.is_weight.iter().copied());
        let mut values: HashMap<String, (Tensor, bool)> = body.inputs.iter().cloned().zip(given).collect();
        let missing = |name: &String| Error::bug(format!("nothing makes `{name}`"));
        for part in &mut body.parts {
            let taken = part.inputs.iter().map(|name| values.get(name).cloned().ok_or_else(|| missing(name)));
            let (inputs, constants): (Vec<Tensor>, Vec<bool>) =
                taken.collect::<Result<Vec<_>>>()?.into_iter().unzip();
            let found = oracles.run(&part.op, &inputs, &constants)?;
            let mut rest = found.iter().map(tensor_type);
            let declare = |place: &DeclaredType| {
                if place.is_asked() {
                    rest.next().map(DeclaredType::As).ok_or_else(|| Error::bug("an output is missing"))
                } else {
                    Ok(DeclaredType::Absent)
                }
            };
            let declared = part.op.outputs().iter().map(declare).collect::<Result<_>>()?;
            part.op = part.op.with_outputs(declared)?;
            values.extend(part.outputs.iter().cloned().zip(found.into_iter().map(|made| (made, false))));
        }
        let ty = |name: &String| Ok(tensor_type(&values.get(name).ok_or_else(|| missing(name))?.0));
        let types = body.outputs.iter().map(ty).collect::<Result<_>>()?;
        Ok((body, types))
    }
}

/// Positions along a dimension of `size` that remain when only `kept` remains of the place.
/// Positions where the axis does not run all stay.
fn positions(place: &AxisPlace, len: usize, size: usize, kept: &[usize]) -> Vec<usize> {
    let mut keeps = vec![false; len];
    kept.iter().for_each(|&k| keeps[k] = true);
    (0..size).filter(|&at| place.index(len, at).is_none_or(|k| keeps[k])).collect()
}

/// The tensor with only these positions along one of its dimensions.
fn take(tensor: &Tensor, dim: usize, positions: &[usize]) -> Result<Tensor> {
    let mut shape = tensor.shape().to_vec();
    shape[dim] = positions.len();
    if let DType::Packed(packing) = tensor.dtype() {
        return take_packed(tensor, packing, shape, dim, positions);
    }
    // Bytes from one position to the next.
    let row = tensor.shape()[dim + 1..].iter().product::<usize>() * tensor.dtype().size();
    let bytes = take_bytes(tensor.bytes(), tensor.shape(), dim, row, positions);
    Tensor::new(tensor.dtype(), shape, Bytes::new(bytes))
}

/// As [`take`] section by section. Of a row whole groups remain; fails on anything else.
fn take_packed(
    tensor: &Tensor,
    packing: Packing,
    shape: Vec<usize>,
    dim: usize,
    positions: &[usize],
) -> Result<Tensor> {
    let last = dim + 1 == shape.len();
    let group = packing.group as usize;
    // A group shares a scale, so its elements cannot be separated.
    let whole = positions.chunks(group).all(|g| {
        g.len() == group && g[0].is_multiple_of(group) && g.windows(2).all(|two| two[1] == two[0] + 1)
    });
    if last && !whole {
        return Err(Error::unsupported(format!("parts of groups of {group} of a packed row")));
    }
    // Sections such as scales have one element per group.
    let groups: Vec<usize> = positions.iter().step_by(group).map(|at| at / group).collect();
    let sections = packing.sections(tensor.shape())?;
    let mut parts = Vec::with_capacity(sections.len());
    for (section, bytes) in sections.iter().zip(tensor.sections()?) {
        let row = section.columns * section.dtype.size();
        let mut sizes = tensor.shape().to_vec();
        parts.push(if last {
            sizes[dim] /= group;
            let of_group = row / sizes[dim].max(1);
            take_bytes(&bytes, &sizes, dim, of_group, &groups)
        } else {
            let inner = sizes[dim + 1..sizes.len() - 1].iter().product::<usize>();
            take_bytes(&bytes, &sizes, dim, inner * row, positions)
        });
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    Tensor::from_packed(packing, shape, &parts)
}

/// The bytes of these positions along a dimension, each of which has `row` bytes in every place of the dimensions before.
fn take_bytes(bytes: &[u8], shape: &[usize], dim: usize, row: usize, positions: &[usize]) -> Vec<u8> {
    let block = shape[dim] * row;
    let outer = shape[..dim].iter().product::<usize>();
    let mut taken = Vec::with_capacity(outer * positions.len() * row);
    for o in 0..outer {
        for &at in positions {
            let start = o * block + at * row;
            taken.extend_from_slice(&bytes[start..start + row]);
        }
    }
    taken
}

/// Indices into an axis of `len` after only `kept` remained of it: each to where its row is now, or to the next row that
/// remained if its own did not. What pointed beyond the axis still does.
fn renumber(tensor: &Tensor, len: usize, kept: &[usize]) -> Result<Tensor> {
    let (Some(last), gone) = (kept.len().checked_sub(1), len - kept.len()) else {
        return Err(Error::invalid("nothing is left to point at"));
    };
    let rank = |v: i64| match usize::try_from(v) {
        // What counts from the end still does.
        // Negative indices count from the end of the axis.
        Err(_) => v.max(-(kept.len() as i64)),
        // The distance beyond the end stays.
        Ok(at) if at >= len => (at - gone) as i64,
        Ok(at) => kept.partition_point(|&k| k < at).min(last) as i64,
    };
    let values: Vec<i64> = tensor.to_i64()?.into_iter().map(rank).collect();
    Tensor::from_i64(tensor.dtype(), tensor.shape().to_vec(), &values)
}

impl Axis {
    /// Whether the values of an input of an operator of others may be indices along this axis: integers that do not shrink
    /// with it themselves.
    fn may_be_indices(&self, call: &Call, input: usize) -> bool {
        let integers = matches!(call.inputs[input].dtype(), DType::I64 | DType::I32 | DType::U32);
        let other = !self.inputs.iter().any(|p| p.tensor == input) && !self.inputs.is_empty();
        integers && other && !self.values.iter().any(|(tensor, _)| *tensor == input)
    }

    /// The inputs whose values are indices along this axis: integers, where the axis runs along the rows of a constant
    /// number of an input of floats, such as token ids along the rows of an embedding table.
    fn indexed_by(&self, call: &Call) -> Vec<usize> {
        let of_rows = |p: &AxisPlace| {
            let tensor = &call.inputs[p.tensor];
            p.dim == 0 && tensor.dtype().is_float() && tensor.shape().len() > 1
        };
        if self.symbol.is_some() || !self.inputs.iter().any(of_rows) {
            return Vec::new();
        }
        let indices =
            |i: &usize| call.inputs[*i].dtype() == DType::U32 && !self.inputs.iter().any(|p| p.tensor == *i);
        (0..call.inputs.len()).filter(indices).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_positions_of_any_dimension() {
        let t = Tensor::from_f32(vec![2, 3, 2], (0..12).map(|i| i as f32).collect()).unwrap();
        let values = |dim, at: &[usize]| take(&t, dim, at).unwrap().to_f32().into_owned();
        assert_eq!(values(0, &[1]), [6.0, 7.0, 8.0, 9.0, 10.0, 11.0]);
        assert_eq!(values(1, &[0, 2]), [0.0, 1.0, 4.0, 5.0, 6.0, 7.0, 10.0, 11.0]);
        assert_eq!(values(2, &[1]), [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]);
        assert_eq!(take(&t, 0, &[]).unwrap().shape(), [0, 3, 2]);
    }

    #[test]
    fn a_place_may_be_a_part_of_a_dimension() {
        // Of six columns the first is no part; heads of two elements follow, of which the second goes.
        let place = AxisPlace { tensor: 0, dim: 1, start: 1, outer: 1, inner: 2 };
        assert_eq!(positions(&place, 2, 6, &[0]), [0, 1, 2, 5]);
        // Two groups of two: the second of each goes.
        let place = AxisPlace { tensor: 0, dim: 1, start: 0, outer: 2, inner: 1 };
        assert_eq!(positions(&place, 2, 4, &[0]), [0, 2]);
    }

    #[test]
    fn indices_follow_their_rows() {
        let ids = Tensor::from_u32(vec![5], vec![7, 3, 0, 9, 12]).unwrap();
        let moved = renumber(&ids, 10, &[3, 7]).unwrap().to_u32().unwrap();
        assert_eq!(moved, [1, 0, 0, 1, 4]);
        assert!(renumber(&ids, 10, &[]).is_err());
    }
}
