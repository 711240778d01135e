//! `quantized_expert_linear`: rows times the transposed matrices of the chosen experts, which are stored quantised.

use super::packing::Packed;
use super::{ExpertLinear, Fill, Operator, Packing, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, TensorType};
use serde::{Deserialize, Serialize};

/// [`ExpertLinear`] whose `w: [count, out, in]` is given as [`super::Dequantize`] takes it: inputs `x`, `words`, `scale`,
/// `zero` if `zeros`, `experts`, and optionally `b`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuantizedExpertLinear {
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

impl QuantizedExpertLinear {
    /// The operator for weights packed like this.
    pub fn of(packing: Packing) -> QuantizedExpertLinear {
        let Packing { bits, group, zeros, float } = packing;
        QuantizedExpertLinear { bits, group, zeros, float }
    }

    /// How its weights are packed.
    pub fn packing(&self) -> Packing {
        Packing { bits: self.bits, group: self.group, zeros: self.zeros, float: self.float }
    }

    fn packed(&self) -> Packed {
        Packed { packing: self.packing(), plain: ExpertLinear {}.into(), weights: 1..2 }
    }
}

impl Operator for QuantizedExpertLinear {
    const NAME: &'static str = "quantized_expert_linear";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        self.packed().infer(inputs)
    }

    fn definition(&self, inputs: &[TensorType]) -> Option<Result<Graph>> {
        Some(self.packed().definition(Self::NAME, inputs))
    }

    fn samples() -> Vec<Sample> {
        let of = |name: &str, n, [count, slots]: [u32; 2], [o, k, columns]: [u32; 3], packing: Packing, x| {
            Sample::new(name, QuantizedExpertLinear::of(packing), n, 0)
                .input(x, &format!("n,{columns}"), Fill::Normal(1.0))
                .packed(packing, &format!("{count},{o}"), k)
                .input(DType::U32, &format!("n,{slots}"), Fill::Below(count))
        };
        let case = |name: &str, n, chosen, sizes, [bits, group]: [u32; 2], zeros, x| {
            of(name, n, chosen, sizes, Packing::integers(bits, group, zeros), x)
        };
        let bias = |sample: Sample, dtype, [count, o]: [u32; 2]| {
            sample.input(dtype, &format!("{count},{o}"), Fill::Normal(1.0))
        };
        vec![
            case("shared rows", 17, [6, 2], [40, 64, 64], [4, 32], false, DType::F32),
            case("a block for each slot", 13, [6, 2], [24, 128, 256], [4, 32], false, DType::F32),
            case("decode", 1, [16, 4], [96, 160, 160], [4, 32], false, DType::F32),
            case("decode, blocks", 1, [9, 4], [64, 256, 1024], [4, 32], false, DType::F32),
            case("f16, decode", 1, [9, 4], [48, 384, 384], [4, 32], false, DType::F16),
            case("f16, decode, blocks", 1, [9, 4], [272, 1408, 5632], [4, 32], false, DType::F16),
            case("f16, decode, zeros", 1, [9, 2], [32, 512, 512], [4, 128], true, DType::F16),
            case("f16, decode, 8 bits, blocks", 1, [9, 3], [32, 384, 1152], [8, 32], false, DType::F16),
            case("f16, experts of many rows and of few", 90, [7, 3], [272, 384, 384], [4, 32], false, DType::F16),
            case("f16, many rows, blocks", 70, [2, 2], [40, 1408, 2816], [4, 32], false, DType::F16),
            case("odd outputs", 5, [3, 2], [35, 40, 40], [4, 8], true, DType::F32),
            case("8 bits, one slot, many rows", 70, [2, 1], [33, 64, 64], [8, 32], false, DType::F32),
            bias(case("zeros and bias", 10, [5, 3], [21, 128, 128], [4, 128], true, DType::F32), DType::F32, [5, 21]),
            bias(case("f16", 9, [4, 2], [32, 32, 64], [8, 32], false, DType::F16), DType::BF16, [4, 32]),
            of("fp8", 21, [6, 2], [24, 128, 256], Packing::floats(32), DType::F32),
            bias(of("fp8, decode, f16, bias", 1, [4, 2], [35, 64, 64], Packing::floats(8), DType::F16), DType::BF16, [4, 35]),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
