//! TapML's public Rust API. Backends meet here and nowhere else; cargo features choose them.
#![warn(missing_docs)]

#[cfg(feature = "remote")]
mod agents;
pub mod align;
pub mod doctor;
pub mod dry_run;
pub mod eval;
#[cfg(feature = "remote")]
pub mod fleet;
pub mod jobs;
pub mod lowered;
pub mod model;
pub mod node_tests;
#[cfg(feature = "remote")]
pub mod offer;
pub mod onnx;
pub mod platform;
pub mod prompts;
pub mod runtime;
pub mod shown;
pub mod speed;
pub mod tune;

#[cfg(feature = "remote")]
pub use tapml_broker as broker;
pub use tapml_bugs as bugs;
pub use tapml_cause as cause;
pub use tapml_device as device;
pub use tapml_diagnose as diagnose;
pub use tapml_engine as engine;
pub use tapml_exec as exec;
pub use tapml_files as files;
pub use tapml_graph as graph;
pub use tapml_graph::{Error, ErrorKind, Result};
pub use tapml_import as import;
pub use tapml_kernels as kernels;
pub use tapml_migrate as migrate;
pub use tapml_reduce as reduce;
pub use tapml_reference as reference;
#[cfg(feature = "remote")]
pub use tapml_rpc as rpc;
