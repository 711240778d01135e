//! What long work tells its caller while it runs, and how the caller stops it.

use crate::check::CaseResult;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tapml_graph::{Error, ErrorKind, Result};

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

/// A call of a check with its verdict.
pub struct JudgedCall<'a> {
    /// Operator.
    pub op: &'a str,
    /// Name of the case.
    pub case: String,
    /// Name of the node.
    pub node: &'a str,
    /// The kernel that ran it, if it is known.
    pub kernel: Option<&'a str>,
    /// The verdict, or why the call could not be run.
    pub result: &'a CaseResult,
}

/// Progress that nobody looks at.
pub struct Quiet;

impl Progress for Quiet {}

/// A request to stop, shared with a signal handler.
#[derive(Clone, Debug, Default)]
pub struct Stop(pub Arc<AtomicBool>);

impl Stop {
    /// Nobody has asked to stop.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Asks to stop.
    pub fn request(&self) {
        // No other memory depends on the flag, so no order is needed. A signal handler may do this.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails with [`ErrorKind::Interrupted`] if someone has asked to stop.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            Err(Error::new(ErrorKind::Interrupted, "stopped on request")
                .with_hint("run the same command again; `migrate` goes on from its ledger"))
        } else {
            Ok(())
        }
    }
}
