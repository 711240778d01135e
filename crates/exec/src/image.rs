//! An image among the tokens of a prompt.
//!
//! The graph does not know where in a prompt an image stands; `slots` says it for each step.

use tapml_graph::Tensor;

/// The slot of a token that stays what it is.
pub const NOWHERE: u32 = u32::MAX;

/// An image, and which tokens of a prompt stand for it.
#[derive(Clone, Debug)]
pub struct Image {
    /// What the model's encoder takes: `f32[channels, height, width]`.
    pub pixels: Tensor,
    /// For each position of the prompt the row of the encoder's result that takes its place, or [`NOWHERE`]. Positions
    /// beyond are nowhere.
    pub slots: Vec<u32>,
}
