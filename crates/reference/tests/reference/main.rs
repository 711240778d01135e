//! Behaviour of the reference as its users see it, in one binary.
#![allow(clippy::unwrap_used)]

mod common;
mod ops;
mod oracle;
mod rewrites;
mod run;
mod samples;
