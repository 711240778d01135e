//! Operators that read between the elements of images: `GridSample`, `AffineGrid`, `DeformConv`, `RoiAlign`, and `Col2Im` and
//! `CenterCropPad`, which read at elements alone.
//!
//! Places are computed in `f64` for `f32` too: which neighbours a place has is part of the operator's meaning.

use super::conv::add_bias;
use crate::array::{Array, StridedWalk, strides, volume};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, terms};
use crate::product::{Gemm, Matrix, multiply};
use crate::real::Real;
use crate::window::{Windows, advance, sizes};
use tapml_graph::{Error, Result};

/// What lies outside of an image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Padding {
    /// Zeros.
    Zeros,
    /// The nearest element of the border.
    Border,
    /// The image, reflected at its borders as often as needed.
    Reflection,
}

/// Reflects a place at the borders until it lies between them.
///
/// The image repeats after twice its range; an image of one element has only itself.
fn reflect(x: f64, least: f64, most: f64) -> f64 {
    let range = most - least;
    if range <= 0.0 {
        return least;
    }
    let distance = (x - least).rem_euclid(2.0 * range);
    least + if distance > range { 2.0 * range - distance } else { distance }
}

/// An axis of an image.
#[derive(Clone, Copy)]
struct ImageAxis {
    /// Elements along it.
    size: usize,
    /// Where it is reflected: at the centres of the outermost elements, or at their outer edges half an element further.
    least: f64,
    /// The other end.
    most: f64,
}

impl Padding {
    /// The element at a whole place; `None` where there is a zero.
    ///
    /// Reflection is bounded once more, as the border of half an element rounds to an element outside.
    fn element(self, axis: ImageAxis, at: f64) -> Option<usize> {
        let last = axis.size as f64 - 1.0;
        match self {
            Padding::Zeros => (0.0..=last).contains(&at).then_some(at as usize),
            Padding::Border => Some(at.clamp(0.0, last) as usize),
            Padding::Reflection => Some(reflect(at, axis.least, axis.most).clamp(0.0, last) as usize),
        }
    }
}

/// Weights of the neighbours `floor(x) + offset`, which the offset of the first begins.
///
/// `ratio` is the part of `x` behind its floor, from 0 to 1. The cubic is Keys' with `a = −0.75`, as ONNX and PyTorch take it.
fn weights(mode: &str, ratio: f64) -> Result<(f64, Vec<f64>)> {
    let cubic = |x: f64| {
        let (x, a) = (x.abs(), -0.75);
        if x <= 1.0 {
            ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
        } else {
            ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
        }
    };
    Ok(match mode {
        "nearest" => (0.0, vec![1.0]),
        "linear" | "bilinear" => (0.0, vec![1.0 - ratio, ratio]),
        "cubic" | "bicubic" => (-1.0, (-1..3).map(|offset| cubic(f64::from(offset) - ratio)).collect()),
        other => {
            let other: String = other.chars().take(40).collect();
            return Err(Error::unsupported(format!(
                "attribute `mode`: `{}` is not served",
                other.escape_debug()
            )));
        }
    })
}

/// `GridSample`: elements of images at places that a grid gives, from −1 to 1 along each axis, the last axis first.
///
/// Images are `[batch, channels, …]`, a grid `[batch, …, axes]`. The mode `linear` is called `bilinear` before version 20.
///
/// # Errors
/// If the grid does not fit the images, an image has no elements, or a mode is unknown.
pub fn grid_sample<T: Real>(call: &Call<'_>) -> Outputs {
    let x = call.array::<T>(0)?;
    let grid = call.input(1)?;
    let mode = call.text_or("mode", if call.version() < 20 { "bilinear" } else { "linear" })?;
    let aligned = call.flag("align_corners", false)?;
    let padding = match call.text_or("padding_mode", "zeros")? {
        "zeros" => Padding::Zeros,
        "border" => Padding::Border,
        "reflection" => Padding::Reflection,
        other => {
            return Err(Error::invalid(format!(
                "attribute `padding_mode`: there is no `{}`",
                other.escape_debug()
            )));
        }
    };
    let rank = x.rank().saturating_sub(2);
    let fits = rank > 0
        && grid.shape().len() == rank + 2
        && grid.shape()[0] == x.shape[0]
        && grid.shape()[rank + 1] == rank;
    if !fits || x.shape[2..].contains(&0) {
        return Err(Error::invalid(format!("a grid {:?} for images {:?}", grid.shape(), x.shape)));
    }
    let axes: Vec<ImageAxis> = x.shape[2..]
        .iter()
        .map(|&size| {
            if aligned {
                ImageAxis { size, least: 0.0, most: size as f64 - 1.0 }
            } else {
                ImageAxis { size, least: -0.5, most: size as f64 - 0.5 }
            }
        })
        .collect();
    let (batch, channels) = (x.shape[0], x.shape[1]);
    let image: usize = x.shape[2..].iter().product();
    let places: usize = grid.shape()[1..rank + 1].iter().product();
    let own = strides(&x.shape[2..]);
    let grid_values = grid.to_f64();
    let mut y = Array::<T>::zeros([&[batch, channels], &grid.shape()[1..rank + 1]].concat())?;
    for n in 0..batch {
        for place in 0..places {
            let at = &grid_values[(n * places + place) * rank..][..rank];
            let mut taps = vec![(0usize, 1.0f64)];
            for (axis, &own) in own.iter().enumerate() {
                let ImageAxis { size, least, most } = axes[axis];
                let (given, size) = (at[rank - 1 - axis], size as f64);
                let mut x = if aligned {
                    (given + 1.0) / 2.0 * (size - 1.0)
                } else {
                    ((given + 1.0) * size - 1.0) / 2.0
                };
                x = if mode == "nearest" { x.round_ties_even() } else { x };
                if !(least..=most).contains(&x) {
                    x = match padding {
                        Padding::Zeros => x,
                        // A cubic reads the image as its border continues it, as PyTorch does.
                        Padding::Border if mode.ends_with("cubic") => x,
                        Padding::Border => x.clamp(0.0, size - 1.0),
                        Padding::Reflection => reflect(x, least, most),
                    };
                }
                let (first, list) = weights(mode, x - x.floor())?;
                let mut next = Vec::with_capacity(taps.len() * list.len());
                for (step, &weight) in list.iter().enumerate() {
                    let element = padding.element(axes[axis], x.floor() + first + step as f64);
                    let Some(element) = element else { continue };
                    next.extend(taps.iter().map(|&(base, before)| (base + element * own, before * weight)));
                }
                taps = next;
            }
            for channel in 0..channels {
                let x = &x.data[(n * channels + channel) * image..][..image];
                y.data[(n * channels + channel) * places + place] =
                    taps.iter().map(|&(at, weight)| x[at] * T::nearest(weight)).sum();
            }
        }
    }
    call.like_first(y)
}

/// The neighbours of a place.
pub fn grid_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let cubic = sizes
        .op
        .attributes()
        .get("mode")
        .and_then(serde_json::Value::as_str)
        .is_some_and(|m| m.ends_with("cubic"));
    let rank = sizes.shape(0).len().saturating_sub(2).min(8) as u32;
    terms(if cubic { 4usize } else { 2 }.pow(rank))
}

/// `AffineGrid`: the places of a grid after an affine map, for `GridSample`.
///
/// Maps are `[batch, axes, axes + 1]` for images of two or three axes. With `align_corners`, −1 and 1 are the centres of the
/// outermost elements, else their outer edges.
pub fn affine_grid<T: Real>(call: &Call<'_>) -> Outputs {
    let theta = call.array::<T>(0)?;
    let aligned = call.flag("align_corners", false)?;
    let size = call.integers(1)?;
    let rank = size.len().saturating_sub(2);
    let size = size
        .iter()
        .map(|&size| usize::try_from(size).map_err(|_| Error::invalid(format!("a size of {size}"))));
    let size = size.collect::<Result<Vec<usize>>>()?;
    if !(2..=3).contains(&rank) || theta.shape != [size[0], rank, rank + 1] {
        return Err(Error::invalid(format!("maps {:?} for a grid of {size:?}", theta.shape)));
    }
    let spatial = &size[2..];
    let mut y = Array::<T>::zeros([&[size[0]], spatial, &[rank]].concat())?;
    let places = volume(spatial)?;
    let mut index = vec![0; rank];
    for (row, y) in y.data.chunks_mut(rank).enumerate() {
        let theta = &theta.data[row / places * rank * (rank + 1)..][..rank * (rank + 1)];
        // The last axis is the first coordinate.
        let coordinate = |axis: usize| {
            let (at, size) = (index[axis] as f64, spatial[axis] as f64);
            match (aligned, spatial[axis]) {
                (true, 1) => -1.0,
                (true, _) => 2.0 * at / (size - 1.0) - 1.0,
                (false, _) => (2.0 * at + 1.0) / size - 1.0,
            }
        };
        for (i, y) in y.iter_mut().enumerate() {
            let theta = &theta[i * (rank + 1)..][..rank + 1];
            let sum: T = (0..rank).map(|j| theta[j] * T::nearest(coordinate(rank - 1 - j))).sum();
            *y = sum + theta[rank];
        }
        advance(&mut index, spatial);
    }
    call.like_first(y)
}

/// The columns of a map.
pub fn affine_terms(sizes: &InputSizes<'_>) -> CallFacts {
    terms(sizes.size(0, -1))
}

/// The neighbours of a place within an image of two axes with their weights; elements outside are zeros.
///
/// A place less than one element beyond the border still has neighbours inside; their weights then sum up to less than 1.
fn bilinear(y: f64, x: f64, height: usize, width: usize) -> impl Iterator<Item = (usize, f64)> {
    let (top, left) = (y.floor(), x.floor());
    let corners = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)];
    corners.into_iter().filter_map(move |(down, right)| {
        // The weights of two neighbours along an axis are 1 less the distance.
        let weight = (1.0 - (y - top - down).abs()) * (1.0 - (x - left - right).abs());
        let inside = |at: f64, size: usize| (0.0..size as f64).contains(&at).then_some(at as usize);
        Some((inside(top + down, height)? * width + inside(left + right, width)?, weight))
    })
}

/// `DeformConv`: a convolution over two axes that reads each element of a window at an offset of its own.
///
/// Offsets are `[batch, offset groups · taps · 2, …]`, the vertical one first, and a mask has half as many numbers.
///
/// # Errors
/// Of kind `Unsupported` for images of other than two axes. If sizes do not fit each other.
pub fn deform_conv<T: Real>(call: &Call<'_>) -> Outputs {
    let (x, w) = (call.array::<T>(0)?, call.array::<T>(1)?);
    let offsets = call.input(2)?;
    let mask = call.optional_array::<T>(4)?;
    if x.rank() != 4 || w.rank() != 4 {
        return Err(Error::unsupported(format!("only images of two axes are served, found {:?}", x.shape)));
    }
    let (batch, channels, outputs) = (x.shape[0], x.shape[1], w.shape[0]);
    let count = |name, of: usize| {
        let value = call.int_or(name, 1)?;
        let count = usize::try_from(value).ok().filter(|&count| count > 0 && of.is_multiple_of(count));
        count.ok_or_else(|| {
            Error::invalid(format!("attribute `{name}` = {value} does not divide {of} channels"))
        })
    };
    let (groups, offset_groups) = (count("group", channels)?, count("offset_group", channels)?);
    let (from, to) = (w.shape[1], outputs / groups);
    let kernel = sizes(call, "kernel_shape", 2, 1, 0)?;
    if from * groups != channels
        || !outputs.is_multiple_of(groups)
        || call.has("kernel_shape") && kernel != w.shape[2..]
    {
        return Err(Error::invalid(format!("a weight {:?} for {channels} channels", w.shape)));
    }
    let windows = Windows::new(call, &x.shape[2..], w.shape[2..].to_vec(), false)?;
    let (taps, places): (usize, usize) = (windows.taps(), windows.output.iter().product());
    let (height, width) = (x.shape[2], x.shape[3]);
    let expected = |count: usize| [batch, count, windows.output[0], windows.output[1]];
    let wrong_mask = mask.as_ref().is_some_and(|mask| mask.shape != expected(offset_groups * taps));
    if offsets.shape() != expected(offset_groups * taps * 2) || wrong_mask {
        return Err(Error::invalid(format!(
            "offsets {:?} or a mask do not fit the result {:?}",
            offsets.shape(),
            windows.output
        )));
    }
    let offsets = offsets.to_f64();
    let mut y = Array::<T>::zeros(vec![batch, outputs, windows.output[0], windows.output[1]])?;
    let mut columns = vec![T::zero(); volume(&[from, taps, places])?];
    for group in 0..batch * groups {
        let n = group / groups;
        for (at, column) in columns.iter_mut().enumerate() {
            let (place, tap, channel) = (at % places, at / places % taps, at / places / taps);
            let channel = group % groups * from + channel;
            let set = (n * offset_groups + channel * offset_groups / channels) * taps + tap;
            // Where the element lies in the image: without an offset as in any convolution.
            let position = |axis: usize, window: usize, tap: usize| {
                let whole = (window * windows.strides[axis] + tap * windows.dilations[axis]) as f64;
                whole - windows.begin[axis] as f64 + offsets[(set * 2 + axis) * places + place]
            };
            let across = windows.output[1];
            let (down, right) = (
                position(0, place / across, tap / w.shape[3]),
                position(1, place % across, tap % w.shape[3]),
            );
            let image = &x.data[(n * channels + channel) * height * width..][..height * width];
            let read =
                bilinear(down, right, height, width).map(|(at, weight)| image[at] * T::nearest(weight));
            *column =
                read.sum::<T>() * mask.as_ref().map_or(T::one(), |mask| mask.data[set * places + place]);
        }
        let first = group % groups * to * from * taps;
        let a = Matrix::new(&w.data[first..first + to * from * taps], from * taps);
        let c = &mut y.data[group * to * places..(group + 1) * to * places];
        multiply(Gemm { a, b: Matrix::new(&columns, places), c, k: from * taps, n: places });
    }
    add_bias(&mut y, call.optional_array(3)?)?;
    call.like_first(y)
}

/// Most samples along an axis of a bin.
/// An adaptive number of samples follows from the region, which comes from a file.
const MAX_SAMPLES: f64 = 4096.0;

/// An attribute that is a size of at least `least`, which is its default.
fn size(call: &Call<'_>, name: &'static str, least: i64) -> Result<usize> {
    let value = call.int_or(name, least)?;
    let size = usize::try_from(value).ok().filter(|_| (least..1 << 31).contains(&value));
    size.ok_or_else(|| Error::invalid(format!("attribute `{name}` is {value}")))
}

/// `RoiAlign`: the mean of samples within the bins of regions. The largest is that of the four weighted neighbours of all
/// samples, as ONNX's own tests have it.
///
/// Regions are `[count, 4]` as `x1, y1, x2, y2`, each of an image of the batch. `half_pixel` (the default from version 16 on)
/// moves them by half an element.
///
/// # Errors
/// If a region is of no image, or needs too many samples.
pub fn roi_align<T: Real>(call: &Call<'_>) -> Outputs {
    let x = call.array::<T>(0)?;
    let rois = call.input(1)?;
    let batches = call.integers(2)?;
    let default = if call.version() < 16 { "output_half_pixel" } else { "half_pixel" };
    let half = match call.text_or("coordinate_transformation_mode", default)? {
        "half_pixel" => true,
        "output_half_pixel" => false,
        other => return Err(Error::unsupported(format!("`{}` is not served", other.escape_debug()))),
    };
    let mean = match call.text_or("mode", "avg")? {
        "avg" => true,
        "max" => false,
        other => {
            return Err(Error::unsupported(format!(
                "attribute `mode`: `{}` is not served",
                other.escape_debug()
            )));
        }
    };
    let pooled = [size(call, "output_height", 1)?, size(call, "output_width", 1)?];
    let ratio = size(call, "sampling_ratio", 0)?;
    let scale = call.float_or("spatial_scale", 1.0)?;
    if x.rank() != 4 || rois.shape() != [batches.len(), 4] {
        return Err(Error::invalid(format!("regions {:?} of images {:?}", rois.shape(), x.shape)));
    }
    let [channels, height, width] = [x.shape[1], x.shape[2], x.shape[3]];
    let mut y = Array::<T>::zeros(vec![batches.len(), channels, pooled[0], pooled[1]])?;
    for (region, (roi, &n)) in rois.to_f64().chunks(4).zip(&batches).enumerate() {
        let n = usize::try_from(n).ok().filter(|&n| n < x.shape[0]);
        let n = n.ok_or_else(|| Error::invalid("a region of an image that is not in the batch"))?;
        let shift = if half { 0.5 } else { 0.0 };
        // Bins along the height and along the width.
        let bins = [(roi[1], roi[3], pooled[0]), (roi[0], roi[2], pooled[1])].map(|(start, end, count)| {
            let (start, end) = (start * scale - shift, end * scale - shift);
            let size = if half { end - start } else { (end - start).max(1.0) } / count as f64;
            let samples = if ratio > 0 { ratio as f64 } else { size.ceil() };
            (start, size, samples)
        });
        if bins.iter().any(|&(start, _, samples)| !(start + samples).is_finite() || samples > MAX_SAMPLES) {
            return Err(Error::invalid(format!(
                "a region {roi:?} needs more than {MAX_SAMPLES} samples in a bin"
            )));
        }
        let samples = |axis: usize, bin: usize| {
            let (start, size, samples) = bins[axis];
            (0..samples.max(0.0) as usize)
                .map(move |at| start + bin as f64 * size + (at as f64 + 0.5) * size / samples)
        };
        for bin in 0..pooled[0] * pooled[1] {
            let mut taps = Vec::new();
            for down in samples(0, bin / pooled[1]) {
                for right in samples(1, bin % pooled[1]) {
                    let inside = |at: f64, size: usize| (-1.0..=size as f64).contains(&at);
                    if !inside(down, height) || !inside(right, width) {
                        taps.push((0, 0.0));
                        continue;
                    }
                    let clamped = |at: f64, size: usize| at.clamp(0.0, size as f64 - 1.0);
                    taps.extend(bilinear(clamped(down, height), clamped(right, width), height, width));
                }
            }
            let count = samples(0, 0).count().max(1) * samples(1, 0).count().max(1);
            for channel in 0..channels {
                let image = &x.data[(n * channels + channel) * height * width..][..height * width];
                let values = taps
                    .iter()
                    .filter(|_| !image.is_empty())
                    .map(|&(at, weight)| image[at] * T::nearest(weight));
                y.data[(region * channels + channel) * pooled[0] * pooled[1] + bin] = if mean {
                    values.sum::<T>() / T::count(count)
                } else {
                    values.reduce(T::max).unwrap_or_default()
                };
            }
        }
    }
    call.like_first(y)
}

/// The neighbours of the samples of a bin; as many samples as there may be if their number follows from the regions.
pub fn roi_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let ratio = usize::try_from(sizes.int("sampling_ratio", 0)).unwrap_or(0).min(1 << 12);
    let adaptive = sizes.size(0, 2).saturating_mul(sizes.size(0, 3));
    terms(if ratio > 0 { 4 * ratio * ratio } else { adaptive })
}

/// `Col2Im`: the columns of windows added up where the windows lie.
///
/// Columns are `[batch, channels · taps, windows]`. It is the sum that a transposed convolution does behind its product.
///
/// # Errors
/// If the columns do not fit the windows.
pub fn col2im<T: Real>(call: &Call<'_>) -> Outputs {
    let x = call.array::<T>(0)?;
    let size = |&size: &i64| usize::try_from(size).map_err(|_| Error::invalid(format!("a size of {size}")));
    let image = call.integers(1)?.iter().map(size).collect::<Result<Vec<usize>>>()?;
    let block = call.integers(2)?.iter().map(size).collect::<Result<Vec<usize>>>()?;
    let windows = Windows::new(call, &image, block, false)?;
    let (taps, places): (usize, usize) = (windows.taps(), windows.output.iter().product());
    if x.rank() != 3 || !x.shape[1].is_multiple_of(taps) || x.shape[2] != places {
        return Err(Error::invalid(format!("columns {:?} for {places} windows of {taps} elements", x.shape)));
    }
    let pixels = volume(&image)?;
    let mut y = Array::<T>::zeros([&[x.shape[0], x.shape[1] / taps], image.as_slice()].concat())?;
    if pixels > 0 && places > 0 {
        for (y, x) in y.data.chunks_mut(pixels).zip(x.data.chunks(taps * places)) {
            windows.visit(|window, tap, place| y[place] += x[tap * places + window]);
        }
    }
    call.like_first(y)
}

/// The elements of a window, all of which may lie at one place.
pub fn col2im_terms(sizes: &InputSizes<'_>) -> CallFacts {
    // The size of the block is an input; no place is reached by more windows than there are.
    terms(sizes.size(0, 1).min(sizes.size(0, 2)))
}

/// `CenterCropPad`: the middle of a tensor, or a tensor in the middle of zeros.
pub fn center_crop_pad(call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let rank = x.shape().len();
    let axes = match call.ints("axes")? {
        Some(axes) => {
            axes.iter().map(|&axis| crate::array::axis(axis, rank)).collect::<Result<Vec<usize>>>()?
        }
        None => (0..rank).collect(),
    };
    let asked = call.integers(1)?;
    if asked.len() != axes.len() {
        return Err(Error::invalid(format!("{} sizes for {} axes", asked.len(), axes.len())));
    }
    let mut shape = x.shape().to_vec();
    for (&axis, &size) in axes.iter().zip(&asked) {
        shape[axis] = usize::try_from(size).map_err(|_| Error::invalid(format!("a size of {size}")))?;
    }
    volume(&shape)?;
    let (own, result) = (strides(x.shape()), strides(&shape));
    let shared: Vec<usize> = x.shape().iter().zip(&shape).map(|(&from, &to)| from.min(to)).collect();
    let first = |of: &[usize], steps: &[usize]| -> usize {
        of.iter().zip(&shared).zip(steps).map(|((&of, &shared), &step)| (of - shared) / 2 * step).sum()
    };
    let (read, written) = (first(x.shape(), &own), first(&shape, &result));
    let width = x.dtype().size();
    let mut bytes = vec![0u8; shape.iter().product::<usize>() * width];
    for (from, to) in StridedWalk::new(&shared, &own).zip(StridedWalk::new(&shared, &result)) {
        bytes[(written + to) * width..][..width]
            .copy_from_slice(&x.bytes()[(read + from) * width..][..width]);
    }
    let tensor = tapml_graph::Tensor::new(x.dtype(), shape, tapml_graph::Bytes::new(bytes))?;
    Ok(vec![Some(call.store_moved(tensor)?)])
}
