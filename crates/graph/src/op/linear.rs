//! `linear`: rows times a transposed weight matrix, plus an optional bias.

use super::shape::{expect_dim, expect_inputs, expect_vector, matrix};
use super::{DotProduct, Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::TensorType;
use crate::packing::Packing;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// `y[i, o] = Σ_k x[i, k] · w[o, k] (+ b[o])` for `x: [n, k]`, `w: [o, k]`, `b: [o]`.
///
/// The weight lies as Hugging Face's `nn.Linear` stores it: one row per output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Dtype of the output, if not that of `x`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
}

impl Operator for Linear {
    const NAME: &'static str = "linear";

    /// `x: [n, k]` with `w: [o, k]` gives `[n, o]`; the dtype of `w` may be another.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[2, 3])?;
        let (rows, k) = matrix("x", &inputs[0])?;
        let (outputs, w_k) = matrix("w", &inputs[1])?;
        expect_dim("the second size of `w`", w_k, k)?;
        if let Some(bias) = inputs.get(2) {
            expect_vector("b", bias, outputs)?;
        }
        let dtype = self.dtype.unwrap_or(inputs[0].dtype);
        Ok(vec![TensorType::new(dtype, [rows.clone(), outputs.clone()])])
    }

    /// `w`.
    fn packed_inputs(&self) -> Range<usize> {
        1..2
    }

    /// Prefill and decode, pairs of dtypes, biases, and sizes around those of tiles. Packed weights stand in [`packed_samples`].
    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, k: usize, o: usize, x, w| {
            Sample::new(name, Linear::default(), n, 0)
                .input(x, &format!("n,{k}"), Fill::Normal(1.0))
                .input(w, &format!("{o},{k}"), Fill::Normal(0.1))
        };
        let biased = case("bias", 3, 48, 21, DType::F32, DType::BF16).input(DType::BF16, "21", Fill::Normal(1.0));
        // An output of f32 shows the accumulation that an output of f16 would round away.
        let mut widened = case("f16 in, f32 out", 2, 64, 24, DType::F16, DType::F16);
        widened.op = Linear { dtype: Some(DType::F32) }.into();
        let far = |name: &str, k, o, w| {
            let mut sample = case(name, 1, k, o, DType::F16, w);
            (sample.op, sample.inputs[0].fill) = (widened.op.clone(), Fill::Around(4.0, 0.5));
            sample
        };
        let row = far("one row, bf16", 320, 32, DType::BF16).input(DType::F16, "32", Fill::Normal(1.0));
        let far = far("one row far from zero", 576, 48, DType::F16);
        let mut samples = vec![
            case("prefill", 17, 64, 40, DType::F32, DType::F32),
            case("decode", 1, 320, 160, DType::F32, DType::BF16),
            // No size is a multiple of a vector's or a tile's.
            case("odd sizes", 5, 33, 67, DType::F32, DType::F16),
            // The last tile along each axis holds a single element.
            case("one more than a tile", 65, 65, 65, DType::F32, DType::BF16),
            case("f16", 4, 96, 32, DType::F16, DType::BF16),
            case("one row, f32", 1, 704, 16, DType::F32, DType::F16),
            biased,
            widened,
            case("f16, two tiles of rows", 130, 64, 72, DType::F16, DType::F16),
            case("f16, many stages, bias", 70, 576, 16, DType::F16, DType::F16)
                .input(DType::BF16, "16", Fill::Normal(1.0)),
            row,
            far,
        ];
        samples.extend(packed_samples());
        samples
    }

    fn row_wise(&self) -> bool {
        true
    }

    /// Each output is a dot product of a row of `x` and one of `w`.
    fn dot_product(&self) -> Option<DotProduct> {
        Some(DotProduct { activations: 0, weights: 1 })
    }
}

/// Samples with packed weights.
fn packed_samples() -> Vec<Sample> {
    let packed = |name: &str, n, [k, o]: [u32; 2], packing: Packing, x| {
        Sample::new(name, Linear::default(), n, 0)
            .input(x, &format!("n,{k}"), Fill::Normal(1.0))
            .with_packed(packing, &o.to_string(), k)
    };
    let int = |name: &str, n, size, [bits, group]: [u32; 2], zeros, x| {
        packed(name, n, size, Packing::integers(bits, group, zeros), x)
    };
    let bias = |sample: Sample, dtype, o: u32| sample.input(dtype, &o.to_string(), Fill::Normal(1.0));
    // Numbers far from zero cancel, and an output of f32 hides nothing of what that costs.
    let row_of = |name: &str, size, packing, fill| {
        let mut sample = packed(name, 1, size, packing, DType::F16);
        (sample.op, sample.inputs[0].fill) = (Linear { dtype: Some(DType::F32) }.into(), fill);
        sample
    };
    let row_int = |name: &str, size, [bits, group]: [u32; 2], zeros, fill| {
        row_of(name, size, Packing::integers(bits, group, zeros), fill)
    };
    let around = Fill::Around(4.0, 0.5);
    let mut widened_int8 = int("int8, f16 in, f32 out", 2, [64, 24], [8, 32], false, DType::F16);
    widened_int8.op = Linear { dtype: Some(DType::F32) }.into();
    let mut samples = vec![
        int("int4, prefill", 17, [64, 40], [4, 32], false, DType::F32),
        int("int4, decode", 1, [320, 160], [4, 32], false, DType::F32),
        int("int4, zeros", 5, [256, 67], [4, 128], true, DType::F32),
        int("int8", 9, [96, 65], [8, 32], false, DType::F32),
        int("int8, zeros, decode", 1, [72, 21], [8, 24], true, DType::F32),
        int("int4, one group, more than a tile", 65, [264, 33], [4, 264], true, DType::F32),
        bias(int("int4, bias", 3, [96, 21], [4, 32], false, DType::F32), DType::BF16, 21),
        bias(int("int4, zeros and bias", 12, [64, 36], [4, 32], true, DType::F32), DType::F32, 36),
        int("int4, f16", 4, [96, 32], [4, 32], false, DType::F16),
        widened_int8,
        int("int4, f16, many rows", 67, [256, 136], [4, 32], false, DType::F16),
        int("int8, f16, many rows", 19, [384, 40], [8, 32], false, DType::F16),
        row_int("int4, one row far from zero", [768, 32], [4, 32], false, around),
        bias(row_int("int4, one row, half a stage, bias", [384, 48], [4, 32], false, around), DType::BF16, 48),
        row_int("int4, one row, zeros", [256, 16], [4, 128], true, around),
        row_int("int4, one row, zeros, short groups, outliers", [512, 16], [4, 32], true, Fill::Spiky(30.0)),
        bias(row_int("int8, one row, bias", [640, 16], [8, 32], false, around), DType::F16, 16),
        int("int4, one row, f32", 1, [512, 32], [4, 64], false, DType::F32),
        int("int8, one row, f32", 1, [384, 16], [8, 32], false, DType::F32),
        packed("e4m3", 9, [96, 65], Packing::floats(32), DType::F32),
        bias(packed("e4m3, groups of 4, bias", 3, [72, 21], Packing::floats(4), DType::F32), DType::BF16, 21),
        packed("e4m3, f16, many rows", 67, [384, 136], Packing::floats(32), DType::F16),
        bias(row_of("e4m3, one row, bias", [640, 16], Packing::floats(32), around), DType::F16, 16),
        row_of("e4m3, one row, one group, outliers", [512, 32], Packing::floats(512), Fill::Spiky(30.0)),
        packed("e4m3, one row, f32", 1, [384, 16], Packing::floats(32), DType::F32),
    ];
    for code in Packing::of_each_code() {
        samples.push(packed(&format!("{code}, odd outputs"), 9, [96, 35], code, DType::F32));
        samples.push(packed(&format!("{code}, f16, more than a tile"), 67, [256, 72], code, DType::F16));
        let row = row_of(&format!("{code}, one row, a bias of bf16"), [640, 24], code, around);
        samples.push(bias(row, DType::BF16, 24));
        samples.push(packed(&format!("{code}, one row, f32, odd outputs"), 1, [320, 33], code, DType::F32));
    }
    samples
}
