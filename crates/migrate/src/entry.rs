//! One operator of a ledger with its evidence.

use crate::hash::Hash;
use crate::model_check::ModelCheck;
use crate::report::{OpCheck, SkippedNode};
use serde::{Deserialize, Serialize};

/// Where an operator stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OpState {
    /// Not decided yet.
    #[default]
    Pending,
    /// It runs on the target.
    Accepted,
    /// It failed a check and stays on the source.
    Rejected,
    /// The target has no kernel for it; it stays on the source.
    Unsupported,
}

/// One operator kind with its evidence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Operator name.
    pub op: String,
    /// Where it stands.
    pub state: OpState,
    /// Nodes of this kind.
    pub nodes: u64,
    /// Name of the kernel.
    pub kernel: String,
    /// The check of its calls alone.
    pub check: Option<OpCheck>,
    /// What `check` depends on, as one hash.
    pub check_key: Option<Hash>,
    /// The check of the hybrid model with it.
    pub model: Option<ModelCheck>,
    /// What `model` depends on, as one hash.
    pub model_key: Option<Hash>,
    /// Wall-clock time of both checks.
    pub seconds: f64,
    /// Why it was not accepted.
    pub reason: Option<String>,
    /// Nodes of this kind that the target cannot run.
    #[serde(default)]
    pub skipped: Vec<SkippedNode>,
}

impl Entry {
    /// Enters a new check of the operator's calls; a check of the model was made after another one.
    pub(crate) fn enter_check(&mut self, check: OpCheck, key: Hash) {
        (self.kernel, self.seconds) = (check.kernel.clone(), check.seconds);
        (self.check, self.check_key) = (Some(check), Some(key));
        (self.model, self.model_key) = (None, None);
    }
}
