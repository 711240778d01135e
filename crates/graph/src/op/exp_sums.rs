//! `exp_sums`: what a softmax divides by, part by part of each row.

use super::shape::{expect_inputs, expect_vector, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// For `x: f32[r, c]` and `scales: f32[r]`, whose rows are seen as `m = ⌈c / part⌉` parts: `maxima: f32[r, m]`, the greatest element
/// of each part, and `sums: f32[r, m]`, the sum over its elements of `exp(scale · (x − maximum))`.
///
/// Both are 0 where an element is NaN, where the greatest is infinite, and in rows whose scale is not above 0 and finite: such
/// rows cost nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpSums {
    /// Elements of each part but the last, which may have fewer.
    pub part: u32,
}

impl Operator for ExpSums {
    const NAME: &'static str = "exp_sums";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[2])?;
        let (rows, columns) = matrix("x", &inputs[0])?;
        expect_vector("scales", &inputs[1], rows)?;
        if let Some(other) = inputs.iter().find(|input| input.dtype != DType::F32) {
            return Err(Error::invalid(format!("`x` and `scales` must be f32, found {other}")));
        }
        let columns = columns.as_const().filter(|&columns| columns > 0 && self.part > 0);
        let columns = columns.ok_or_else(|| {
            Error::invalid(format!("`part` and the length of a row must be above 0, found {}", self.part))
        })?;
        let ty = TensorType::new(DType::F32, [rows.clone(), columns.div_ceil(u64::from(self.part)).into()]);
        Ok(vec![ty.clone(), ty])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, part, n, columns: u32, fill, scales| {
            Sample::new(name, ExpSums { part }, n, 0)
                .input(DType::F32, &format!("n,{columns}"), fill)
                .input(DType::F32, "n", Fill::Values(scales))
        };
        vec![
            case("one of one", 1024, 1, 1, Fill::Normal(1.0), "1"),
            case("less than a part", 1024, 3, 320, Fill::Normal(3.0), "1,0.5,2"),
            case("several parts and a rest of few", 1024, 2, 4100, Fill::Normal(3.0), "1.25,0.7"),
            case("small parts", 8, 5, 33, Fill::Normal(3.0), "1"),
            case("rows that are passed over", 64, 6, 100, Fill::Normal(1.0), "0,1,-1,3,-0,2"),
            case("far apart", 1024, 2, 2000, Fill::Spiky(300.0), "1,0.01"),
            case("equal elements", 1024, 3, 3000, Fill::Values("2"), "1"),
            case("NaN and infinities", 8, 40, 31, Fill::NotFinite(97), "1"),
            case("parts of -infinity alone", 1, 3, 30, Fill::NotFinite(3), "1"),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
