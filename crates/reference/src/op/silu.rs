//! `silu`, evaluated.

use super::{PARALLEL_FROM, Silu, one, rows};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use rayon::prelude::*;
use tapml_graph::{Result, Symbols};

impl Evaluate for Silu {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let x = rows(inputs, 0)?;
        let silu = |&x: &T| x / (T::ONE + (-x).exp());
        let mut values = reserve(x.rows, x.columns)?;
        match x.values.len() >= PARALLEL_FROM / 8 {
            false => values.extend(x.values.iter().map(silu)),
            true => x.values.par_iter().with_min_len(1024).map(silu).collect_into_vec(&mut values),
        }
        one(x.rows, x.columns, values)
    }
}
