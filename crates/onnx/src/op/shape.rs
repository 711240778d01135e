//! Operators on shapes: asked for, changed without moving an element, and tensors made of a shape alone.
//!
//! Nothing here rounds, except `Range` of floats.

use crate::array::{
    Array, MAX_ELEMENTS, StridedWalk, axes, axis, broadcast_shape, broadcast_strides, volume,
};
use crate::call::element_type;
use crate::call::{Call, Outputs};
use crate::number::{Number, with_exact};
use crate::op::movement::gather;
use crate::real::{Element, Real};
use tapml_graph::{DType, Error, Result, Tensor};

/// Sizes of an input of integers.
///
/// # Errors
/// If one is negative, or a tensor of them would have too many elements.
pub fn sizes(call: &Call<'_>, place: usize) -> Result<Vec<usize>> {
    let list = call.integers(place)?;
    let sizes = list.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<Vec<usize>>>();
    let sizes = sizes.ok_or_else(|| Error::invalid(format!("input {place}: {list:?} is no shape")))?;
    volume(&sizes)?;
    Ok(sizes)
}

/// The same elements in another shape of as many.
fn reshape_tensor(call: &Call<'_>, x: &Tensor, shape: Vec<usize>) -> Outputs {
    call.one_moved(Tensor::new(x.dtype(), shape, x.bytes().clone())?)
}

/// Sizes from the axis `start` up to `end`.
pub fn shape(call: &Call<'_>) -> Outputs {
    let shape = call.input(0)?.shape();
    let rank = shape.len() as i64;
    let place = |at: i64| if at < 0 { at.saturating_add(rank) } else { at }.clamp(0, rank) as usize;
    let (start, end) = (place(call.int_or("start", 0)?), place(call.int_or("end", rank)?));
    let data: Vec<i64> = shape.get(start..end).unwrap_or_default().iter().map(|&size| size as i64).collect();
    call.single_output(Array { shape: vec![data.len()], data }, DType::I64)
}

/// Count of elements.
pub fn size(call: &Call<'_>) -> Outputs {
    call.single_output(Array { shape: Vec::new(), data: vec![call.input(0)?.len() as i64] }, DType::I64)
}

/// The axes of an attribute before version 13, of an input from it on.
fn given_axes(call: &Call<'_>) -> Result<Option<Vec<i64>>> {
    if call.version() < 13 { call.ints("axes") } else { call.optional_integers(1) }
}

/// Axes of size 1 taken away: those given, or all.
///
/// # Errors
/// If a given axis has another size.
pub fn squeeze(call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let gone = match given_axes(call)? {
        Some(list) => axes(&list, x.shape().len())?,
        None => (0..x.shape().len()).filter(|&at| x.shape()[at] == 1).collect(),
    };
    if let Some(&at) = gone.iter().find(|&&at| x.shape()[at] != 1) {
        return Err(Error::invalid(format!("axis {at} of {:?} is not of size 1", x.shape())));
    }
    let kept = (0..x.shape().len()).filter(|at| !gone.contains(at));
    reshape_tensor(call, x, kept.map(|at| x.shape()[at]).collect())
}

/// Axes of size 1 put in, at places of the result.
///
/// # Errors
/// If an axis is given twice, or outside of the result.
pub fn unsqueeze(call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let list = call.require_attribute("axes", given_axes(call)?)?;
    // Sorted axes of the result: each is put in behind those before it.
    let new = axes(&list, x.shape().len() + list.len())?;
    let mut shape = x.shape().to_vec();
    new.iter().for_each(|&at| shape.insert(at, 1));
    reshape_tensor(call, x, shape)
}

/// A matrix: the axes before `axis` are its rows.
pub fn flatten(call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let (rank, at) = (x.shape().len(), call.int_or("axis", 1)?);
    // One axis more than there are is allowed: all axes are rows.
    let at = if at == rank as i64 { rank } else { axis(at, rank)? };
    let (rows, columns) = x.shape().split_at(at);
    reshape_tensor(call, x, vec![volume(rows)?, volume(columns)?])
}

/// The elements repeated to a shape that they broadcast with.
pub fn expand(call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let shape = broadcast_shape([x.shape(), &sizes(call, 1)?])?;
    volume(&shape)?;
    let places = StridedWalk::new(&shape, &broadcast_strides(x.shape(), &shape)?);
    call.one_moved(gather(x, shape.clone(), places)?)
}

/// One value in every place; 0 of `f32` by default.
pub fn constant_of_shape(call: &Call<'_>) -> Outputs {
    let value = call.tensor("value")?.map_or_else(|| Tensor::from_f32(vec![1], vec![0.0]), Ok)?;
    if value.len() != 1 {
        return Err(Error::invalid(format!(
            "attribute `value`: expected one element, found {}",
            value.len()
        )));
    }
    let shape = sizes(call, 0)?;
    // Every place reads the one element of `value`.
    let places = std::iter::repeat_n(0, volume(&shape)?);
    call.one_moved(gather(&value, shape, places)?)
}

/// `start + i·delta` for all `i` before `limit`.
///
/// # Errors
/// If there are more than 2³¹ elements, or integers with steps of 0.
pub fn range(call: &Call<'_>) -> Outputs {
    fn floats<T: Real>(call: &Call<'_>, count: usize) -> Outputs {
        let (start, delta): (T, T) = (call.number(0)?, call.number(2)?);
        let data = (0..count).map(|i| start + T::count(i) * delta).collect();
        call.like_first(Array { shape: vec![count], data })
    }
    let bounded = |count: f64| match count.max(0.0) {
        count if count <= MAX_ELEMENTS as f64 => Ok(count as usize),
        count => Err(Error::invalid(format!("a range of {count} elements: expected at most 2^31"))),
    };
    // Sources take the last two from here on; none of the attributes changes what is computed in `f32` or `f64`.
    call.ignore(&["stash_type"]);
    if call.dtype(0)?.is_float() {
        let (start, limit, delta): (f64, f64, f64) = (call.number(0)?, call.number(1)?, call.number(2)?);
        let count = bounded(((limit - start) / delta).ceil())?;
        return if call.is_double() { floats::<f64>(call, count) } else { floats::<f32>(call, count) };
    }
    let [start, limit, delta] = [0, 1, 2].map(|place| call.integer(place).map(i128::from));
    let (start, limit, delta) = (start?, limit?, delta?);
    let span = if delta < 0 { start - limit } else { limit - start };
    // Widened to 128 bits, so that no difference of two inputs overflows.
    let step = usize::try_from(delta.unsigned_abs()).unwrap_or(usize::MAX) as i128;
    if step == 0 {
        return Err(Error::invalid("a range with steps of 0 has no end"));
    }
    let count = bounded(((span.max(0) + step - 1) / step) as f64)?;
    let data = (0..count).map(|i| start + i as i128 * delta).collect();
    call.like_first(Array { shape: vec![count], data })
}

/// 1 on the diagonal `k` of a matrix, 0 elsewhere.
pub fn eye_like(call: &Call<'_>) -> Outputs {
    fn run<T: Number>(call: &Call<'_>, dtype: DType) -> Outputs {
        let shape = match call.input(0)?.shape() {
            &[rows, columns] => vec![rows, columns],
            shape => return Err(Error::invalid(format!("expected a matrix, found the shape {shape:?}"))),
        };
        let k = call.int_or("k", 0)?;
        let mut eye = Array::<T>::zeros(shape)?;
        for row in 0..eye.shape[0] {
            let column = (row as i64).checked_add(k).and_then(|column| usize::try_from(column).ok());
            if let Some(column) = column.filter(|&column| column < eye.shape[1]) {
                eye.data[row * eye.shape[1] + column] = T::one_value();
            }
        }
        call.single_output(eye, dtype)
    }
    let dtype = call.int("dtype")?.map_or_else(|| call.dtype(0), element_type)?;
    with_exact!(dtype, T => run::<T>(call, dtype))
}

/// 1 where the index of an element says so along a new axis, else 0: `values` holds the number for 0 and the one for 1.
/// Negative indices count from the end; others outside give 0 everywhere.
///
/// # Errors
/// If the depth is negative or too large, or there are not two values.
pub fn one_hot(call: &Call<'_>) -> Outputs {
    let indices = call.array_of_places(0)?;
    let values = call.input(2)?;
    let depth = call.number::<f64>(1)?;
    if !(depth >= 0.0 && depth <= MAX_ELEMENTS as f64) || values.len() != 2 {
        let text = format!(
            "a depth of {depth} with {} values: expected 2 values and a depth up to 2^31",
            values.len()
        );
        return Err(Error::invalid(text));
    }
    let depth = depth as usize;
    let at = axis(call.int_or("axis", -1)?, indices.rank() + 1)?;
    let mut shape = indices.shape.clone();
    shape.insert(at, depth);
    let total = volume(&shape)?;
    let behind: usize = shape[at + 1..].iter().product();
    let places = (0..total).map(|place| {
        let (outer, k, inner) = (place / behind / depth, place / behind % depth, place % behind);
        let index = indices.data[outer * behind + inner];
        // A negative index that stays negative equals no place.
        let index = if index < 0 { index.saturating_add(depth as i64) } else { index };
        usize::from(index == k as i64)
    });
    call.one_moved(gather(values, shape, places)?)
}

impl Call<'_> {
    /// Indices: integers, or floats that are truncated.
    pub fn array_of_places(&self, place: usize) -> Result<Array<i64>> {
        let tensor = self.input(place)?;
        let data = if tensor.dtype().is_float() {
            tensor.to_f64().into_iter().map(|value| value as i64).collect()
        } else {
            self.integers(place)?
        };
        Ok(Array { shape: tensor.shape().to_vec(), data })
    }
}

/// The places of all elements that are not zero, one column each.
/// The result is `[rank, count]`.
pub fn non_zero(call: &Call<'_>) -> Outputs {
    fn run<T: Element>(call: &Call<'_>) -> Outputs {
        let x = call.array::<T>(0)?;
        let found: Vec<usize> = (0..x.data.len()).filter(|&at| x.data[at] != T::default()).collect();
        let strides = crate::array::strides(&x.shape);
        let index = |axis: usize, at: usize| (at / strides[axis] % x.shape[axis]) as i64;
        let rank = x.rank();
        // Transposed: a row for each axis, in the order of the elements.
        let data = (0..rank).flat_map(|axis| found.iter().map(move |&at| (axis, at)));
        let data = data.map(|(axis, at)| index(axis, at)).collect();
        call.single_output(Array { shape: vec![rank, found.len()], data }, DType::I64)
    }
    with_exact!(call.dtype(0)?, T => run::<T>(call))
}

/// Elements of the lower or the upper triangles of the matrices in the last two axes, 0 elsewhere.
///
/// `k` moves the diagonal that stays to the right.
pub fn trilu(call: &Call<'_>) -> Outputs {
    fn run<T: Number>(call: &Call<'_>) -> Outputs {
        let mut x = call.array::<T>(0)?;
        let (rows, columns) = match x.shape.as_slice() {
            [.., rows, columns] => (*rows, *columns),
            shape => return Err(Error::invalid(format!("expected matrices, found the shape {shape:?}"))),
        };
        let upper = call.flag("upper", true)?;
        let k = if call.optional(1).is_some() { call.integer(1)? } else { 0 };
        for (at, value) in x.data.iter_mut().enumerate() {
            let (row, column) = (at / columns % rows, at % columns);
            // Widened, because `k` may be any integer of 64 bits.
            let over = column as i128 - row as i128 - i128::from(k);
            if if upper { over < 0 } else { over > 0 } {
                *value = T::default();
            }
        }
        call.like_first(x)
    }
    with_exact!(call.dtype(0)?, T => run::<T>(call))
}

/// Rows along the axis of time turned in order up to a length for each of the batch.
///
/// # Errors
/// If a length is greater than the axis of time, or both axes are one.
pub fn reverse_sequence(call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let (batch, time) = (call.int_or("batch_axis", 1)?, call.int_or("time_axis", 0)?);
    let (batch, time) = (axis(batch, x.shape().len())?, axis(time, x.shape().len())?);
    let lengths = sizes(call, 1)?;
    let long = lengths.iter().any(|&length| length > x.shape()[time]);
    if batch == time || lengths.len() != x.shape()[batch] || long {
        let text =
            format!("lengths {lengths:?} for {:?} with batch axis {batch} and time axis {time}", x.shape());
        return Err(Error::invalid(text));
    }
    let strides = crate::array::strides(x.shape());
    let places = (0..x.len()).map(|at| {
        let index = |axis: usize| at / strides[axis] % x.shape()[axis];
        let (step, length) = (index(time), lengths[index(batch)]);
        if step < length { at - step * strides[time] + (length - 1 - step) * strides[time] } else { at }
    });
    call.one_moved(gather(x, x.shape().to_vec(), places)?)
}
