//! `top_k`, evaluated.
//!
//! The order of the numbers decides, so that every precision that tells them apart gives the same elements.

use super::{TopK, rows};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use std::cmp::Ordering;
use tapml_graph::{Result, Symbols};

impl Evaluate for TopK {
    const MOVES_ONLY: bool = true;

    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (x, k) = (rows(inputs, 0)?, self.k as usize);
        let (mut values, mut indices) = (reserve(x.rows, k)?, reserve(x.rows, k)?);
        for row in x.iter() {
            let places = greatest(row, k);
            values.extend((0..k).map(|at| places.get(at).map_or(T::from_f64(0.0), |&place| row[place])));
            // A row without an order has no places.
            indices.extend((0..k).map(|at| places.get(at).map_or(u32::MAX, |&place| place as u32)));
        }
        let shape = vec![x.rows, k];
        Ok(vec![Value::float(shape.clone(), values)?, Value::indices(shape, indices)?])
    }
}

/// The places of the `k` greatest elements, in order; none if an element is NaN or the greatest is infinite.
fn greatest<T: Real>(row: &[T], k: usize) -> Vec<usize> {
    if row.iter().any(|value| value.to_f64().is_nan()) {
        return Vec::new();
    }
    let mut places: Vec<usize> = (0..row.len()).collect();
    let order = |a: &usize, b: &usize| {
        // There is no NaN, so that every two elements have an order.
        row[*b].partial_cmp(&row[*a]).unwrap_or(Ordering::Equal).then(a.cmp(b))
    };
    if k < places.len() {
        // A selection, not a sort: vocabularies are large.
        places.select_nth_unstable_by(k, order);
        places.truncate(k);
    }
    places.sort_unstable_by(order);
    let finite = places.first().is_some_and(|&place| row[place].to_f64().is_finite());
    if finite { places } else { Vec::new() }
}
