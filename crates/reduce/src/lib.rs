//! Reduction: a failing node call shrunk to a standalone reproducer that keeps real values.
//!
//! [`reduce`] makes the call smaller along its axes (rows, heads, columns, lengths of sums, cached tokens) while it still
//! fails its verdict against an oracle computed anew, and [`Reproducer`] writes what is left as a folder that needs no
//! TapML: data, kernels, a README, a small Rust program over wgpu and a page for any browser with WebGPU. Of operators of others,
//! or of a few of them that fail only together, [`RuntimeReproducer`] writes a model or module and a script for their runtime.
//!
//! A wrong step of the search cannot make a wrong reproducer: every smaller call is run and judged anew before it is taken.
#![warn(missing_docs)]

mod aspect;
mod axes;
mod axis;
mod body;
mod plain;
mod reduce;
mod report;
mod reproducer;
mod rule;
mod search;
mod simplify;
mod specimen;
mod trial;

pub use aspect::Aspect;
pub use axes::axes;
pub use axis::{Attribute, Axis, AxisPlace};
pub use reduce::{ReduceOptions, Reduced, Stability, reduce};
pub use report::{CallSizes, ReductionReport};
pub use reproducer::{
    Contents, ExportedProgram, Files, MARKER, PROGRAM_FILES, Reproducer, RuntimeReproducer, Values,
    WriteProgram,
};
pub use rule::SizeRule;
pub use simplify::Simplified;
pub use specimen::Specimen;
pub use trial::{CLEAR, Failure, Wrong};
