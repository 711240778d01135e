//! `expert_gated_linear`: fused gate and up projections of the chosen experts with SiLU and product.

use super::shape::expect_inputs;
use super::{ExpertLinear, Fill, Mul, Operator, Sample, Silu, expert_linear};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, TensorType};
use crate::packing::Packing;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// `y = silu(expert_linear(x, gate, experts)) · expert_linear(x, up, experts)` element-wise for
/// `gate, up: [count, out, in]`, `experts: u32[n, k]` and `x` as that of [`ExpertLinear`]: output `[n, k·out]`.
///
/// Shazeer, "GLU Variants Improve Transformer", 2020, equation 6 (without the third matrix), in each expert.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpertGatedLinear {}

impl Operator for ExpertGatedLinear {
    const NAME: &'static str = "expert_gated_linear";

    /// As [`ExpertLinear`] without a bias; `gate` and `up` have one type.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[4])?;
        let y = expert_linear::infer(&inputs[0], ("gate", &inputs[1]), &inputs[3])?;
        // Both stacks are read in step.
        if inputs[1] != inputs[2] {
            let (gate, up) = (&inputs[1], &inputs[2]);
            return Err(Error::invalid(format!("`gate` and `up` must have one type, found {gate} and {up}")));
        }
        Ok(vec![y])
    }

    /// Two expert linears, SiLU and a product.
    fn definition(&self, inputs: &[TensorType]) -> Option<Result<Graph>> {
        let build = || {
            expect_inputs(inputs, &[4])?;
            let mut b = Builder::new(Self::NAME);
            let x = b.input("x", inputs[0].clone())?;
            let gate = b.input("gate", inputs[1].clone())?;
            let up = b.input("up", inputs[2].clone())?;
            let experts = b.input("experts", inputs[3].clone())?;
            let g = b.node("g", ExpertLinear {}, &[x, gate, experts])?;
            let u = b.node("u", ExpertLinear {}, &[x, up, experts])?;
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

    /// Rows that share their experts and rows with a block for each, decode, every packing, and experts of few rows beside many.
    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, [count, slots]: [u32; 2], [o, k]: [usize; 2], columns: usize, x, w| {
            Sample::new(name, ExpertGatedLinear {}, n, 0)
                .input(x, &format!("n,{columns}"), Fill::Normal(1.0))
                .input(w, &format!("{count},{o},{k}"), Fill::Normal(0.1))
                .input(w, &format!("{count},{o},{k}"), Fill::Normal(0.1))
                .input(DType::U32, &format!("n,{slots}"), Fill::Below(count))
        };
        let packed = |name: &str, n, [count, slots]: [u32; 2], [o, k, columns]: [u32; 3], packing: Packing, x| {
            Sample::new(name, ExpertGatedLinear {}, n, 0)
                .input(x, &format!("n,{columns}"), Fill::Normal(1.0))
                .with_packed(packing, &format!("{count},{o}"), k)
                .with_packed(packing, &format!("{count},{o}"), k)
                .input(DType::U32, &format!("n,{slots}"), Fill::Below(count))
        };
        let int = |name: &str, n, chosen, sizes, [bits, group]: [u32; 2], x| {
            packed(name, n, chosen, sizes, Packing::integers(bits, group, false), x)
        };
        let mut samples = vec![
            case("prefill", 17, [6, 2], [40, 64], 64, DType::F32, DType::BF16),
            case("decode", 1, [16, 4], [96, 160], 160, DType::F32, DType::BF16),
            case("a block for each slot", 11, [4, 2], [24, 32], 64, DType::F32, DType::F32),
            case("odd sizes", 5, [3, 2], [35, 33], 33, DType::F32, DType::F32),
            case("odd sizes, many rows", 12, [3, 2], [35, 33], 33, DType::F32, DType::F16),
            case("one slot, more than a tile each", 70, [2, 1], [17, 40], 40, DType::F32, DType::BF16),
            case("f16", 9, [4, 2], [32, 48], 48, DType::F16, DType::F16),
            case("f16, decode", 1, [9, 4], [136, 320], 320, DType::F16, DType::F16),
            case("f16, experts of many rows and of few", 90, [7, 3], [200, 192], 192, DType::F16, DType::F16),
            int("int4, prefill", 17, [6, 2], [40, 64, 64], [4, 32], DType::F32),
            int("int4, decode", 1, [16, 4], [96, 160, 160], [4, 32], DType::F32),
            int("int4, f16, decode", 1, [9, 4], [136, 2048, 2048], [4, 32], DType::F16),
            int("int8, f16, decode", 1, [9, 3], [24, 384, 384], [8, 32], DType::F16),
            int("int4, f16, experts of many rows and of few", 90, [7, 3], [200, 384, 384], [4, 32], DType::F16),
            int("int4, f16, many rows, blocks", 70, [2, 2], [72, 256, 512], [4, 32], DType::F16),
            int("int4, a block for each slot", 11, [6, 2], [24, 128, 256], [4, 32], DType::F32),
            int("int8, odd outputs, many rows", 70, [2, 1], [17, 40, 40], [8, 8], DType::F32),
            int("int4, f16", 9, [4, 2], [32, 64, 64], [4, 64], DType::F16),
            packed("e4m3", 19, [5, 2], [40, 64, 64], Packing::floats(32), DType::F32),
            packed("e4m3, decode, f16", 1, [4, 2], [33, 96, 96], Packing::floats(16), DType::F16),
        ];
        for code in Packing::of_each_code() {
            samples.push(packed(&format!("{code}, odd rows"), 19, [5, 2], [40, 64, 64], code, DType::F32));
            samples.push(packed(&format!("{code}, one row, f16"), 1, [4, 2], [33, 96, 96], code, DType::F16));
        }
        samples
    }

    fn row_wise(&self) -> bool {
        true
    }
}
