//! The weight files of a checkpoint: one safetensors file, shards with an index, each of them perhaps compressed, or what another
//! format offers as a [`TensorFile`].
//!
//! Opening lists tensors and reads no element. Loading checks name, shape and dtype of every weight that
//! the graph names, and reports all problems at once.

use crate::config::Config;
use crate::finite::first_not_finite;
use crate::safetensors::{File, stored_path};
use crate::source::Source;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Component, Path};
use std::sync::Arc;
use tapml_graph::{DType, Error, Graph, Result, Symbols, Tensor, TensorType, Value};

// The names are those that Transformers writes.
/// The file of an unsharded model.
const SINGLE: &str = "model.safetensors";
/// The file that says which shard holds which tensor.
const INDEX: &str = "model.safetensors.index.json";
/// The weight of a head that is not the embedding.
const HEAD: &str = "lm_head.weight";
/// Dtypes that weights may have.
///
/// Integers and packed elements come in by way of `packed`, not from here.
const SERVED: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
/// So many problems are listed in one message.
/// A wrong folder makes every tensor a problem.
const MOST_LISTED: usize = 10;

/// A tensor of a file, without its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTensor {
    /// Its name in a checkpoint.
    pub name: String,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// Element type as the file's format names it.
    pub stored: &'static str,
    /// The dtype that it is loaded as, if it can be.
    pub dtype: Option<DType>,
}

/// A file that holds tensors of a checkpoint.
///
/// A file is checked against its own header before it becomes one of these.
pub trait TensorFile: std::fmt::Debug + Send + Sync {
    /// Where the file lies.
    fn path(&self) -> &Path;
    /// What it holds.
    fn list(&self) -> Vec<ListedTensor>;
    /// The tensor at a place in [`TensorFile::list`].
    fn load(&self, index: usize) -> Result<Tensor>;
    /// What to do if its tensors are not those that the configuration describes.
    fn advice(&self) -> &'static str;
}

impl TensorFile for File {
    fn path(&self) -> &Path {
        File::path(self)
    }

    fn list(&self) -> Vec<ListedTensor> {
        let listed = self.entries().iter().map(|e| ListedTensor {
            name: e.name.clone(),
            shape: e.shape.clone(),
            stored: e.stored.name(),
            dtype: e.stored.dtype(),
        });
        listed.collect()
    }

    fn load(&self, index: usize) -> Result<Tensor> {
        let entry = self.entries().get(index).ok_or_else(|| Error::bug("a listed tensor is not there"))?;
        File::load(self, entry)
    }

    fn advice(&self) -> &'static str {
        "config.json and the weights belong to different models, or a weight file is missing"
    }
}

/// A file and what it lists.
/// `listed` is kept beside the file, because the trait makes a new list at each call.
#[derive(Clone, Debug)]
struct Shard {
    /// Shared by the tensors that are mapped from it.
    file: Arc<dyn TensorFile>,
    listed: Vec<ListedTensor>,
}

/// Every tensor of a checkpoint by name, mapped but not read.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    /// In the order of their files' names.
    shards: Vec<Shard>,
    /// Name to shard and place in its list.
    index: HashMap<String, (usize, usize)>,
}

/// Where a tensor is.
struct FoundTensor<'a> {
    file: &'a dyn TensorFile,
    /// What the file lists of it.
    listed: &'a ListedTensor,
    /// In that list.
    place: usize,
}

impl Weights {
    /// Opens `model.safetensors`, or the shards that `model.safetensors.index.json` names. Each file may be compressed, with
    /// `.zst` behind its name.
    ///
    /// # Errors
    /// If there is neither, a shard is missing or leads out of the folder, or a header is damaged.
    pub fn open(dir: &Path) -> Result<Weights> {
        // The single file wins where a folder holds both: the index may name shards that are not there.
        if let Some(single) = stored_path(dir.join(SINGLE))? {
            return Ok(Weights::from_file(File::open(&single)?));
        }
        match Config::read_if_present(&dir.join(INDEX))? {
            Some(index) => open_sharded(dir, &index),
            None => Err(no_weights(dir)),
        }
    }

    /// All tensors of one file.
    pub(crate) fn from_file(file: impl TensorFile + 'static) -> Weights {
        let listed = file.list();
        let index = listed.iter().enumerate().map(|(i, tensor)| (tensor.name.clone(), (0, i))).collect();
        Weights { shards: vec![Shard { file: Arc::new(file), listed }], index }
    }

    /// The dtype of a tensor, if there is one of this name in a dtype that weights may have.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        let listed = self.find(name)?.listed;
        listed.dtype.filter(|d| SERVED.contains(d))
    }

    /// The tensors that the graph names as weights. Fails with every one that is missing or of another type, and, if
    /// asked to, when one holds NaN or infinity. Weights in `sources` are made from other tensors; the rest stay mapped.
    /// Those that come from `elsewhere` are left out.
    pub(crate) fn load(
        &self,
        graph: &Graph,
        sources: &HashMap<String, Source>,
        check_finite: bool,
        elsewhere: &dyn Fn(&str) -> bool,
    ) -> Result<HashMap<String, Tensor>> {
        let all = graph.weights().map(|(_, value)| value);
        let wanted: Vec<&Value> = all.filter(|value| !elsewhere(&value.name)).collect();
        // All problems are collected: one run tells everything that is wrong with a checkpoint.
        let mut problems = Vec::new();
        let mut tensors = Vec::with_capacity(wanted.len());
        for value in &wanted {
            match self.take(value, sources.get(&value.name)) {
                Ok(tensor) => tensors.push((value.name.clone(), tensor)),
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(join(problems));
        }
        if check_finite {
            // The first in the order of the graph, not the first in time: the same message in every run.
            let first = tensors.par_iter().find_map_first(|(name, t)| Some((name, t, first_not_finite(t)?)));
            if let Some((name, tensor, (index, value))) = first {
                return Err(self.not_finite(name, tensor, index, value));
            }
        }
        Ok(tensors.into_iter().collect())
    }

    /// Names of tensors that the graph does not use, sorted. Stored rotary frequencies do not count: they follow from
    /// the configuration.
    ///
    /// `more` are tensors that packed weights were made from.
    pub(crate) fn unused_tensors(
        &self,
        graph: &Graph,
        sources: &HashMap<String, Source>,
        more: &HashSet<String>,
    ) -> Vec<String> {
        let names = graph.weights().map(|(_, v)| v.name.as_str());
        // What a weight was made from counts as used, and the weight's own name does not.
        let parts = sources.values().flat_map(Source::tensors).map(String::as_str);
        let used: HashSet<&str> = names.filter(|name| !sources.contains_key(*name)).chain(parts).collect();
        let listed = self.shards.iter().flat_map(|shard| &shard.listed).map(|tensor| tensor.name.as_str());
        // Some exporters store the buffer of rotary frequencies.
        let unused =
            listed.filter(|n| !used.contains(n) && !more.contains(*n) && !n.ends_with("rotary_emb.inv_freq"));
        let mut unused: Vec<String> = unused.map(str::to_string).collect();
        unused.sort();
        unused
    }

    /// A weight of the graph that no file holds: the head if it is one of several, else the first. Also whether the layers are
    /// there without a head: it alone is missing, or the names lack the beginning that a language model's have.
    pub(crate) fn missing_weight(
        &self,
        graph: &Graph,
        sources: &HashMap<String, Source>,
    ) -> Option<(String, bool)> {
        let names = graph.weights().map(|(_, value)| value.name.as_str());
        let missing: Vec<&str> =
            names.filter(|name| !sources.contains_key(*name) && !self.index.contains_key(*name)).collect();
        let head = missing.iter().find(|name| **name == HEAD).copied();
        let bare = |name: &&str| name.split_once('.').is_some_and(|(_, rest)| self.index.contains_key(rest));
        let headless = missing.iter().any(bare) || (missing.len() == 1 && head.is_some());
        head.or(missing.first().copied()).map(|name| (name.to_string(), headless))
    }

    /// The sizes of a tensor, if there is one of this name.
    pub(crate) fn shape(&self, name: &str) -> Option<&[usize]> {
        self.find(name).map(|found| found.listed.shape.as_slice())
    }

    /// The element type of a tensor as its file's format names it, if there is one of this name.
    pub(crate) fn format(&self, name: &str) -> Option<&'static str> {
        self.find(name).map(|found| found.listed.stored)
    }

    /// Dtype and sizes of a tensor, if there is one of this name in a dtype.
    pub(crate) fn ty(&self, name: &str) -> Option<TensorType> {
        let listed = self.find(name)?.listed;
        Some(TensorType::new(listed.dtype?, listed.shape.iter().copied()))
    }

    /// The tensor of this name, whatever its dtype and sizes.
    ///
    /// # Errors
    /// If there is none, or its element type is not read.
    pub(crate) fn any_tensor(&self, name: &str) -> Result<Tensor> {
        let FoundTensor { file, place, .. } = self.find(name).ok_or_else(|| self.missing(name, &[]))?;
        file.load(place)
    }

    /// The tensor of this name, dtype and shape: a part of a quantised weight.
    ///
    /// # Errors
    /// If there is none, or it has another dtype or shape.
    pub(crate) fn exact(&self, name: &str, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        let FoundTensor { file, listed, place } = self.find(name).ok_or_else(|| self.missing(name, shape))?;
        if listed.dtype == Some(dtype) && listed.shape == shape {
            return file.load(place);
        }
        let found = format!("{}{:?}", listed.stored, listed.shape);
        Err(Error::invalid(format!("expected {dtype}{shape:?}, found {found}"))
            .context(format!("{}: tensor `{name}`", file.path().display()))
            .with_hint(file.advice()))
    }

    /// Where a tensor is.
    fn find(&self, name: &str) -> Option<FoundTensor<'_>> {
        let &(shard, place) = self.index.get(name)?;
        let shard = self.shards.get(shard)?;
        Some(FoundTensor { file: shard.file.as_ref(), listed: shard.listed.get(place)?, place })
    }

    /// The weight that this value stands for.
    /// As it lies in the file, or made from its parts.
    fn take(&self, value: &Value, source: Option<&Source>) -> Result<Tensor> {
        // Weights have constant sizes only.
        let shape = value.ty.sizes(&Symbols::new())?;
        let Some(source) = source else { return self.stored_tensor(&value.name, &shape) };
        let parts = source.tensors().iter().enumerate().map(|(part, name)| {
            match source.shape_of_part(part, &shape) {
                Some(shape) => self.stored_tensor(name, &shape),
                None => self.stored_of_len(name, &shape),
            }
        });
        let parts: Vec<Tensor> = parts.collect::<Result<_>>()?;
        source.make(parts, shape).map_err(|e| e.context(format!("weight `{}`", value.name)))
    }

    /// The tensor of this name under its own shape, which must have as many elements as `shape`.
    fn stored_of_len(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let found = self.find(name).map(|found| found.listed.shape.clone());
        // A product that overflows equals no other that does not.
        let count = |shape: &[usize]| shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size));
        let same = found.filter(|found| count(found) == count(shape));
        self.stored_tensor(name, same.as_deref().unwrap_or(shape))
    }

    /// The tensor of this name and shape.
    fn stored_tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let FoundTensor { file, listed, place } = self.find(name).ok_or_else(|| self.missing(name, shape))?;
        let found = format!("{}{:?}", listed.stored, listed.shape);
        let at = || format!("{}: tensor `{name}`", file.path().display());
        if listed.shape != shape {
            return Err(Error::invalid(format!("expected shape {shape:?}, found {found}"))
                .context(at())
                .with_hint(file.advice()));
        }
        if self.dtype(name).is_none() {
            return Err(Error::unsupported(format!("expected F32, F16 or BF16 elements, found {found}"))
                .context(at())
                .with_hint("take the checkpoint with f32, f16 or bf16 weights"));
        }
        file.load(place)
    }

    /// Names the single file, or the index if there are several.
    fn missing(&self, name: &str, shape: &[usize]) -> Error {
        let place = match self.shards.as_slice() {
            [only] => only.file.path().display().to_string(),
            // The index says which shard should hold it, so that it is the file to look at.
            [first, ..] => format!(
                "{} and its {} shards",
                first.file.path().with_file_name(INDEX).display(),
                self.shards.len()
            ),
            [] => "the checkpoint".to_string(),
        };
        // The usual reason for a missing head is a configuration that does not say that it is tied.
        let hint = match name {
            HEAD => "a model without it says `tie_word_embeddings: true` in config.json",
            _ => self.shards.first().map_or("a weight file is missing", |shard| shard.file.advice()),
        };
        Error::invalid(format!("{place}: tensor `{name}` of shape {shape:?} is missing")).with_hint(hint)
    }

    /// Names file, tensor, place and value.
    fn not_finite(&self, name: &str, tensor: &Tensor, index: usize, value: f64) -> Error {
        let file = self.find(name).map(|found| found.file.path().display().to_string()).unwrap_or_default();
        let place = coordinates(index, tensor.shape());
        Error::invalid(format!("{file}: tensor `{name}` holds {value} at {place:?}, expected finite numbers"))
            .with_hint(
                "the checkpoint is damaged or its training diverged; fetch it again or take another one",
            )
    }
}

/// The place of element `index` in a tensor of this shape.
fn coordinates(mut index: usize, shape: &[usize]) -> Vec<usize> {
    let mut place = vec![0; shape.len()];
    for (slot, &size) in place.iter_mut().zip(shape).rev() {
        // From the innermost size outwards.
        *slot = index % size.max(1);
        index /= size.max(1);
    }
    place
}

/// One error that lists several.
fn join(mut problems: Vec<Error>) -> Error {
    if problems.len() == 1 {
        return problems.remove(0);
    }
    let mut lines: Vec<String> = problems.iter().take(MOST_LISTED).map(Error::to_string).collect();
    if problems.len() > MOST_LISTED {
        lines.push(format!("and {} more", problems.len() - MOST_LISTED));
    }
    // Kind and hint of the first stand for all.
    let first = problems.remove(0);
    let error =
        Error::new(first.kind(), format!("{} problems:\n  {}", problems.len() + 1, lines.join("\n  ")));
    first.hint().map(str::to_string).into_iter().fold(error, Error::with_hint)
}

/// `by_file` is sorted, so that messages do not depend on the order of a hash table.
///
/// # Errors
/// If a shard is missing, named by a path, damaged, or lacks a tensor that the index puts there.
fn open_sharded(dir: &Path, config: &Config) -> Result<Weights> {
    let root = config.root();
    let path = dir.join(INDEX);
    let hint = "fetch the index and all shards of one and the same checkpoint";
    let bad = |text: String| Error::invalid(format!("{}: {text}", path.display())).with_hint(hint);
    let map = root.section("weight_map")?.ok_or_else(|| bad("`weight_map` is missing".into()))?;

    let mut by_file: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in map.keys() {
        by_file.entry(map.text(name)?).or_default().push(name);
    }
    let mut weights = Weights::default();
    for (file, names) in by_file {
        if !is_plain_name(file) {
            return Err(bad(format!("`{file}` is no name of a file in this folder")));
        }
        let Some(shard) = stored_path(dir.join(file))? else {
            let shard = dir.join(file);
            let text = format!("shard {} is missing; it holds {} tensors", shard.display(), names.len());
            return Err(bad(text));
        };
        let file = File::open(&shard)?;
        let listed = file.list();
        let places: HashMap<&str, usize> =
            listed.iter().enumerate().map(|(i, tensor)| (tensor.name.as_str(), i)).collect();
        for name in names {
            let place = places.get(name).copied().ok_or_else(|| {
                bad(format!("tensor `{name}` should be in {}, but is not", shard.display()))
            })?;
            // Tensors that the index does not name stay out of reach by name, even if the shard has them.
            weights.index.insert(name.to_string(), (weights.shards.len(), place));
        }
        weights.shards.push(Shard { file: Arc::new(file), listed });
    }
    Ok(weights)
}

/// Whether the text names a file directly in a folder: an index must not lead elsewhere.
fn is_plain_name(text: &str) -> bool {
    let mut parts = Path::new(text).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) && !text.contains(['/', '\\'])
}

/// Tells the usual reasons: weights in another format, or not fetched at all.
fn no_weights(dir: &Path) -> Error {
    let error = Error::invalid(format!("{}: there is no {SINGLE} and no {INDEX}", dir.display()));
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let other = names
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .find(|n| [".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5"].iter().any(|end| n.ends_with(end)));
    match other {
        Some(name) if name.ends_with(".gguf") => error.with_hint(format!("name the file `{name}` itself")),
        Some(name) => error
            .with_hint(format!("`{name}` is in a format that is not read; save the model as safetensors")),
        None => error.with_hint("the weights were not fetched; a model folder holds them as safetensors"),
    }
}
