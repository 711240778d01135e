//! `relu`, evaluated by a comparison, so that a NaN stays one.

use super::{Relu, map};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for Relu {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        map(inputs, |x| if x < T::ZERO { T::ZERO } else { x })
    }
}
