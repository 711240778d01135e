//! Graphs of tensor operators: dtypes, symbolic sizes, host tensors, operators, graphs and their rewrites.
//! No I/O, and no device is named here.
//!
//! * A [`Graph`] is a list of nodes in topological order over values with types. [`Builder`] makes one, [`violations`] checks it.
//! * An [`Op`] is a closed enumeration; what an operator means stands in its file in [`op`].
//! * [`mod@rewrite`] and [`fusion`] change graphs by patches, so that a graph itself stays as it is.
//! * [`text`] is the form that people read and write.
//!
//! Graphs and attributes come from files that may be hostile: sizes are symbolic or bounded, and arithmetic on them is checked.
#![warn(missing_docs)]

pub mod aten;
mod derived;
mod dim;
mod dtype;
mod error;
mod expand;
mod extract;
pub mod fusion;
mod graph;
mod greedy;
mod known_names;
mod loop_invariant;
mod model;
pub mod op;
mod outline;
mod outputs;
pub mod packing;
pub mod paged;
mod pools;
pub mod rewrite;
mod shard;
mod summary;
mod tensor;
mod tensor_type;
pub mod text;
mod top_logits;
mod value;
mod verify;

pub use derived::Derived;
pub use dim::{Dim, Extent, Symbol, Symbols};
pub use dtype::DType;
pub use error::{Context, Error, ErrorKind, Result};
pub use graph::{
    Builder, BuilderMark, Graph, Node, NodeId, Origin, Output, State, TensorType, Value, ValueId,
};
pub use greedy::{GENERATED, NEXT_TOKEN};
pub use known_names::known_names;
pub use model::Model;
pub use op::{Op, Operator};
pub use packing::Packing;
pub use pools::{NamedParts, Pools};
pub use rewrite::{Applied, Patch, fuse, rewrite};
pub use shard::MEETING;
pub use summary::{OpCount, Summary, SummaryPort, WeightCount};
pub use tensor::{Bytes, FileState, Tensor, WeakTensor, byte_len};
pub use top_logits::{LOGITS_PART, PART_MAXIMA, PART_SUMS, TOP_LOGITS, TOP_TOKENS};
pub use verify::violations;
