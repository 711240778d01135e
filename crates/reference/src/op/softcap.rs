//! `softcap`, evaluated.

use super::{Softcap, map};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for Softcap {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let cap = T::from_f64(f64::from(self.cap));
        map(inputs, |x| cap * (x / cap).tanh())
    }
}
