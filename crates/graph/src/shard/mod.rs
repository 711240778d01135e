//! Tensor parallelism: the graph of a model whose matrices are shared out among ranks.
//!
//! The new graph holds the nodes of all ranks, so that any platform runs it, and it is recorded, checked and diagnosed as any
//! other graph is. Ranks meet at `all_reduce` and `all_gather` alone. What a node computes for one rank is named `NODE@RANK`,
//! and a rank's weights are slices of the checkpoint's, by name: see `slice`.
//!
//! | part of a layer | what a rank has |
//! |---|---|
//! | projections to queries, keys, values, gate and up | rows of the weight: whole heads, or equal parts |
//! | caches of keys and values | the columns of its heads; a head that several ranks read is kept by each of them |
//! | projections to the output and down | columns of the weight, and then an `all_reduce` |
//! | experts | a part of every expert |
//! | logits | rows of the weight and then an `all_gather`, if the vocabulary divides |
//! | all else: embedding, norms, routers | all of it |

mod build;
mod columns;
mod ranks;
mod rules;
mod slice;
mod splits;

pub use ranks::MEETING;
pub(crate) use slice::WeightSlice;

use crate::error::{Context, Error, Result};
use crate::graph::Graph;
use crate::op::MAX_RANKS;

impl Graph {
    /// The graph shared out among so many ranks, 2 to 64: one graph with the nodes of all of them. Inputs, outputs and the names
    /// of values that every rank has stay. [`crate::Model::with_graph`] takes it with the weights of this graph.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unsupported`], with the node, if heads or columns do not divide by the ranks, if a group of a packed
    /// weight would be cut, or if an attention or a state would be whole on each rank.
    pub fn shard(&self, ranks: u32) -> Result<Graph> {
        let shared = || format!("graph `{}` for {ranks} ranks", self.name());
        if !(2..=MAX_RANKS).contains(&ranks) {
            let text = format!("expected 2 to {MAX_RANKS} ranks, found {ranks}");
            return Err(Error::invalid(text)).context(shared);
        }
        if self.ranks().is_some() {
            return Err(Error::invalid("it is shared out already")).context(shared);
        }
        splits::Splits::find(self, ranks).and_then(|splits| build::build(&splits)).context(shared)
    }
}
