//! Normalizations: means and variances over axes, scaled and shifted.
//!
//! Variances are those of the population, divided by the count itself, as all of these operators define them. `epsilon` is added
//! to the variance under the root, except in `MeanVarianceNormalization`.

use crate::array::{Array, StridedWalk, axis, axis_sizes, broadcast_strides, strides};
use crate::call::{CONVERT, Call, Outputs, element_type};
use crate::facts::{CallFacts, InputSizes, product, terms};
use crate::real::Real;
use tapml_graph::{DType, Error, Result};

/// Mean and population variance, by two passes: `E[x²] − E[x]²` would cancel where the mean is large.
pub fn moments<T: Real>(values: impl Iterator<Item = T> + Clone, count: usize) -> (T, T) {
    let count = T::count(count);
    let mean = values.clone().sum::<T>() / count;
    let variance = values.map(|v| (v - mean) * (v - mean)).sum::<T>() / count;
    (mean, variance)
}

/// Numbers of one channel each.
///
/// # Errors
/// If there are more or fewer than `channels`.
fn per_channel<T: Real>(call: &Call<'_>, place: usize, channels: usize) -> Result<Vec<T>> {
    let values = call.array::<T>(place)?.data;
    if values.len() == channels {
        Ok(values)
    } else {
        Err(Error::invalid(format!("input {place}: {} numbers for {channels} channels", values.len())))
    }
}

/// Channels of `[batch, channels, …]`, and the elements of each; a vector has one channel of one element.
fn channels(shape: &[usize]) -> Result<(usize, usize)> {
    match shape {
        [] => Err(Error::invalid("a tensor of rank 0 has no channels")),
        [_] => Ok((1, 1)),
        [_, channels, rest @ ..] => Ok((*channels, product(rest))),
    }
}

/// `BatchNormalization`; in training the mean and variance of this batch, and running ones as further outputs.
///
/// # Errors
/// Of kind `Unsupported` for `spatial` = 0 and for training before version 14.
pub fn batch<T: Real>(call: &Call<'_>) -> Outputs {
    let x = call.array::<T>(0)?;
    let epsilon = T::nearest(call.float_or("epsilon", 1e-5)?);
    let momentum = T::nearest(call.float_or("momentum", 0.9)?);
    // The modes changed: an attribute from 14 on, outputs from 7 on, `is_test` before.
    let training = match call.version() {
        14.. => call.flag("training_mode", false)?,
        7.. => call.output_places() > 1,
        _ => !call.flag("is_test", false)?,
    };
    call.ignore(&["consumed_inputs"]);
    if !call.flag("spatial", true)? {
        return Err(Error::unsupported("the attribute `spatial` = 0 is not served"));
    }
    if training && call.version() < 14 {
        let error = Error::unsupported("training is served from version 14 on");
        return Err(error.with_hint(format!("export the model for evaluation, or {CONVERT}")));
    }
    let (channels, image) = channels(&x.shape)?;
    let [scale, shift, mean, variance] = [1, 2, 3, 4].map(|place| per_channel::<T>(call, place, channels));
    let (scale, shift, mut mean, mut variance) = (scale?, shift?, mean?, variance?);
    let mut outputs = vec![None];
    if training {
        let batch = x.data.len() / (channels * image).max(1);
        let own = |channel: usize| {
            let values = (0..batch).flat_map(|n| &x.data[(n * channels + channel) * image..][..image]);
            moments(values.copied(), batch * image)
        };
        let (own_mean, own_variance): (Vec<T>, Vec<T>) = (0..channels).map(own).unzip();
        for (place, running, own) in [(3, mean, &own_mean), (4, variance, &own_variance)] {
            // `running · momentum + batch · (1 − momentum)`, which is the reverse of PyTorch's momentum.
            let mixed = running.iter().zip(own).map(|(&r, &o)| r * momentum + o * (T::one() - momentum));
            let mixed = Array { shape: vec![channels], data: mixed.collect() };
            outputs.push(Some(call.store(mixed, call.dtype(place)?)?));
        }
        // In training the batch is normalized by its own moments.
        (mean, variance) = (own_mean, own_variance);
    }
    let mut y = x;
    if image > 0 && channels > 0 {
        for (at, y) in y.data.chunks_mut(image).enumerate() {
            let c = at % channels;
            let root = (variance[c] + epsilon).sqrt();
            y.iter_mut().for_each(|y| *y = scale[c] * (*y - mean[c]) / root + shift[c]);
        }
    }
    outputs[0] = Some(call.store(y, call.dtype(0)?)?);
    Ok(outputs)
}

/// `y · scale + shift` for a scale and a shift that broadcast to `y`.
fn affine<T: Real>(y: &mut Array<T>, scale: Option<Array<T>>, shift: Option<Array<T>>) -> Result<()> {
    if let Some(scale) = scale {
        let places = StridedWalk::new(&y.shape, &broadcast_strides(&scale.shape, &y.shape)?);
        y.data.iter_mut().zip(places).for_each(|(y, at)| *y = *y * scale.data[at]);
    }
    if let Some(shift) = shift {
        let places = StridedWalk::new(&y.shape, &broadcast_strides(&shift.shape, &y.shape)?);
        y.data.iter_mut().zip(places).for_each(|(y, at)| *y += shift.data[at]);
    }
    Ok(())
}

/// Each row of `width` elements with its mean taken off, if `centred`, and divided by the root of its mean square and
/// `epsilon`. Gives the mean and the reciprocal root of each row.
///
/// `data` holds whole rows. The reciprocal root is what `LayerNormalization` gives as `InvStdDev`.
fn normalize_rows<T: Real>(data: &mut [T], width: usize, epsilon: T, centred: bool) -> (Vec<T>, Vec<T>) {
    let mut rows = (Vec::new(), Vec::new());
    for row in data.chunks_mut(width.max(1)) {
        let (mean, square) = if centred {
            moments(row.iter().copied(), width)
        } else {
            (T::zero(), row.iter().map(|&v| v * v).sum::<T>() / T::count(width))
        };
        let inverse = (square + epsilon).sqrt().recip();
        row.iter_mut().for_each(|v| *v = (*v - mean) * inverse);
        rows.0.push(mean);
        rows.1.push(inverse);
    }
    rows
}

/// The dtype that mean and deviation are stored in.
/// `stash_type`, which is `f32` by default even for inputs of 16 bits.
///
/// # Errors
/// If it is no float.
fn stash(call: &Call<'_>) -> Result<DType> {
    let dtype = element_type(call.int_or("stash_type", 1)?)?;
    if dtype.is_float() {
        Ok(dtype)
    } else {
        Err(Error::invalid(format!("attribute `stash_type`: {dtype} is no float")))
    }
}

/// `LayerNormalization` over the axes from `axis` on.
pub fn layer<T: Real>(call: &Call<'_>) -> Outputs {
    over_last_axes::<T>(call, true, 1e-5)
}

/// `RMSNormalization`, and `SimplifiedLayerNormalization` of ONNX Runtime.
pub fn rms<T: Real>(call: &Call<'_>) -> Outputs {
    over_last_axes::<T>(call, false, 1e-5)
}

/// Both normalizations over the axes from `axis` on. Scale and shift broadcast to the whole input.
///
/// Outputs behind the first: the mean if `centred`, and the reciprocal root, each with sizes of 1 along the axes.
fn over_last_axes<T: Real>(call: &Call<'_>, centred: bool, epsilon: f64) -> Outputs {
    let mut x = call.array::<T>(0)?;
    let axis = axis(call.int_or("axis", -1)?, x.rank())?;
    let epsilon = T::nearest(call.float_or("epsilon", epsilon)?);
    let stash = stash(call)?;
    let width = product(&x.shape[axis..]);
    let (mean, inverse) = normalize_rows(&mut x.data, width, epsilon, centred);
    let shift = if centred { call.optional_array(2)? } else { None };
    affine(&mut x, Some(call.array(1)?), shift)?;
    let mut shape = x.shape.clone();
    shape[axis..].fill(1);
    let mut outputs = vec![Some(call.store(x, call.dtype(0)?)?)];
    for (place, (kept, data)) in
        [(centred, mean), (true, inverse)].into_iter().filter(|(kept, _)| *kept).enumerate()
    {
        if kept && call.asks(place + 1) {
            outputs.push(Some(call.store(Array { shape: shape.clone(), data }, stash)?));
        } else {
            outputs.push(None);
        }
    }
    Ok(outputs)
}

/// `SkipLayerNormalization` of ONNX Runtime: the sum of two tensors and a bias, normalized over the last axis.
pub fn skip_layer<T: Real>(call: &Call<'_>) -> Outputs {
    skip::<T>(call, true)
}

/// `SkipSimplifiedLayerNormalization` of ONNX Runtime.
pub fn skip_rms<T: Real>(call: &Call<'_>) -> Outputs {
    skip::<T>(call, false)
}

/// Inputs: both tensors, the scale, the shift if `centred`, the bias. Outputs: the result, mean and reciprocal root of each row
/// in `f32`, and the sum before it is normalized.
fn skip<T: Real>(call: &Call<'_>, centred: bool) -> Outputs {
    let mut x = call.array::<T>(0)?;
    let epsilon = T::nearest(call.float_or("epsilon", 1e-12)?);
    let width = *x.shape.last().ok_or_else(|| Error::invalid("a tensor of rank 0 has no last axis"))?;
    affine(&mut x, None, Some(call.array(1)?))?;
    // The bias stands one place earlier without a shift.
    affine(&mut x, None, call.optional_array(if centred { 4 } else { 3 })?)?;
    // The sum is an output, before it is normalized.
    let sum = x.clone();
    let (mean, inverse) = normalize_rows(&mut x.data, width, epsilon, centred);
    let shift = if centred { call.optional_array(3)? } else { None };
    affine(&mut x, Some(call.array(2)?), shift)?;
    let mut shape = x.shape.clone();
    shape[x.shape.len() - 1..].fill(1);
    let dtype = call.dtype(0)?;
    let row = |data| call.store(Array { shape: shape.clone(), data }, DType::F32).map(Some);
    Ok(vec![Some(call.store(x, dtype)?), row(mean)?, row(inverse)?, Some(call.store(sum, dtype)?)])
}

/// `InstanceNormalization`: each channel of each of the batch by itself.
pub fn instance<T: Real>(call: &Call<'_>) -> Outputs {
    let mut x = call.array::<T>(0)?;
    let epsilon = T::nearest(call.float_or("epsilon", 1e-5)?);
    call.ignore(&["consumed_inputs"]);
    let (channels, image) = channels(&x.shape)?;
    let (scale, shift) = (per_channel::<T>(call, 1, channels)?, per_channel::<T>(call, 2, channels)?);
    if channels > 0 && image > 0 {
        normalize_rows(&mut x.data, image, epsilon, true);
        for (at, row) in x.data.chunks_mut(image).enumerate() {
            row.iter_mut().for_each(|v| *v = *v * scale[at % channels] + shift[at % channels]);
        }
    }
    call.like_first(x)
}

/// `GroupNormalization`; the scale is that of a group before version 21, that of a channel from it on.
pub fn group<T: Real>(call: &Call<'_>) -> Outputs {
    let mut x = call.array::<T>(0)?;
    let epsilon = T::nearest(call.float_or("epsilon", 1e-5)?);
    stash(call)?;
    let (channels, image) = channels(&x.shape)?;
    let groups = call.int_or("num_groups", 0)?;
    let groups = usize::try_from(groups).ok().filter(|&groups| groups > 0 && channels.is_multiple_of(groups));
    let groups = groups.ok_or_else(|| {
        Error::invalid(format!("attribute `num_groups` does not divide {channels} channels"))
    })?;
    // From 21 on a scale and a shift for each channel, as in PyTorch.
    let scaled = if call.version() < 21 { groups } else { channels };
    let (scale, shift) = (per_channel::<T>(call, 1, scaled)?, per_channel::<T>(call, 2, scaled)?);
    if channels > 0 && image > 0 {
        normalize_rows(&mut x.data, channels / groups * image, epsilon, true);
        for (at, row) in x.data.chunks_mut(image).enumerate() {
            // The group of a channel, or the channel itself.
            let at = at % channels * scaled / channels;
            row.iter_mut().for_each(|v| *v = *v * scale[at] + shift[at]);
        }
    }
    call.like_first(x)
}

/// `LRN`: `x / (bias + alpha / size · Σ x²)^beta` over `size` neighbouring channels.
///
/// # Errors
/// If `size` is not positive.
pub fn local_response<T: Real>(call: &Call<'_>) -> Outputs {
    let x = call.array::<T>(0)?;
    let alpha = T::nearest(call.float_or("alpha", 1e-4)?);
    let (beta, bias) = (T::nearest(call.float_or("beta", 0.75)?), T::nearest(call.float_or("bias", 1.0)?));
    let size = call.int_or("size", 0)?;
    let size = usize::try_from(size).ok().filter(|&size| size > 0 && size < 1 << 31);
    let size = size.ok_or_else(|| Error::invalid("attribute `size`: expected a positive integer"))?;
    let (channels, image) = channels(&x.shape)?;
    let mut y = x.clone();
    if image > 0 {
        for (at, y) in y.data.chunks_mut(image).enumerate() {
            let (n, c) = (at / channels, at % channels);
            // For even sizes one more channel behind than before, as the standard's `floor` and `ceil` have it.
            let near = c.saturating_sub((size - 1) / 2)..(c + size / 2 + 1).min(channels);
            for (place, y) in y.iter_mut().enumerate() {
                let value = |c: usize| x.data[(n * channels + c) * image + place];
                let sum = near.clone().map(|c| value(c) * value(c)).sum::<T>();
                *y = *y / (bias + alpha / T::count(size) * sum).powf(beta);
            }
        }
    }
    call.like_first(y)
}

/// `LpNormalization`: divided by the sum of absolute values or the root of squares along an axis; zeros stay zeros.
///
/// # Errors
/// If `p` is neither 1 nor 2.
pub fn lp<T: Real>(call: &Call<'_>) -> Outputs {
    let mut x = call.array::<T>(0)?;
    let axis = axis(call.int_or("axis", -1)?, x.rank())?;
    let square = match call.float_or("p", 2.0)? {
        1.0 => false,
        2.0 => true,
        other => return Err(Error::invalid(format!("attribute `p`: expected 1 or 2, found {other}"))),
    };
    let [before, size, behind] = axis_sizes(&x.shape, axis);
    for (outer, inner) in (0..before).flat_map(|outer| (0..behind).map(move |inner| (outer, inner))) {
        let places = (0..size).map(|at| (outer * size + at) * behind + inner);
        let norm = if square {
            places.clone().map(|at| x.data[at] * x.data[at]).sum::<T>().sqrt()
        } else {
            places.clone().map(|at| x.data[at].abs()).sum::<T>()
        };
        // The quotient would be NaN.
        if norm != T::zero() {
            places.for_each(|at| x.data[at] = x.data[at] / norm);
        }
    }
    call.like_first(x)
}

/// `MeanVarianceNormalization`: `(x − mean) / (deviation + 1e-9)` over `axes`.
pub fn mean_variance<T: Real>(call: &Call<'_>) -> Outputs {
    let x = call.array::<T>(0)?;
    let axes = crate::array::axes(&call.ints("axes")?.unwrap_or(vec![0, 2, 3]), x.rank())?;
    let (inner, outer): (Vec<usize>, Vec<usize>) = (0..x.rank()).partition(|axis| axes.contains(axis));
    let own = strides(&x.shape);
    // Axes that are reduced and those that are kept are walked apart, so that any set of axes is served.
    let walk = |axes: &[usize]| {
        let pick = |of: &[usize]| axes.iter().map(|&axis| of[axis]).collect::<Vec<usize>>();
        StridedWalk::new(&pick(&x.shape), &pick(&own)).collect::<Vec<usize>>()
    };
    let (inner, outer) = (walk(&inner), walk(&outer));
    let mut y = x.clone();
    for first in outer {
        let places = inner.iter().map(|place| first + place);
        let (mean, variance) = moments(places.clone().map(|at| x.data[at]), inner.len());
        // The constant is that of the function body in the standard: it is added to the deviation, not to the variance.
        let deviation = variance.sqrt() + T::nearest(1e-9);
        places.for_each(|at| y.data[at] = (x.data[at] - mean) / deviation);
    }
    call.like_first(y)
}

/// All but the batch and the channels.
pub fn image_terms(sizes: &InputSizes<'_>) -> CallFacts {
    terms(sizes.volume_from(0, 2))
}

/// All that a group has.
pub fn group_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let groups = usize::try_from(sizes.int("num_groups", 1)).unwrap_or(1).max(1);
    terms(sizes.volume_from(0, 1) / groups)
}

/// The axes from `axis` on.
pub fn layer_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let rank = sizes.shape(0).len();
    terms(axis(sizes.int("axis", -1), rank).map_or(1, |axis| sizes.volume_from(0, axis)))
}

/// `size` channels.
pub fn local_terms(sizes: &InputSizes<'_>) -> CallFacts {
    terms(usize::try_from(sizes.int("size", 1)).unwrap_or(1))
}

/// Every axis of `axes`.
pub fn axes_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let axes = sizes.ints("axes").unwrap_or(vec![0, 2, 3]);
    terms(product(&axes.into_iter().map(|axis| sizes.size(0, axis)).collect::<Vec<usize>>()))
}

/// In training the whole batch, else none.
pub fn batch_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let training = sizes.int("training_mode", 0) != 0;
    terms(if training { sizes.volume_from(0, 2).saturating_mul(sizes.size(0, 0)) } else { 1 })
}
