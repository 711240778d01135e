//! `gelu`, evaluated in each of its forms. Formulas are rearranged where a difference would cancel.

use super::{Gelu, map};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
use tapml_graph::op::GeluForm;
use tapml_graph::{Result, Symbols};

impl Evaluate for Gelu {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        map(
            inputs,
            match self.approximate {
                GeluForm::None => exact::<T>,
                GeluForm::Tanh => by_tanh::<T>,
                GeluForm::Quick => quick::<T>,
            },
        )
    }
}

/// `x/2 · erfc(−x/√2)`: unlike `1 + erf`, the complement keeps its digits where it is small.
fn exact<T: Real>(x: T) -> T {
    T::from_f64(0.5) * x * (-x * T::from_f64(FRAC_1_SQRT_2)).erfc()
}

/// `x/2 · (1 + tanh z)` as `x / (1 + exp(−2z))`, which keeps its digits where `tanh z` is near −1.
fn by_tanh<T: Real>(x: T) -> T {
    // `√(2/π)`.
    let root = T::from_f64(FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
    let z = root * (x + T::from_f64(0.044715) * x * x * x);
    x / (T::ONE + (-(z + z)).exp())
}

/// `x · sigmoid(1.702·x)`.
fn quick<T: Real>(x: T) -> T {
    x / (T::ONE + (-x * T::from_f64(1.702)).exp())
}
