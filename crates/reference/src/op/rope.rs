//! `rope`, evaluated in place on a copy of `x`.

use super::{Rope, rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for Rope {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (x, angles) = (rows(inputs, 0)?, rows(inputs, 1)?);
        let pairs = self.rotary_dim as usize / 2;
        let mut values = x.values.to_vec();
        for (row, angles) in values.chunks_exact_mut(x.columns.max(1)).zip(angles.iter()) {
            let (cosines, sines) = angles.split_at(pairs);
            for head in row.chunks_exact_mut(self.head_dim as usize) {
                for (j, (&cos, &sin)) in cosines.iter().zip(sines).enumerate() {
                    let (first, second) = if self.interleaved { (2 * j, 2 * j + 1) } else { (j, j + pairs) };
                    // Both are read before either is written.
                    let (a, b) = (head[first], head[second]);
                    (head[first], head[second]) = (a * cos - b * sin, b * cos + a * sin);
                }
            }
        }
        single_output(x.rows, x.columns, values)
    }
}
