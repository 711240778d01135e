//! `gelu`, evaluated.

use super::{Gelu, PARALLEL_FROM, one, rows};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use rayon::prelude::*;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
use tapml_graph::op::GeluForm;
use tapml_graph::{Result, Symbols};

impl Evaluate for Gelu {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let x = rows(inputs, 0)?;
        let gelu = match self.approximate {
            GeluForm::None => exact::<T>,
            GeluForm::Tanh => by_tanh::<T>,
        };
        let mut values = reserve(x.rows, x.columns)?;
        match x.values.len() >= PARALLEL_FROM / 8 {
            false => values.extend(x.values.iter().map(|&v| gelu(v))),
            true => {
                let items = x.values.par_iter().with_min_len(1024);
                items.map(|&v| gelu(v)).collect_into_vec(&mut values);
            }
        }
        one(x.rows, x.columns, values)
    }
}

/// `x/2 · erfc(−x/√2)`: unlike `1 + erf`, the complement keeps its digits where it is small.
fn exact<T: Real>(x: T) -> T {
    T::from_f64(0.5) * x * (-x * T::from_f64(FRAC_1_SQRT_2)).erfc()
}

/// `x/2 · (1 + tanh z)` as `x / (1 + exp(−2z))`, which keeps its digits where `tanh z` is near −1.
fn by_tanh<T: Real>(x: T) -> T {
    let root = T::from_f64(FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
    let z = root * (x + T::from_f64(0.044715) * x * x * x);
    x / (T::ONE + (-(z + z)).exp())
}
