//! `concat`, evaluated: group by group, first the columns of `a`. Nothing is rounded.

use super::{Concat, rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Result, Symbols};

impl Evaluate for Concat {
    const MOVES_ONLY: bool = true;

    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (a, b) = (rows(inputs, 0)?, rows(inputs, 1)?);
        let groups = self.groups as usize;
        let k = a.columns / groups;
        // How far the part of `b` lies from that of the group before, and its length.
        let (step, l) = if self.shared { (0, b.columns) } else { (b.columns / groups, b.columns / groups) };
        let columns = groups * (k + l);
        let mut values = reserve(a.rows, columns)?;
        for row in 0..a.rows {
            for group in 0..groups {
                values.extend_from_slice(a.part(row, group * k, k));
                values.extend_from_slice(b.part(row, group * step, l));
            }
        }
        single_output(a.rows, columns, values)
    }
}
