//! Operators that take the elements along axes together: sums, extrema, their places, running sums, determinants.
//!
//! Sums of floats are added one after the other in the precision of the call. What that costs is what
//! [`CallFacts::terms`] tells a verdict. Reductions of no elements give the neutral element, as the standard says.

use crate::array::{Array, axes, axis, axis_sizes, volume};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, elementwise_facts, exact, product, terms};
use crate::number::{Number, with_exact, with_number};
use crate::real::{Element, Real};
use std::cmp::Ordering;
use tapml_graph::{DType, Error, Result};

/// The axes that are reduced, from an attribute before version `since`, else from an input. All of them if none are given,
/// unless `noop_with_empty_axes`.
///
/// # Errors
/// If there is no such axis, or one is given twice.
fn reduced_axes(call: &Call<'_>, rank: usize, since: u32) -> Result<Vec<usize>> {
    let given = if call.version() < since { call.ints("axes")? } else { call.optional_integers(1)? };
    let none = call.flag("noop_with_empty_axes", false)?;
    match given {
        Some(given) if !given.is_empty() => axes(&given, rank),
        _ if none => Ok(Vec::new()),
        _ => Ok((0..rank).collect()),
    }
}

/// One number for the elements along the reduced axes.
///
/// Axes are an input from version `since` on. `f` is given all elements that become one, in row-major order.
fn reduce<T: Element>(call: &Call<'_>, since: u32, f: impl Fn(&[T]) -> T) -> Outputs {
    let x = call.array::<T>(0)?;
    let reduced = reduced_axes(call, x.rank(), since)?;
    let keeps = call.flag("keepdims", true)?;
    let (mut shape, mut order, mut count) = (Vec::new(), Vec::new(), 1);
    for (at, &size) in x.shape.iter().enumerate() {
        let is_reduced = reduced.contains(&at);
        if !is_reduced {
            order.push(at);
        }
        if is_reduced {
            count *= size;
        }
        if !is_reduced || keeps {
            shape.push(if is_reduced { 1 } else { size });
        }
    }
    // Reduced axes go to the end.
    order.extend(&reduced);
    // Behind this the elements that become one stand in a row.
    let x = x.transpose(&order);
    let data = (0..volume(&shape)?).map(|at| f(&x.data[at * count..(at + 1) * count])).collect();
    call.like_first(Array { shape, data })
}

/// First version in which the axes of most reductions are an input.
const AXES_ARE_INPUTS: u32 = 18;

/// `Σ x`.
pub fn sum(call: &Call<'_>) -> Outputs {
    fn run<T: Number>(call: &Call<'_>) -> Outputs {
        // `ReduceSum` moved its axes to an input in 13, five versions before the others.
        reduce::<T>(call, 13, |x| x.iter().fold(T::default(), |sum, &x| sum.plus(x)))
    }
    with_number!(call, call.dtype(0)?, T => run::<T>(call))
}

/// `Π x`.
pub fn prod(call: &Call<'_>) -> Outputs {
    fn run<T: Number>(call: &Call<'_>) -> Outputs {
        reduce::<T>(call, AXES_ARE_INPUTS, |x| x.iter().fold(T::one_value(), |product, &x| product.times(x)))
    }
    with_number!(call, call.dtype(0)?, T => run::<T>(call))
}

/// `Σ x²`.
pub fn sum_square(call: &Call<'_>) -> Outputs {
    fn run<T: Number>(call: &Call<'_>) -> Outputs {
        reduce::<T>(call, AXES_ARE_INPUTS, |x| x.iter().fold(T::default(), |sum, &x| sum.plus(x.times(x))))
    }
    with_number!(call, call.dtype(0)?, T => run::<T>(call))
}

/// `Σ |x|`.
pub fn l1(call: &Call<'_>) -> Outputs {
    match call.dtype(0)? {
        dtype if !dtype.is_float() => {
            reduce::<i128>(call, AXES_ARE_INPUTS, |x| x.iter().map(|x| x.abs()).sum())
        }
        _ if call.is_double() => reduce::<f64>(call, AXES_ARE_INPUTS, |x| x.iter().map(|x| x.abs()).sum()),
        _ => reduce::<f32>(call, AXES_ARE_INPUTS, |x| x.iter().map(|x| x.abs()).sum()),
    }
}

/// `Σ x / n`; of integers towards zero.
pub fn mean(call: &Call<'_>) -> Outputs {
    fn float<T: Real>(call: &Call<'_>) -> Outputs {
        reduce::<T>(call, AXES_ARE_INPUTS, |x| x.iter().copied().sum::<T>() / T::count(x.len()))
    }
    match call.dtype(0)? {
        dtype if !dtype.is_float() => {
            // No elements have no mean; the sum of none is 0.
            reduce::<i128>(call, AXES_ARE_INPUTS, |x| x.iter().sum::<i128>() / x.len().max(1) as i128)
        }
        _ if call.is_double() => float::<f64>(call),
        _ => float::<f32>(call),
    }
}

/// `√Σ x²`.
pub fn l2<T: Real>(call: &Call<'_>) -> Outputs {
    reduce::<T>(call, AXES_ARE_INPUTS, |x| x.iter().map(|&x| x * x).sum::<T>().sqrt())
}

/// `ln Σ x`.
pub fn log_sum<T: Real>(call: &Call<'_>) -> Outputs {
    reduce::<T>(call, AXES_ARE_INPUTS, |x| x.iter().copied().sum::<T>().ln())
}

/// `ln Σ eˣ`, with the greatest element taken out of the sum.
pub fn log_sum_exp<T: Real>(call: &Call<'_>) -> Outputs {
    reduce::<T>(call, AXES_ARE_INPUTS, |x| {
        let most = x.iter().copied().fold(T::neg_infinity(), T::max);
        // `−∞ − (−∞)` would be NaN.
        // Sums of zeros alone and of infinities keep their value.
        let most = if most.is_finite() { most } else { T::zero() };
        x.iter().map(|&x| (x - most).exp()).sum::<T>().ln() + most
    })
}

/// The greatest element; NaN if one is, the least number of the dtype if there are none.
pub fn max(call: &Call<'_>) -> Outputs {
    fn run<T: Number>(call: &Call<'_>, dtype: DType) -> Outputs {
        reduce::<T>(call, AXES_ARE_INPUTS, |x| x.iter().fold(T::bounds(dtype).0, |most, &x| most.greater(x)))
    }
    let dtype = call.dtype(0)?;
    with_exact!(dtype, T => run::<T>(call, dtype))
}

/// The least element; NaN if one is, the greatest number of the dtype if there are none.
pub fn min(call: &Call<'_>) -> Outputs {
    fn run<T: Number>(call: &Call<'_>, dtype: DType) -> Outputs {
        reduce::<T>(call, AXES_ARE_INPUTS, |x| x.iter().fold(T::bounds(dtype).1, |least, &x| least.lesser(x)))
    }
    let dtype = call.dtype(0)?;
    with_exact!(dtype, T => run::<T>(call, dtype))
}

/// Elements that are reduced to one: from the declared output if there is one, else from the axes that are attributes. All
/// elements if neither says it.
pub fn reduced_terms(sizes: &InputSizes<'_>) -> CallFacts {
    if elementwise_facts(sizes).exact {
        return exact(sizes);
    }
    let shape = sizes.shape(0);
    let all = product(shape);
    // Axes that are an input have no values here, but the declared output tells how many elements are left.
    let declared = sizes.op.outputs().first().and_then(tapml_graph::op::DeclaredType::ty);
    if let Some(ty) = declared {
        let kept = ty.shape.iter().filter_map(tapml_graph::Dim::as_const);
        let kept =
            kept.fold(1usize, |kept, size| kept.saturating_mul(usize::try_from(size).unwrap_or(usize::MAX)));
        return terms(all.checked_div(kept).unwrap_or(1));
    }
    match sizes.ints("axes") {
        Some(list) => {
            terms(list.iter().fold(1, |count: usize, &axis| count.saturating_mul(sizes.size(0, axis))))
        }
        None if sizes.int("noop_with_empty_axes", 0) != 0 && !sizes.has(1) => terms(1),
        None => terms(all),
    }
}

/// The place of the element that stands before all others in an order: the first of them, or the last.
fn place_of_best(call: &Call<'_>, wanted: Ordering) -> Outputs {
    fn run<T: Number>(call: &Call<'_>, wanted: Ordering) -> Outputs {
        let x = call.array::<T>(0)?;
        let at = axis(call.int_or("axis", 0)?, x.rank())?;
        let last = call.flag("select_last_index", false)?;
        let [before, size, behind] = axis_sizes(&x.shape, at);
        let mut shape = x.shape.clone();
        if call.flag("keepdims", true)? {
            shape[at] = 1;
        } else {
            shape.remove(at);
        }
        if size == 0 && volume(&shape)? > 0 {
            return Err(Error::invalid(format!("axis {at} of {:?} has no elements to choose from", x.shape)));
        }
        // A NaN is chosen before numbers, as NumPy does.
        let better = |a: T, b: T| match (a.is_nan(), b.is_nan()) {
            (true, true) => last,
            (true, false) => true,
            (false, true) => false,
            (false, false) => {
                a.partial_cmp(&b).is_some_and(|order| order == wanted || last && order == Ordering::Equal)
            }
        };
        let row = |outer: usize, inner: usize| {
            let value = |k: usize| x.data[(outer * size + k) * behind + inner];
            (1..size).fold(0, |best, k| if better(value(k), value(best)) { k } else { best }) as i64
        };
        let data = (0..before).flat_map(|outer| (0..behind).map(move |inner| (outer, inner)));
        let data = data.map(|(outer, inner)| row(outer, inner)).collect();
        call.single_output(Array { shape, data }, DType::I64)
    }
    with_exact!(call.dtype(0)?, T => run::<T>(call, wanted))
}

/// The place of the greatest element along an axis.
pub fn arg_max(call: &Call<'_>) -> Outputs {
    place_of_best(call, Ordering::Greater)
}

/// The place of the least element along an axis.
pub fn arg_min(call: &Call<'_>) -> Outputs {
    place_of_best(call, Ordering::Less)
}

/// Running results along an axis, from its end if `reverse`, without the element itself if `exclusive`.
///
/// `first` is the neutral element of `f`: with `exclusive` it is the first result.
fn scan_axis<T: Number>(call: &Call<'_>, first: T, f: impl Fn(T, T) -> T) -> Outputs {
    let mut x = call.array::<T>(0)?;
    let at = axis(call.integer(1)?, x.rank())?;
    let (reverse, exclusive) = (call.flag("reverse", false)?, call.flag("exclusive", false)?);
    let [before, size, behind] = axis_sizes(&x.shape, at);
    for (outer, inner) in (0..before).flat_map(|outer| (0..behind).map(move |inner| (outer, inner))) {
        let mut total = first;
        for step in 0..size {
            let k = if reverse { size - 1 - step } else { step };
            let element = &mut x.data[(outer * size + k) * behind + inner];
            let next = f(total, *element);
            *element = if exclusive { total } else { next };
            total = next;
        }
    }
    call.like_first(x)
}

/// Running sums.
pub fn cum_sum(call: &Call<'_>) -> Outputs {
    with_number!(call, call.dtype(0)?, T => scan_axis::<T>(call, T::default(), Number::plus))
}

/// Running products.
pub fn cum_prod(call: &Call<'_>) -> Outputs {
    with_number!(call, call.dtype(0)?, T => scan_axis::<T>(call, <T as Number>::one_value(), Number::times))
}

/// Terms of a running sum. The axis is an input, so that the longest one counts.
pub fn running_terms(sizes: &InputSizes<'_>) -> CallFacts {
    if elementwise_facts(sizes).exact {
        exact(sizes)
    } else {
        terms(sizes.shape(0).iter().copied().max().unwrap_or(1))
    }
}

/// Determinants of the matrices of the last two axes, by elimination with the greatest pivot of each column.
pub fn det<T: Real>(call: &Call<'_>) -> Outputs {
    let mut x = call.array::<T>(0)?;
    let n = match x.shape.as_slice() {
        [.., rows, columns] if rows == columns => *rows,
        shape => return Err(Error::invalid(format!("expected square matrices, found the shape {shape:?}"))),
    };
    let shape = x.shape[..x.rank() - 2].to_vec();
    let count = volume(&shape)?;
    let data = (0..count).map(|at| determinant(&mut x.data[at * n * n..(at + 1) * n * n], n)).collect();
    call.like_first(Array { shape, data })
}

/// The determinant of one matrix `[n, n]`, which is changed to its upper triangle. An empty one has the determinant 1.
fn determinant<T: Real>(a: &mut [T], n: usize) -> T {
    let mut result = T::one();
    for k in 0..n {
        let pivot =
            (k..n).fold(k, |best, i| if a[i * n + k].abs() > a[best * n + k].abs() { i } else { best });
        if pivot != k {
            (0..n).for_each(|j| a.swap(pivot * n + j, k * n + j));
            result = -result;
        }
        result = result * a[k * n + k];
        // The pivot is the largest of its column: all are zero, and so is the determinant.
        if a[k * n + k] == T::zero() {
            return T::zero();
        }
        for i in k + 1..n {
            let factor = a[i * n + k] / a[k * n + k];
            (k..n).for_each(|j| a[i * n + j] = a[i * n + j] - factor * a[k * n + j]);
        }
    }
    result
}

/// Terms of a determinant: as many as its matrix has rows.
pub fn det_terms(sizes: &InputSizes<'_>) -> CallFacts {
    terms(sizes.size(0, -1))
}
