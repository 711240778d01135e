//! Migration: carving a model into a suite of node calls, checking them on a platform, verdicts with the numbers that
//! decide, and the ledger that moves a model over one operator at a time. It prints nothing and draws nothing.
#![warn(missing_docs)]

mod carve;
mod identity;
mod progress;
pub mod suite;
pub mod verdict;

pub use carve::{CarveOptions, Carved, PromptInput, carve};
pub use identity::{Hash, ModelIdentity, WeightEntry, graph_hash, tensor_type, weight_entries, weights_hash};
pub use progress::{Progress, Quiet, Stop};
