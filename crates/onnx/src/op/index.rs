//! Operators that take elements from places that an input gives, or put elements there.
//!
//! `Gather`, `GatherElements`, `GatherND`, `Compress`, `ScatterElements`, `ScatterND` and `TensorScatter`. Every index is checked
//! before anything is read or written with it: indices come from files.

use crate::array::{Array, axis, axis_sizes, strides, volume};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, exact, product, terms};
use crate::number::{Number, with_exact, with_number};
use crate::op::movement::gather as copy;
use tapml_graph::{DType, Error, Result};

/// An index along an axis of this size, counted from the end if it is negative.
///
/// # Errors
/// If it lies outside of the axis: the standard calls that an error, and targets may clamp or read anything.
fn place(index: i64, size: usize) -> Result<usize> {
    let counted = if index < 0 { index.checked_add(size as i64) } else { Some(index) };
    counted.and_then(|at| usize::try_from(at).ok()).filter(|&at| at < size).ok_or_else(|| {
        Error::invalid(format!(
            "index {index} along an axis of {size} elements: expected -{size} to {size} - 1"
        ))
    })
}

/// The slices of `data` along an axis at these indices: their axes stand in the place of the one.
pub fn gather(call: &Call<'_>) -> Outputs {
    let (data, indices) = (call.input(0)?, call.input(1)?);
    let at = axis(call.int_or("axis", 0)?, data.shape().len())?;
    let [before, size, behind] = axis_sizes(data.shape(), at);
    let list = call.integers(1)?.iter().map(|&index| place(index, size)).collect::<Result<Vec<usize>>>()?;
    let mut shape = data.shape().to_vec();
    shape.splice(at..=at, indices.shape().iter().copied());
    let total = volume(&shape)?;
    let list = &list;
    let rows = (0..before).flat_map(|outer| list.iter().map(move |&index| (outer * size + index) * behind));
    let places = rows.flat_map(|row| row..row + behind).take(total);
    call.one_moved(copy(data, shape.clone(), places)?)
}

/// For each element of `indices`, the place in `data` that has its own index, but the given one along an axis.
///
/// # Errors
/// If the ranks differ, or `indices` is larger than `data` along another axis than `at`.
fn places_along(data: &[usize], indices: &Array<i64>, at: usize) -> Result<Vec<usize>> {
    let fits = |axis: usize| axis == at || indices.shape[axis] <= data[axis];
    if indices.rank() != data.len() || !(0..data.len()).all(fits) {
        return Err(Error::invalid(format!("indices {:?} for {data:?} along axis {at}", indices.shape)));
    }
    let (own, steps) = (strides(&indices.shape), strides(data));
    let one = |(flat, &index): (usize, &i64)| {
        let others = (0..data.len()).filter(|&axis| axis != at);
        let rest: usize = others.map(|axis| flat / own[axis] % indices.shape[axis] * steps[axis]).sum();
        Ok(rest + place(index, data[at])? * steps[at])
    };
    indices.data.iter().enumerate().map(one).collect()
}

/// One element for each index along an axis.
pub fn gather_elements(call: &Call<'_>) -> Outputs {
    let data = call.input(0)?;
    let at = axis(call.int_or("axis", 0)?, data.shape().len())?;
    let indices = Array { shape: call.input(1)?.shape().to_vec(), data: call.integers(1)? };
    let places = places_along(data.shape(), &indices, at)?;
    call.one_moved(copy(data, indices.shape, places.into_iter())?)
}

/// Places of slices of `data`, each given by the last axis of `indices`, with the leading `batch` axes in common: their first
/// elements, and the elements of a slice.
///
/// # Errors
/// If the batch axes differ, an index has more numbers than `data` has axes left, or one lies outside.
fn slices(data: &[usize], indices: &Array<i64>, batch: usize) -> Result<(Vec<usize>, usize)> {
    let wrong =
        || Error::invalid(format!("indices {:?} for {data:?} with {batch} batch axes", indices.shape));
    let depth = *indices.shape.last().ok_or_else(wrong)?;
    let whole = batch.checked_add(depth).filter(|&whole| whole <= data.len()).ok_or_else(wrong)?;
    if indices.rank() <= batch || indices.shape[..batch] != data[..batch] {
        return Err(wrong());
    }
    let (steps, size) = (strides(data), product(&data[whole..]));
    let count = volume(&indices.shape[..indices.rank() - 1])?;
    // Rows of indices belong to their batch in equal shares; a batch of size 0 has none.
    let per_batch = count.checked_div(product(&data[..batch])).unwrap_or(0);
    let per_batch_size = product(&data[batch..]);
    let one = |row: usize| {
        let index = &indices.data[row * depth..(row + 1) * depth];
        let first = row.checked_div(per_batch).unwrap_or(0) * per_batch_size;
        index
            .iter()
            .enumerate()
            .try_fold(first, |sum, (k, &index)| Ok(sum + place(index, data[batch + k])? * steps[batch + k]))
    };
    Ok(((0..count).map(one).collect::<Result<Vec<usize>>>()?, size))
}

/// One slice of `data` for each row of `indices`.
pub fn gather_nd(call: &Call<'_>) -> Outputs {
    let data = call.input(0)?;
    let indices = Array { shape: call.input(1)?.shape().to_vec(), data: call.integers(1)? };
    // Leading axes that data and indices have in common.
    let batch = call.int_or("batch_dims", 0)?;
    let batch =
        usize::try_from(batch).map_err(|_| Error::invalid(format!("attribute `batch_dims`: {batch}")))?;
    let (firsts, size) = slices(data.shape(), &indices, batch)?;
    let depth = indices.shape[indices.rank() - 1];
    let mut shape = indices.shape[..indices.rank() - 1].to_vec();
    shape.extend(&data.shape()[batch + depth..]);
    let total = volume(&shape)?;
    let places = firsts.into_iter().flat_map(|first| first..first + size).take(total);
    call.one_moved(copy(data, shape.clone(), places)?)
}

/// `data` with updates put at places, or taken together with what stands there.
///
/// # Errors
/// If the attribute `reduction` has another value than `none`, `add`, `mul`, `max` or `min`.
fn put<T: Number>(call: &Call<'_>, reduction: &str, places: impl Iterator<Item = usize>) -> Outputs {
    let (mut data, updates) = (call.array::<T>(0)?, call.array::<T>(2)?);
    let together: fn(T, T) -> T = match reduction {
        "none" => |_, update| update,
        "add" => Number::plus,
        "mul" => Number::times,
        "max" => Number::greater,
        "min" => Number::lesser,
        other => {
            return Err(Error::invalid(format!(
                "attribute `reduction`: there is no `{}`",
                other.escape_debug()
            )));
        }
    };
    // In the order of the updates: of several at one place without a reduction the last one stays.
    for (at, &update) in places.zip(&updates.data) {
        data.data[at] = together(data.data[at], update);
    }
    call.like_first(data)
}

/// Refuses updates of another shape or dtype.
fn check_updates(call: &Call<'_>, expected: &[usize]) -> Result<()> {
    let (data, updates) = (call.input(0)?, call.input(2)?);
    if updates.shape() == expected && updates.dtype() == data.dtype() {
        Ok(())
    } else {
        let (dtype, shape) = (updates.dtype(), updates.shape());
        Err(Error::invalid(format!("updates {dtype}{shape:?}: expected {}{expected:?}", data.dtype())))
    }
}

/// An update for each index along an axis. Also `Scatter`, its name before version 11.
pub fn scatter_elements(call: &Call<'_>) -> Outputs {
    let shape = call.input(0)?.shape();
    let at = axis(call.int_or("axis", 0)?, shape.len())?;
    let reduction = call.text_or("reduction", "none")?;
    let indices = Array { shape: call.input(1)?.shape().to_vec(), data: call.integers(1)? };
    let places = places_along(shape, &indices, at)?;
    check_updates(call, &indices.shape)?;
    with_number!(call, call.dtype(0)?, T => put::<T>(call, reduction, places.into_iter()))
}

/// A slice of updates for each row of `indices`.
pub fn scatter_nd(call: &Call<'_>) -> Outputs {
    let shape = call.input(0)?.shape();
    let reduction = call.text_or("reduction", "none")?;
    let indices = Array { shape: call.input(1)?.shape().to_vec(), data: call.integers(1)? };
    let (firsts, size) = slices(shape, &indices, 0)?;
    let depth = indices.shape[indices.rank() - 1];
    check_updates(call, &[&indices.shape[..indices.rank() - 1], &shape[depth..]].concat())?;
    let places = firsts.into_iter().flat_map(|first| first..first + size);
    with_number!(call, call.dtype(0)?, T => put::<T>(call, reduction, places))
}

/// Exact unless updates are added or multiplied. So many may meet at one place.
fn scatter_facts(sizes: &InputSizes<'_>, updates: usize) -> CallFacts {
    let reduction = sizes.op.attributes().get("reduction").and_then(serde_json::Value::as_str);
    // `max` and `min` choose a number and round nothing.
    let rounds = matches!(reduction, Some("add" | "mul")) && sizes.dtype(0).is_some_and(DType::is_float);
    if rounds { terms(updates.saturating_add(1)) } else { exact(sizes) }
}

/// Updates of one place lie along the axis.
pub fn scatter_elements_facts(sizes: &InputSizes<'_>) -> CallFacts {
    scatter_facts(sizes, sizes.size(1, sizes.int("axis", 0)))
}

/// Any row of the indices may give the same place.
pub fn scatter_nd_facts(sizes: &InputSizes<'_>) -> CallFacts {
    let shape = sizes.shape(1);
    scatter_facts(sizes, product(&shape[..shape.len().saturating_sub(1)]))
}

/// A cache with new rows along an axis, from the place on that each of the batch gives; `circular` goes on at the beginning.
pub fn tensor_scatter(call: &Call<'_>) -> Outputs {
    let (cache, update) = (call.input(0)?.shape(), call.input(1)?);
    let at = axis(call.int_or("axis", -2)?, cache.len())?;
    let circular = match call.text_or("mode", "linear")? {
        "linear" => false,
        "circular" => true,
        other => {
            return Err(Error::invalid(format!("attribute `mode`: there is no `{}`", other.escape_debug())));
        }
    };
    let mut expected = cache.to_vec();
    expected[at] = update.shape().get(at).copied().unwrap_or(0);
    // Axis 0 is the batch, which cannot be the one that is written along.
    if at == 0 || update.dtype() != call.dtype(0)? || update.shape() != expected || expected[at] > cache[at] {
        return Err(Error::invalid(format!(
            "an update {:?} of a cache {cache:?} along axis {at}",
            update.shape()
        )));
    }
    // Without `write_indices` rows are written from the first on.
    let starts = call.optional_integers(2)?.unwrap_or_else(|| vec![0; cache[0]]);
    if starts.len() != cache[0] || starts.iter().any(|&start| start < 0) {
        let text = format!("write indices {starts:?}: expected {} of at least 0", cache[0]);
        return Err(Error::invalid(text));
    }
    let ([before, size, behind], rows) = (axis_sizes(cache, at), expected[at]);
    // Rows of one batch begin at one place.
    let per_batch = before.checked_div(cache[0]).unwrap_or(0);
    let mut firsts = Vec::with_capacity(before.saturating_mul(rows));
    for outer in 0..before {
        for row in 0..rows as i64 {
            let row = starts[outer / per_batch].saturating_add(row);
            let row = if circular { row.rem_euclid(size as i64) as usize } else { place(row, size)? };
            firsts.push((outer * size + row) * behind);
        }
    }
    fn run<T: Number>(call: &Call<'_>, firsts: &[usize], behind: usize) -> Outputs {
        let (mut cache, update) = (call.array::<T>(0)?, call.array::<T>(1)?);
        for (row, &first) in firsts.iter().enumerate() {
            cache.data[first..first + behind].copy_from_slice(&update.data[row * behind..(row + 1) * behind]);
        }
        call.like_first(cache)
    }
    with_exact!(call.dtype(0)?, T => run::<T>(call, &firsts, behind))
}

/// The slices along an axis whose truth is set; of all elements in a row without `axis`.
pub fn compress(call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let condition = call.array::<bool>(1)?.data;
    let (mut shape, at) = match call.int("axis")? {
        Some(given) => (x.shape().to_vec(), axis(given, x.shape().len())?),
        None => (vec![x.len()], 0),
    };
    let [before, size, behind] = axis_sizes(&shape, at);
    // A condition may be shorter than the axis: the rest is not kept.
    let kept: Vec<usize> = (0..condition.len()).filter(|&index| condition[index]).collect();
    if let Some(&index) = kept.iter().find(|&&index| index >= size) {
        return Err(Error::invalid(format!("condition {index} of an axis of {size} elements")));
    }
    shape[at] = kept.len();
    let kept = &kept;
    let rows = (0..before).flat_map(|outer| kept.iter().map(move |&index| (outer * size + index) * behind));
    let places = rows.flat_map(|row| row..row + behind);
    call.one_moved(copy(x, shape.clone(), places)?)
}
