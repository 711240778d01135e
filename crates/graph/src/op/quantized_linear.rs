//! `quantized_linear`: rows times a transposed weight matrix that is stored quantised.

use super::packing::Packed;
use super::{Fill, Linear, Operator, Packing, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, TensorType};
use serde::{Deserialize, Serialize};

/// [`Linear`] whose `w: [o, k]` is given as [`super::Dequantize`] takes it: inputs `x`, `words`, `scale`, `zero` if
/// `zeros`, and optionally `b`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuantizedLinear {
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
    /// Dtype of the output, if not that of `x`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
}

impl QuantizedLinear {
    /// `linear` on weights packed like this.
    pub fn of(packing: Packing, linear: &Linear) -> QuantizedLinear {
        let Packing { bits, group, zeros, float } = packing;
        QuantizedLinear { bits, group, zeros, float, dtype: linear.dtype }
    }

    /// How its weight is packed.
    pub fn packing(&self) -> Packing {
        Packing { bits: self.bits, group: self.group, zeros: self.zeros, float: self.float }
    }

    fn packed(&self) -> Packed {
        Packed { packing: self.packing(), plain: Linear { dtype: self.dtype }.into(), weights: 1..2 }
    }
}

impl Operator for QuantizedLinear {
    const NAME: &'static str = "quantized_linear";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        self.packed().infer(inputs)
    }

    fn definition(&self, inputs: &[TensorType]) -> Option<Result<Graph>> {
        Some(self.packed().definition(Self::NAME, inputs))
    }

    fn samples() -> Vec<Sample> {
        let of = |name: &str, n, [k, o]: [u32; 2], packing: Packing, x| {
            Sample::new(name, QuantizedLinear::of(packing, &Linear::default()), n, 0)
                .input(x, &format!("n,{k}"), Fill::Normal(1.0))
                .packed(packing, &o.to_string(), k)
        };
        let case = |name: &str, n, size, [bits, group]: [u32; 2], zeros, x| {
            of(name, n, size, Packing::integers(bits, group, zeros), x)
        };
        let bias = |sample: Sample, dtype, o: u32| sample.input(dtype, &o.to_string(), Fill::Normal(1.0));
        // Numbers far from zero cancel, and an output of f32 hides nothing of what that costs.
        let row_of = |name: &str, size, packing, fill| {
            let mut sample = of(name, 1, size, packing, DType::F16);
            let wide = Linear { dtype: Some(DType::F32) };
            sample.op = QuantizedLinear::of(packing, &wide).into();
            sample.inputs[0].fill = fill;
            sample
        };
        let row = |name: &str, size, [bits, group]: [u32; 2], zeros, fill| {
            row_of(name, size, Packing::integers(bits, group, zeros), fill)
        };
        let far = Fill::Around(4.0, 0.5);
        let mut widened = case("f16 in, f32 out", 2, [64, 24], [8, 32], false, DType::F16);
        let wide = Linear { dtype: Some(DType::F32) };
        widened.op = QuantizedLinear::of(Packing::integers(8, 32, false), &wide).into();
        vec![
            case("prefill", 17, [64, 40], [4, 32], false, DType::F32),
            case("decode", 1, [320, 160], [4, 32], false, DType::F32),
            case("zeros", 5, [256, 67], [4, 128], true, DType::F32),
            case("8 bits", 9, [96, 65], [8, 32], false, DType::F32),
            case("8 bits, zeros, decode", 1, [72, 21], [8, 24], true, DType::F32),
            case("one group, more than a tile", 65, [264, 33], [4, 264], true, DType::F32),
            bias(case("bias", 3, [96, 21], [4, 32], false, DType::F32), DType::BF16, 21),
            bias(case("zeros and bias", 12, [64, 36], [4, 32], true, DType::F32), DType::F32, 36),
            case("f16", 4, [96, 32], [4, 32], false, DType::F16),
            widened,
            case("f16, many rows", 67, [256, 136], [4, 32], false, DType::F16),
            case("f16, many rows, 8 bits", 19, [384, 40], [8, 32], false, DType::F16),
            row("one row far from zero", [768, 32], [4, 32], false, far),
            bias(row("one row, half a stage, bias", [384, 48], [4, 32], false, far), DType::BF16, 48),
            row("one row, zeros", [256, 16], [4, 128], true, far),
            row("one row, zeros, short groups, outliers", [512, 16], [4, 32], true, Fill::Spiky(30.0)),
            bias(row("one row, 8 bits, bias", [640, 16], [8, 32], false, far), DType::F16, 16),
            case("one row, f32", 1, [512, 32], [4, 64], false, DType::F32),
            case("one row, 8 bits, f32", 1, [384, 16], [8, 32], false, DType::F32),
            of("fp8", 9, [96, 65], Packing::floats(32), DType::F32),
            bias(of("fp8, groups of 4, bias", 3, [72, 21], Packing::floats(4), DType::F32), DType::BF16, 21),
            of("fp8, f16, many rows", 67, [384, 136], Packing::floats(32), DType::F16),
            bias(row_of("one row, fp8, bias", [640, 16], Packing::floats(32), far), DType::F16, 16),
            row_of("one row, fp8, one group, outliers", [512, 32], Packing::floats(512), Fill::Spiky(30.0)),
            of("one row, fp8, f32", 1, [384, 16], Packing::floats(32), DType::F32),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
