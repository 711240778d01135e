//! Rows that no prompt gives: zeros, tiny and large numbers, ties, one dominant element, as the operator declares them
//! ([`Extreme`]). A norm that divides by the length of a row without its `eps` is right on every recorded row, and so are
//! scores whose maximum was not subtracted.
//!
//! Rows follow each other in the order of the kinds, each input one further on, so that kinds meet; the numbers are
//! recorded ones, scaled. Magnitudes stay far from what the dtype can hold: only a formula that leaves the range on its
//! way fails.

use crate::made::with_inputs;
use tapml_exec::Call;
use tapml_graph::op::Extreme;
use tapml_graph::{DType, Op, Result, Symbol, Symbols, Tensor};

/// Factors for one dtype.
struct Scales {
    tiny: f64,
    /// For all numbers of a row.
    large: f64,
    /// For one number of a row.
    dominant: f64,
    /// Scaled numbers stay below this one, unless recorded ones are already beyond it.
    most: f64,
}

impl Scales {
    fn for_dtype(dtype: DType) -> Scales {
        match dtype {
            DType::F16 => Scales { tiny: 2f64.powi(-8), large: 8.0, dominant: 32.0, most: 1024.0 },
            _ => Scales { tiny: 2f64.powi(-20), large: 64.0, dominant: 1024.0, most: 2f64.powi(20) },
        }
    }
}

/// How many calls it takes until every kind was in every input: one of several rows, or one for each kind.
pub fn count(op: &Op, symbols: &Symbols) -> usize {
    let kinds = op.extremes().len();
    let rows = symbols.get(Symbol::N).unwrap_or(1);
    if rows >= kinds as u64 { 1 } else { kinds }
}

/// The call with such rows in each input that is no weight and has numbers; `None` if there is none. `shift` is the kind
/// of the first row.
pub fn extreme_call(call: &Call, shift: usize) -> Result<Option<Call>> {
    let kinds = call.op.extremes();
    with_inputs(call, |at, input| {
        let rows_of_numbers = input.dtype().is_float() && !input.is_empty() && input.shape().len() > 1;
        rows_of_numbers.then(|| rows(input, kinds, shift + at)).transpose()
    })
}

/// The kind changes from row to row; one pass over all kinds takes as many rows as there are kinds.
fn rows(input: &Tensor, kinds: &[Extreme], shift: usize) -> Result<Tensor> {
    let (width, scales) = (input.row_len().max(1), Scales::for_dtype(input.dtype()));
    let mut values = input.to_f64();
    for (row, values) in values.chunks_mut(width).enumerate() {
        let largest = values.iter().fold(0f64, |most, v| most.max(v.abs()));
        // Never below 1: recorded numbers beyond the bound stay as they are.
        let within = |factor: f64| factor.min(scales.most / largest.max(f64::MIN_POSITIVE)).max(1.0);
        match kinds[(row + shift) % kinds.len()] {
            Extreme::Zeros => values.fill(0.0),
            Extreme::Tiny => values.iter_mut().for_each(|v| *v *= scales.tiny),
            Extreme::Large => {
                let factor = within(scales.large);
                values.iter_mut().for_each(|v| *v *= factor);
            }
            Extreme::Ties => {
                let first = values[0];
                values.fill(tie(first));
            }
            // Another column in each row.
            Extreme::Dominant => values[row % width] *= within(scales.dominant),
        }
    }
    Tensor::from_f64(input.dtype(), input.shape().to_vec(), &values)
}

/// The number of a row of ties, of the magnitude of a recorded one. It is √2 cut to 11 bits, times a power of two: its square,
/// and sums of a few of them, lie just below numbers of few bits, so that a sum which is cut to fewer bits than it should
/// have loses nearly a unit in its last place.
fn tie(recorded: f64) -> f64 {
    let power = recorded.abs().log2().floor().exp2();
    if recorded == 0.0 { recorded } else { 1.4140625 * power.copysign(recorded) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::op::RmsNorm;
    use tapml_graph::{Dim, TensorType};

    fn call(rows: usize) -> Call {
        let ty = TensorType::new(DType::F16, [Dim::symbol(Symbol::N), Dim::from(4usize)]);
        let values = (0..rows * 4).map(|i| 1.0 + i as f64 / 8.0).collect::<Vec<_>>();
        let w = TensorType::new(DType::F32, [4usize]);
        Call {
            node: "norm".into(),
            op: RmsNorm::new(1e-6).into(),
            symbols: Symbols::np(rows as u64, 0),
            inputs: vec![
                Tensor::from_f64(DType::F16, vec![rows, 4], &values).unwrap(),
                Tensor::from_f32(vec![4], vec![1.0; 4]).unwrap(),
            ],
            input_types: vec![ty.clone(), w],
            weights: vec![None, Some("w".into())],
            output_types: vec![ty],
        }
    }

    #[test]
    fn every_kind_has_a_row_and_weights_stay() {
        let recorded = call(5);
        assert_eq!(count(&recorded.op, &recorded.symbols), 1);
        let made = extreme_call(&recorded, 0).unwrap().unwrap();
        let values = made.inputs[0].to_f64();
        let row = |at: usize| &values[at * 4..][..4];
        assert_eq!(row(0), [0.0; 4]);
        assert_eq!(row(1)[0], 1.5 / 256.0);
        assert_eq!(row(2)[0], 16.0);
        assert_eq!(row(3), [2.828125; 4], "the recorded one is 2.5");
        assert_eq!((row(4)[0], row(4)[1]), (96.0, 3.125));
        assert_eq!(made.inputs[1].to_f64(), [1.0; 4]);
        made.check().unwrap();
    }

    #[test]
    fn one_row_takes_a_call_for_each_kind_and_large_numbers_stay_in_range() {
        let mut recorded = call(1);
        assert_eq!(count(&recorded.op, &recorded.symbols), 5);
        assert_eq!(extreme_call(&recorded, 3).unwrap().unwrap().inputs[0].to_f64(), [1.4140625; 4]);
        recorded.inputs[0] = Tensor::from_f64(DType::F16, vec![1, 4], &[2000.0, 1.0, 1.0, 1.0]).unwrap();
        assert_eq!(extreme_call(&recorded, 2).unwrap().unwrap().inputs[0].to_f64()[0], 2000.0);
    }
}
