//! `merge_squares`: joins the rows of each square of a grid into one row.

use super::shape::{expect_inputs, matrix};
use super::{Fill, Operator, Sample};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `x: [images·(lead + down·across), k]` holds for each image `lead` rows, which are left out, and the cells of a grid row
/// by row. Each square of `side` by `side` cells becomes one row, its cells side by side:
///
/// ```text
/// y[(m·down/side + r)·across/side + s, (i·side + j)·k + e] = x[m·(lead + down·across) + lead + (r·side + i)·across + s·side + j, e]
/// ```
///
/// with `y: [images·(down/side)·(across/side), side²·k]`. It is what vision models call merging patches or pixel unshuffle:
/// Dong et al., "InternLM-XComposer2-4KHD", 2024, section 3.2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MergeSquares {
    /// Rows of cells of an image; `side` divides it.
    pub down: u32,
    /// Columns of cells; `side` divides it.
    pub across: u32,
    /// Height and width of a square, cells.
    pub side: u32,
    /// Rows before each image's cells.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lead: u32,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl MergeSquares {
    /// Rows of `x` for each image.
    pub fn rows(&self) -> u64 {
        u64::from(self.lead) + u64::from(self.down) * u64::from(self.across)
    }
}

impl Operator for MergeSquares {
    const NAME: &'static str = "merge_squares";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[1])?;
        let (rows, columns) = matrix("x", &inputs[0])?;
        // Images have a constant number of patches.
        let (Some(rows), Some(columns)) = (rows.as_const(), columns.as_const()) else {
            return Err(Error::invalid(format!("`x` must have constant sizes, found {}", inputs[0])));
        };
        let MergeSquares { down, across, side, .. } = *self;
        let divides = side > 0 && down.is_multiple_of(side) && across.is_multiple_of(side);
        if !divides || down == 0 || across == 0 {
            return Err(Error::invalid(format!("`side` {side} must divide `down` {down} and `across` {across}")));
        }
        if !rows.is_multiple_of(self.rows()) {
            let expected = self.rows();
            return Err(Error::invalid(format!("`x` must have {expected} rows for each image, found {rows}")));
        }
        // As 64 bits, so that products of two sizes do not overflow.
        let [down, across, side] = [down, across, side].map(u64::from);
        let squares = (down / side * (across / side)).checked_mul(rows / self.rows());
        let (Some(squares), Some(columns)) = (squares, columns.checked_mul(side * side)) else {
            return Err(Error::invalid(format!("the squares of {} overflow", inputs[0])));
        };
        Ok(vec![TensorType::new(inputs[0].dtype, [Dim::from(squares), Dim::from(columns)])])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, [down, across, side, lead]: [u32; 4], shape: &str, dtype| {
            let empty = Sample::new(name, MergeSquares { down, across, side, lead }, 2, 0);
            empty.input(dtype, shape, Fill::Normal(1.0))
        };
        vec![
            case("squares of two", [4, 6, 2, 0], "24,40", DType::F32),
            case("images with a row before each", [4, 4, 2, 1], "51,33", DType::F32),
            case("squares of three, rows before", [3, 6, 3, 2], "40,7", DType::F32),
            case("one square", [2, 2, 2, 0], "4,130", DType::F32),
            case("squares of one", [2, 3, 1, 1], "14,9", DType::F32),
            case("f16, odd size", [2, 4, 2, 1], "18,21", DType::F16),
        ]
    }
}
