//! `rms_norm`: root-mean-square normalisation of rows, or of each head of a row.

use super::shape::{expect_group, expect_inputs, expect_norm_weight, matrix};
use super::{Fill, Neutral, Operator, Sample, is_default};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[i, j] = x[i, j] · (offset + w[j]) / sqrt(mean_j(x[i, j]²) + eps)` for `x: [n, k]`, `w: [k]`; without `w`,
/// `y[i, j] = x[i, j] / sqrt(mean_j(x[i, j]²) + eps)`.
///
/// With `group`, each run of `group` columns, such as a head, is normalised by its own mean; `w` is `[group]` for all
/// runs alike, or has a value for each column: `[k]` or `[k/group, group]`.
///
/// Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, equation 4.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub eps: f32,
    /// Added to the weight, which Gemma stores as its distance from 1.
    #[serde(default, skip_serializing_if = "is_default")]
    pub offset: f32,
    /// Columns that are normalised together, if not all; divides the columns of `x`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
}

impl RmsNorm {
    /// Of whole rows, with weights as they are.
    pub fn new(eps: f32) -> RmsNorm {
        RmsNorm { eps, ..RmsNorm::default() }
    }
}

impl Operator for RmsNorm {
    const NAME: &'static str = "rms_norm";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[1, 2])?;
        let (_, columns) = matrix("x", &inputs[0])?;
        expect_group(self.group, columns)?;
        match inputs.get(1) {
            Some(weight) => expect_norm_weight("w", weight, columns, self.group)?,
            None => offset_needs_weight(self.offset)?,
        }
        Ok(vec![inputs[0].clone()])
    }

    /// Its weights: every row has the same length before them.
    fn size_from(&self) -> usize {
        1
    }

    /// Outliers, values that `eps` decides, and every form of weights and groups.
    fn samples() -> Vec<Sample> {
        let (f32, f16, bf16) = (DType::F32, DType::F16, DType::BF16);
        let plain = |name: &str, op, n, k: usize, fill, x| {
            Sample::new(name, op, n, 0).input(x, &format!("n,{k}"), fill)
        };
        let case = |name: &str, n, k: usize, eps, fill, x, w| {
            let weight = Fill::Around(1.0, 0.2);
            plain(name, RmsNorm::new(eps), n, k, fill, x).input(w, &format!("{k}"), weight)
        };
        let grouped = |name: &str, n, k: usize, group, offset, x, shape: &str, w| {
            let op = RmsNorm { eps: 1e-6, offset, group: Some(group) };
            plain(name, op, n, k, Fill::Spiky(5.0), x).input(w, shape, Fill::Around(1.0 - offset, 0.2))
        };
        let alone = |group| RmsNorm { group, ..RmsNorm::new(1e-6) };
        // Weights near 0 with an offset of 1, as models that store the distance from 1 have them.
        let mut shifted = case("offset", 4, 192, 1e-6, Fill::Normal(1.0), f32, bf16);
        shifted.op = RmsNorm { offset: 1.0, ..RmsNorm::new(1e-6) }.into();
        shifted.inputs[1].fill = Fill::Normal(0.3);
        vec![
            case("prefill", 7, 320, 1e-5, Fill::Normal(1.0), f32, f32),
            case("decode, outliers", 1, 320, 1e-5, Fill::Spiky(50.0), f32, bf16),
            case("tiny values, eps decides", 3, 64, 1e-5, Fill::Normal(1e-3), f32, f16),
            case("one column more than a tile", 2, 257, 1e-6, Fill::Normal(2.0), f32, bf16),
            case("f16", 5, 96, 1e-5, Fill::Normal(1.0), f16, f16),
            case("one row far from zero, f16", 1, 2312, 1e-5, Fill::Around(4.0, 0.5), f16, bf16),
            shifted,
            plain("no weight", alone(None), 3, 320, Fill::Normal(1.0), f32),
            plain("no weight, heads, f16", alone(Some(32)), 5, 96, Fill::Normal(1.0), f16),
            grouped("heads share a weight", 7, 384, 64, 0.0, f32, "64", bf16),
            grouped("heads share a weight, decode", 1, 512, 128, 0.0, f32, "128", f32),
            grouped("heads share a weight, offset", 3, 160, 40, 1.0, f32, "40", f16),
            grouped("a weight for each column, odd sizes", 5, 105, 21, 0.0, f32, "105", f32),
            grouped("a row of weights for each head", 3, 96, 24, 0.0, f32, "4,24", bf16),
            grouped("groups of one column", 2, 9, 1, 0.0, f32, "9", f32),
            grouped("groups wider than a tile", 2, 1200, 600, 0.0, f32, "2,600", bf16),
            grouped("f16 heads", 3, 80, 16, 0.0, f16, "16", f16),
        ]
    }

    fn gives_factors(&self) -> bool {
        true
    }

    fn neutral(&self) -> &'static [&'static [(usize, Neutral)]] {
        &[&[(0, Neutral::Signs)]]
    }

    fn row_wise(&self) -> bool {
        true
    }
}

/// Fails if there is an offset, for a norm without a weight.
pub(super) fn offset_needs_weight(offset: f32) -> Result<()> {
    if offset == 0.0 { Ok(()) } else { Err(Error::invalid(format!("`offset` {offset} is added to a weight, and there is none"))) }
}
