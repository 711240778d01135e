//! `argmax`: the index of the greatest element of each row, behind those that were found before.

use super::shape::{expect_inputs, matrix};
use super::{Fill, Operator, Sample};
use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// For `found: u32[m]` and `x: f32[r, k]`, `r` at most `n`: `u32[m+n]`, which is `found` with an entry for each of the `n` new rows
/// behind it, and the indices of the rows of `x`, `u32[r]`.
///
/// The index of a row is that of its greatest element, `min { j : x[i,j] = max_l x[i,l] }`: of equal elements the first. A row
/// has no index if an element is NaN or if the greatest is infinite. Its entry in the first output is then 2³²−1, and in
/// the second output 0, so that it can be looked up. The rows of `x` are the last of the new ones; the entries of those before
/// them are 2³²−1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argmax {}

impl Operator for Argmax {
    const NAME: &'static str = "argmax";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[2])?;
        let [before] = inputs[0].shape.as_slice() else {
            return Err(Error::invalid(format!("`found` must be a vector, found {}", inputs[0])));
        };
        let (rows, _) = matrix("x", &inputs[1])?;
        if (inputs[0].dtype, inputs[1].dtype) != (DType::U32, DType::F32) {
            let text = format!("expected u32 and f32, found {} and {}", inputs[0].dtype, inputs[1].dtype);
            return Err(Error::invalid(text));
        }
        // One entry for each new token, also where `x` has only the last row.
        let after = before.checked_add(&Dim::symbol(Symbol::N));
        let after = after.ok_or_else(|| Error::invalid("the row count overflows"))?;
        Ok(vec![TensorType::new(DType::U32, [after]), TensorType::new(DType::U32, [rows.clone()])])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, p, shape: &str, fill| {
            Sample::new(name, Argmax {}, n, p).input(DType::U32, "p", Fill::Below(1000)).input(
                DType::F32,
                shape,
                fill,
            )
        };
        vec![
            case("decode", 1, 9, "n,4096", Fill::Normal(3.0)),
            case("first token", 1, 0, "1,33", Fill::Normal(1.0)),
            // Few distinct numbers, so that many elements are the greatest.
            case("equal elements", 1, 3, "n,5000", Fill::Below(4)),
            case("prefill, a row for each", 7, 2, "n,320", Fill::Normal(1.0)),
            case("prefill, the last row alone", 5, 4, "1,1025", Fill::Below(7)),
            case("NaN and infinities", 40, 0, "n,31", Fill::NotFinite(97)),
            case("NaN in one row", 1, 6, "1,2048", Fill::NotFinite(2000)),
        ]
    }

    fn appends(&self) -> bool {
        true
    }
}
