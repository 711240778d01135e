//! Diagnosis: every faulty operator and every fault between operators of a model on a platform, in one run, with its
//! cause and its harm. It prints nothing; it judges by the verdicts of `tapml-migrate` and explains by `tapml-cause`.
#![warn(missing_docs)]

mod audit;
mod between;
mod context;
mod diagnose;
mod explain;
mod functions;
mod group;
mod html;
mod impact;
mod inner;
mod made;
mod not_run;
mod operators;
mod regions;
mod report;
mod rule;
mod shell;
mod source;
mod within;

pub use context::{DiagnoseOptions, Reopen, Subject};
pub use diagnose::diagnose;
pub use html::html;
pub use report::{
    Blames, Diagnosis, Fault, FaultKind, Impact, LeftOut, NotRun, SCHEMA, Stage, UNKNOWN, Variant, Watched,
};
pub use shell::Reduction;
