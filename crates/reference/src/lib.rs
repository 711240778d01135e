//! The reference: every operator evaluated on the host, generic over `f32` and `f64`. In `f32` it is the `cpu`
//! platform, in `f64` the oracle that verdicts compare with. It reads no files and knows no devices.
//!
//! Values are not rounded to storage dtypes within or after an evaluation; [`Value::to_tensor`] and [`run_node`] round.
//! Results do not depend on the number of threads.
//!
//! ```
//! use tapml_graph::{Symbols, op::Linear};
//! use tapml_reference::{Value, eval};
//!
//! let x = Value::float(vec![1, 2], vec![1.0, 2.0])?;
//! let w = Value::float(vec![3, 2], vec![1.0, 0.0, 0.0, 1.0, 1.0, 1.0])?;
//! let y = eval::<f64>(&Linear::default().into(), &Symbols::np(1, 0), &[x, w])?;
//! assert_eq!(y[0].as_float()?.values(), [1.0, 2.0, 3.0]);
//! # Ok::<(), tapml_graph::Error>(())
//! ```
#![warn(missing_docs)]

mod array;
mod chained;
mod deviation;
mod eval;
pub mod foreign;
mod fused;
mod kernels;
mod lanes;
mod matmul;
mod op;
mod oracle;
mod packed;
mod random;
mod real;
mod run;
mod simd;
mod split;
mod value;
mod weights;

pub use eval::{eval, run_node};
pub use fused::{cut_within, values_within};
pub use oracle::{Oracle, oracle};
pub use packed::{PackedRows, Quantized};
pub use real::Real;
pub use run::{GraphRun, Observer, WeightSource, empty_states, on_pool, run_graph};
pub use value::{Array, Value};
pub use weights::WeightCache;
