//! `dequantize`, evaluated.

use super::Dequantize;
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use rayon::prelude::*;
use tapml_graph::{Error, Result, Symbols};

/// Words that one task unpacks.
const CHUNK: usize = 1 << 12;

impl Evaluate for Dequantize {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (packing, words, scales) = (self.packing(), inputs[0].as_ids()?, inputs[1].as_float()?.values());
        let zeros = inputs.get(2).map(|zeros| zeros.as_float()).transpose()?.map(|zeros| zeros.values());
        let (per_word, middle) = (packing.per_word() as usize, T::from_f64(f64::from(packing.middle())));
        let per_group = packing.group as usize / per_word;
        let mask = u32::MAX >> (32 - self.bits);
        let mut values = reserve::<T>(words.len(), per_word)?;
        values.resize(words.len() * per_word, T::ZERO);
        values.par_chunks_mut(CHUNK * per_word).zip(words.par_chunks(CHUNK)).enumerate().for_each(
            |(task, (values, words))| {
                for (at, (values, word)) in values.chunks_exact_mut(per_word).zip(words).enumerate() {
                    let group = (task * CHUNK + at) / per_group;
                    let (scale, zero) = (scales[group], zeros.map_or(middle, |zeros| zeros[group]));
                    for (j, value) in (0..).zip(values) {
                        let stored = (word >> (j * self.bits)) & mask;
                        *value = (T::from_f64(f64::from(packing.element(stored))) - zero) * scale;
                    }
                }
            },
        );
        let mut shape = inputs[0].shape().to_vec();
        let last = shape.last_mut().ok_or_else(|| Error::bug("shape inference let a scalar pass"))?;
        *last *= per_word;
        Ok(vec![Value::float(shape, values)?])
    }
}
