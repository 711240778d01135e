//! A rule of the wire, and how it is checked.

use super::raw::{Check, Problem};
use crate::Address;
use tapml_device::conformance::CaseOutcome;

/// One rule of the wire.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Name in lower case with underscores.
    pub name: &'static str,
    /// What the schema asks for, in a sentence.
    pub text: &'static str,
    /// Checks it on connections of its own.
    pub(super) body: fn(&Address) -> Check,
}

impl Rule {
    /// Checks the rule on the device that the address names, on connections of its own.
    pub fn check(&self, address: &Address) -> CaseOutcome {
        match (self.body)(address) {
            Ok(()) => CaseOutcome::Passed,
            Err(Problem::Failed(text)) => CaseOutcome::Failed(text),
            Err(Problem::Skipped(reason)) => CaseOutcome::Skipped(reason),
        }
    }
}
