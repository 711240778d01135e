//! `rope_angles`, evaluated: cosines and sines of `position · frequency`, times a factor.
//!
//! Frequencies are attributes in `f32`. They depend on the length of the text for models that stretch theirs.

use super::{RopeAngles, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, zeros};
use tapml_graph::{Error, Op, Result, Symbol, Symbols};

impl Evaluate for RopeAngles {
    /// The product of position and frequency is taken in `T`; positions above 2²⁴ are rounded in `f32`.
    fn eval<T: Real>(&self, symbols: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let positions = Positions::new(self, symbols, inputs)?;
        let lengths = inputs.get(1).map(Value::as_ids).transpose()?;
        let pairs = self.inv_freq.len();
        // Without lengths one serves all rows: that after this step.
        let one = if lengths.is_none() { Some(at_length(self, text_length(self, symbols)?)) } else { None };
        let mut values = zeros(positions.rows, 2 * pairs)?;
        for (i, row) in values.chunks_exact_mut((2 * pairs).max(1)).enumerate() {
            let (cosines, sines) = row.split_at_mut(pairs);
            let own = lengths.map(|lengths| at_length(self, u64::from(lengths[i])));
            let Some((frequencies, scale)) = own.as_ref().or(one.as_ref()) else { continue };
            let scale = T::from_f64(f64::from(*scale));
            for (j, ((c, s), &frequency)) in cosines.iter_mut().zip(sines).zip(frequencies).enumerate() {
                let position = T::from_f64(positions.position_at(i, j));
                let (sin, cos) = (position * T::from_f64(frequency)).sin_cos();
                (*c, *s) = (scale * cos, scale * sin);
            }
        }
        single_output(positions.rows, 2 * pairs, values)
    }

    /// The frequencies are what is computed from attributes alone. They stay within what shape inference allows.
    fn disturb_constants(&self, factor: &mut dyn FnMut() -> f64) -> Option<Op> {
        let mut op = self.clone();
        let long = op.long.as_mut().map(|long| &mut long.inv_freq);
        for f in op.inv_freq.iter_mut().chain(long.into_iter().flatten()) {
            *f = ((f64::from(*f) * factor()) as f32).clamp(-Self::FASTEST, Self::FASTEST);
        }
        Some(op.into())
    }
}

/// The length of the text after this step, `n+p`; 0 if nothing depends on it.
fn text_length(op: &RopeAngles, symbols: &Symbols) -> Result<u64> {
    if op.long.is_none() && op.dynamic.is_none() {
        return Ok(0);
    }
    Ok(size(symbols, Symbol::N)?.saturating_add(size(symbols, Symbol::P)?) as u64)
}

/// The frequencies and the factor of a text of so many tokens.
fn at_length(op: &RopeAngles, len: u64) -> (Vec<f64>, f32) {
    let wide = |frequencies: &[f32]| frequencies.iter().map(|&f| f64::from(f)).collect::<Vec<f64>>();
    let mut frequencies = wide(&op.inv_freq);
    if let Some(long) = op.long.as_ref().filter(|long| len > u64::from(long.after)) {
        return (wide(&long.inv_freq), long.scale);
    }
    if let Some(dynamic) = op.dynamic {
        let pairs = frequencies.len();
        frequencies.iter_mut().enumerate().for_each(|(j, f)| *f *= dynamic.frequency_factor(j, pairs, len));
    }
    (frequencies, op.scale)
}

/// The position of each row and pair.
struct Positions<'a> {
    /// Rows of angles.
    rows: usize,
    /// The position of row 0 where none are given.
    first: usize,
    /// `[axes, rows]`: positions along each axis.
    given: Option<&'a [u32]>,
    /// The axis of each pair.
    axes: Vec<usize>,
}

impl<'a> Positions<'a> {
    /// From the input if there is one, else from the symbols: `p`, `p + 1`, …
    fn new<T: Real>(op: &RopeAngles, symbols: &Symbols, inputs: &'a [Value<T>]) -> Result<Positions<'a>> {
        let sections = op.sections.as_deref().unwrap_or_default();
        let axes = sections.iter().enumerate().flat_map(|(a, &len)| std::iter::repeat_n(a, len as usize));
        let axes = axes.collect();
        match inputs.first() {
            Some(given) => {
                let rows = given.shape().last().copied().unwrap_or_default();
                Ok(Positions { rows, first: 0, given: Some(given.as_ids()?), axes })
            }
            None => {
                let (n, p) = (size(symbols, Symbol::N)?, size(symbols, Symbol::P)?);
                Ok(Positions { rows: n, first: p, given: None, axes })
            }
        }
    }

    /// The position of a row for a pair. A pair without an axis of its own reads the first.
    fn position_at(&self, row: usize, pair: usize) -> f64 {
        match self.given {
            Some(given) => f64::from(given[self.axes.get(pair).map_or(0, |a| a * self.rows) + row]),
            None => self.first as f64 + row as f64,
        }
    }
}

/// A symbol as a size.
///
/// # Errors
/// If it is not bound, or does not fit in `usize`.
fn size(symbols: &Symbols, symbol: Symbol) -> Result<usize> {
    let value = symbols.get(symbol).and_then(|v| usize::try_from(v).ok());
    value.ok_or_else(|| Error::invalid(format!("symbol `{symbol}` is not bound to a size")))
}
