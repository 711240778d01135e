//! What a model's encoder takes of an image.

use tapml_graph::Tensor;
#[cfg(doc)]
use tapml_import::Layout;

/// What a model's encoder takes of an image.
#[derive(Clone, Debug)]
pub struct Pixels {
    /// `f32[3, height, width]`; of the crops of [`Layout::Crops`], one below the other.
    pub values: Tensor,
    /// Parts down and across that the image is cut in; `[1, 1]` if it is not cut.
    pub parts: [u32; 2],
}
