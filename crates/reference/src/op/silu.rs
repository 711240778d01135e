//! `silu`, evaluated as `x / (1 + e⁻ˣ)`: where the exponential overflows, the quotient is −0.

use super::{Silu, map};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for Silu {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        map(inputs, |x| x / (T::ONE + (-x).exp()))
    }
}
