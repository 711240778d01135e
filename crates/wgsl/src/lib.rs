//! Reads the WGSL of a kernel for those that make something of it: parsing, validation, override constants, the checks that
//! the text fits its description, and where in the kernel's file a place of the text lies. Makes nothing itself.
//!
//! The emulator and the printers of C-like languages build on it. The front end is naga; its capabilities
//! are set by the device's features, so a kernel that the device could not run does not validate.
#![warn(missing_docs)]

mod front;
mod kind;
mod source;

pub use front::{Fail, Module, compile};
pub use kind::Kind;
pub use source::{Location, SourceMap};
