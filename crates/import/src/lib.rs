//! Reads checkpoints: a folder in Hugging Face layout, or a GGUF file, becomes a verified graph and memory-mapped weights;
//! of an ONNX model it tells what it consists of.
//!
//! `safetensors` reads and writes the file format, `npy` that of NumPy, `gguf` and `onnx` read the others,
//! `arch/<name>.rs` turns a `config.json` into a graph out of the parts in `block/`. Everything read here
//! is hostile until checked: sizes are bounded, arithmetic is checked, and an error names file, key or
//! tensor, what was expected and what was found.
//!
//! A folder is opened in this order: `config` reads JSON, `arch` builds the graph, `packed` recognises
//! quantised weights, `weights` maps the rest. Nothing here runs a graph or names a device.
//!
//! # Examples
//! ```no_run
//! let checkpoint = tapml_import::Checkpoint::open("models/llama")?;
//! println!("{} with {} token ids", checkpoint.model_type(), checkpoint.vocab());
//! # Ok::<(), tapml_graph::Error>(())
//! ```
#![warn(missing_docs)]

mod arch;
mod block;
mod checkpoint;
mod class;
mod config;
mod finite;
pub mod gguf;
mod image;
mod mapped;
mod net;
pub mod npy;
pub mod onnx;
mod options;
mod outline;
mod packed;
mod present;
pub mod quantize;
mod random;
pub mod safetensors;
mod source;
mod spelling;
#[cfg(feature = "testing")]
pub mod testing;
mod weights;

pub use arch::{ARCHITECTURES, Architecture};
pub use checkpoint::{Checkpoint, read_config};
pub use config::{Config, Section};
pub use image::{ImageTokens, Layout};
pub use options::{ImportOptions, LogitRows};
pub use outline::Outline;
pub use present::is_present;
pub use random::weights as random_weights;
pub use weights::Weights;
