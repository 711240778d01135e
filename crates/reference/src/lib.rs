//! The reference: every operator evaluated on the host, generic over `f32` and `f64`. In `f32` it is the `cpu`
//! platform, in `f64` the oracle that verdicts compare with. It reads no files and knows no devices.
//!
//! Values are not rounded to storage dtypes within or after an evaluation; [`Value::to_tensor`] and [`run_node`] round.
//! Results do not depend on the number of threads.
#![warn(missing_docs)]

mod eval;
mod matmul;
mod op;
mod oracle;
mod random;
mod real;
mod run;
mod simd;
mod value;
mod weights;

pub use eval::{eval, run_node};
pub use oracle::{Oracle, oracle};
pub use real::Real;
pub use run::{GraphRun, Observer, Weights, empty_states, on_pool, run_graph};
pub use value::{Array, Value};
pub use weights::WeightCache;
