//! A checkpoint folder or GGUF file, opened: configuration, graph, weights and the ids of special tokens.
//!
//! Opening goes in four steps: configuration, graph, packed weights, plain weights. The graph is built
//! before any element is read, so that a configuration that is not served fails fast. Weights stay mapped;
//! only those that are made from others take memory.

use crate::arch::{self, Decoder};
use crate::class;
use crate::config::Config;
use crate::gguf;
use crate::image::ImageTokens;
use crate::net::Net;
use crate::onnx;
use crate::options::ImportOptions;
use crate::packed::{Method, Packed};
use crate::present::is_present;
use crate::random;
use crate::weights::Weights;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tapml_graph::{DType, Derived, Error, Graph, Model, Result, Tensor};

// The same text for every way in which a path is no model, so that one look tells the layout.
/// What a model folder needs, as advice.
const FOLDER: &str = "a model is a folder in Hugging Face layout: config.json, model.safetensors (or shards with \
                      model.safetensors.index.json) and, for text, tokenizer.json; or a GGUF file";

/// Weights that are made at once, by name.
type Group = (Vec<String>, Derived);

/// An opened checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    /// The path as it was given, not made absolute.
    dir: PathBuf,
    /// Kept whole: chat templates and notes read keys that the graph does not need.
    config: Config,
    model_type: &'static str,
    model: Model,
    /// In the order of the layers; one more than there are layers.
    hidden: Vec<String>,
    vocab: usize,
    context: usize,
    image: Option<ImageTokens>,
    bos: Option<u32>,
    eos: Vec<u32>,
    /// Sorted; filled by `open_with` only, as random weights leave nothing over.
    unused: Vec<String>,
    /// What was lost when scales of packed weights were rounded, if anything was.
    note: Option<String>,
    /// Made once: hashing reads every byte of the checkpoint from disk.
    weights_hash: OnceLock<String>,
}

impl Checkpoint {
    /// Opens a folder or GGUF file with the default options.
    ///
    /// # Errors
    /// As [`Checkpoint::open_with`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Checkpoint> {
        Checkpoint::open_with(dir, &ImportOptions::default())
    }

    /// Opens a folder or GGUF file. Fails if it holds no model, an architecture that is not supported, or weights that
    /// are missing, damaged or of other shapes than the configuration says.
    pub fn open_with(dir: impl AsRef<Path>, options: &ImportOptions) -> Result<Checkpoint> {
        let dir = dir.as_ref();
        let (config, weights) = open_files(dir)?;
        // The graph is first built as if packed weights were f32. What is packed is put in its place
        // afterwards, so that architectures know nothing of quantised checkpoints.
        let packed = Packed::from_weights(&weights, &config.root())?;
        let (decoder, model_type) = build(&config, &|name| packed.dtype(name), options)?;
        let Decoder { graph, sources, .. } = &decoder;
        let loaded = packed.load(graph, sources, options.check_finite)?;
        let note = loaded.note();
        let elsewhere = |name: &str| loaded.packed.contains(name);
        let explain = |error: Error| {
            let missing = weights.missing_weight(graph, sources);
            let advice = missing.and_then(|(name, headless)| class::advice(&config, &name, headless));
            advice.into_iter().fold(error, Error::with_hint)
        };
        let mut values = weights.load(graph, sources, options.check_finite, &elsewhere).map_err(explain)?;
        values.extend(loaded.given);
        let unused = weights.unused_tensors(graph, sources, &loaded.used);
        let decoder = Decoder { graph: loaded.graph, ..decoder };
        Checkpoint::new(dir, config, model_type, decoder, (values, loaded.derived), options)
            .map(|c| Checkpoint { unused, note, ..c })
    }

    /// A model of the shape that the folder's `config.json` describes, with random weights made from `seed`: for
    /// measuring speed where the weights are not at hand. Dtype of the weights is the configuration's, else bf16.
    ///
    /// # Errors
    /// If the configuration describes quantised weights, names another dtype, or memory does not suffice.
    pub fn random(dir: impl AsRef<Path>, options: &ImportOptions, seed: u64) -> Result<Checkpoint> {
        let dir = dir.as_ref();
        // Only the configuration of a GGUF file is used; its tensors are not read.
        let config = if gguf::is_gguf(dir) { gguf::open(dir)?.0 } else { read_config(dir)? };
        let root = config.root();
        Method::refuse(&root)?;
        let dtype = match root.text_or("dtype", "bfloat16")? {
            "float32" => DType::F32,
            "float16" => DType::F16,
            "bfloat16" => DType::BF16,
            _ => return Err(root.expected_error("dtype", "`float32`, `float16` or `bfloat16`")),
        };
        let (decoder, model_type) = build(&config, &|_| Some(dtype), options)?;
        let values = random::weights(&decoder.graph, seed)?;
        Checkpoint::new(dir, config, model_type, decoder, (values, Vec::new()), options)
    }

    /// What both ways of opening have in common. `weights` are there already, `derived` are made when they
    /// are asked for.
    fn new(
        dir: &Path,
        config: Config,
        model_type: &'static str,
        decoder: Decoder,
        (weights, derived): (HashMap<String, Tensor>, Vec<Group>),
        options: &ImportOptions,
    ) -> Result<Checkpoint> {
        let vocab = decoder.vocab as usize;
        let context = decoder.context as usize;
        let generation = Config::read_if_present(&dir.join("generation_config.json"))?;
        // `generation_config.json` wins over `config.json`, as in Transformers: it lists all ids that end a
        // turn. Multimodal configurations keep the ids of text below `text_config`.
        let special = |key: &str| -> Result<Vec<u32>> {
            let preferred =
                generation.as_ref().map(|g| g.root().ids(key, vocab)).transpose()?.unwrap_or_default();
            if !preferred.is_empty() {
                return Ok(preferred);
            }
            let root = config.root();
            match root.section("text_config")? {
                Some(text) if root.get(key).is_none() => text.ids(key, vocab),
                _ => root.ids(key, vocab),
            }
        };
        let (bos, eos) = (special("bos_token_id")?.first().copied(), special("eos_token_id")?);
        Ok(Checkpoint {
            dir: dir.to_path_buf(),
            model: Model::with_derived(decoder.graph, weights, derived)?,
            config,
            model_type,
            hidden: decoder.hidden,
            vocab,
            // A caller may shorten the context, never lengthen it: positions beyond it were not trained.
            context: options.max_context.map_or(context, |most| most.min(context)),
            image: decoder.image,
            bos,
            eos,
            unused: Vec::new(),
            note: None,
            weights_hash: OnceLock::new(),
        })
    }

    /// The folder, or the GGUF file.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// `config.json`, or what it would be for the metadata of a GGUF file.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Things to know about the checkpoint that are no failure, one sentence each.
    /// Never empty sentences; none for a checkpoint without anything remarkable.
    pub fn notes(&self) -> Vec<String> {
        class::unknown(&self.config, self.model_type).into_iter().chain(self.note.clone()).collect()
    }

    /// The architecture's `model_type`.
    pub fn model_type(&self) -> &'static str {
        self.model_type
    }

    /// Graph and weights. Input `ids: u32[n]`; output `logits: f32[n, vocab]`, or `f32[1, vocab]` with
    /// [`crate::LogitRows::Last`]. A model that sees images also takes `pixels: f32[channels, height, width]` and
    /// `slots: u32[n]`, the row of the image that takes a token's place, beyond the last row for none. An encoder gives
    /// `hidden: [n, hidden]` and, if the checkpoint has a pooler, `pooled: [1, hidden]`.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        self.model.graph()
    }

    /// Token ids lie below this.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Most positions that one sequence may have.
    pub fn context(&self) -> usize {
        self.context
    }

    /// How a prompt names its image, if the model sees images.
    pub fn image(&self) -> Option<ImageTokens> {
        self.image
    }

    /// The id that begins a text, if the checkpoint names one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The ids that end a text.
    pub fn eos(&self) -> &[u32] {
        &self.eos
    }

    /// Names of the values that Transformers calls hidden states: what enters the first layer, then what leaves each
    /// layer. Fusion keeps these names.
    /// One more than there are layers. The final norm is not applied to the last of them.
    pub fn hidden_values(&self) -> Vec<String> {
        self.hidden.clone()
    }

    /// Tensors of the checkpoint that the graph does not use, sorted by name.
    pub fn unused_tensors(&self) -> &[String] {
        &self.unused
    }

    /// BLAKE3 of the names, types and bytes of all weights in the order of their names, in hexadecimal: the same for
    /// every way of cutting a checkpoint into files. Computed at the first call.
    pub fn weights_hash(&self) -> &str {
        self.weights_hash.get_or_init(|| hash_weights(&self.model))
    }
}

/// Configuration and weights, with the architecture known to be served before weights are looked at.
///
/// # Errors
/// If there is no model, its `model_type` is not served, or a weight file is missing or damaged.
pub(crate) fn open_files(path: &Path) -> Result<(Config, Weights)> {
    if gguf::is_gguf(path) {
        let (config, weights) = gguf::open(path)?;
        arch::find(&config.root())?;
        return Ok((config, weights));
    }
    let config = read_config(path)?;
    arch::find(&config.root())?;
    Ok((config, Weights::open(path)?))
}

/// `config.json` of a model folder, which needs no weights for that. Fails if this is no such folder.
pub fn read_config(dir: &Path) -> Result<Config> {
    let fail = |text: String| Error::invalid(format!("{}: {text}", dir.display())).with_hint(FOLDER);
    if !is_present(dir)? {
        return Err(fail("there is no such file or folder".into()));
    }
    if dir.is_file() {
        return Err(match dir.extension().and_then(|e| e.to_str()) {
            Some("safetensors" | "json" | "zst") => fail("expected the folder that holds this file".into()),
            _ if onnx::is_onnx(dir) => {
                let text = "onnx files are not supported here; `tapml inspect` tells what they consist of";
                Error::unsupported(format!("{}: {text}", dir.display())).with_hint(FOLDER)
            }
            _ => fail("expected a model folder, found a file".into()),
        });
    }
    if !is_present(&dir.join("config.json"))? {
        return Err(fail("this folder holds no model: there is no config.json".into()));
    }
    Config::read(&dir.join("config.json"))
}

/// The graph of a configuration, and the `model_type` that it was built by. `dtype_of` tells the dtype of a
/// weight of the checkpoint; what it does not know counts as f32.
///
/// # Errors
/// If the options or the architecture are not served, or a key is missing or out of its bounds.
pub(crate) fn build(
    config: &Config,
    dtype_of: &dyn Fn(&str) -> Option<DType>,
    options: &ImportOptions,
) -> Result<(Decoder, &'static str)> {
    // bf16 is a dtype of weights only: no kernel computes with bf16 activations.
    if !matches!(options.activation, DType::F32 | DType::F16) {
        let text = format!("activations in {} are not supported", options.activation);
        return Err(Error::unsupported(text).with_hint("supported: f32 and f16"));
    }
    if options.max_context == Some(0) {
        return Err(Error::invalid("a context of 0 positions holds no token"));
    }
    let (architecture, model_type) = arch::find(&config.root())?;
    let decoder = (architecture.build)(&config.root(), Net::new(model_type, dtype_of, options))?;
    Ok((decoder, model_type))
}

/// Each weight adds its header's length, the header and its bytes. The length keeps two different lists of
/// weights from giving the same bytes.
fn hash_weights(model: &Model) -> String {
    let mut names: Vec<&str> = model.graph().weights().map(|(_, v)| v.name.as_str()).collect();
    names.sort_unstable();
    let mut hasher = blake3::Hasher::new();
    for tensor in names.iter().filter_map(|&name| Some((name, model.weight(name).ok()?))) {
        let (name, tensor) = tensor;
        let header = format!("{name}\0{}{:?}\0", tensor.dtype(), tensor.shape());
        hasher.update(&(header.len() as u64).to_le_bytes()).update(header.as_bytes());
        // Several threads: one weight may have gigabytes.
        hasher.update_rayon(tensor.bytes());
    }
    hasher.finalize().to_hex().to_string()
}
