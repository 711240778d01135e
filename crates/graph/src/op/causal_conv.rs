//! `causal_conv`: depthwise causal convolution over the rows.

use super::shape::{expect_dim, expect_inputs, expect_state, expect_vector, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[t, c] = Σ_i w[c, 0, i] · z[t + i, c] (+ b[c])` with `z = [state; x]` along rows, for `x: [n, c]`, `w: [c, 1, k]`,
/// `state: f32[k−1, c]`, the rows before `x`, and `b: [c]`. Outputs `y: [n, c]` and the state after the rows, which is the
/// last `k−1` rows of `z`.
///
/// The weight lies as Hugging Face's `nn.Conv1d` with one group per channel stores it. Inputs in the order `x, w, state`
/// or `x, w, state, b`.
///
/// Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023, section 3.4.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CausalConv {}

impl Operator for CausalConv {
    const NAME: &'static str = "causal_conv";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[3, 4])?;
        let (_, columns) = matrix("x", &inputs[0])?;
        let taps = match inputs[1].shape.as_slice() {
            [channels, one, taps] if inputs[1].dtype.is_float() && one.as_const() == Some(1) => {
                expect_dim("the first size of `w`", channels, columns)?;
                // One tap would be no convolution over rows and would have no state.
                taps.as_const().filter(|&k| k >= 2)
            }
            _ => None,
        };
        let Some(taps) = taps else {
            let found = &inputs[1];
            return Err(Error::invalid(format!(
                "`w` must be floats of {columns} × 1 × 2 or more, found {found}"
            )));
        };
        // As many rows as a window reaches back.
        expect_state(&inputs[2], taps - 1, columns)?;
        if let Some(bias) = inputs.get(3) {
            expect_vector("b", bias, columns)?;
        }
        Ok(vec![inputs[0].clone(), inputs[2].clone()])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, columns: usize, taps: usize, x, w| {
            Sample::new(name, CausalConv {}, n, 0)
                .input(x, &format!("n,{columns}"), Fill::Normal(1.0))
                .input(w, &format!("{columns},1,{taps}"), Fill::Normal(0.5))
                .input(DType::F32, &format!("{},{columns}", taps - 1), Fill::Normal(1.0))
        };
        let biased = |name: &str, n, columns: usize, taps, x, w, b| {
            case(name, n, columns, taps, x, w).input(b, &format!("{columns}"), Fill::Normal(0.5))
        };
        let (f32, f16, bf16) = (DType::F32, DType::F16, DType::BF16);
        vec![
            biased("prefill", 9, 320, 4, f32, f32, f32),
            biased("decode", 1, 160, 4, f32, bf16, bf16),
            case("no bias", 5, 64, 4, f32, f32),
            // The new state then keeps rows of the old one.
            case("fewer rows than the state, odd sizes", 2, 33, 5, f32, f16),
            biased("two taps, f16 bias", 3, 17, 2, f32, bf16, f16),
            biased("f16", 4, 40, 4, f16, f16, f32),
        ]
    }
}
