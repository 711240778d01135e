//! `quantized_expert_gated_linear`: fused gate and up projections of the chosen experts, whose weights are stored
//! quantised.

use super::packing::Packed;
use super::{ExpertGatedLinear, Fill, Operator, Packing, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, TensorType};
use serde::{Deserialize, Serialize};

/// [`ExpertGatedLinear`] whose `gate` and `up` are each given as [`super::Dequantize`] takes them, without zeros: inputs
/// `x`, `words` and `scale` of the gate, those of the other, `experts`.
///
/// With zeros it would bind more buffers than WebGPU grants a kernel; such experts stay two
/// [`super::QuantizedExpertLinear`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuantizedExpertGatedLinear {
    /// Bits of one element: 4 or 8.
    pub bits: u32,
    /// Neighbouring elements of a row that share a scale.
    pub group: u32,
    /// Whether elements are numbers of 8 bits instead of integers.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub float: bool,
}

impl QuantizedExpertGatedLinear {
    /// The operator for weights packed like this, without zeros.
    pub fn of(packing: Packing) -> QuantizedExpertGatedLinear {
        let Packing { bits, group, zeros: _, float } = packing;
        QuantizedExpertGatedLinear { bits, group, float }
    }

    /// How its weights are packed.
    pub fn packing(&self) -> Packing {
        Packing { bits: self.bits, group: self.group, zeros: false, float: self.float }
    }

    fn packed(&self) -> Packed {
        Packed { packing: self.packing(), plain: ExpertGatedLinear {}.into(), weights: 1..3 }
    }
}

impl Operator for QuantizedExpertGatedLinear {
    const NAME: &'static str = "quantized_expert_gated_linear";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        self.packed().infer(inputs)
    }

    fn definition(&self, inputs: &[TensorType]) -> Option<Result<Graph>> {
        Some(self.packed().definition(Self::NAME, inputs))
    }

    fn samples() -> Vec<Sample> {
        let of = |name: &str, n, [count, slots]: [u32; 2], [o, k, columns]: [u32; 3], packing: Packing, x| {
            Sample::new(name, QuantizedExpertGatedLinear::of(packing), n, 0)
                .input(x, &format!("n,{columns}"), Fill::Normal(1.0))
                .packed(packing, &format!("{count},{o}"), k)
                .packed(packing, &format!("{count},{o}"), k)
                .input(DType::U32, &format!("n,{slots}"), Fill::Below(count))
        };
        let case = |name: &str, n, chosen, sizes, [bits, group]: [u32; 2], x| {
            of(name, n, chosen, sizes, Packing::integers(bits, group, false), x)
        };
        vec![
            case("prefill", 17, [6, 2], [40, 64, 64], [4, 32], DType::F32),
            case("decode", 1, [16, 4], [96, 160, 160], [4, 32], DType::F32),
            case("f16, decode", 1, [9, 4], [136, 2048, 2048], [4, 32], DType::F16),
            case("f16, decode, 8 bits", 1, [9, 3], [24, 384, 384], [8, 32], DType::F16),
            case("f16, experts of many rows and of few", 90, [7, 3], [200, 384, 384], [4, 32], DType::F16),
            case("f16, many rows, blocks", 70, [2, 2], [72, 256, 512], [4, 32], DType::F16),
            case("a block for each slot", 11, [6, 2], [24, 128, 256], [4, 32], DType::F32),
            case("8 bits, odd outputs, many rows", 70, [2, 1], [17, 40, 40], [8, 8], DType::F32),
            case("f16", 9, [4, 2], [32, 64, 64], [4, 64], DType::F16),
            of("fp8", 19, [5, 2], [40, 64, 64], Packing::floats(32), DType::F32),
            of("fp8, decode, f16", 1, [4, 2], [33, 96, 96], Packing::floats(16), DType::F16),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
