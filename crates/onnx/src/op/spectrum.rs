//! Fourier transforms by their definition, windows of signals, and the weights of mel filters.
//!
//! `DFT`, `STFT`, `HannWindow`, `HammingWindow`, `BlackmanWindow` and `MelWeightMatrix`, all from version 17 on. A transform of
//! `n` elements takes `n²` steps. It is no fast one, because each result is then one sum with a known number of terms.

use crate::array::{Array, axis, axis_sizes, volume};
use crate::call::{Call, Outputs, element_type};
use crate::facts::{CallFacts, InputSizes, terms};
use crate::real::Real;
use rayon::prelude::*;
use tapml_graph::{Error, Result};

/// `exp(−2πi·k/n)` for every `k`.
///
/// Angles are computed in `f64` and rounded once.
fn roots<T: Real>(n: usize) -> Result<Vec<(T, T)>> {
    volume(&[n])?;
    let root = |k: usize| {
        let (sin, cos) = (-std::f64::consts::TAU * k as f64 / n as f64).sin_cos();
        (T::nearest(cos), T::nearest(sin))
    };
    Ok((0..n).map(root).collect())
}

/// `Σ_j x[j]·exp(∓2πi·j·k/n)` for each `k` below `count`; with `inverse` divided by `n`.
///
/// `n` is the number of `roots`. A row `x` that is shorter counts as if zeros followed.
fn transform<T: Real>(x: &[(T, T)], roots: &[(T, T)], count: usize, inverse: bool) -> Vec<(T, T)> {
    let n = roots.len();
    let one = |k: usize| {
        let mut sum = (T::zero(), T::zero());
        let mut at = 0;
        for &(re, im) in x {
            let (cos, sin) = roots[at];
            let sin = if inverse { -sin } else { sin };
            sum = (sum.0 + re * cos - im * sin, sum.1 + re * sin + im * cos);
            // `j·k` modulo `n`, without a product that could overflow.
            at = (at + k) % n;
        }
        if inverse { (sum.0 / T::count(n), sum.1 / T::count(n)) } else { sum }
    };
    (0..count).map(one).collect()
}

/// A size from an input of one element.
///
/// # Errors
/// If it is less than `least`, or 2³¹ or more.
fn size(call: &Call<'_>, place: usize, least: i64) -> Result<usize> {
    let value = call.integer(place)?;
    let size = usize::try_from(value).ok().filter(|_| (least..1 << 31).contains(&value));
    size.ok_or_else(|| {
        Error::invalid(format!("input {place}: expected a size of at least {least}, found {value}"))
    })
}

/// `DFT` along an axis of `[…, 1]` (real) or `[…, 2]` (complex).
///
/// With `onesided`, the result has the first half of the spectrum, `n / 2 + 1` elements. The inverse of such a half is real.
///
/// # Errors
/// If the last axis is neither 1 nor 2, the axis is the last one, or the length is less than 1.
pub fn dft<T: Real>(call: &Call<'_>) -> Outputs {
    let x = call.array::<T>(0)?;
    let (inverse, onesided) = (call.flag("inverse", false)?, call.flag("onesided", false)?);
    let parts = x.shape.last().copied().filter(|parts| (1..=2).contains(parts) && x.rank() > 1);
    let parts = parts
        .ok_or_else(|| Error::invalid(format!("expected a last axis of 1 or 2, found {:?}", x.shape)))?;
    // The axis is an input from version 20 on, with another default.
    let at = if call.version() < 20 {
        call.int_or("axis", 1)?
    } else if call.optional(2).is_some() {
        call.integer(2)?
    } else {
        -2
    };
    let at = axis(at, x.rank())?;
    if at + 1 == x.rank() {
        return Err(Error::invalid("the last axis holds real and imaginary parts"));
    }
    let [before, own, behind] = axis_sizes(&x.shape, at);
    let behind = behind / parts;
    let n = match call.optional(1) {
        Some(_) => size(call, 1, 1)?,
        // Half of a spectrum of `2·(own − 1)` elements.
        None if inverse && onesided => 2 * own.saturating_sub(1),
        None => own,
    };
    if n == 0 {
        return Err(Error::invalid("a transform of no elements"));
    }
    // The inverse of a half spectrum is a real signal.
    let real = inverse && onesided;
    let count = if onesided && !inverse { n / 2 + 1 } else { n };
    let mut shape = x.shape.clone();
    shape[at] = count;
    shape[x.rank() - 1] = if real { 1 } else { 2 };
    let width = if real { 1 } else { 2 };
    let mut y = Array::<T>::zeros(shape)?;
    let roots = roots::<T>(n)?;
    let rows: Vec<(usize, usize)> =
        (0..before).flat_map(|outer| (0..behind).map(move |inner| (outer, inner))).collect();
    let done: Vec<Vec<(T, T)>> = rows
        .par_iter()
        .map(|&(outer, inner)| {
            let read = |j: usize| {
                let at = ((outer * own + j) * behind + inner) * parts;
                (x.data[at], if parts == 2 { x.data[at + 1] } else { T::zero() })
            };
            let zero = (T::zero(), T::zero());
            // The other half of the spectrum of a real signal is the conjugate of this one; its ends are real.
            let row: Vec<(T, T)> = if real {
                (0..n)
                    .map(|k| {
                        let half = k.min(n - k);
                        let (re, im) = if half < own { read(half) } else { zero };
                        if half == 0 || 2 * half == n {
                            (re, T::zero())
                        } else {
                            (re, if k == half { im } else { -im })
                        }
                    })
                    .collect()
            } else {
                (0..n.min(own)).map(read).collect()
            };
            transform(&row, &roots, count, inverse)
        })
        .collect();
    for (&(outer, inner), row) in rows.iter().zip(&done) {
        for (k, &(re, im)) in row.iter().enumerate() {
            let at = ((outer * count + k) * behind + inner) * width;
            y.data[at] = re;
            if !real {
                y.data[at + 1] = im;
            }
        }
    }
    call.like_first(y)
}

/// `STFT`: transforms of frames, weighted by a window.
///
/// Signals are `[batch, length]` or `[batch, length, 1 or 2]`, and the result is `[batch, frames, bins, 2]`.
///
/// # Errors
/// If a frame is longer than the signal, or a window has another length than a frame.
pub fn stft<T: Real>(call: &Call<'_>) -> Outputs {
    let x = call.array::<T>(0)?;
    let onesided = call.flag("onesided", true)?;
    let step = size(call, 1, 1)?;
    let window = call.optional_array::<T>(2)?;
    let (batch, length, parts) = match x.shape.as_slice() {
        &[batch, length, parts @ 1..=2] => (batch, length, parts),
        &[batch, length] => (batch, length, 1),
        other => {
            return Err(Error::invalid(format!(
                "expected a signal [batch, length, 1 or 2], found {other:?}"
            )));
        }
    };
    let n = match (call.optional(3), &window) {
        (Some(_), _) => size(call, 3, 1)?,
        (None, Some(window)) => window.data.len(),
        (None, None) => length,
    };
    let room = length.checked_sub(n).filter(|_| n > 0);
    let room =
        room.ok_or_else(|| Error::invalid(format!("a frame of {n} elements does not fit in {length}")))?;
    if let Some(window) = window.as_ref().filter(|window| window.data.len() != n) {
        return Err(Error::invalid(format!("a window of {} elements for frames of {n}", window.data.len())));
    }
    // Frames lie within the signal: there is no padding.
    let frames = room / step + 1;
    let bins = if onesided { n / 2 + 1 } else { n };
    let mut y = Array::<T>::zeros(vec![batch, frames, bins, 2])?;
    let roots = roots::<T>(n)?;
    y.data.par_chunks_mut(bins * 2).enumerate().for_each(|(at, y)| {
        let first = at / frames * length + at % frames * step;
        let read = |j: usize| {
            let weight = window.as_ref().map_or(T::one(), |window| window.data[j]);
            let at = (first + j) * parts;
            (x.data[at] * weight, if parts == 2 { x.data[at + 1] * weight } else { T::zero() })
        };
        let frame: Vec<(T, T)> = (0..n).map(read).collect();
        for (y, (re, im)) in y.chunks_mut(2).zip(transform(&frame, &roots, bins, false)) {
            y.copy_from_slice(&[re, im]);
        }
    });
    call.like_first(y)
}

/// The elements of a transform, which is at most as long as the axis unless an input says so.
pub fn axis_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let at = if sizes.op.version().unwrap_or(crate::call::NEWEST) < 20 { sizes.int("axis", 1) } else { -2 };
    terms(sizes.size(0, at).saturating_mul(2))
}

/// The elements of the window, else of the signal.
pub fn frame_terms(sizes: &InputSizes<'_>) -> CallFacts {
    terms(if sizes.has(2) { sizes.size(2, 0) } else { sizes.size(0, 1) }.saturating_mul(2))
}

/// A sum of cosines, `Σ_i a_i·cos(2π·i·k/n)`.
///
/// `n` is the length, or one less for a window that is not periodic but symmetric.
fn window<T: Real>(call: &Call<'_>, cosines: &[f64]) -> Outputs {
    let dtype = element_type(call.int_or("output_datatype", 1)?)?;
    let length = size(call, 0, 0)?;
    let periodic = call.flag("periodic", true)?;
    let n = if periodic { length } else { length.saturating_sub(1).max(1) } as f64;
    let value = |k: usize| {
        let angle = std::f64::consts::TAU * k as f64 / n;
        cosines.iter().enumerate().map(|(i, a)| a * (i as f64 * angle).cos()).sum::<f64>()
    };
    volume(&[length])?;
    // A window of one element, or its first one, has no shape yet: the whole sum is exact there.
    call.single_output(
        Array { shape: vec![length], data: (0..length).map(|k| T::nearest(value(k))).collect() },
        dtype,
    )
}

/// `HannWindow`.
pub fn hann<T: Real>(call: &Call<'_>) -> Outputs {
    window::<T>(call, &[0.5, -0.5])
}

/// `HammingWindow`.
/// The numbers are those of the standard, `α = 25/46`.
pub fn hamming<T: Real>(call: &Call<'_>) -> Outputs {
    window::<T>(call, &[25.0 / 46.0, -21.0 / 46.0])
}

/// `BlackmanWindow`.
pub fn blackman<T: Real>(call: &Call<'_>) -> Outputs {
    window::<T>(call, &[0.42, -0.5, 0.08])
}

/// `MelWeightMatrix`: triangles between neighbouring edges on the mel scale.
///
/// The scale is `2595 · log₁₀(1 + f / 700)`. The result is `[length / 2 + 1, bins]`.
///
/// # Errors
/// If an edge lies outside of the spectrum.
pub fn mel_weight_matrix<T: Real>(call: &Call<'_>) -> Outputs {
    let dtype = element_type(call.int_or("output_datatype", 1)?)?;
    let (bins, length, rate) = (size(call, 0, 1)?, size(call, 1, 1)?, size(call, 2, 1)?);
    let (low, high): (f64, f64) = (call.number(3)?, call.number(4)?);
    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let step = (mel(high) - mel(low)) / (bins + 2) as f64;
    let rows = length / 2 + 1;
    let mut y = Array::<T>::zeros(vec![rows, bins])?;
    // Edges are equally far apart on the mel scale and rounded down to rows of the spectrum.
    let edge = |i: usize| {
        let hertz = 700.0 * (10f64.powf((i as f64 * step + mel(low)) / 2595.0) - 1.0);
        let at = ((length + 1) as f64 * hertz / rate as f64).floor();
        let row = (0.0..rows as f64).contains(&at).then_some(at as usize);
        row.ok_or_else(|| Error::invalid(format!("the edge {hertz} Hz lies outside of the spectrum")))
    };
    for i in 0..bins {
        let (left, centre, right) = (edge(i)?, edge(i + 1)?, edge(i + 2)?);
        let part = |at: usize, of: usize| T::count(at) / T::count(of);
        match centre.checked_sub(left).filter(|&rise| rise > 0) {
            None => y.data[centre * bins + i] = T::one(),
            Some(rise) => (left..=centre).for_each(|j| y.data[j * bins + i] = part(j - left, rise)),
        }
        (centre..right).for_each(|j| y.data[j * bins + i] = part(right - j, right - centre));
    }
    call.single_output(y, dtype)
}
