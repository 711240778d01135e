//! Faults made on purpose: mutants of kernels, launches and programs, and a device that has them. The bench that
//! diagnosis is measured with stands on them, and the score of suites.
//!
//! A mutant is data: what changes, where, and which causes a diagnosis may name. Nothing here changes the kernels of a build.
#![warn(missing_docs)]

pub mod bench;
mod catalogue;
mod commands;
mod device;
mod mutant;
pub mod mutation_score;
mod operators;
mod source;

pub use catalogue::{Catalogue, RowMutants, apply_mutants};
pub use device::{FaultyDevice, Workbench};
pub use mutant::{Cast, ConstantChange, Edit, Family, Mutant};
pub use operators::{BETWEEN, OPERATORS};
