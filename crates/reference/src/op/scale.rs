//! `scale`, evaluated: one product with a number of `f32`, exact in `f64`.

use super::{Scale, map};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for Scale {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let factor = T::from_f64(f64::from(self.factor));
        map(inputs, |x| factor * x)
    }
}
