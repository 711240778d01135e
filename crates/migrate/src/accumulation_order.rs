//! The probe of sums: whether a kernel adds up more products one after the other than it declares. Verdicts allow what
//! rounding may do in chains of that length, and on recorded inputs a chain several times longer stays within it.
//!
//! The probe is a call of an operator that [gives dot products](tapml_graph::Operator::dot_product), with weights of 1. A row
//! of its activations holds a large number `M`, its opposite `-M`, and everywhere else `s`, half of the distance of the numbers
//! next to `M`: a sum that has met `M` and not yet `-M` loses every `s` that is added to it. All products are exact, and so is
//! the result, `(K - 2) s`. In whichever order a kernel adds, if no chain is longer than `L` and chains meet in a tree, its
//! error is at most (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 4.2)
//!
//! ```text
//! (L + log2 K + 2) · u · Σ|terms|,   Σ|terms| = 2 M + (K - 2) s
//! ```
//!
//! with the roundoff `u` of f32, plus the rounding of the result. That is a bound, not a chance: a kernel that keeps what it
//! declares is never blamed. One that adds all `K` products one by one loses nearly all of them. Probed are kernels that
//! [promise to keep their chain](tapml_exec::Accumulate::keeps_chain).

use crate::overflow::Overflow;
use crate::verdict::{Precision, STORAGE};
use rayon::prelude::*;
use tapml_exec::Call;
use tapml_graph::op::DotProduct;
use tapml_graph::{Bytes, DType, Result, Tensor};

/// Shorter sums lose no more than the bound allows.
const TERMS: usize = 64;

/// A small number and the large one to which it may be added without effect, both of the dtype.
///
/// The large one is 2^24 times the small one: an f32 sum has 24 bits. In f16 it is 2^15, which is finite.
fn numbers(dtype: DType) -> Option<(f64, f64)> {
    let small = match dtype {
        DType::F32 | DType::BF16 => 1.0,
        DType::F16 => 2f64.powi(-9),
        _ => return None,
    };
    Some((small, small * 2f64.powi(24)))
}

/// The call that probes the sums of a recorded one; `None` if it forms none of this kind.
pub fn order_call(call: &Call) -> Result<Option<Call>> {
    let Some(DotProduct { activations, weights }) = call.op.dot_product() else { return Ok(None) };
    let (Some(x), Some(w)) = (call.inputs.get(activations), call.inputs.get(weights)) else {
        return Ok(None);
    };
    // Kernels for packed weights scale groups of activations by their largest, which this row would mislead.
    if w.dtype().packing().is_some() {
        return Ok(None);
    }
    let terms = x.row_len();
    let Some((small, large)) = numbers(x.dtype()).filter(|_| terms >= TERMS && !x.is_empty()) else {
        return Ok(None);
    };
    let mut values = vec![small; x.len()];
    for (i, row) in values.chunks_mut(terms).enumerate() {
        // The large numbers stand at the ends and in the middle, so that a tile or a half has one of them
        // alone.
        let (first, last) = [(0, terms - 1), (terms - 1, 0), (0, terms / 2), (terms / 2, terms - 1)][i % 4];
        (row[first], row[last]) = (large, -large);
    }
    let like = |t: &Tensor, values: &[f64]| Tensor::from_f64(t.dtype(), t.shape().to_vec(), values);
    let inputs = call.inputs.iter().enumerate().map(|(at, input)| {
        if at == activations {
            like(input, &values)
        } else if at == weights {
            fill_ones(input)
        } else {
            // Addends are zero: the result is exactly `(K - 2) s` then.
            like(input, &vec![0.0; input.len()])
        }
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    // No input is a weight by name: the ones must not be taken for the checkpoint's.
    let weights = vec![None; inputs.len()];
    Ok(Some(Call { inputs, weights, ..call.clone() }))
}

/// Ones of the same type, row by row: a head has gigabytes of them.
fn fill_ones(like: &Tensor) -> Result<Tensor> {
    let row = Tensor::from_f64(like.dtype(), vec![like.row_len()], &vec![1.0; like.row_len()])?;
    let row: &[u8] = row.bytes();
    let mut bytes = vec![0; like.bytes().len()];
    bytes.par_chunks_mut(row.len().max(1)).for_each(|to| to.copy_from_slice(row));
    Tensor::new(like.dtype(), like.shape().to_vec(), Bytes::new(bytes))
}

/// Where the outputs of a probe show longer chains than the kernel declares; `names` are its node and kernel hash.
pub fn longer(call: &Call, outputs: &[Tensor], declared: Precision, names: (&str, &str)) -> Option<Overflow> {
    let input = call.inputs.get(call.op.dot_product()?.activations)?;
    let (small, large) = numbers(input.dtype())?;
    let terms = input.row_len() as f64;
    // The formula holds for f32, and a kernel without sums has no chain.
    if declared.accumulate != DType::F32 || declared.terms == 0 {
        return None;
    }
    let unit = declared.accumulate.unit_roundoff() * (2.0 * large + (terms - 2.0) * small);
    let allowed = unit * (declared.terms as f64 + terms.log2() + 2.0);
    // Of every element.
    let exact = (terms - 2.0) * small;
    let (mut wrong, mut all, mut worst) = (0, 0, (0.0, 0.0));
    for output in outputs {
        let storage = STORAGE * output.dtype().unit_roundoff() * exact;
        for found in output.to_f64() {
            let beyond = (found - exact).abs() - storage;
            all += 1;
            // NaN and infinity have other reasons.
            if found.is_finite() && beyond > allowed {
                wrong += 1;
                worst = if beyond > worst.0 { (beyond, found) } else { worst };
            }
        }
    }
    (wrong > 0).then(|| Overflow {
        node: names.0.into(),
        kernel_hash: names.1.into(),
        input: large,
        exact,
        observed: format!("{}", worst.1),
        recorded: 0.0,
        elements: [wrong, all],
        sharp: false,
        chain: Some([declared.terms as u64, (worst.0 / unit) as u64]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Oracles;
    use tapml_graph::op::Linear;
    use tapml_graph::{Dim, Symbol, Symbols, TensorType};

    fn call(dtype: DType, terms: usize) -> Call {
        let types = [
            TensorType::new(dtype, [Dim::from(Symbol::N), Dim::from(terms)]),
            TensorType::new(dtype, [3usize, terms]),
        ];
        let output = TensorType::new(dtype, [Dim::from(Symbol::N), Dim::from(3usize)]);
        let tensor =
            |rows: usize| Tensor::from_f64(dtype, vec![rows, terms], &vec![0.5; rows * terms]).unwrap();
        Call {
            node: "sum".into(),
            op: Linear::default().into(),
            symbols: Symbols::np(4, 0),
            inputs: vec![tensor(4), tensor(3)],
            input_types: types.to_vec(),
            weights: vec![None, Some("w".into())],
            output_types: vec![output],
        }
    }

    /// Sums of runs of this length, and then of the runs.
    fn sum_runs(call: &Call, run: usize) -> Vec<Tensor> {
        let x = call.inputs[0].to_f32();
        let sum =
            |row: &[f32]| row.chunks(run).map(|r| r.iter().fold(0.0, |a, b| a + b)).fold(0.0, |a, b| a + b);
        let y: Vec<f32> = x.chunks(call.inputs[0].row_len()).flat_map(|row| [sum(row); 3]).collect();
        vec![Tensor::from_f32_as(call.inputs[0].dtype(), vec![4, 3], y).unwrap()]
    }

    #[test]
    fn a_chain_longer_than_declared_is_told_and_no_shorter_one() {
        for (dtype, terms) in [(DType::F32, 160), (DType::F32, 2048), (DType::F16, 192), (DType::BF16, 768)] {
            let probed = order_call(&call(dtype, terms)).unwrap().unwrap();
            let exact = Oracles::new(0).exact(&probed, 0).unwrap();
            let declared = Precision { accumulate: DType::F32, terms: 32 + terms.div_ceil(32) };
            let sum = (terms - 2) as f64 * numbers(dtype).unwrap().0;
            assert!(exact[0].values.len() == 12 && exact[0].values.iter().all(|&v| v == sum));
            let told = |run| longer(&probed, &sum_runs(&probed, run), declared, ("sum", "hash"));
            for run in [1, 2, 8, 32] {
                let longest = run + terms.div_ceil(run);
                assert!(longest > declared.terms || told(run).is_none(), "{dtype} {terms} in runs of {run}");
            }
            let found = told(terms).expect("one by one");
            let [allowed, shown] = found.chain.unwrap();
            assert!(allowed == declared.terms as u64 && shown > allowed, "{found:?}");
            assert!(found.text().contains("one after the other"), "{}", found.text());
        }
        assert!(order_call(&call(DType::F32, 32)).unwrap().is_none(), "too short to tell");
    }
}
