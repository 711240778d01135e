//! Graphs of tensor operators: dtypes, symbolic sizes, host tensors, operators, graphs and their rewrites.
//! No I/O, and no device is named here.
#![warn(missing_docs)]

mod dim;
mod dtype;
mod error;

pub use dim::{Dim, Extent, Symbol, Symbols};
pub use dtype::DType;
pub use error::{Context, Error, ErrorKind, Result};
