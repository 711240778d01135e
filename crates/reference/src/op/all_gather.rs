//! `all_gather`, evaluated: the columns of each rank, in their order. Nothing is rounded.

use super::{AllGather, expect_all_ranks, rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Result, Symbols};

impl Evaluate for AllGather {
    const MOVES_ONLY: bool = true;

    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        expect_all_ranks(self.rank)?;
        let parts = (0..inputs.len()).map(|rank| rows(inputs, rank)).collect::<Result<Vec<_>>>()?;
        let count = parts.first().map_or(0, |part| part.rows);
        let columns = parts.iter().map(|part| part.columns).sum();
        let mut values = reserve(count, columns)?;
        for row in 0..count {
            for part in &parts {
                values.extend_from_slice(part.part(row, 0, part.columns));
            }
        }
        single_output(count, columns, values)
    }
}
