//! `dequantize`: the numbers that a packed weight stands for.

use super::shape::expect_inputs;
use super::{Operator, Sample};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use crate::packing::Packing;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The numbers of a packed weight `w: [o, k]` or `[count, o, k]` as f32, exactly; see [`Packing`] for what they are. Of a
/// weight that is not packed: itself as f32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dequantize {}

impl Operator for Dequantize {
    const NAME: &'static str = "dequantize";

    /// A matrix or a stack of matrices of a float dtype, packed ones too, gives the same shape in `f32`.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[1])?;
        // Inference sees a packed dtype as f32.
        if !matches!(inputs[0].shape.len(), 2 | 3) || !inputs[0].dtype.is_float() {
            return Err(Error::invalid(format!("`w` must be a weight, found {}", inputs[0])));
        }
        Ok(vec![TensorType { dtype: DType::F32, shape: inputs[0].shape.clone() }])
    }

    fn packed_inputs(&self) -> Range<usize> {
        0..1
    }

    /// Every packing, with zero points and without, the smallest groups, and stacks.
    fn samples() -> Vec<Sample> {
        let case = |name: &str, packing: Packing, rows: &str, k: u32| {
            Sample::new(name, Dequantize {}, 1, 0).with_packed(packing, rows, k)
        };
        let int = Packing::integers;
        let mut samples = vec![
            case("int4", int(4, 32, false), "19", 96),
            case("int4, zeros", int(4, 128, true), "9", 256),
            case("int8", int(8, 32, false), "7", 96),
            case("int8, zeros, the smallest group", int(8, 4, true), "5", 12),
            case("a stack", int(4, 8, true), "3,5", 40),
            case("e4m3", Packing::floats(32), "31", 96),
            case("e4m3, the smallest group, a stack", Packing::floats(4), "2,9", 20),
        ];
        let each = Packing::of_each_code();
        samples.extend(each.map(|code| case(&format!("{code}, a stack of two"), code, "2,9", 96)));
        samples
    }
}
