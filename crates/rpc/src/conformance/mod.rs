//! The wire's own rules, checked on any agent with messages that a client would not send: what an author of an agent cannot
//! see through [`crate::RemoteDevice`], which refuses wrong calls itself. The commands of a device have a suite of their
//! own, [`tapml_device::conformance`].

mod commands;
mod raw;
mod session;

use crate::Address;
use raw::{Check, Problem};
use tapml_device::conformance::CaseOutcome;

/// One rule of the wire.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Name in lower case with underscores.
    pub name: &'static str,
    /// What the schema asks for, in a sentence.
    pub text: &'static str,
    /// Checks it on connections of its own.
    body: fn(&Address) -> Check,
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

/// All rules.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    session::RULES.iter().chain(commands::RULES)
}
