//! The tensors of a GGUF file under the names and in the layout of a Hugging Face checkpoint.
//!
//! Nothing is read here before a tensor is loaded. A tensor whose layout is the same in both stays mapped;
//! the others are copied.

use super::arch::{Architecture, Change, Heads, NameRow};
use super::shards::Model;
use crate::weights::{ListedTensor, TensorFile};
use std::path::Path;
use tapml_graph::{Bytes, DType, Error, Result, Tensor};

/// The most parts that one tensor is cut into, such as the experts of a layer.
/// A bound on what one entry of a file can make.
const MOST_PARTS: usize = 1 << 12;
/// Endings that pass unchanged from a name in the file to that in a checkpoint.
const ENDINGS: [&str; 2] = [".weight", ".bias"];

/// The tensors of a model that its architecture has names for, and the others under their own.
#[derive(Debug)]
pub struct Tensors {
    model: Model,
    /// In the order of `listed`.
    places: Vec<TensorPlace>,
    listed: Vec<ListedTensor>,
}

/// Where a tensor of the checkpoint lies in the file.
#[derive(Clone, Debug)]
struct TensorPlace {
    /// Its name in the file.
    name: String,
    change: Change,
    /// Of so many equal parts along the outermost size, this one.
    part: Option<(usize, usize)>,
}

impl Tensors {
    /// Names the tensors of the model. Fails if a tensor cannot have the layout that its architecture prescribes.
    pub fn new(model: Model, architecture: &Architecture) -> Result<Tensors> {
        let mut tensors = Tensors { places: Vec::new(), listed: Vec::new(), model };
        let names: Vec<String> =
            tensors.model.files().iter().flat_map(|f| f.entries()).map(|e| e.name.clone()).collect();
        for name in names {
            tensors.add(&name, architecture)?;
        }
        Ok(tensors)
    }

    /// Lists one tensor of the file under its names in a checkpoint: one, or one for each part.
    fn add(&mut self, name: &str, architecture: &Architecture) -> Result<()> {
        let Some((_, entry)) = self.model.find(name) else { return Ok(()) };
        if architecture.read_into_config(name) {
            return Ok(());
        }
        let mut list =
            |checkpoint: String, shape: Vec<usize>, change: Change, part: Option<(usize, usize)>| {
                // In f32: the difference needs digits that 16 bits do not have.
                let dtype = if change == Change::MinusOne { Some(DType::F32) } else { entry.kind.dtype() };
                self.listed.push(ListedTensor { name: checkpoint, shape, stored: entry.kind.name(), dtype });
                self.places.push(TensorPlace { name: name.to_string(), change, part });
            };
        let Some((row, checkpoint)) = find(name, architecture) else {
            list(name.to_string(), entry.shape.clone(), Change::None, None);
            return Ok(());
        };
        match row.change {
            // Only the factor is stored otherwise.
            Change::MinusOne if checkpoint.ends_with(".bias") => {
                list(checkpoint, entry.shape.clone(), Change::None, None);
            }
            Change::Parts => {
                let parts = entry.shape.first().copied().unwrap_or(0);
                if parts > MOST_PARTS || entry.shape.len() < 2 || entry.start == entry.end {
                    let shape = &entry.shape;
                    let text = format!(
                        "tensor `{name}`: expected at most {MOST_PARTS} equal parts, found {shape:?}"
                    );
                    return Err(Error::invalid(text).context(self.model.path().display().to_string()));
                }
                for part in 0..parts {
                    let checkpoint = checkpoint.replace('%', &part.to_string());
                    list(checkpoint, entry.shape[1..].to_vec(), Change::None, Some((part, parts)));
                }
            }
            change => list(checkpoint, entry.shape.clone(), change, None),
        }
        Ok(())
    }

    /// Heads of the kind that a change counts.
    fn heads(&self, heads: Heads) -> Result<usize> {
        let metadata = self.model.metadata();
        let architecture = metadata.text("general.architecture")?.unwrap_or_default();
        let key = |end: &str| format!("{architecture}.attention.head_count{end}");
        let query = metadata.whole(&key(""))?;
        let found = match heads {
            Heads::Query => query,
            Heads::KeyValue => metadata.whole(&key("_kv"))?.or(query),
        };
        found
            .and_then(|n| usize::try_from(n).ok())
            .ok_or_else(|| metadata.expected_error(&key(""), "a number of heads"))
    }

    /// The tensor in the checkpoint's layout.
    ///
    /// # Errors
    /// If its rows are not those of the heads that the metadata counts.
    fn change_tensor(&self, tensor: Tensor, change: Change) -> Result<Tensor> {
        match change {
            Change::None | Change::Parts => Ok(tensor),
            Change::Rotary(heads) => halves(&tensor, self.heads(heads)?),
            Change::MinusOne => {
                let values = tensor.to_f32().iter().map(|v| v - 1.0).collect();
                Tensor::from_f32(tensor.shape().to_vec(), values)
            }
            Change::HeadTriples => triples(&tensor, self.heads(Heads::Query)?),
        }
    }
}

impl TensorFile for Tensors {
    fn path(&self) -> &Path {
        self.model.path()
    }

    fn list(&self) -> Vec<ListedTensor> {
        self.listed.clone()
    }

    fn load(&self, index: usize) -> Result<Tensor> {
        let missing = || Error::bug("a listed tensor is not there");
        let (place, listed) = self.places.get(index).zip(self.listed.get(index)).ok_or_else(missing)?;
        let (file, entry) = self.model.find(&place.name).ok_or_else(missing)?;
        let tensor = match place.part {
            Some((part, count)) => file.part(entry, part..part + 1, count, listed.shape.clone())?,
            None => file.load(entry)?,
        };
        let at = || format!("{}: tensor `{}`", file.path().display(), place.name);
        self.change_tensor(tensor, place.change).map_err(|e| e.context(at()))
    }

    fn advice(&self) -> &'static str {
        "the file is not what its architecture prescribes; convert the model again with current tools"
    }
}

/// The row of a name in the file and the name in a checkpoint, in which `%` may stand for the place of a part.
fn find(name: &str, architecture: &Architecture) -> Option<(&'static NameRow, String)> {
    let (layer, pattern) = match name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
        Some((layer, rest)) if layer.bytes().all(|b| b.is_ascii_digit()) => (layer, format!("blk.#.{rest}")),
        _ => ("", name.to_string()),
    };
    let named =
        |row: &'static NameRow, ending: &str| (row, format!("{}{ending}", row.name.replace('#', layer)));
    if let Some(row) = architecture.row(&pattern) {
        return Some(named(row, ""));
    }
    let ending = ENDINGS.iter().find(|&&ending| pattern.ends_with(ending))?;
    Some(named(architecture.row(pattern.strip_suffix(ending)?)?, ending))
}

/// The inverse of interleaving: of each head, the file has the first row of each rotated pair at even places and the
/// second at odd ones; checkpoints have all first rows, then all second ones.
fn halves(tensor: &Tensor, heads: usize) -> Result<Tensor> {
    let rows = tensor.shape().first().copied().unwrap_or(0);
    let head_dim = rows.checked_div(heads).unwrap_or(0);
    if head_dim * heads != rows || !head_dim.is_multiple_of(2) {
        let text = format!("expected rows for {heads} heads of an even size, found {rows}");
        return Err(Error::invalid(text));
    }
    // Row `within` of a head: pair `within % half`, its first or second element by `within / half`.
    let half = head_dim / 2;
    gather(tensor, |row| {
        let (head, within) = (row / head_dim, row % head_dim);
        head * head_dim + 2 * (within % half) + within / half
    })
}

/// All queries, then all keys, then all values become query, key and value of each head in turn.
fn triples(tensor: &Tensor, heads: usize) -> Result<Tensor> {
    let rows = tensor.shape().first().copied().unwrap_or(0);
    let head_dim = rows.checked_div(3 * heads).unwrap_or(0);
    if head_dim * heads * 3 != rows || head_dim == 0 {
        return Err(Error::invalid(format!("expected rows for 3 times {heads} heads, found {rows}")));
    }
    gather(tensor, |row| {
        let (head, kind, within) = (row / (3 * head_dim), row / head_dim % 3, row % head_dim);
        (kind * heads + head) * head_dim + within
    })
}

/// The tensor whose row `i` is row `from(i)` of this one.
fn gather(tensor: &Tensor, from: impl Fn(usize) -> usize) -> Result<Tensor> {
    let rows = tensor.shape().first().copied().unwrap_or(0);
    let size = tensor.row_len() * tensor.dtype().size();
    let bytes: &[u8] = tensor.bytes();
    let mut out = Vec::with_capacity(bytes.len());
    for row in 0..rows {
        let start = from(row) * size;
        out.extend_from_slice(&bytes[start..start + size]);
    }
    Tensor::new(tensor.dtype(), tensor.shape().to_vec(), Bytes::new(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(values: &[f32]) -> Tensor {
        Tensor::from_f32(vec![values.len()], values.to_vec()).unwrap()
    }

    #[test]
    fn pairs_become_halves_head_by_head() {
        let stored = column(&[0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
        let expected: Vec<f64> = (0..8).map(f64::from).collect();
        assert_eq!(halves(&stored, 2).unwrap().to_f64(), expected);
        assert!(halves(&stored, 3).is_err());
        assert!(halves(&stored, 8).is_err());
        assert!(halves(&stored, 0).is_err());
    }

    #[test]
    fn queries_keys_and_values_lie_together_for_each_head() {
        // Two heads of one element each: q0 q1 k0 k1 v0 v1.
        let stored = column(&[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert_eq!(triples(&stored, 2).unwrap().to_f64(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!(triples(&stored, 4).is_err());
    }
}
