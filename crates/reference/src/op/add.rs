//! `add`, evaluated: one sum for each element, rounded by the number type alone.

use super::{Add, zip_map};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for Add {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        zip_map(inputs, |a, b| a + b)
    }
}
