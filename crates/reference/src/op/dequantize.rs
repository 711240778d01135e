//! `dequantize`, evaluated.

use super::Dequantize;
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use rayon::prelude::*;
use tapml_graph::{Error, Result, Symbols};

/// Words that one task unpacks, at least.
const CHUNK: usize = 1 << 12;

impl Evaluate for Dequantize {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let values = match self.packing().per_word() {
            8 => unpack::<T, 8>(self, inputs)?,
            4 => unpack::<T, 4>(self, inputs)?,
            per_word => {
                return Err(Error::bug(format!("shape inference let words of {per_word} numbers pass")));
            }
        };
        let mut shape = inputs[0].shape().to_vec();
        let last = shape.last_mut().ok_or_else(|| Error::bug("shape inference let a scalar pass"))?;
        *last *= self.packing().per_word() as usize;
        Ok(vec![Value::float(shape, values)?])
    }
}

/// The numbers of words of `P` each. All threads write, so that fresh memory of a large table does not wait for one of them.
fn unpack<T: Real, const P: usize>(op: &Dequantize, inputs: &[Value<T>]) -> Result<Vec<T>> {
    let (packing, words, scales) = (op.packing(), inputs[0].as_ids()?, inputs[1].as_float()?.values());
    let zeros = inputs.get(2).map(|zeros| zeros.as_float()).transpose()?.map(|zeros| zeros.values());
    let (per_group, middle) = (packing.group as usize / P, T::from_f64(f64::from(packing.middle())));
    let mask = u32::MAX >> (32 - op.bits);
    let number = |at: usize, word: u32| -> [T; P] {
        let group = at / per_group;
        let (scale, zero) = (scales[group], zeros.map_or(middle, |zeros| zeros[group]));
        std::array::from_fn(|j| {
            let stored = (word >> (j as u32 * op.bits)) & mask;
            (T::from_f64(f64::from(packing.element(stored))) - zero) * scale
        })
    };
    let mut values = reserve::<[T; P]>(words.len(), 1)?;
    let words = words.par_iter().with_min_len(CHUNK).enumerate();
    words.map(|(at, &word)| number(at, word)).collect_into_vec(&mut values);
    Ok(values.into_flattened())
}
