//! `clamp`, evaluated by comparisons: a NaN is neither below nor above and stays.

use super::{Clamp, map};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for Clamp {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let [min, max] = [self.min, self.max].map(|bound| bound.map(|b| T::from_f64(f64::from(b))));
        map(inputs, |x| {
            // Shape inference has checked that the bounds do not cross.
            let x = min.filter(|&min| x < min).unwrap_or(x);
            max.filter(|&max| x > max).unwrap_or(x)
        })
    }
}
