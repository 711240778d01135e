//! Diagnosis: every faulty operator and every fault between operators of a model on a platform, in one run, with its
//! cause and its harm. It prints nothing; it judges by the verdicts of `tapml-migrate` and explains by `tapml-cause`.
//!
//! Runs are observed first, which gives failing calls and anomalies as data. What explains these is a pure function of the data and of
//! the outcomes of experiments: `experiment` says what may be asked for, and `perform` runs it. Faults that no single node shows are
//! located by further runs of the whole model.
#![warn(missing_docs)]

#[cfg(test)]
mod answers;
mod audit;
mod between;
mod context;
mod diagnose;
mod experiment;
mod explain;
mod functions;
mod group;
mod html;
mod impact;
mod inner;
mod made;
mod not_run;
mod operators;
mod perform;
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
