//! What long work tells its caller while it runs.

use crate::judged::JudgedCall;

/// Receives progress. Called from several threads; every method may do nothing.
pub trait Progress: Sync {
    /// A new stage begins: its name and the number of units it will advance by (0 if unknown).
    fn stage(&self, _name: &str, _total: u64) {}
    /// So many units are done.
    fn advance(&self, _units: u64) {}
    /// Something worth a line: an operator was accepted, a case failed.
    fn note(&self, _text: &str) {}
    /// A call was judged.
    fn on_judged(&self, _call: &JudgedCall<'_>) {}
    /// An operator of a migration was decided.
    fn on_decided(&self, _entry: &crate::ledger::Entry) {}
}

/// Progress that nobody looks at.
pub struct Quiet;

impl Progress for Quiet {}
