//! A recorded call at other sizes: its rows in turn, each number scaled by a factor of its own.
//!
//! Only a value's first size may be symbolic: a call has more rows or fewer, and rows of the same width.

use super::call::with_inputs;
use tapml_exec::Call;
use tapml_graph::{Bytes, Dim, Result, Symbol, Symbols, Tensor, byte_len};

/// Bytes of the inputs and outputs of a made call at most, weights not counted.
const MOST_BYTES: usize = 256 << 20;
/// The least factor of a number.
const LEAST: f64 = 0.75;

/// The call at other sizes, its numbers of this size of the recorded ones at most, or why there is none.
pub(super) fn resize_call(
    recorded: &Call,
    outputs: &[Tensor],
    sizes: &Symbols,
    size: f64,
) -> Result<std::result::Result<Call, String>> {
    if recorded.op.overwrites() {
        return Ok(Err("each row has a place of its own, which no other row may take".into()));
    }
    // All symbols but those of rows keep their recorded values.
    let symbols = recorded.symbols.iter().filter(|(symbol, _)| ![Symbol::N, Symbol::P].contains(symbol));
    let symbols = symbols.fold(sizes.clone(), |all, (symbol, value)| all.with_symbol(symbol, value));
    let mut shapes = Vec::new();
    for ty in recorded.input_types.iter().chain(&recorded.output_types) {
        if ty.shape.iter().skip(1).any(|dim| dim.as_const().is_none()) {
            return Ok(Err(format!("a value of {ty} has more than its rows to extend")));
        }
        shapes.push(ty.sizes(&symbols)?);
    }
    let given = recorded.weights.iter().map(Option::is_none).chain(outputs.iter().map(|_| true));
    let types = recorded.input_types.iter().chain(&recorded.output_types);
    let bytes = types.zip(&shapes).zip(given).filter(|(_, given)| *given);
    let bytes = bytes
        .map(|((ty, shape), _)| byte_len(ty.dtype, shape))
        .try_fold(0usize, |all, more| all.checked_add(more?));
    if bytes.is_none_or(|bytes| bytes > MOST_BYTES) {
        return Ok(Err(format!("a call of these sizes takes more than {} MiB", MOST_BYTES >> 20)));
    }
    // Set by the closure: a cache without rows is a reason, not an error.
    let mut without_rows = false;
    let made = with_inputs(recorded, |at, input| {
        if recorded.input_types[at].shape.first().is_none_or(|rows: &Dim| rows.as_const().is_some()) {
            return Ok(None);
        }
        // Values of the same dtype and width take the place of an empty cache's.
        let like = |other: &&Tensor| {
            other.dtype() == input.dtype() && other.row_len() == input.row_len() && !other.is_empty()
        };
        let unweighted = recorded.inputs.iter().zip(&recorded.weights).filter(|(_, name)| name.is_none());
        let others = unweighted.map(|(tensor, _)| tensor).chain(outputs);
        let Some(rows) = std::iter::once(input).chain(others).find(like) else {
            without_rows = true;
            return Ok(None);
        };
        extend_rows(rows, shapes[at].clone(), at as u64, size).map(Some)
    })?;
    if without_rows {
        return Ok(Err("no recorded value has rows to extend an empty cache with".into()));
    }
    Ok(Ok(Call { symbols, ..made.unwrap_or_else(|| recorded.clone()) }))
}

/// So many rows, each one of these in turn; numbers are scaled.
fn extend_rows(rows: &Tensor, shape: Vec<usize>, salt: u64, size: f64) -> Result<Tensor> {
    let (count, width) = (shape.first().copied().unwrap_or(1), rows.row_len());
    let known = rows.len() / width.max(1);
    // Behind the last row the order begins anew, one further on.
    let from = |row: usize| (row + row / known.max(1)) % known.max(1);
    if !rows.dtype().is_float() {
        let bytes = rows.bytes();
        // Integers, such as ids and positions, are copied as they are.
        let each = bytes.len() / known.max(1);
        let all = (0..count).flat_map(|row| bytes[from(row) * each..][..each].iter().copied());
        return Tensor::new(rows.dtype(), shape, Bytes::new(all.collect::<Vec<u8>>()));
    }
    let values = rows.to_f64();
    let scaled = (0..count).flat_map(|row| {
        let own = &values[from(row) * width..][..width];
        let scale = move |at: usize| size * factor(salt, (row * width + at) as u64);
        own.iter().enumerate().map(move |(at, value)| value * scale(at))
    });
    Tensor::from_f64(rows.dtype(), shape, &scaled.collect::<Vec<f64>>())
}

/// A factor between [`LEAST`] and 1 for this place: the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast Splittable
/// Pseudorandom Number Generators", 2014).
fn factor(salt: u64, place: u64) -> f64 {
    let mut bits = place.wrapping_add(salt << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    LEAST + (1.0 - LEAST) * ((bits >> 11) as f64 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::op::{Append, Linear};
    use tapml_graph::{DType, TensorType};

    fn tensor(rows: usize, width: usize) -> Tensor {
        let values = (0..rows * width).map(|i| 1.0 + i as f32).collect();
        Tensor::from_f32(vec![rows, width], values).unwrap()
    }

    fn matrix(rows: &str, width: usize) -> TensorType {
        TensorType::new(DType::F32, [rows.parse::<Dim>().unwrap(), Dim::from(width)])
    }

    #[test]
    fn rows_are_recorded_ones_in_turn_and_no_two_are_the_same() {
        let long = extend_rows(&tensor(3, 2), vec![7, 2], 0, 1.0).unwrap();
        let values = long.to_f64();
        for (row, of) in [0, 1, 2, 1, 2, 0, 2].into_iter().enumerate() {
            for at in 0..2 {
                let share = values[row * 2 + at] / (1.0 + (of * 2 + at) as f64);
                assert!((LEAST..=1.0).contains(&share), "row {row} is of row {of}: {values:?}");
            }
        }
        let mut all: Vec<u64> = values.iter().map(|v| v.to_bits()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 14);
        let ids = Tensor::from_u32(vec![2], vec![5, 9]).unwrap();
        assert_eq!(
            extend_rows(&ids, vec![5], 0, 1.0).unwrap().to_u32().unwrap(),
            [5, 9, 9, 5, 5],
            "as they are"
        );
    }

    #[test]
    fn weights_stay_and_an_empty_cache_takes_rows_of_its_width() {
        let append = Call {
            node: "keep".into(),
            op: Append {}.into(),
            symbols: Symbols::np(3, 0),
            inputs: vec![tensor(0, 4), tensor(3, 4)],
            input_types: vec![matrix("p", 4), matrix("n", 4)],
            weights: vec![None, None],
            output_types: vec![matrix("n+p", 4)],
        };
        let made = resize_call(&append, &[tensor(3, 4)], &Symbols::np(2, 5), 0.5).unwrap().unwrap();
        assert_eq!(made.inputs.iter().map(|t| t.shape().to_vec()).collect::<Vec<_>>(), [[5, 4], [2, 4]]);
        made.check().unwrap();
        assert_eq!(
            made.inputs[1].to_f64().iter().map(|v| v.ceil()).fold(0.0, f64::max),
            4.0,
            "half of 8 at most"
        );
        let linear = Call {
            op: Linear::default().into(),
            inputs: vec![tensor(3, 4), tensor(2, 4)],
            input_types: vec![matrix("n", 4), matrix("2", 4)],
            weights: vec![None, Some("w".into())],
            output_types: vec![matrix("n", 2)],
            ..append
        };
        let made = resize_call(&linear, &[tensor(3, 2)], &Symbols::np(33, 0), 1.0).unwrap().unwrap();
        assert_eq!((made.inputs[0].shape(), made.inputs[1].to_f64()), (&[33, 4][..], tensor(2, 4).to_f64()));
        made.check().unwrap();
        let huge = resize_call(&linear, &[tensor(3, 2)], &Symbols::np(1 << 30, 0), 1.0).unwrap();
        assert!(huge.is_err_and(|reason| reason.contains("256 MiB")));
    }
}
