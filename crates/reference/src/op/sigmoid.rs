//! `sigmoid`, evaluated.

use super::{Sigmoid, map};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for Sigmoid {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        map(inputs, |x| T::ONE / (T::ONE + (-x).exp()))
    }
}
