//! Behaviour of the reference as its users see it, in one binary.
#![allow(clippy::unwrap_used)]

mod attention;
mod common;
mod elementwise;
mod experts;
mod moves;
mod ops;
mod oracle;
mod rewrites;
mod rope;
mod run;
mod samples;
