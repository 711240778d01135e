//! `all_reduce`, evaluated: a sum for each element in the order of ranks.

use super::{AllReduce, expect_all_ranks, rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Result, Symbols};

impl Evaluate for AllReduce {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        expect_all_ranks(self.rank)?;
        let first = rows(inputs, 0)?;
        let mut sum = reserve(first.rows, first.columns)?;
        sum.extend_from_slice(first.values);
        for rank in 1..inputs.len() {
            for (sum, &term) in sum.iter_mut().zip(rows(inputs, rank)?.values) {
                *sum += term;
            }
        }
        single_output(first.rows, first.columns, sum)
    }
}
