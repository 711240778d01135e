//! `append`, evaluated: the rows of the cache, then the new ones. Nothing is rounded.

use super::{Append, rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for Append {
    const MOVES_ONLY: bool = true;

    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (cache, new) = (rows(inputs, 0)?, rows(inputs, 1)?);
        single_output(cache.rows + new.rows, new.columns, [cache.values, new.values].concat())
    }
}
