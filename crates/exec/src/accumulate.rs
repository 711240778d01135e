//! The precision that a kernel declares.

use serde::{Deserialize, Serialize};
use tapml_graph::DType;

/// The precision in which a kernel accumulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Accumulate {
    /// Dtype of the sums.
    pub dtype: DType,
}
