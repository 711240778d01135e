//! `dequantize`: the numbers that packed integers with scales stand for.

use super::shape::expect_inputs;
use super::{Fill, Operator, Packing, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[o, j] = (q[o, j] − zero[o, j / group]) · scale[o, j / group]` for `words: u32[o, k·bits/32]`,
/// `scale: f16[o, k/group]` and, if `zeros`, `zero: f16[o, k/group]` (whole numbers): output `f32[o, k]`, exact.
///
/// A word holds its elements low bits first: element `j` of a row is bits `bits·(j mod 32/bits)` and up of word
/// `j·bits / 32`. Without zeros the zero point is the middle of the range, 8 or 128. All inputs may have one more size in
/// front, the matrices of a stack. `group` is a multiple of the elements of a word and divides `k`.
///
/// With `float`, `bits` is 8, there are no zero points, and `y[o, j] = float8(q[o, j]) · scale[o, j / group]`; see
/// [`super::float8`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dequantize {
    /// Bits of one element: 4 or 8.
    pub bits: u32,
    /// Neighbouring elements of a row that share a scale.
    pub group: u32,
    /// Whether each group has a zero point of its own.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub zeros: bool,
    /// Whether elements are numbers of 8 bits instead of integers.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub float: bool,
}

impl Dequantize {
    /// The operator for weights packed like this.
    pub fn of(packing: Packing) -> Dequantize {
        let Packing { bits, group, zeros, float } = packing;
        Dequantize { bits, group, zeros, float }
    }

    /// How its input is packed.
    pub fn packing(&self) -> Packing {
        Packing { bits: self.bits, group: self.group, zeros: self.zeros, float: self.float }
    }
}

impl Operator for Dequantize {
    const NAME: &'static str = "dequantize";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[self.packing().parts()])?;
        Ok(vec![self.packing().weight("w", inputs)?])
    }

    fn samples() -> Vec<Sample> {
        let of = |name: &str, packing: Packing, rows: &str, k: u32| {
            Sample::new(name, Dequantize::of(packing), 1, 0).packed(packing, rows, k)
        };
        let case = |name: &str, bits, group, zeros, rows: &str, k: u32| {
            of(name, Packing::integers(bits, group, zeros), rows, k)
        };
        vec![
            case("4 bits", 4, 32, false, "19", 96),
            case("4 bits, zeros", 4, 128, true, "9", 256),
            case("8 bits", 8, 32, false, "7", 96),
            case("8 bits, zeros, the smallest group", 8, 4, true, "5", 12),
            case("a stack", 4, 8, true, "3,5", 40),
            of("fp8", Packing::floats(32), "31", 96),
            of("fp8, the smallest group, a stack", Packing::floats(4), "2,9", 20),
        ]
    }
}

impl Sample {
    /// Adds the inputs that make up a weight of `rows`, such as `"4,32"`, of `k` elements each.
    pub(super) fn packed(self, packing: Packing, rows: &str, k: u32) -> Sample {
        let (words, groups) = (k / packing.per_word(), k / packing.group);
        let spread = match (packing.float, packing.bits) {
            (true, _) => 0.25,
            (false, 4) => 0.02,
            _ => 0.002,
        };
        let sample = self
            .input(DType::U32, &format!("{rows},{words}"), Fill::Below(u32::MAX))
            .input(DType::F16, &format!("{rows},{groups}"), Fill::Around(spread, spread / 4.0));
        match packing.zeros {
            true => sample.input(DType::F16, &format!("{rows},{groups}"), Fill::Below(1 << packing.bits)),
            false => sample,
        }
    }
}
