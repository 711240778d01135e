//! `patches`: cuts images into squares, one row each.

use super::shape::expect_inputs;
use super::{Fill, Operator, Sample};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `x: [channels, images·height, width]` holds images one below the other. With `across = ⌊width / patch⌋` each becomes
/// `lead` rows of zeros, the room for tokens that stand before its patches, and `⌊height / patch⌋·across` rows of patches:
///
/// ```text
/// y[m·rows + lead + r·across + s, (c·patch + i)·patch + j] = x[c, m·height + r·patch + i, s·patch + j]
/// ```
///
/// for `rows = lead + ⌊height / patch⌋·across`, rounded to `dtype`: `y: [images·rows, channels·patch²]`. Rows and columns
/// of pixels that fill no patch are left out.
///
/// A `linear` with a convolution's weight `[out, channels, patch, patch]`, seen as a matrix, makes it the convolution
/// of that stride without padding: the patch embedding of Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020,
/// section 3.1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patches {
    /// Height and width of a patch, pixels.
    pub patch: u32,
    /// Images, of equal heights.
    #[serde(default = "default_one", skip_serializing_if = "is_one")]
    pub images: u32,
    /// Rows of zeros before each image's patches.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lead: u32,
    /// Dtype of the output.
    pub dtype: DType,
}

fn default_one() -> u32 {
    1
}

fn is_one(value: &u32) -> bool {
    *value == 1
}

fn is_zero(value: &u32) -> bool {
    *value == 0
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
        let [images, patch, lead] = [self.images, self.patch, self.lead].map(u64::from);
        if images == 0 || !height.is_multiple_of(images) {
            return Err(Error::invalid(format!("`images` is {images}, which does not divide {height} rows of pixels")));
        }
        // From here on the height of one image.
        let height = height / images;
        if patch == 0 || height < patch || *width < patch {
            let found = format!("`patch` is {patch}, an image has {height}×{width} pixels");
            return Err(Error::invalid(format!("at least one patch must fit an image: {found}")));
        }
        // Checked, as sizes of a graph may be anything.
        let count = (height / patch).checked_mul(width / patch).and_then(|count| count.checked_add(lead));
        let rows = count.and_then(|count| count.checked_mul(images));
        let (Some(rows), Some(columns)) = (rows, channels.checked_mul(patch * patch)) else {
            return Err(Error::invalid(format!("the patches of {} overflow", inputs[0])));
        };
        Ok(vec![TensorType::new(self.dtype, [rows, columns])])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, [patch, images, lead]: [u32; 3], shape: &str, dtype| {
            let empty = Sample::new(name, Patches { patch, images, lead, dtype }, 3, 0);
            empty.input(DType::F32, shape, Fill::Normal(1.0))
        };
        vec![
            case("squares", [7, 1, 0], "3,28,28", DType::F32),
            case("pixels left over", [5, 1, 0], "3,17,23", DType::F32),
            case("more than one workgroup", [14, 1, 0], "3,42,70", DType::F32),
            case("one channel, one pixel", [1, 1, 0], "1,3,5", DType::F32),
            case("the whole image", [6, 1, 0], "2,6,6", DType::F32),
            case("f16 output", [4, 1, 0], "3,8,12", DType::F16),
            case("a row before the patches", [7, 1, 1], "3,14,21", DType::F32),
            case("images, pixels left over in each", [4, 3, 0], "2,27,14", DType::F32),
            case("images with rows before each, f16", [3, 2, 2], "3,14,9", DType::F16),
        ]
    }
}
