//! `layer_norm`: normalisation of rows, or of each head of a row, to mean 0 and variance 1.

use super::rms_norm::offset_needs_weight;
use super::shape::{expect_group, expect_inputs, expect_norm_weight, matrix};
use super::{Fill, Operator, Sample, is_default};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[i, j] = (x[i, j] − m_i) / sqrt(v_i + eps) (· (offset + w[j])) (+ b[j])` for `x: [n, k]`, `w: [k]`, `b: [k]`, with
/// `m_i = mean_j(x[i, j])` and `v_i = mean_j((x[i, j] − m_i)²)`.
///
/// With `group`, each run of `group` columns is normalised by its own mean and variance; `w` and `b` are `[group]` for
/// all runs alike, or have a value for each column: `[k]` or `[k/group, group]`.
///
/// Ba, Kiros, Hinton, "Layer Normalization", 2016, equations 3 and 4; Wu and He, "Group Normalization", 2018, section 3.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerNorm {
    /// Added to the variance.
    pub eps: f32,
    /// Added to the weight, which Nemotron stores as its distance from 1.
    #[serde(default, skip_serializing_if = "is_default")]
    pub offset: f32,
    /// Columns that are normalised together, if not all; divides the columns of `x`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
}

impl LayerNorm {
    /// Of whole rows.
    pub fn new(eps: f32) -> LayerNorm {
        LayerNorm { eps, offset: 0.0, group: None }
    }
}

impl Operator for LayerNorm {
    const NAME: &'static str = "layer_norm";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[1, 2, 3])?;
        let (_, columns) = matrix("x", &inputs[0])?;
        expect_group(self.group, columns)?;
        // An offset is added to a weight, and there is none.
        if inputs.len() == 1 {
            offset_needs_weight(self.offset)?;
        }
        for (name, weight) in ["w", "b"].iter().zip(&inputs[1..]) {
            expect_norm_weight(name, weight, columns, self.group)?;
        }
        Ok(vec![inputs[0].clone()])
    }

    /// Outliers, means far from 0, values that `eps` decides, and every form of weights and groups.
    fn samples() -> Vec<Sample> {
        let (f32, f16, bf16) = (DType::F32, DType::F16, DType::BF16);
        let (weight, bias) = (Fill::Around(1.0, 0.2), Fill::Normal(0.5));
        let plain = |name: &str, op, n, k: usize, fill, x| {
            Sample::new(name, op, n, 0).input(x, &format!("n,{k}"), fill)
        };
        let case = |name: &str, n, k: usize, eps, fill, x, w| {
            plain(name, LayerNorm::new(eps), n, k, fill, x).input(w, &format!("{k}"), weight)
        };
        let biased = |name: &str, n, k: usize, eps, fill, x, w, b| {
            case(name, n, k, eps, fill, x, w).input(b, &format!("{k}"), bias)
        };
        let groups = |group| LayerNorm { group: Some(group), ..LayerNorm::new(1e-5) };
        let grouped = |name: &str, n, k: usize, group, x, shape: &str, w| {
            plain(name, groups(group), n, k, Fill::Around(3.0, 1.0), x).input(w, shape, weight)
        };
        let no_weight = LayerNorm::new(1e-5);
        vec![
            biased("prefill", 7, 320, 1e-5, Fill::Normal(1.0), f32, f32, f32),
            biased("decode, outliers", 1, 320, 1e-5, Fill::Spiky(50.0), f32, bf16, bf16),
            case("no bias", 4, 192, 1e-5, Fill::Normal(1.0), f32, f32),
            // A variance from the mean of squares would cancel here.
            biased("mean far from 0", 3, 256, 1e-5, Fill::Around(300.0, 1.0), f32, f32, f16),
            case("tiny values, eps decides", 3, 64, 1e-5, Fill::Normal(1e-3), f32, f16),
            biased("one column more than a tile", 2, 257, 1e-6, Fill::Normal(2.0), f32, bf16, f32),
            biased("fewer columns than a tile", 5, 3, 1e-5, Fill::Normal(1.0), f32, f16, bf16),
            biased("f16", 5, 96, 1e-5, Fill::Normal(1.0), f16, f16, f16),
            plain("weights less 1", LayerNorm { offset: 1.0, ..LayerNorm::new(1e-5) }, 3, 96, Fill::Normal(1.0), f32)
                .input(f16, "96", Fill::Normal(0.2))
                .input(f32, "96", bias),
            plain("no weight", no_weight, 3, 320, Fill::Normal(1.0), f32),
            plain("no weight, groups, f16", groups(32), 5, 96, Fill::Normal(1.0), f16),
            grouped("heads share weight and bias", 7, 384, 64, f32, "64", bf16).input(f32, "64", bias),
            grouped("a row of weights for each head, decode", 1, 512, 128, f32, "4,128", f32),
            grouped("values for each column, odd sizes", 5, 105, 21, f32, "105", f32).input(f16, "105", bias),
            grouped("one weight, biases for each column", 3, 96, 24, f32, "24", bf16).input(bf16, "4,24", bias),
            grouped("groups wider than a tile", 2, 1200, 600, f32, "2,600", bf16).input(f32, "600", bias),
            grouped("f16 heads", 3, 80, 16, f16, "16", f16).input(f16, "80", bias),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
