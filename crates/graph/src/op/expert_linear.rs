//! `expert_linear`: rows times the transposed matrices of the experts chosen for them, plus optional biases.

use super::shape::{expect_dim, expect_inputs, indices, matrix, stack};
use super::{Fill, Operator, Sample};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use crate::packing::Packing;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// `y[i, s·out + o] = Σ_j x[i, j] · w[e, o, j] (+ b[e, o])` with `e = experts[i, s]`, for `w: [count, out, in]`,
/// `experts: u32[n, k]`, `b: [count, out]`: output `[n, k·out]`, one block of columns for each chosen expert.
///
/// `x` is `[n, in]`, shared by the experts of a row, or `[n, k·in]` with a block for each: then block `s` takes the place
/// of `x`. Each expert's matrix lies as that of [`super::Linear`].
///
/// An expert that does not exist is the caller's error; the reference refuses it, kernels give zeros.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpertLinear {}

/// Shape inference for `x`, `w` and `experts`, without the bias.
///
/// # Errors
/// If the sizes do not fit, or the number of experts for each row is not constant.
pub(super) fn infer(x: &TensorType, w: (&str, &TensorType), experts: &TensorType) -> Result<TensorType> {
    let (rows, columns) = matrix("x", x)?;
    let [_, outputs, k] = stack(w.0, w.1)?;
    let (chosen_rows, slots) = indices("experts", experts)?;
    expect_dim("the rows of `experts`", chosen_rows, rows)?;
    let slots = slots.as_const().filter(|&s| s > 0);
    let slots = slots.ok_or_else(|| Error::invalid(format!("`experts` must have constant columns, found {experts}")))?;
    let each = |size: &Dim| {
        size.checked_mul(slots).ok_or_else(|| Error::invalid(format!("{slots} blocks of {size} columns overflow")))
    };
    // The columns of `x` tell the two forms apart. With one expert for each row they are the same.
    let blocks = each(k)?;
    if columns != k && *columns != blocks {
        return Err(Error::invalid(format!("the columns of `x` must be {k} or {blocks}, found {columns}")));
    }
    Ok(TensorType::new(x.dtype, [rows.clone(), each(outputs)?]))
}

impl Operator for ExpertLinear {
    const NAME: &'static str = "expert_linear";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[3, 4])?;
        let y = infer(&inputs[0], ("w", &inputs[1]), &inputs[2])?;
        if let Some(bias) = inputs.get(3) {
            let [count, outputs, _] = stack("w", &inputs[1])?;
            let (experts, columns) = matrix("b", bias)?;
            expect_dim("the rows of `b`", experts, count)?;
            expect_dim("the columns of `b`", columns, outputs)?;
        }
        Ok(vec![y])
    }

    /// `w`.
    fn packed_inputs(&self) -> Range<usize> {
        1..2
    }

    /// Rows that share their experts and rows with a block for each, decode, every packing, biases, and experts of few rows beside many.
    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, [count, slots]: [u32; 2], [o, k]: [usize; 2], columns: usize, x, w| {
            Sample::new(name, ExpertLinear {}, n, 0)
                .input(x, &format!("n,{columns}"), Fill::Normal(1.0))
                .input(w, &format!("{count},{o},{k}"), Fill::Normal(0.1))
                .input(DType::U32, &format!("n,{slots}"), Fill::Below(count))
        };
        let bias = |sample: Sample, dtype, [count, o]: [u32; 2]| {
            sample.input(dtype, &format!("{count},{o}"), Fill::Normal(1.0))
        };
        let packed = |name: &str, n, [count, slots]: [u32; 2], [o, k, columns]: [u32; 3], packing: Packing, x| {
            Sample::new(name, ExpertLinear {}, n, 0)
                .input(x, &format!("n,{columns}"), Fill::Normal(1.0))
                .with_packed(packing, &format!("{count},{o}"), k)
                .input(DType::U32, &format!("n,{slots}"), Fill::Below(count))
        };
        let int = |name: &str, n, chosen, sizes, [bits, group]: [u32; 2], zeros, x| {
            packed(name, n, chosen, sizes, Packing::integers(bits, group, zeros), x)
        };
        let mut samples = vec![
            case("shared rows", 17, [6, 2], [40, 64], 64, DType::F32, DType::F32),
            case("a block for each slot", 13, [6, 2], [24, 48], 96, DType::F32, DType::BF16),
            case("decode", 1, [16, 4], [96, 160], 160, DType::F32, DType::BF16),
            case("decode, blocks", 1, [16, 4], [160, 96], 4 * 96, DType::F32, DType::F16),
            case("odd sizes", 5, [3, 2], [35, 33], 33, DType::F32, DType::F16),
            case("odd sizes, many rows", 11, [3, 2], [35, 33], 66, DType::F32, DType::BF16),
            // More rows than a tile for each of the two experts.
            case("one slot, more than a tile each", 70, [2, 1], [33, 40], 40, DType::F32, DType::BF16),
            bias(case("bias", 10, [5, 3], [21, 32], 32, DType::F32, DType::F32), DType::F32, [5, 21]),
            bias(case("bias, blocks", 2, [4, 2], [22, 24], 48, DType::F32, DType::BF16), DType::BF16, [4, 22]),
            case("f16", 9, [4, 2], [32, 48], 48, DType::F16, DType::BF16),
            case("f16, decode, many stages", 1, [5, 3], [48, 320], 320, DType::F16, DType::F16),
            case("f16, decode, many stages, blocks", 1, [5, 3], [272, 192], 3 * 192, DType::F16, DType::F16),
            case("f16, experts of many rows and of few", 90, [7, 3], [272, 192], 192, DType::F16, DType::F16),
            case("f16, many rows, blocks", 70, [2, 2], [40, 320], 2 * 320, DType::F16, DType::F16),
            bias(case("f16, decode", 1, [4, 2], [32, 48], 96, DType::F16, DType::F16), DType::F16, [4, 32]),
            int("int4, shared rows", 17, [6, 2], [40, 64, 64], [4, 32], false, DType::F32),
            int("int4, a block for each slot", 13, [6, 2], [24, 128, 256], [4, 32], false, DType::F32),
            int("int4, decode", 1, [16, 4], [96, 160, 160], [4, 32], false, DType::F32),
            int("int4, decode, blocks", 1, [9, 4], [64, 256, 1024], [4, 32], false, DType::F32),
            int("int4, f16, decode", 1, [9, 4], [48, 384, 384], [4, 32], false, DType::F16),
            int("int4, f16, decode, blocks", 1, [9, 4], [272, 1408, 5632], [4, 32], false, DType::F16),
            int("int4, f16, decode, zeros", 1, [9, 2], [32, 512, 512], [4, 128], true, DType::F16),
            int("int8, f16, decode, blocks", 1, [9, 3], [32, 384, 1152], [8, 32], false, DType::F16),
            int("int4, f16, experts of many rows and of few", 90, [7, 3], [272, 384, 384], [4, 32], false, DType::F16),
            int("int4, f16, many rows, blocks", 70, [2, 2], [40, 1408, 2816], [4, 32], false, DType::F16),
            int("int4, zeros, odd outputs", 5, [3, 2], [35, 40, 40], [4, 8], true, DType::F32),
            int("int8, one slot, many rows", 70, [2, 1], [33, 64, 64], [8, 32], false, DType::F32),
            bias(int("int4, zeros and bias", 10, [5, 3], [21, 128, 128], [4, 128], true, DType::F32), DType::F32, [5, 21]),
            bias(int("int8, f16, bias", 9, [4, 2], [32, 32, 64], [8, 32], false, DType::F16), DType::BF16, [4, 32]),
            packed("e4m3", 21, [6, 2], [24, 128, 256], Packing::floats(32), DType::F32),
            bias(packed("e4m3, decode, f16, bias", 1, [4, 2], [35, 64, 64], Packing::floats(8), DType::F16), DType::BF16, [4, 35]),
        ];
        for code in Packing::of_each_code() {
            samples.push(packed(&format!("{code}, blocks"), 21, [6, 2], [24, 128, 256], code, DType::F32));
            let row = packed(&format!("{code}, decode, f16, a bias"), 1, [4, 2], [35, 64, 64], code, DType::F16);
            samples.push(bias(row, DType::BF16, [4, 35]));
        }
        samples
    }

    fn row_wise(&self) -> bool {
        true
    }
}
