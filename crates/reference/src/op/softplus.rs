//! `softplus`, evaluated.

use super::{Softplus, map};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for Softplus {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        // `max(x, 0) + ln(1 + exp(−|x|))` overflows nowhere.
        map(inputs, |x| if x < T::ZERO { x.exp().ln_1p() } else { x + (-x).exp().ln_1p() })
    }
}
