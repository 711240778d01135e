//! Convolutions: blocks of columns (im2col) times the weights, in parallel. How they are split follows from the sizes alone.
//!
//! `Conv` and `ConvTranspose` of ONNX over any number of spatial axes. Terms of a sum are added in one order whatever the
//! number of threads, so that results can be compared bit by bit between runs.

use crate::array::{Array, MAX_ELEMENTS, volume};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, product, terms};
use crate::gemm::{Gemm, Matrix};
use crate::real::Real;
use crate::window::{AutoPad, Windows, advance, sizes, span};
use rayon::prelude::*;
use tapml_graph::{Error, Result};

/// Elements of a block of columns: a few of them fit in the caches.
const BLOCK: usize = 1 << 17;
/// Longest run of windows along the last axis in a block.
const RUN: usize = 512;

/// `group`, bounded by the channels.
///
/// # Errors
/// If the attribute is not positive or does not divide `channels`.
fn groups(call: &Call<'_>, channels: usize) -> Result<usize> {
    let group = call.int_or("group", 1)?;
    let groups = usize::try_from(group).ok().filter(|&group| group > 0 && channels.is_multiple_of(group));
    groups.ok_or_else(|| {
        Error::invalid(format!("attribute `group`: {channels} channels are not {group} groups"))
    })
}

/// Windows whose kernel is that of a weight `[outputs, inputs, …]`, which `kernel_shape` has to repeat.
///
/// # Errors
/// If `kernel_shape` says something else.
fn kernel(call: &Call<'_>, weight: &[usize]) -> Result<Vec<usize>> {
    let kernel = weight.get(2..).unwrap_or_default().to_vec();
    // Absent, the kernel is that of the weight.
    let told = sizes(call, "kernel_shape", kernel.len(), 1, 0)?;
    if call.has("kernel_shape") && told != kernel {
        Err(Error::invalid(format!("`kernel_shape` is {told:?}, and the weight has {kernel:?}")))
    } else {
        Ok(kernel)
    }
}

/// A run of neighbouring windows: the index of the first, and how many along the last axis.
struct WindowRun {
    /// Index of the first window along each axis.
    first: Vec<usize>,
    /// Windows along the last axis, from 1 to [`RUN`].
    count: usize,
}

/// All windows as runs, in row-major order. Without spatial axes there is one window.
fn runs(output: &[usize]) -> Vec<WindowRun> {
    let Some((&last, outer)) = output.split_last() else {
        return vec![WindowRun { first: vec![], count: 1 }];
    };
    let mut index = vec![0; outer.len()];
    let mut runs = Vec::new();
    for _ in 0..outer.iter().product() {
        for start in (0..last).step_by(RUN) {
            let first = index.iter().copied().chain([start]).collect();
            runs.push(WindowRun { first, count: RUN.min(last - start) });
        }
        advance(&mut index, outer);
    }
    runs
}

/// The columns of these windows: for each channel and each element of the window a row with one number for each window.
///
/// `x` is one image, `[channels, …]`. Elements in the padding stay 0, so that they add nothing.
fn columns<T: Real>(x: &[T], windows: &Windows, runs: &[WindowRun], width: usize) -> Vec<T> {
    let image: usize = windows.input.iter().product();
    let channels = x.len() / image.max(1);
    let taps = windows.taps();
    let mut columns = vec![T::zero(); channels * taps * width];
    let rank = windows.input.len();
    let mut tap = vec![0; rank];
    for k in 0..taps {
        let mut column = 0;
        for run in runs {
            let outer = rank.saturating_sub(1);
            // The outer axes are the same for a whole run, and so is whether they lie in the padding.
            let base = (0..outer).try_fold(0, |place, axis| {
                Some(place * windows.input[axis] + windows.tap_index(axis, run.first[axis], tap[axis])?)
            });
            if let Some(base) = base {
                for at in 0..run.count {
                    let place = match rank {
                        0 => Some(0),
                        _ => windows
                            .tap_index(outer, run.first[outer] + at, tap[outer])
                            .map(|last| base * windows.input[outer] + last),
                    };
                    let Some(place) = place else { continue };
                    for channel in 0..channels {
                        columns[(channel * taps + k) * width + column + at] = x[channel * image + place];
                    }
                }
            }
            column += run.count;
        }
        advance(&mut tap, &windows.kernel);
    }
    columns
}

/// `x: [batch, channels, …]`, `w: [outputs, channels / groups, …]` to `[batch, outputs, …]`.
///
/// # Errors
/// If the channels do not fit the weight, or the result has too many elements.
pub fn convolve<T: Real>(x: &Array<T>, w: &Array<T>, groups: usize, windows: &Windows) -> Result<Array<T>> {
    let (batch, channels, outputs) = (x.shape[0], x.shape[1], w.shape[0]);
    if w.shape[1] * groups != channels || !outputs.is_multiple_of(groups) {
        let text = format!("a weight {:?} for {channels} channels in {groups} groups", w.shape);
        return Err(Error::invalid(text));
    }
    // Groups are convolutions of their own, side by side along the channels.
    let (from, to) = (channels / groups, outputs / groups);
    let image: usize = windows.input.iter().product();
    let places: usize = windows.output.iter().product();
    let k = from * windows.taps();
    let shape = [&[batch, outputs], windows.output.as_slice()].concat();
    let mut y = Array::<T>::zeros(shape)?;
    // Sums of no terms are zeros.
    if y.data.is_empty() || k == 0 || image == 0 {
        return Ok(y);
    }
    let runs = runs(&windows.output);
    let longest = runs.iter().map(|run| run.count).max().unwrap_or(1);
    let blocks: Vec<&[WindowRun]> = runs.chunks((BLOCK / k / longest).clamp(1, 4096)).collect();
    // A few tasks at a time, so that what they give takes less memory than the result.
    let tasks: Vec<(usize, usize)> =
        (0..batch * groups).flat_map(|group| (0..blocks.len()).map(move |block| (group, block))).collect();
    let starts: Vec<usize> = blocks
        .iter()
        .scan(0, |start, runs| {
            let own = *start;
            *start += runs.iter().map(|run| run.count).sum::<usize>();
            Some(own)
        })
        .collect();
    for tasks in tasks.chunks(256) {
        let compute = |&(group, block): &(usize, usize)| {
            let width = blocks[block].iter().map(|run| run.count).sum();
            let x = &x.data[group * from * image..(group + 1) * from * image];
            let columns = columns(x, windows, blocks[block], width);
            // `group` counts over the batch as well; weights are those of the group within it.
            let first = group % groups * to * k;
            let mut c = vec![T::zero(); to * width];
            let (a, b) = (Matrix::new(&w.data[first..first + to * k], k), Matrix::new(&columns, width));
            T::gemm(Gemm { a, b, c: &mut c, k, n: width });
            c
        };
        let done: Vec<Vec<T>> = tasks.par_iter().map(compute).collect();
        for (&(group, block), c) in tasks.iter().zip(done) {
            let width = c.len() / to;
            for (row, c) in c.chunks(width).enumerate() {
                let at = (group * to + row) * places + starts[block];
                y.data[at..at + width].copy_from_slice(c);
            }
        }
    }
    Ok(y)
}

/// Adds one number to each channel of `[batch, channels, …]`.
///
/// # Errors
/// If there are other numbers of biases than of channels.
pub fn add_bias<T: Real>(y: &mut Array<T>, bias: Option<Array<T>>) -> Result<()> {
    let Some(bias) = bias else { return Ok(()) };
    let (channels, image) = (y.shape[1], y.shape[2..].iter().product::<usize>());
    if bias.data.len() != channels {
        return Err(Error::invalid(format!("a bias {:?} for {channels} channels", bias.shape)));
    }
    if image > 0 {
        for (at, y) in y.data.chunks_mut(image).enumerate() {
            y.iter_mut().for_each(|y| *y += bias.data[at % channels]);
        }
    }
    Ok(())
}

/// Refuses what has no batch and channels, and weights of another rank.
fn check_ranks(x: &[usize], w: &[usize]) -> Result<()> {
    if x.len() >= 2 && x.len() == w.len() {
        Ok(())
    } else {
        Err(Error::invalid(format!(
            "expected a tensor and a weight of one rank from 2, found {x:?} and {w:?}"
        )))
    }
}

/// The convolution of two arrays with the attributes of `Conv`.
///
/// # Errors
/// If attributes or shapes do not fit each other.
pub fn convolve_as<T: Real>(call: &Call<'_>, x: &Array<T>, w: &Array<T>) -> Result<Array<T>> {
    check_ranks(&x.shape, &w.shape)?;
    let windows = Windows::new(call, &x.shape[2..], kernel(call, &w.shape)?, false)?;
    convolve(x, w, groups(call, x.shape[1])?, &windows)
}

/// `Conv`.
pub fn conv<T: Real>(call: &Call<'_>) -> Outputs {
    let mut y = convolve_as(call, &call.array::<T>(0)?, &call.array::<T>(1)?)?;
    add_bias(&mut y, call.optional_array(2)?)?;
    call.like_first(y)
}

/// `Conv`: every element of a window in every channel of the group, and the bias.
pub fn conv_terms(sizes: &InputSizes<'_>) -> CallFacts {
    terms(sizes.volume_from(1, 1).saturating_add(usize::from(sizes.has(2))))
}

/// Windows over the result of a transposed convolution, one for each element of its input.
///
/// A transposed convolution is the gradient of a convolution: roles are exchanged, and `input` of the windows is the result.
/// Its size along an axis is `(size − 1)·stride + output_padding + span − pads`, as ONNX's `ConvTranspose` says.
fn transposed_windows(call: &Call<'_>, input: &[usize], kernel: Vec<usize>) -> Result<Windows> {
    let rank = input.len();
    let strides = sizes(call, "strides", rank, 1, 1)?;
    let dilations = sizes(call, "dilations", rank, 1, 1)?;
    let pads = sizes(call, "pads", 2 * rank, 0, 0)?;
    let extra = sizes(call, "output_padding", rank, 0, 0)?;
    let told = call.has("output_shape").then(|| {
        let shape = call.ints("output_shape")?.unwrap_or_default();
        let spatial = shape.len().checked_sub(rank).map(|first| &shape[first..]);
        let sizes =
            spatial.and_then(|spatial| spatial.iter().map(|&size| usize::try_from(size).ok()).collect());
        sizes.ok_or_else(|| {
            Error::invalid(format!("attribute `output_shape`: {shape:?} for {rank} spatial axes"))
        })
    });
    let told: Option<Vec<usize>> = told.transpose()?;
    let auto = AutoPad::read(call)?;
    let (mut begin, mut end) = (pads[..rank].to_vec(), pads[rank..].to_vec());
    let mut result = Vec::with_capacity(rank);
    for axis in 0..rank {
        let steps =
            input[axis].saturating_sub(1).checked_mul(strides[axis]).filter(|&steps| steps <= MAX_ELEMENTS);
        let steps = steps
            .ok_or_else(|| Error::invalid(format!("strides {strides:?} over {input:?} are too large")))?;
        let full = steps + extra[axis] + span(kernel[axis], dilations[axis])?;
        let same = matches!(auto, AutoPad::SameUpper | AutoPad::SameLower);
        let size = match &told {
            Some(told) => Some(told[axis]),
            None => same.then(|| input[axis] * strides[axis]),
        };
        if auto == AutoPad::Valid {
            (begin[axis], end[axis]) = (0, 0);
        }
        if let Some(size) = size {
            // The definition gives the odd element to the front unless `SAME_UPPER` is asked for.
            let side = if auto == AutoPad::SameUpper { auto } else { AutoPad::SameLower };
            (begin[axis], end[axis]) = side.split(full.saturating_sub(size));
            result.push(size);
            continue;
        }
        result.push(full.checked_sub(begin[axis] + end[axis]).ok_or_else(|| {
            Error::invalid(format!("padding {pads:?} is larger than the result of {full} elements"))
        })?);
    }
    volume(&result)?;
    Ok(Windows { input: result, output: input.to_vec(), kernel, strides, dilations, begin, end })
}

/// `ConvTranspose`: every element of the input adds the weights, multiplied with it, to a window of the result.
///
/// # Errors
/// If the weight does not fit the channels, or padding is larger than the result.
pub fn conv_transpose<T: Real>(call: &Call<'_>) -> Outputs {
    let (x, w) = (call.array::<T>(0)?, call.array::<T>(1)?);
    check_ranks(&x.shape, &w.shape)?;
    let (batch, channels) = (x.shape[0], x.shape[1]);
    let groups = groups(call, channels)?;
    let (from, to) = (channels / groups, w.shape[1]);
    if w.shape[0] != channels || w.shape.contains(&0) {
        return Err(Error::invalid(format!("a weight {:?} for {channels} channels", w.shape)));
    }
    let windows = transposed_windows(call, &x.shape[2..], kernel(call, &w.shape)?)?;
    let (places, image): (usize, usize) = (windows.output.iter().product(), windows.input.iter().product());
    let taps = windows.taps();
    // What each thread allocates for its columns.
    volume(&[to, taps, places])?;
    let mut y = Array::<T>::zeros([&[batch, groups * to], windows.input.as_slice()].concat())?;
    if image > 0 && places > 0 {
        y.data.par_chunks_mut(to * image).enumerate().for_each(|(group, y)| {
            let x = &x.data[group * from * places..][..from * places];
            let w = &w.data[group % groups * from * to * taps..][..from * to * taps];
            let mut columns = vec![T::zero(); to * taps * places];
            let a = Matrix::new(w, to * taps).transpose();
            T::gemm(Gemm { a, b: Matrix::new(x, places), c: &mut columns, k: from, n: places });
            // Windows overlap where strides are smaller than the kernel, so that products are added.
            windows.visit(|window, tap, place| {
                for channel in 0..to {
                    y[channel * image + place] += columns[(channel * taps + tap) * places + window];
                }
            });
        });
    }
    add_bias(&mut y, call.optional_array(2)?)?;
    call.like_first(y)
}

/// `ConvTranspose`: every element of a window in every channel of the group, and the bias.
pub fn conv_transpose_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let groups = usize::try_from(sizes.int("group", 1)).unwrap_or(1).max(1);
    let kernel = product(sizes.shape(1).get(2..).unwrap_or_default());
    terms((sizes.size(1, 0) / groups).saturating_mul(kernel).saturating_add(usize::from(sizes.has(2))))
}
