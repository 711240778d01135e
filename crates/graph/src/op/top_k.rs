//! `top_k`: the greatest elements of each row, and where they stand.

use super::shape::{expect_inputs, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// For `x: f32[r, c]`: `values: f32[r, k]`, the `k` greatest elements of each row in falling order, and `indices: u32[r, k]`, their
/// columns. Of equal elements the first comes first.
///
/// A row has no order if an element is NaN or if the greatest is infinite. All its indices are then 2³²−1, and its values 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopK {
    /// Elements of each row, from 1 to its length.
    pub k: u32,
}

impl Operator for TopK {
    const NAME: &'static str = "top_k";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[1])?;
        let (rows, columns) = matrix("x", &inputs[0])?;
        if inputs[0].dtype != DType::F32 {
            return Err(Error::invalid(format!("`x` must be f32, found {}", inputs[0])));
        }
        let fits = |columns: u64| (1..=columns).contains(&u64::from(self.k));
        if !columns.as_const().is_some_and(fits) {
            return Err(Error::invalid(format!(
                "`k` must be from 1 to the length of a row, found {} of {columns}",
                self.k
            )));
        }
        let ty = |dtype| TensorType::new(dtype, [rows.clone(), u64::from(self.k).into()]);
        Ok(vec![ty(DType::F32), ty(DType::U32)])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, k, n, shape: &str, fill| {
            Sample::new(name, TopK { k }, n, 0).input(DType::F32, shape, fill)
        };
        vec![
            case("one of one", 1, 1, "n,1", Fill::Normal(1.0)),
            case("as many as there are", 33, 2, "n,33", Fill::Normal(1.0)),
            case("less than a part", 64, 3, "n,320", Fill::Normal(3.0)),
            case("several parts and a rest of few", 64, 2, "n,8200", Fill::Normal(3.0)),
            case("one of many", 1, 5, "n,5000", Fill::Normal(1.0)),
            // Few distinct numbers, so that many elements are equal.
            case("equal elements", 64, 3, "n,5000", Fill::Below(4)),
            case("NaN and infinities", 8, 40, "n,31", Fill::NotFinite(97)),
            case("NaN in one row", 64, 2, "n,4200", Fill::NotFinite(4000)),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
