//! `linear`: rows times a transposed weight matrix, plus an optional bias.

use super::shape::{expect_dim, expect_inputs, expect_vector, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

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

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, k: usize, o: usize, x, w| {
            Sample::new(name, Linear::default(), n, 0)
                .input(x, &format!("n,{k}"), Fill::Normal(1.0))
                .input(w, &format!("{o},{k}"), Fill::Normal(0.1))
        };
        let biased = case("bias", 3, 48, 21, DType::F32, DType::BF16).input(DType::BF16, "21", Fill::Normal(1.0));
        let mut widened = case("f16 in, f32 out", 2, 64, 24, DType::F16, DType::F16);
        widened.op = Linear { dtype: Some(DType::F32) }.into();
        let far = |name: &str, k, o, w| {
            let mut sample = case(name, 1, k, o, DType::F16, w);
            (sample.op, sample.inputs[0].fill) = (widened.op.clone(), Fill::Around(4.0, 0.5));
            sample
        };
        let row = far("one row, bf16", 320, 32, DType::BF16).input(DType::F16, "32", Fill::Normal(1.0));
        let far = far("one row far from zero", 576, 48, DType::F16);
        vec![
            case("prefill", 17, 64, 40, DType::F32, DType::F32),
            case("decode", 1, 320, 160, DType::F32, DType::BF16),
            case("odd sizes", 5, 33, 67, DType::F32, DType::F16),
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
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
