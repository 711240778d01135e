//! `suite.json`: what a suite is, where it comes from, and the hash of every other file.

use crate::hash::Hash;
use crate::identity::{ModelIdentity, WeightEntry};
use serde::{Deserialize, Serialize};
use tapml_graph::{Symbols, TensorType};

/// Version of the folder format that this build writes and reads.
pub const SCHEMA: u32 = 1;
/// Name of the manifest within the folder.
pub const MANIFEST: &str = "suite.json";
/// Name of the file of runs: one line of JSON per [`Frame`].
pub const FRAMES: &str = "calls.jsonl";
/// Name of the tensor index: fixed records, see [`super::index`].
pub const INDEX: &str = "tensors.index";
/// Name of the file of tensor bytes.
pub const TENSORS: &str = "tensors.bin";

/// The platform that recorded the suite.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuiteSource {
    /// Word of the command line.
    pub platform: String,
    /// The device's own name.
    pub device: String,
    /// Driver name and version.
    pub driver: String,
}

/// One prompt with what the source made of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// The prompt's text; empty if only ids were given.
    pub text: String,
    /// Token ids of the prompt.
    pub ids: Vec<u32>,
    /// Hash of the pixels that the model was given; absent if the prompt has no image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Hash>,
    /// Token ids that the source chose greedily, in order.
    pub generated: Vec<u32>,
    /// Text of the generated tokens; empty if there was no tokenizer.
    pub generated_text: String,
}

/// How the suite was carved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Decode steps after each prompt.
    pub steps: u32,
    /// Whether the weights' bytes are within the suite.
    pub self_contained: bool,
}

/// Sums over the suite.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Node calls.
    pub calls: u64,
    /// Runs of the graph: one prefill and the decode steps of each prompt.
    pub frames: u64,
    /// Unique tensors.
    pub tensors: u64,
    /// Bytes of the unique tensors.
    pub tensor_bytes: u64,
    /// Bytes of all tensors that were recorded, before equal ones were merged.
    pub recorded_bytes: u64,
}

/// Size and hash of one file of the folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Name within the folder.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3 of the contents; absent for [`TENSORS`], whose every tensor has its hash in [`INDEX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<Hash>,
}

/// The manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// The model that was carved.
    pub model: ModelIdentity,
    /// The graph in its text form, as the source ran it.
    pub graph: String,
    /// BLAKE3 of `graph`.
    pub graph_hash: Hash,
    /// Who recorded it.
    pub source: SuiteSource,
    /// The prompts.
    pub prompts: Vec<Prompt>,
    /// How it was carved.
    pub settings: Settings,
    /// Sums.
    pub totals: Totals,
    /// Distinct types of the stored tensors; records of the index refer to them by position.
    pub types: Vec<TensorType>,
    /// The weights that the graph names.
    pub weights: Vec<WeightEntry>,
    /// Names of the calls, if the suite holds single calls rather than whole runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cases: Option<Vec<String>>,
    /// Every other file of the folder.
    pub files: Vec<FileEntry>,
}

/// Where the bytes of one recorded value are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Slot {
    /// A stored tensor, by its position in the index.
    Stored(u32),
    /// The value of a growing state after the run: rows of this and all earlier runs of the prompt, joined.
    /// Written as `[rows]`, the count of rows.
    Rows([u32; 1]),
    /// Not recorded: weights, and inputs of states, which other slots give. Written as `null`.
    None,
}

/// One run of the graph: the prefill or a decode step of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Index of the prompt.
    pub prompt: u32,
    /// 0 for the prefill, then 1, 2, …
    pub step: u32,
    /// Values of the symbols.
    pub symbols: Symbols,
    /// For each state of the graph: the rows that this run added to a growing one, or the whole value of a fixed one
    /// before the run.
    pub states: Vec<Slot>,
    /// For each value of the graph, by its id.
    pub values: Vec<Slot>,
}
