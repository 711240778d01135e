//! `embedding`: rows of a table chosen by token ids.

use super::shape::{expect_inputs, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use crate::packing::Packing;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// `y[i, :] = table[ids[i], :]` for `ids: u32[n]`, `table: [vocab, width]`, rounded to `dtype`.
///
/// An id outside the table is the caller's error; it is refused where ids enter, not here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embedding {
    /// Dtype of the output.
    pub dtype: DType,
}

impl Operator for Embedding {
    const NAME: &'static str = "embedding";

    /// `ids: u32[n]` and `table: [vocab, width]` give `[n, width]` in the dtype of the attribute.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[2])?;
        let [count] = inputs[0].shape.as_slice() else {
            return Err(Error::invalid(format!("`ids` must be a u32 vector, found {}", inputs[0])));
        };
        if inputs[0].dtype != DType::U32 {
            return Err(Error::invalid(format!("`ids` must be a u32 vector, found {}", inputs[0])));
        }
        let (_, width) = matrix("table", &inputs[1])?;
        Ok(vec![TensorType::new(self.dtype, [count.clone(), width.clone()])])
    }

    /// The table.
    fn packed_inputs(&self) -> Range<usize> {
        1..2
    }

    /// Several dtypes and every packing of a table of 37 rows.
    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, width: usize, table, dtype| {
            Sample::new(name, Embedding { dtype }, n, 0)
                .input(DType::U32, "n", Fill::Below(37))
                .input(table, &format!("37,{width}"), Fill::Normal(0.5))
        };
        let packed = |name: &str, n, width, packing: Packing, dtype| {
            Sample::new(name, Embedding { dtype }, n, 0)
                .input(DType::U32, "n", Fill::Below(37))
                .with_packed(packing, "37", width)
        };
        let int = Packing::integers;
        let mut samples = vec![
            case("prefill", 9, 40, DType::F32, DType::F32),
            case("decode", 1, 320, DType::BF16, DType::F32),
            case("odd width, f16 table", 3, 33, DType::F16, DType::F32),
            case("f16 output", 5, 40, DType::BF16, DType::F16),
            packed("int4, prefill", 9, 64, int(4, 32, false), DType::F32),
            packed("int8, decode", 1, 1024, int(8, 32, false), DType::F32),
            packed("int4, zeros", 3, 40, int(4, 8, true), DType::F32),
            packed("int8, zeros, f16 output", 5, 96, int(8, 32, true), DType::F16),
            packed("e4m3", 7, 96, Packing::floats(32), DType::F32),
            packed("e4m3, f16 output", 4, 64, Packing::floats(64), DType::F16),
        ];
        let each = Packing::of_each_code();
        samples.extend(each.map(|code| packed(&format!("{code}, every code"), 6, 96, code, DType::F32)));
        samples
    }
}
