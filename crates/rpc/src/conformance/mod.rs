//! The wire's own rules, checked on any agent with messages that a client would not send: what an author of an agent cannot
//! see through [`crate::RemoteDevice`], which refuses wrong calls itself. The commands of a device have a suite of their
//! own, [`tapml_device::conformance`].

mod commands;
mod raw;
mod rule;
mod session;

pub use rule::Rule;

/// All rules.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    session::RULES.iter().chain(commands::RULES)
}
