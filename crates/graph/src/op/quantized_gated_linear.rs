//! `quantized_gated_linear`: fused gate and up projections whose weights are stored quantised.

use super::packing::Packed;
use super::{Fill, GatedLinear, Operator, Packing, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, TensorType};
use serde::{Deserialize, Serialize};

/// [`GatedLinear`] whose `gate` and `up` are each given as [`super::Dequantize`] takes them: inputs `x`, `words`, `scale`
/// and, if `zeros`, `zero` of the gate, then those of the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuantizedGatedLinear {
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

impl QuantizedGatedLinear {
    /// The operator for weights packed like this.
    pub fn of(packing: Packing) -> QuantizedGatedLinear {
        let Packing { bits, group, zeros, float } = packing;
        QuantizedGatedLinear { bits, group, zeros, float }
    }

    /// How its weights are packed.
    pub fn packing(&self) -> Packing {
        Packing { bits: self.bits, group: self.group, zeros: self.zeros, float: self.float }
    }

    fn packed(&self) -> Packed {
        Packed { packing: self.packing(), plain: GatedLinear {}.into(), weights: 1..3 }
    }
}

impl Operator for QuantizedGatedLinear {
    const NAME: &'static str = "quantized_gated_linear";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        self.packed().infer(inputs)
    }

    fn definition(&self, inputs: &[TensorType]) -> Option<Result<Graph>> {
        Some(self.packed().definition(Self::NAME, inputs))
    }

    fn samples() -> Vec<Sample> {
        let of = |name: &str, n, [k, o]: [u32; 2], packing: Packing, x| {
            Sample::new(name, QuantizedGatedLinear::of(packing), n, 0)
                .input(x, &format!("n,{k}"), Fill::Normal(1.0))
                .packed(packing, &o.to_string(), k)
                .packed(packing, &o.to_string(), k)
        };
        let case = |name: &str, n, size, [bits, group]: [u32; 2], zeros, x| {
            of(name, n, size, Packing::integers(bits, group, zeros), x)
        };
        let far = |mut sample: Sample| {
            sample.inputs[0].fill = Fill::Around(-2.0, 0.5);
            sample
        };
        vec![
            case("prefill", 17, [64, 40], [4, 32], false, DType::F32),
            case("decode", 1, [320, 96], [4, 32], false, DType::F32),
            case("zeros, odd outputs", 5, [256, 67], [4, 128], true, DType::F32),
            case("8 bits", 12, [96, 33], [8, 32], false, DType::F32),
            case("f16", 3, [64, 24], [4, 32], true, DType::F16),
            case("f16, many rows", 67, [256, 72], [4, 32], false, DType::F16),
            case("f16, many rows, 8 bits", 5, [128, 40], [8, 32], false, DType::F16),
            far(case("one row far from zero", 1, [640, 24], [4, 32], false, DType::F16)),
            far(case("one row, zeros", 1, [256, 16], [4, 128], true, DType::F16)),
            far(case("one row, 8 bits", 1, [384, 16], [8, 32], false, DType::F16)),
            case("one row, f32", 1, [512, 16], [4, 32], false, DType::F32),
            of("fp8", 18, [96, 40], Packing::floats(32), DType::F32),
            of("fp8, f16, many rows", 67, [256, 72], Packing::floats(32), DType::F16),
            far(of("one row, fp8", 1, [384, 24], Packing::floats(32), DType::F16)),
            of("one row, fp8, f32", 1, [256, 16], Packing::floats(32), DType::F32),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
