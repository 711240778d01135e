//! `rope_angles`, evaluated.

use super::{RopeAngles, one};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, zeros};
use tapml_graph::{Error, Op, Result, Symbol, Symbols};

impl Evaluate for RopeAngles {
    /// The product of position and frequency is taken in `T`; positions above 2²⁴ are rounded in `f32`.
    fn eval<T: Real>(&self, symbols: &Symbols, _: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let size = |symbol| {
            let value = symbols.get(symbol).and_then(|v| usize::try_from(v).ok());
            value.ok_or_else(|| Error::invalid(format!("symbol `{symbol}` is not bound to a size")))
        };
        let (n, p) = (size(Symbol::N)?, size(Symbol::P)?);
        let scale = T::from_f64(f64::from(self.scale));
        let pairs = self.inv_freq.len();
        let mut values = zeros(n, 2 * pairs)?;
        for (i, row) in values.chunks_exact_mut((2 * pairs).max(1)).enumerate() {
            let position = T::from_f64(p as f64 + i as f64);
            let (cosines, sines) = row.split_at_mut(pairs);
            for ((c, s), &frequency) in cosines.iter_mut().zip(sines).zip(&self.inv_freq) {
                let (sin, cos) = (position * T::from_f64(f64::from(frequency))).sin_cos();
                (*c, *s) = (scale * cos, scale * sin);
            }
        }
        one(n, 2 * pairs, values)
    }

    fn disturbed(&self, factor: &mut dyn FnMut() -> f64) -> Option<Op> {
        let disturb = |&f: &f32| ((f64::from(f) * factor()) as f32).clamp(-1.0, 1.0);
        let inv_freq = self.inv_freq.iter().map(disturb).collect();
        Some(RopeAngles { inv_freq, scale: self.scale }.into())
    }
}
