//! The suite: a folder that holds the carved node calls of one model and replays with no source platform at hand.
//!
//! | file | holds |
//! |---|---|
//! | `suite.json` | the [`Manifest`]: model identity, graph text, source, prompts, settings, sums, hashes of the other files |
//! | `calls.jsonl` | one [`Frame`] per run of the graph (a prefill or a decode step): where each value of the graph is |
//! | `tensors.index` | one 48-byte record per unique tensor: BLAKE3, offset, type |
//! | `tensors.bin` | the bytes of each unique tensor, at multiples of 16 |
//!
//! The node calls follow from the frames and the graph. Weights are named by name and hash; their bytes are here only in
//! a self-contained suite. A suite of single calls ([`part`]) lists these, and has values where they need them. A growing state is stored by the rows that each run added.

pub(crate) mod index;
mod manifest;
mod part;
mod reader;
mod validate;
mod writer;

pub use manifest::{
    FRAMES, FileEntry, Frame, INDEX, MANIFEST, Manifest, Prompt, SCHEMA, Settings, Slot, SuiteSource,
    TENSORS, Totals,
};
pub use part::part;
pub use reader::{Case, Suite};
pub use writer::{SuiteOutput, SuiteWriter, Wrap};
