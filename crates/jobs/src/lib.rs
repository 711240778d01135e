//! The long jobs as plain data, which the command line and other languages run alike: carve, check, migrate, diagnose, reduce, tune, run,
//! measure. Backends meet here and nowhere else; cargo features choose them.
//!
//! A job is a struct of plain data with a `run`. It prints nothing: progress goes to a `Progress`, and a
//! `Stop` ends it between two steps. The command line, the Python package and tests build the same structs.
#![warn(missing_docs)]

#[cfg(feature = "remote")]
pub mod agent_options;
#[cfg(feature = "remote")]
mod agents;
pub mod align;
pub mod doctor;
pub mod dry_run;
pub mod eval;
#[cfg(feature = "remote")]
pub mod fleet;
pub mod job;
pub mod lowered;
pub mod model;
pub mod node_tests;
#[cfg(feature = "remote")]
pub mod offer;
pub mod onnx;
pub mod platform;
pub mod prompts;
pub mod runtime;
pub mod serve;
mod serve_encoder;
pub mod served;
mod shadow;
pub mod shown;
pub mod site;
pub mod speed;
pub mod tasks;
pub mod tune;
