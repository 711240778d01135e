//! `gated_linear`: fused gate and up projections with SiLU and product.

use super::shape::{expect_dim, expect_inputs, matrix};
use super::{Fill, Linear, Mul, Operator, Sample, Silu};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, TensorType};
use crate::packing::Packing;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// `y = silu(x·gateᵀ) · (x·upᵀ)` element-wise for `x: [n, k]`, `gate, up: [o, k]`: output `[n, o]`.
///
/// Shazeer, "GLU Variants Improve Transformer", 2020, equation 6 (without the third matrix).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatedLinear {}

impl Operator for GatedLinear {
    const NAME: &'static str = "gated_linear";

    /// `x: [n, k]` with `gate` and `up` of one type `[o, k]` gives `[n, o]` in the dtype of `x`.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[3])?;
        let (rows, k) = matrix("x", &inputs[0])?;
        let (outputs, gate_k) = matrix("gate", &inputs[1])?;
        expect_dim("the second size of `gate`", gate_k, k)?;
        if inputs[1] != inputs[2] {
            let (gate, up) = (&inputs[1], &inputs[2]);
            return Err(Error::invalid(format!("`gate` and `up` must have one type, found {gate} and {up}")));
        }
        Ok(vec![TensorType::new(inputs[0].dtype, [rows.clone(), outputs.clone()])])
    }

    /// Two linears, SiLU and a product. Each gives its result in the dtype of `x`.
    fn definition(&self, inputs: &[TensorType]) -> Option<Result<Graph>> {
        let build = || {
            expect_inputs(inputs, &[3])?;
            let mut b = Builder::new(Self::NAME);
            let x = b.input("x", inputs[0].clone())?;
            let gate = b.input("gate", inputs[1].clone())?;
            let up = b.input("up", inputs[2].clone())?;
            let g = b.node("g", Linear::default(), &[x, gate])?;
            let u = b.node("u", Linear::default(), &[x, up])?;
            let s = b.node("s", Silu {}, &[g])?;
            let y = b.node("y", Mul {}, &[s, u])?;
            b.output("y", y);
            b.finish()
        };
        Some(build())
    }

    /// `gate` and `up`.
    fn packed_inputs(&self) -> Range<usize> {
        1..3
    }

    /// Prefill and decode, every packing, and rows far from zero for the kernels of one row.
    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, k: usize, o: usize, x, w| {
            Sample::new(name, GatedLinear {}, n, 0)
                .input(x, &format!("n,{k}"), Fill::Normal(1.0))
                .input(w, &format!("{o},{k}"), Fill::Normal(0.1))
                .input(w, &format!("{o},{k}"), Fill::Normal(0.1))
        };
        let packed = |name: &str, n, [k, o]: [u32; 2], packing: Packing, x| {
            Sample::new(name, GatedLinear {}, n, 0)
                .input(x, &format!("n,{k}"), Fill::Normal(1.0))
                .with_packed(packing, &o.to_string(), k)
                .with_packed(packing, &o.to_string(), k)
        };
        let int = |name: &str, n, size, [bits, group]: [u32; 2], zeros, x| {
            packed(name, n, size, Packing::integers(bits, group, zeros), x)
        };
        // Rows far from zero make large sums of which most cancels.
        let far = |mut sample: Sample| {
            sample.inputs[0].fill = Fill::Around(-2.0, 0.5);
            sample
        };
        let mut samples = vec![
            case("prefill", 17, 64, 40, DType::F32, DType::BF16),
            case("decode", 1, 320, 96, DType::F32, DType::BF16),
            case("odd sizes", 5, 33, 67, DType::F32, DType::F32),
            case("f16", 3, 64, 24, DType::F16, DType::F16),
            case("f16, many rows", 67, 128, 136, DType::F16, DType::F16),
            case("one row, f16", 1, 448, 24, DType::F16, DType::F16),
            case("one row, f16 and bf16", 1, 256, 16, DType::F16, DType::BF16),
            int("int4, prefill", 17, [64, 40], [4, 32], false, DType::F32),
            int("int4, decode", 1, [320, 96], [4, 32], false, DType::F32),
            int("int4, zeros, odd outputs", 5, [256, 67], [4, 128], true, DType::F32),
            int("int8", 12, [96, 33], [8, 32], false, DType::F32),
            int("int4, f16", 3, [64, 24], [4, 32], true, DType::F16),
            int("int4, f16, many rows", 67, [256, 72], [4, 32], false, DType::F16),
            int("int8, f16, many rows", 5, [128, 40], [8, 32], false, DType::F16),
            far(int("int4, one row far from zero", 1, [640, 24], [4, 32], false, DType::F16)),
            far(int("int4, one row, zeros", 1, [256, 16], [4, 128], true, DType::F16)),
            far(int("int8, one row", 1, [384, 16], [8, 32], false, DType::F16)),
            int("int4, one row, f32", 1, [512, 16], [4, 32], false, DType::F32),
            packed("e4m3", 18, [96, 40], Packing::floats(32), DType::F32),
            packed("e4m3, f16, many rows", 67, [256, 72], Packing::floats(32), DType::F16),
            far(packed("e4m3, one row", 1, [384, 24], Packing::floats(32), DType::F16)),
            packed("e4m3, one row, f32", 1, [256, 16], Packing::floats(32), DType::F32),
        ];
        for code in Packing::of_each_code() {
            samples.push(packed(&format!("{code}, more than a tile"), 37, [96, 24], code, DType::F32));
            samples.push(far(packed(&format!("{code}, one row, f16"), 1, [384, 24], code, DType::F16)));
        }
        samples
    }

    fn row_wise(&self) -> bool {
        true
    }
}
