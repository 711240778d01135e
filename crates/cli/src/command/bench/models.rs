//! The models of the bench: where they are, and what is recorded of them.
//!
//! Two prompts are short. A model with a window gets a long one too, because its faults show only beyond the window.

use super::super::common::{ActivationArg, GraphArgs};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use tapml::bugs::bench::{Fixture, FixtureOptions, Sampling};
use tapml::engine::Tokenizer;
use tapml::graph::{Model, Node, Op};
use tapml::import::LogitRows;
use tapml::migrate::{Hash, Quiet, Stop, graph_hash, weight_entries, weights_hash};

/// Tokens of the two short prompts: fewer and more rows than the kernels treat one by one.
const SHORT: [usize; 2] = [12, 7];
/// Tokens beyond the window of the one long prompt that models with a window get.
const PAST_WINDOW: usize = 9;
/// Ids that stand for a text where there is no tokenizer.
const TOKENS: u32 = 512;
/// Rows in calls of one row, of one operator that each layer has, over both short prompts and the nodes that are replayed: what
/// shows in many rows together, such as results that are cut, needs as many.
const ROWS: u32 = 16;

/// A model of the bench.
pub struct BenchModel {
    /// Name of its folder.
    pub name: String,
    /// As imported.
    pub model: Model,
    /// How it was made a graph.
    args: GraphArgs,
    /// Where it was opened, to open it again with another dtype.
    path: PathBuf,
    /// Positions that it can have.
    context: usize,
    /// Tokens of the bundled prompts, one behind the other.
    tokens: Vec<u32>,
    /// The token that begins a text, if the tokenizer has one.
    begin: Option<u32>,
}

/// The folders of models that `given` names: models themselves, or folders that hold models. Without any, the folder that
/// `TAPML_MODELS` names and `models` here. Draft models are left out of folders.
pub fn find(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let defaults: Vec<PathBuf> = match given {
        [] => {
            std::env::var_os("TAPML_MODELS").map(PathBuf::from).into_iter().chain(["models".into()]).collect()
        }
        given => given.to_vec(),
    };
    let is_model =
        |path: &Path| path.join("config.json").is_file() || path.extension().is_some_and(|e| e == "gguf");
    let mut found: Vec<PathBuf> = Vec::new();
    for path in &defaults {
        if is_model(path) {
            found.push(path.clone());
            continue;
        }
        // Default folders need not be there.
        let Ok(entries) = std::fs::read_dir(path) else { continue };
        let mut inside: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| is_model(p)).collect();
        inside.retain(|p| !name_of(p).ends_with("_draft"));
        // The order of a folder differs from system to system.
        inside.sort();
        found.extend(inside);
    }
    // A model of the same name, such as the bundled one in another folder, counts once.
    let mut names = std::collections::HashSet::new();
    found.retain(|p| names.insert(name_of(p)));
    if found.is_empty() {
        let shown: Vec<String> = defaults.iter().map(|p| p.display().to_string()).collect();
        return Err(tapml::Error::invalid(format!("no models in {}", shown.join(", ")))
            .with_hint("give folders with --models")
            .into());
    }
    Ok(found)
}

/// Whether a folder holds weights.
fn has_weights(folder: &Path) -> bool {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let weights =
        |name: &str| [".safetensors", ".safetensors.zst", ".gguf"].iter().any(|end| name.ends_with(end));
    files.map(|file| file.file_name()).any(|name| weights(&name.to_string_lossy()))
}

/// The name of a folder, or of a file without its ending.
fn name_of(path: &Path) -> String {
    path.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

impl BenchModel {
    /// What its graph, its weights and its prompts are, in twelve digits.
    pub fn hash(&self) -> tapml::Result<String> {
        let weights = weights_hash(&weight_entries(&self.model)?);
        // All fields are listed, so that a new one is not forgotten.
        let BenchModel { name: _, model, args: _, path: _, context, tokens, begin } = self;
        let text = format!("{} {weights} {context} {tokens:?} {begin:?}", graph_hash(model.graph()));
        Ok(Hash::compute(text.as_bytes()).short())
    }

    /// Opens a model and its tokenizer. A folder with a configuration alone is a model of random weights, and any ids are
    /// its prompts.
    pub fn open(path: &Path, args: &GraphArgs) -> Result<BenchModel> {
        if path.is_dir() && !has_weights(path) {
            return BenchModel::random(path, args);
        }
        let (checkpoint, model) = args.open(path, LogitRows::All)?;
        let tokenizer = Tokenizer::open(checkpoint.dir())?;
        let mut tokens = Vec::new();
        let mut begin = None;
        for text in tapml::engine::bundled_prompts() {
            let ids = tokenizer.encode(text)?;
            // What an empty text gives stands in front of every text.
            let rest = tokenizer.encode("")?;
            begin = rest.first().copied();
            tokens.extend_from_slice(ids.strip_prefix(rest.as_slice()).unwrap_or(&ids));
        }
        let (name, context) = (name_of(path), checkpoint.context());
        let args = args.clone();
        Ok(BenchModel { name, model, args, path: path.into(), context, tokens, begin })
    }

    /// A model of random weights; its prompts are ids below the rows of its embedding.
    fn random(path: &Path, args: &GraphArgs) -> Result<BenchModel> {
        let model = args.open_random(path, LogitRows::All)?;
        let graph = model.graph();
        let table = |node: &Node| graph.input_types(node).into_iter().find(|ty| ty.shape.len() == 2);
        let of = |node: &Node| table(node)?.shape.first()?.as_const();
        let mut rows =
            graph.nodes().iter().filter(|node| node.op.name().ends_with("embedding")).filter_map(of);
        let ids = u32::try_from(rows.next().unwrap_or(1)).unwrap_or(u32::MAX);
        // Spread over all ids, and the same in each run.
        let tokens = (0..TOKENS).map(|i| (7 + 131 * i) % ids).collect();
        let (name, args, path) = (name_of(path), args.clone(), path.into());
        Ok(BenchModel { name, model, args, path, context: usize::MAX, tokens, begin: None })
    }

    /// The model with activations of this dtype.
    fn open_with(&self, activation: ActivationArg) -> Result<Model> {
        if activation == self.args.activation {
            return Ok(self.model.clone());
        }
        let args = GraphArgs { activation, ..self.args.clone() };
        Ok(BenchModel::open(&self.path, &args)?.model)
    }

    /// The prompts of a seed: pieces of the bundled prompts, and if asked for a long one for models with a window that is
    /// shorter than their context.
    fn prompts(&self, seed: u64, long: bool) -> Vec<Vec<u32>> {
        let piece = |start: usize, len: usize| {
            let own = self.tokens.iter().cycle().skip(start % self.tokens.len().max(1)).copied();
            self.begin.into_iter().chain(own).take(len).collect::<Vec<u32>>()
        };
        // Prompts of other seeds begin elsewhere and have other lengths.
        let start = seed as usize * 5;
        let mut prompts: Vec<Vec<u32>> = SHORT
            .iter()
            .enumerate()
            .map(|(i, &len)| piece(start + i * 17, len + seed as usize % 4))
            .collect();
        if let Some(len) = self.past_window().filter(|_| long) {
            prompts.push(piece(start, len));
        }
        prompts
    }

    /// Tokens of a prompt that is longer than the window, if the context is long enough for it.
    fn past_window(&self) -> Option<usize> {
        let len = Fixture::window(&self.model).map(|window| window as usize + PAST_WINDOW);
        len.filter(|len| len + self.steps() as usize <= self.context)
    }

    /// Decode steps after each prompt.
    fn steps(&self) -> u32 {
        // In each step both prompts give a row in every layer that is replayed.
        let layers =
            self.model.graph().nodes().iter().filter(|node| matches!(node.op, Op::Attention(_))).count();
        ROWS.div_ceil(2 * layers.clamp(1, Sampling::default().nodes) as u32)
    }

    /// Whether there is a long prompt.
    pub fn long(&self) -> bool {
        self.past_window().is_some()
    }

    /// Records the model's calls on the prompts of a seed into `folder`.
    pub fn record_fixture(
        &self,
        activation: ActivationArg,
        seed: u64,
        long: bool,
        folder: &Path,
        stop: &Stop,
    ) -> Result<Fixture> {
        let options = FixtureOptions { prompts: self.prompts(seed, long), steps: self.steps() };
        let model = self.open_with(activation)?;
        let length = if long { "long" } else { "short" };
        let out = folder.join(format!("{}-{activation:?}-{seed}-{length}", self.name));
        Fixture::carve(&self.name, &model, &options, &out, &Quiet, stop)
            .with_context(|| format!("could not record calls of {}", self.path.display()))
    }
}
