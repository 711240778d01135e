//! `patches`: cuts an image into squares, one row each.

use super::shape::expect_inputs;
use super::{Fill, Operator, Sample};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[r·across + s, (c·patch + i)·patch + j] = x[c, r·patch + i, s·patch + j]`, rounded to `dtype`, for `x: [channels,
/// height, width]`, `across = ⌊width / patch⌋` and `y: [⌊height / patch⌋·across, channels·patch²]`. Rows and columns of
/// pixels that fill no patch are left out.
///
/// A `linear` with a convolution's weight `[out, channels, patch, patch]`, seen as a matrix, makes it the convolution
/// of that stride without padding: the patch embedding of Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020,
/// section 3.1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patches {
    /// Height and width of a patch, pixels.
    pub patch: u32,
    /// Dtype of the output.
    pub dtype: DType,
}

impl Operator for Patches {
    const NAME: &'static str = "patches";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[1])?;
        let sizes: Vec<Option<u64>> = inputs[0].shape.iter().map(Dim::as_const).collect();
        let ([Some(channels), Some(height), Some(width)], DType::F32) = (&sizes[..], inputs[0].dtype) else {
            let text = format!("`x` must be f32[channels,height,width] of constant sizes, found {}", inputs[0]);
            return Err(Error::invalid(text));
        };
        let patch = u64::from(self.patch);
        if patch == 0 || *height < patch || *width < patch {
            let found = format!("`patch` is {patch}, the image has {height}×{width} pixels");
            return Err(Error::invalid(format!("at least one patch must fit the image: {found}")));
        }
        let count = (height / patch).checked_mul(width / patch);
        let columns = channels.checked_mul(patch * patch);
        let (Some(count), Some(columns)) = (count, columns) else {
            return Err(Error::invalid(format!("the patches of {} overflow", inputs[0])));
        };
        Ok(vec![TensorType::new(self.dtype, [count, columns])])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, patch, shape: &str, dtype| {
            let empty = Sample::new(name, Patches { patch, dtype }, 3, 0);
            empty.input(DType::F32, shape, Fill::Normal(1.0))
        };
        vec![
            case("squares", 7, "3,28,28", DType::F32),
            case("pixels left over", 5, "3,17,23", DType::F32),
            case("more than one workgroup", 14, "3,42,70", DType::F32),
            case("one channel, one pixel", 1, "1,3,5", DType::F32),
            case("the whole image", 6, "2,6,6", DType::F32),
            case("f16 output", 4, "3,8,12", DType::F16),
        ]
    }
}
