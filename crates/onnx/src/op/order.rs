//! Operators that order elements: the greatest of an axis (`TopK`), the distinct ones (`Unique`).
//!
//! Sorts are stable, so that equal elements keep the order of their places. Targets have to give the same places.

use crate::array::{Array, axis, axis_sizes, volume};
use crate::call::{Call, Outputs};
use crate::number::{Number, with_exact};
use crate::op::movement::gather;
use std::cmp::Ordering;
use tapml_graph::{DType, Error, Result};

/// The order of numbers, with NaN above all.
///
/// The order is total: two NaN are equal. −0 and 0 are equal, too.
fn compare<T: Number>(a: T, b: T) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// The `k` greatest elements along an axis, or the least, and their places; of equal ones the first. They are sorted even where
/// the operator leaves their order open. `k` is an attribute before version 10.
///
/// # Errors
/// If `k` is negative or greater than the axis.
pub fn top_k(call: &Call<'_>) -> Outputs {
    fn run<T: Number>(call: &Call<'_>) -> Outputs {
        let x = call.array::<T>(0)?;
        let k =
            if call.version() < 10 { call.require_attribute("k", call.int("k")?)? } else { call.integer(1)? };
        let at = axis(call.int_or("axis", -1)?, x.rank())?;
        let largest = call.flag("largest", true)?;
        // Whether the result has to be sorted; it always is.
        call.ignore(&["sorted"]);
        let [before, size, behind] = axis_sizes(&x.shape, at);
        let k = usize::try_from(k)
            .ok()
            .filter(|&k| k <= size)
            .ok_or_else(|| Error::invalid(format!("the first {k} of {size} elements along axis {at}")))?;
        let mut shape = x.shape.clone();
        shape[at] = k;
        let mut places = vec![0; volume(&shape)?];
        for (outer, inner) in (0..before).flat_map(|outer| (0..behind).map(move |inner| (outer, inner))) {
            let value = |index: usize| x.data[(outer * size + index) * behind + inner];
            let mut order: Vec<usize> = (0..size).collect();
            // The sort is stable.
            order.sort_by(
                |&a, &b| if largest { compare(value(b), value(a)) } else { compare(value(a), value(b)) },
            );
            order
                .iter()
                .take(k)
                .enumerate()
                .for_each(|(i, &index)| places[(outer * k + i) * behind + inner] = index);
        }
        let chosen = |(flat, &index): (usize, &usize)| {
            let (outer, inner) = (flat / behind / k, flat % behind);
            x.data[(outer * size + index) * behind + inner]
        };
        let values = places.iter().enumerate().map(chosen).collect();
        let values = call.store(Array { shape: shape.clone(), data: values }, call.dtype(0)?)?;
        let indices = Array { shape, data: places.into_iter().map(|index| index as i64).collect() };
        Ok(vec![Some(values), Some(call.store(indices, DType::I64)?)])
    }
    with_exact!(call.dtype(0)?, T => run::<T>(call))
}

/// The distinct elements, or slices along an axis: those, the first place of each, which of them each one is, how often each is
/// there. Sorted, or in the order of their first places.
///
/// # Errors
/// If there is no such axis.
pub fn unique(call: &Call<'_>) -> Outputs {
    fn run<T: Number>(call: &Call<'_>) -> Outputs {
        let (x, tensor) = (call.array::<T>(0)?, call.input(0)?);
        let (mut shape, at) = match call.int("axis")? {
            Some(given) => (x.shape.clone(), axis(given, x.rank())?),
            None => (vec![x.data.len()], 0),
        };
        let sorted = call.flag("sorted", true)?;
        let [before, size, behind] = axis_sizes(&shape, at);
        let element = |index: usize| {
            let inner =
                move |outer: usize| (0..behind).map(move |inner| (outer * size + index) * behind + inner);
            (0..before).flat_map(inner)
        };
        let order = |a: usize, b: usize| {
            // Slices are compared element by element, as words are in a dictionary.
            let pairs = element(a).zip(element(b)).map(|(a, b)| compare(x.data[a], x.data[b]));
            pairs.fold(Ordering::Equal, Ordering::then)
        };
        let mut all: Vec<usize> = (0..size).collect();
        all.sort_by(|&a, &b| order(a, b));
        // Equal ones are neighbours, the first place first.
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for index in all {
            match groups.last_mut() {
                Some(group) if order(group[0], index) == Ordering::Equal => group.push(index),
                _ => groups.push(vec![index]),
            }
        }
        // The place of the first of each group tells their order in the tensor.
        if !sorted {
            groups.sort_by_key(|group| group[0]);
        }
        let mut inverse = vec![0i64; size];
        for (number, group) in groups.iter().enumerate() {
            group.iter().for_each(|&index| inverse[index] = number as i64);
        }
        shape[at] = groups.len();
        let firsts: &Vec<usize> = &groups.iter().map(|group| group[0]).collect();
        let rows =
            (0..before).flat_map(|outer| firsts.iter().map(move |&index| (outer * size + index) * behind));
        let values = gather(tensor, shape.clone(), rows.flat_map(|row| row..row + behind))?;
        let list =
            |data: Vec<i64>| -> Result<_> { call.store(Array { shape: vec![data.len()], data }, DType::I64) };
        Ok(vec![
            Some(call.store_moved(values)?),
            Some(list(firsts.iter().map(|&index| index as i64).collect())?),
            Some(list(inverse)?),
            Some(list(groups.iter().map(|group| group.len() as i64).collect())?),
        ])
    }
    with_exact!(call.dtype(0)?, T => run::<T>(call))
}
