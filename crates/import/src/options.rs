//! Choices made when a checkpoint is imported.

use tapml_graph::DType;

/// Which positions get logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum LogitRows {
    /// Every position of the step: `logits: f32[n, vocab]`.
    #[default]
    All,
    /// The step's last position: `logits: f32[1, vocab]`.
    Last,
}

/// Choices made when a checkpoint is imported.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImportOptions {
    /// Dtype of activations and caches: f32 or f16. Logits are f32 in either case.
    pub activation: DType,
    /// Which positions get logits.
    pub logits: LogitRows,
    /// Use at most this many positions, even if the model was made for more.
    pub max_context: Option<usize>,
    /// Refuse weights that hold NaN or infinity.
    pub check_finite: bool,
}

impl Default for ImportOptions {
    fn default() -> ImportOptions {
        ImportOptions {
            activation: DType::F32,
            logits: LogitRows::All,
            max_context: None,
            check_finite: true,
        }
    }
}
