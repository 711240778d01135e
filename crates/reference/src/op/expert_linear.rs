//! `expert_linear`, evaluated: one product for each expert that some row chose, with all the rows that chose it. The
//! matrices of the others are not read.

use super::{ExpertLinear, PARALLEL_FROM, rows, single_output};
use crate::array::WeightMatrix;
use crate::eval::Evaluate;
use crate::matmul::times_transposed;
use crate::real::Real;
use crate::split::is_split;
use crate::value::{Value, reserve, zeros};
use rayon::prelude::*;
use tapml_graph::{Error, Result, Symbols};

impl Evaluate for ExpertLinear {
    /// # Errors
    /// If an expert does not exist.
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (x, stack) = (rows(inputs, 0)?, inputs[1].as_float()?);
        let (&[count, outputs, k], &[n, slots]) = (stack.shape(), inputs[2].shape()) else {
            return Err(Error::bug("shape inference let a stack or experts of another rank pass"));
        };
        let bias = if inputs.len() > 3 { Some(rows(inputs, 3)?) } else { None };
        // Slot `s` of row `i` reads row `i·slots + s` of `x` seen as blocks, or row `i` if all share it.
        let row_of = |place: usize| if x.columns == k { place / slots } else { place };
        let product = |(expert, places): &(usize, Vec<usize>)| {
            let mut gathered = reserve(places.len(), k)?;
            places
                .iter()
                .for_each(|&p| gathered.extend_from_slice(&x.values[row_of(p) * k..(row_of(p) + 1) * k]));
            let matrix = WeightMatrix { array: stack, first: expert * outputs * k };
            times_transposed(&gathered, matrix, places.len(), k, outputs)
        };
        // Rows of one expert are multiplied together, so that its matrix is read once.
        let chosen = places_by_expert(inputs[2].as_ids()?, slots, count)?;
        let work = n.saturating_mul(slots).saturating_mul(outputs * k);
        let products: Vec<Vec<T>> = if is_split(work, PARALLEL_FROM) {
            chosen.par_iter().map(product).collect::<Result<_>>()?
        } else {
            chosen.iter().map(product).collect::<Result<_>>()?
        };
        let mut values = zeros(n, slots * outputs)?;
        for ((expert, places), product) in chosen.iter().zip(&products) {
            for (&place, from) in places.iter().zip(product.chunks_exact(outputs.max(1))) {
                let to = &mut values[place * outputs..(place + 1) * outputs];
                to.copy_from_slice(from);
                if let Some(bias) = &bias {
                    to.iter_mut().zip(bias.part(*expert, 0, outputs)).for_each(|(y, &b)| *y += b);
                }
            }
        }
        single_output(n, slots * outputs, values)
    }
}

/// The experts that some row chose, each with the places (`row·slots + slot`) where it was. Fails on one that does not
/// exist.
fn places_by_expert(experts: &[u32], slots: usize, count: usize) -> Result<Vec<(usize, Vec<usize>)>> {
    let mut places = vec![Vec::new(); count];
    for (place, &expert) in experts.iter().enumerate() {
        let known = places.get_mut(expert as usize).ok_or_else(|| {
            let (row, slot) = (place / slots, place % slots);
            Error::invalid(format!(
                "expert {expert} in slot {slot} of row {row} is none of the {count} experts"
            ))
        })?;
        known.push(place);
    }
    Ok(places.into_iter().enumerate().filter(|(_, places)| !places.is_empty()).collect())
}
