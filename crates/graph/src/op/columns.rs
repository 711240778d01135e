//! `columns`: takes the same columns out of every group of columns.

use super::shape::{expect_inputs, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[i, g·count + j] = x[i, g·group + first + j]` for `j < count` and every group `g`: `x: [n, groups·group]` gives
/// `y: [n, groups·count]`.
///
/// Takes a fused projection apart: one group if its parts lie side by side, one group per head if each head has its
/// own query, key and value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// Columns of one group; divides those of `x`.
    pub group: u32,
    /// First column taken of each group.
    pub first: u32,
    /// Columns taken of each group.
    pub count: u32,
}

impl Operator for Columns {
    const NAME: &'static str = "columns";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[1])?;
        let (rows, columns) = matrix("x", &inputs[0])?;
        let (group, first, count) = (u64::from(self.group), u64::from(self.first), u64::from(self.count));
        let groups = columns.as_const().filter(|c| group > 0 && c.is_multiple_of(group)).map(|c| c / group);
        // As 64 bits, so that the sum does not overflow.
        let inside = count > 0 && first + count <= group;
        let Some(groups) = groups.filter(|_| inside) else {
            return Err(Error::invalid(format!(
                "columns {first} to {} (exclusive) must lie within a `group` of {group}, which must divide {columns}",
                first + count
            )));
        };
        Ok(vec![TensorType::new(inputs[0].dtype, [rows.clone(), crate::Dim::from(groups * count)])])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, groups: u32, [group, first, count]: [u32; 3], dtype| {
            let columns = groups * group;
            Sample::new(name, Columns { group, first, count }, n, 0)
                .input(dtype, &format!("n,{columns}"), Fill::Normal(1.0))
        };
        vec![
            case("queries of each head", 9, 6, [96, 0, 32], DType::F32),
            case("keys of each head, decode", 1, 6, [96, 32, 32], DType::F32),
            case("values of each head, odd sizes", 3, 5, [21, 14, 7], DType::F32),
            case("one group", 5, 1, [300, 150, 75], DType::F32),
            case("one column", 17, 1, [33, 32, 1], DType::F32),
            case("all columns", 2, 3, [11, 0, 11], DType::F32),
            case("f16", 4, 2, [24, 8, 8], DType::F16),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
