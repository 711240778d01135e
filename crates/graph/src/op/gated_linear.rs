//! `gated_linear`: fused gate and up projections with SiLU and product.

use super::shape::{expect_dim, expect_inputs, matrix};
use super::{Fill, Linear, Mul, Operator, Sample, Silu};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, TensorType};
use serde::{Deserialize, Serialize};

/// `y = silu(x·gateᵀ) · (x·upᵀ)` element-wise for `x: [n, k]`, `gate, up: [o, k]`: output `[n, o]`.
///
/// Shazeer, "GLU Variants Improve Transformer", 2020, equation 6 (without the third matrix).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatedLinear {}

impl Operator for GatedLinear {
    const NAME: &'static str = "gated_linear";

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

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, k: usize, o: usize, x, w| {
            Sample::new(name, GatedLinear {}, n, 0)
                .input(x, &format!("n,{k}"), Fill::Normal(1.0))
                .input(w, &format!("{o},{k}"), Fill::Normal(0.1))
                .input(w, &format!("{o},{k}"), Fill::Normal(0.1))
        };
        vec![
            case("prefill", 17, 64, 40, DType::F32, DType::BF16),
            case("decode", 1, 320, 96, DType::F32, DType::BF16),
            case("odd sizes", 5, 33, 67, DType::F32, DType::F32),
            case("f16", 3, 64, 24, DType::F16, DType::F16),
            case("f16, many rows", 67, 128, 136, DType::F16, DType::F16),
            case("one row, f16", 1, 448, 24, DType::F16, DType::F16),
            case("one row, f16 and bf16", 1, 256, 16, DType::F16, DType::BF16),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
