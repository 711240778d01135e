//! Pools: the largest, the mean or the norm of each window, or of each channel.
//!
//! Elements in the padding take no part: they are neither 0 nor −∞. Only `AveragePool` with `count_include_pad` counts them.

use crate::array::{Array, volume};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, product, terms};
use crate::real::{Element, Real, with_int};
use crate::window::{Windows, sizes};
use rayon::prelude::*;
use tapml_graph::{DType, Error, Result};

/// Batch and channels in one, and the windows over the rest.
///
/// # Errors
/// If batch or channels are missing, there is no `kernel_shape`, or a window does not fit.
fn windows(call: &Call<'_>, shape: &[usize]) -> Result<(usize, Windows)> {
    let spatial = shape
        .get(2..)
        .ok_or_else(|| Error::invalid(format!("a pool over {shape:?}: expected batch and channels")))?;
    if !call.has("kernel_shape") {
        return Err(Error::invalid("the attribute `kernel_shape` is missing"));
    }
    let kernel = sizes(call, "kernel_shape", spatial.len(), 1, 1)?;
    let windows = Windows::new(call, spatial, kernel, call.flag("ceil_mode", false)?)?;
    Ok((shape[0] * shape[1], windows))
}

/// The shape of a pool's result.
fn pooled_shape(shape: &[usize], windows: &Windows) -> Vec<usize> {
    [&shape[..2], windows.output.as_slice()].concat()
}

/// Calls `fold` for each element of each window of each channel, and gives what it made of `start`.
///
/// `fold` is given what it has made so far, the element, and the place of the element in its channel. Channels run in parallel;
/// within one, elements come in the order of the window.
fn fold<T: Element, A: Copy + Send + Sync>(
    x: &Array<T>,
    windows: &Windows,
    start: A,
    fold: impl Fn(A, T, usize) -> A + Sync,
) -> Result<Vec<A>> {
    let (places, image): (usize, usize) = (windows.output.iter().product(), windows.input.iter().product());
    // Batch and channels are alike for a pool.
    let channels = x.shape[0] * x.shape[1];
    let mut result = vec![start; volume(&[channels, places])?];
    if places > 0 && image > 0 {
        result.par_chunks_mut(places).zip(x.data.par_chunks(image)).for_each(|(result, x)| {
            windows.visit(|window, _, place| result[window] = fold(result[window], x[place], place));
        });
    }
    Ok(result)
}

/// `MaxPool`, with the places of what it chose if they are asked for.
pub fn max_pool(call: &Call<'_>) -> Outputs {
    fn max_pool_typed<T: Element>(call: &Call<'_>) -> Outputs {
        let x = call.array::<T>(0)?;
        let by_column = call.flag("storage_order", false)?;
        let (_, windows) = windows(call, &x.shape)?;
        let image: usize = windows.input.iter().product();
        // Of equal elements the first is chosen. A NaN stays only if nothing else is in the window.
        let best = fold(&x, &windows, None, |best, value, place| match best {
            Some((most, _)) if value <= most || value.partial_cmp(&value).is_none() => best,
            _ => Some((value, place)),
        })?;
        let shape = pooled_shape(&x.shape, &windows);
        let places = best.len() / (x.shape[0] * x.shape[1]).max(1);
        let mut data = Vec::with_capacity(best.len());
        let mut chosen = Vec::with_capacity(best.len());
        for (at, best) in best.into_iter().enumerate() {
            let (value, place) =
                best.ok_or_else(|| Error::unsupported("a window lies in the padding alone"))?;
            data.push(value);
            let place = if by_column { column_major(place, &windows.input) } else { place };
            // Indices count over the whole input: batch and channels stand in front.
            chosen.push((at / places * image + place) as i64);
        }
        let chosen = Array { shape: shape.clone(), data: chosen };
        Ok(vec![
            Some(call.store(Array { shape, data }, call.dtype(0)?)?),
            Some(call.store(chosen, DType::I64)?),
        ])
    }
    // The standard allows `i8` and `u8` beside floats; other integers do no harm.
    match call.dtype(0)? {
        dtype if !dtype.is_float() => with_int!(dtype, T => max_pool_typed::<T>(call)),
        _ if call.is_double() => max_pool_typed::<f64>(call),
        _ => max_pool_typed::<f32>(call),
    }
}

/// The place of an element if the first axis runs fastest.
fn column_major(mut place: usize, shape: &[usize]) -> usize {
    let mut index = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        index[axis] = place % shape[axis];
        place /= shape[axis];
    }
    (0..shape.len()).rev().fold(0, |place, axis| place * shape[axis] + index[axis])
}

/// `AveragePool`.
pub fn average_pool<T: Real>(call: &Call<'_>) -> Outputs {
    let x = call.array::<T>(0)?;
    let padded = call.flag("count_include_pad", false)?;
    let (_, windows) = windows(call, &x.shape)?;
    let sums = fold(&x, &windows, (T::zero(), 0usize), |(sum, count), value, _| (sum + value, count + 1))?;
    let counts = if padded { windows.padded_taps() } else { Vec::new() };
    // A window in the padding alone has a count of 0 and gives NaN, unless the padding counts.
    let mean = |(at, (sum, count)): (usize, (T, usize))| {
        sum / T::count(if padded { counts[at % counts.len()] } else { count })
    };
    let data = sums.into_iter().enumerate().map(mean).collect();
    call.like_first(Array { shape: pooled_shape(&x.shape, &windows), data })
}

/// `LpPool`: the p-norm of each window, `(Σ |x|^p)^(1/p)`.
pub fn lp_pool<T: Real>(call: &Call<'_>) -> Outputs {
    let x = call.array::<T>(0)?;
    let p = T::nearest(call.float_or("p", 2.0)?);
    let (_, windows) = windows(call, &x.shape)?;
    let sums = fold(&x, &windows, T::zero(), |sum, value, _| sum + value.abs().powf(p))?;
    let data = sums.into_iter().map(|sum| sum.powf(p.recip())).collect();
    call.like_first(Array { shape: pooled_shape(&x.shape, &windows), data })
}

/// One number for each channel of each of the batch.
///
/// # Errors
/// If there are fewer than two axes, or no elements in a channel.
fn global<T: Real>(call: &Call<'_>, f: impl Fn(&[T]) -> T) -> Outputs {
    let x = call.array::<T>(0)?;
    if x.rank() < 2 {
        return Err(Error::invalid(format!("a pool over {:?}: expected batch and channels", x.shape)));
    }
    let image: usize = x.shape[2..].iter().product();
    if image == 0 {
        return Err(Error::invalid(format!("a pool over the empty images of {:?}", x.shape)));
    }
    let mut shape = x.shape.clone();
    // Spatial axes stay, with sizes of 1.
    shape[2..].fill(1);
    call.like_first(Array { shape, data: x.data.chunks(image).map(f).collect() })
}

/// `GlobalAveragePool`.
pub fn global_average_pool<T: Real>(call: &Call<'_>) -> Outputs {
    global::<T>(call, |x| x.iter().copied().sum::<T>() / T::count(x.len()))
}

/// `GlobalMaxPool`.
pub fn global_max_pool<T: Real>(call: &Call<'_>) -> Outputs {
    global::<T>(call, |x| x.iter().copied().fold(T::neg_infinity(), T::max))
}

/// `GlobalLpPool`.
pub fn global_lp_pool<T: Real>(call: &Call<'_>) -> Outputs {
    let p = T::nearest(call.float_or("p", 2.0)?);
    global::<T>(call, |x| x.iter().map(|x| x.abs().powf(p)).sum::<T>().powf(p.recip()))
}

/// The elements of a window.
pub fn window_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let kernel = sizes.ints("kernel_shape").unwrap_or_default();
    let kernel: Vec<usize> = kernel.into_iter().map(|size| usize::try_from(size).unwrap_or(1)).collect();
    terms(product(&kernel))
}

/// The elements of a channel.
pub fn channel_terms(sizes: &InputSizes<'_>) -> CallFacts {
    terms(sizes.volume_from(0, 2))
}

/// `MaxUnpool`: the elements at the places that `MaxPool` chose, zeros elsewhere.
pub fn max_unpool<T: Real>(call: &Call<'_>) -> Outputs {
    let x = call.array::<T>(0)?;
    let places = call.integers(1)?;
    let spatial = x.shape.get(2..).ok_or_else(|| Error::invalid(format!("{:?} has no channels", x.shape)))?;
    let rank = spatial.len();
    let kernel = sizes(call, "kernel_shape", rank, 1, 1)?;
    let strides = sizes(call, "strides", rank, 1, 1)?;
    let pads = sizes(call, "pads", 2 * rank, 0, 0)?;
    let wrong = || Error::invalid(format!("padding {pads:?} is larger than the result"));
    let mut shape = x.shape[..2].to_vec();
    for axis in 0..rank {
        let full = spatial[axis].saturating_sub(1).saturating_mul(strides[axis]).saturating_add(kernel[axis]);
        shape.push(full.checked_sub(pads[axis] + pads[axis + rank]).ok_or_else(wrong)?);
    }
    // `output_shape` may be larger than the attributes give, because strides do not tell how far the last window reached.
    // The places count within the shape that the attributes give, also if the result is larger.
    let own = shape.clone();
    if let Some(told) = call.optional_integers(2)? {
        let size =
            |&size: &i64| usize::try_from(size).map_err(|_| Error::invalid(format!("a size of {size}")));
        shape = told.iter().map(size).collect::<Result<_>>()?;
    }
    let count = volume(&own)?;
    if shape.len() != own.len()
        || shape.iter().zip(&own).any(|(to, from)| to < from)
        || places.len() != x.data.len()
    {
        return Err(Error::invalid(format!("a result of {shape:?} for places in {own:?}")));
    }
    let mut y = Array::<T>::zeros(shape)?;
    let strides = crate::array::strides(&y.shape);
    for (&value, &place) in x.data.iter().zip(&places) {
        let place = usize::try_from(place).ok().filter(|&place| place < count);
        let mut place = place.ok_or_else(|| Error::invalid(format!("an index outside of {own:?}")))?;
        let mut at = 0;
        for axis in (0..own.len()).rev() {
            at += place % own[axis] * strides[axis];
            place /= own[axis];
        }
        y.data[at] = value;
    }
    call.like_first(y)
}
