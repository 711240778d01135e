//! `add_rms_norm`: fused residual addition and root-mean-square normalisation.

use super::shape::{expect_inputs, expect_same, expect_vector, matrix};
use super::{Add, Fill, Operator, RmsNorm, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Builder, Graph, TensorType};
use serde::{Deserialize, Serialize};

/// `sum = a + b`, `y = rms_norm(sum, w)` for `a, b: [n, k]`, `w: [k]`; outputs `sum`, `y`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddRmsNorm {
    /// See [`RmsNorm::eps`].
    pub eps: f32,
}

impl Operator for AddRmsNorm {
    const NAME: &'static str = "add_rms_norm";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[3])?;
        expect_same("a", &inputs[0], "b", &inputs[1])?;
        let (_, columns) = matrix("a", &inputs[0])?;
        expect_vector("w", &inputs[2], columns)?;
        Ok(vec![inputs[0].clone(), inputs[0].clone()])
    }

    fn definition(&self, inputs: &[TensorType]) -> Option<Result<Graph>> {
        let build = || {
            expect_inputs(inputs, &[3])?;
            let mut b = Builder::new(Self::NAME);
            let a = b.input("a", inputs[0].clone())?;
            let r = b.input("b", inputs[1].clone())?;
            let w = b.input("w", inputs[2].clone())?;
            let sum = b.node("sum", Add {}, &[a, r])?;
            let y = b.node("y", RmsNorm { eps: self.eps }, &[sum, w])?;
            b.output("sum", sum);
            b.output("y", y);
            b.finish()
        };
        Some(build())
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, k: usize, fill, x, w| {
            Sample::new(name, AddRmsNorm { eps: 1e-5 }, n, 0)
                .input(x, &format!("n,{k}"), fill)
                .input(x, &format!("n,{k}"), fill)
                .input(w, &format!("{k}"), Fill::Around(1.0, 0.2))
        };
        vec![
            case("prefill", 7, 320, Fill::Normal(1.0), DType::F32, DType::BF16),
            case("decode, outliers", 1, 320, Fill::Spiky(50.0), DType::F32, DType::BF16),
            case("one column more than a tile", 2, 257, Fill::Normal(2.0), DType::F32, DType::F32),
            case("f16", 5, 96, Fill::Normal(1.0), DType::F16, DType::F16),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
