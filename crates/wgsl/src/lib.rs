//! Reads the WGSL of a kernel for those that make something of it: parsing, validation, override constants, the checks that
//! the text fits its description, and where in the kernel's file a place of the text lies. Makes nothing itself.
#![warn(missing_docs)]

mod front;
mod kind;
mod source;

pub use front::{Fail, Module, compile};
pub use kind::Kind;
pub use source::{Location, SourceMap};
