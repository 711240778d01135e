//! `dequantize`, evaluated.

use super::Dequantize;
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for Dequantize {
    /// A value holds the numbers that a packed tensor stands for already.
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        Ok(vec![inputs[0].clone()])
    }
}
