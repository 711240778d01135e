//! Identities by content: hashes of graphs and weights, and what is said when two of them differ.
//!
//! Names and paths are for people; only hashes are compared.

use crate::hash::{Hash, tensor_type};
use crate::hashes::KeptHashes;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tapml_graph::{Error, Graph, Model, Result, TensorType};

/// Who a model is, for people and for comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelIdentity {
    /// Name for people, such as the folder's.
    pub name: String,
    /// Where it was read from.
    pub path: String,
    /// Hash of its configuration file; empty if it has none.
    pub config: String,
    /// Hash over the names, types and bytes of all weights of the graph; empty until they were hashed.
    pub weights: String,
}

/// One weight by name and hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightEntry {
    /// Checkpoint name.
    pub name: String,
    /// Dtype and sizes.
    #[serde(rename = "type")]
    pub ty: TensorType,
    /// [`Hash::of_tensor`].
    pub blake3: Hash,
}

/// Hash of the graph's text form.
pub fn graph_hash(graph: &Graph) -> Hash {
    Hash::compute(graph.to_string().as_bytes())
}

/// The weights that the model's graph names, hashed by several threads, in the graph's order. Hashes of large checkpoints are
/// kept beside them, for as long as no file is written.
///
/// # Errors
/// If a weight cannot be read.
pub fn weight_entries(model: &Model) -> Result<Vec<WeightEntry>> {
    weight_entries_while(model, &|| Ok(()))
}

/// [`weight_entries`], for as long as `go_on` says so before each weight.
pub(crate) fn weight_entries_while(
    model: &Model,
    go_on: &(dyn Fn() -> Result<()> + Sync),
) -> Result<Vec<WeightEntry>> {
    let names: Vec<&str> = model.graph().weights().map(|(_, v)| v.name.as_str()).collect();
    let kept = KeptHashes::default();
    let hashed = names.par_iter().map(|&name| {
        go_on()?;
        let tensor = model.weight(name)?;
        let ty = tensor_type(&tensor);
        Ok(WeightEntry { name: name.into(), blake3: kept.hash_tensor(&ty, &tensor), ty })
    });
    let entries = hashed.collect();
    // Also after an error: what was hashed is of use to the next run.
    kept.keep();
    entries
}

/// One hash over all weights: the same for every order of names.
pub fn weights_hash(entries: &[WeightEntry]) -> Hash {
    let mut lines: Vec<String> = entries.iter().map(|w| format!("{} {}\n", w.name, w.blake3)).collect();
    lines.sort();
    Hash::compute(lines.concat().as_bytes())
}

/// Fails unless `model`'s weights are those that `expected` lists; both identities are named.
///
/// Reads and hashes all weights.
pub fn expect_weights(model: &Model, expected: &[WeightEntry], of: &ModelIdentity) -> Result<()> {
    let found = weight_entries(model)?;
    let first = expected.iter().find_map(|want| {
        let have = found.iter().find(|w| w.name == want.name);
        match have {
            None => Some(format!("weight `{}` is missing", want.name)),
            Some(have) if have.ty != want.ty => {
                Some(format!("weight `{}`: expected {}, found {}", want.name, want.ty, have.ty))
            }
            Some(have) if have.blake3 != want.blake3 => Some(format!(
                "weight `{}` has other values ({:?}, expected {:?})",
                want.name, have.blake3, want.blake3
            )),
            Some(_) => None,
        }
    });
    let Some(first) = first else { return Ok(()) };
    let (have, want) = (weights_hash(&found), weights_hash(expected));
    Err(Error::invalid(format!(
        "the suite is of model `{}` at `{}` with weights {want:?}, the model given has weights {have:?}: {first}",
        of.name, of.path
    ))
    .with_detail("expected", want.to_string())
    .with_detail("found", have.to_string())
    .with_hint("give the checkpoint that was carved, or carve this one anew"))
}
