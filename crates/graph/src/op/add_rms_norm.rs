//! `add_rms_norm`: fused residual addition and root-mean-square normalisation.

use super::rms_norm::offset_needs_weight;
use super::shape::{expect_inputs, expect_same, expect_vector, matrix};
use super::{Add, Fill, Operator, RmsNorm, Sample, is_default};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Builder, Graph, TensorType};
use serde::{Deserialize, Serialize};

/// `sum = a + b`, `y = rms_norm(sum (, w))` of whole rows for `a, b: [n, k]`, `w: [k]`; outputs `sum`, `y`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddRmsNorm {
    /// See [`RmsNorm::eps`].
    pub eps: f32,
    /// See [`RmsNorm::offset`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub offset: f32,
}

impl AddRmsNorm {
    /// With weights as they are.
    pub fn new(eps: f32) -> AddRmsNorm {
        AddRmsNorm { eps, offset: 0.0 }
    }
}

impl Operator for AddRmsNorm {
    const NAME: &'static str = "add_rms_norm";

    /// `a` and `b` of one type `[n, k]` give that type twice. `w: [k]` is needed if the offset is not 0.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[2, 3])?;
        expect_same("a", &inputs[0], "b", &inputs[1])?;
        let (_, columns) = matrix("a", &inputs[0])?;
        match inputs.get(2) {
            Some(weight) => expect_vector("w", weight, columns)?,
            None => offset_needs_weight(self.offset)?,
        }
        Ok(vec![inputs[0].clone(), inputs[0].clone()])
    }

    /// An `add` and an `rms_norm`. The norm reads the sum as it is stored, rounded to its dtype.
    fn definition(&self, inputs: &[TensorType]) -> Option<Result<Graph>> {
        let build = || {
            expect_inputs(inputs, &[2, 3])?;
            let mut b = Builder::new(Self::NAME);
            let a = b.input("a", inputs[0].clone())?;
            // The builder has the name `b` here, so that the second operand is `r`.
            let r = b.input("b", inputs[1].clone())?;
            let weight = inputs.get(2).map(|ty| b.input("w", ty.clone())).transpose()?;
            let sum = b.node("sum", Add {}, &[a, r])?;
            let normed: Vec<_> = [sum].into_iter().chain(weight).collect();
            let y = b.node("y", RmsNorm { eps: self.eps, offset: self.offset, group: None }, &normed)?;
            b.output("sum", sum);
            b.output("y", y);
            b.finish()
        };
        Some(build())
    }

    /// Prefill and decode, outliers, an offset, and no weight.
    fn samples() -> Vec<Sample> {
        let sum = |name: &str, op, n, k: usize, fill, x| {
            let shape = format!("n,{k}");
            Sample::new(name, op, n, 0).input(x, &shape, fill).input(x, &shape, fill)
        };
        let case = |name: &str, n, k: usize, fill, x, w| {
            let weight = Fill::Around(1.0, 0.2);
            sum(name, AddRmsNorm::new(1e-5), n, k, fill, x).input(w, &format!("{k}"), weight)
        };
        let shifted = AddRmsNorm { eps: 1e-6, offset: 1.0 };
        vec![
            case("prefill", 7, 320, Fill::Normal(1.0), DType::F32, DType::BF16),
            case("decode, outliers", 1, 320, Fill::Spiky(50.0), DType::F32, DType::BF16),
            case("one column more than a tile", 2, 257, Fill::Normal(2.0), DType::F32, DType::F32),
            case("f16", 5, 96, Fill::Normal(1.0), DType::F16, DType::F16),
            case("one row, f16", 1, 896, Fill::Spiky(30.0), DType::F16, DType::BF16),
            sum("offset", shifted, 3, 192, Fill::Normal(1.0), DType::F32)
                .input(DType::BF16, "192", Fill::Normal(0.3)),
            sum("no weight", AddRmsNorm::new(1e-6), 4, 128, Fill::Normal(1.0), DType::F32),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
