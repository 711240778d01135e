//! Models as commands and programs name them: a folder or a file, opened for one use or another.
//!
//! Every job opens models here, so that they agree on fusing, quantising and identity.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tapml_exec::{Image, Interface, Platform, PlatformSpec};
use tapml_graph::paged::PageLayout;
use tapml_graph::{Context, DType, Error, Model, Result, Symbols, Tensor, fuse};
use tapml_import::quantize::{Scheme, derive, quantize};
use tapml_import::{Checkpoint, ImportOptions, LogitRows, random_weights};
use tapml_migrate::suite::Suite;
use tapml_migrate::{Hash, ModelIdentity};

/// How a checkpoint becomes a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GraphOptions {
    /// Dtype of activations and caches: f32 or f16.
    pub activation: DType,
    /// Whether neighbouring operators are fused.
    pub fuse: bool,
    /// How weights are quantised, if they are.
    pub quantize: Option<Scheme>,
    /// Rows of a page, if caches lie in pages, as a server keeps them.
    pub paged: Option<u32>,
    /// Ranks that the model is shared out among; see [`tapml_graph::Graph::shard`]. One rank has all of it, as without this.
    pub tensor_parallel: Option<u32>,
}

impl Default for GraphOptions {
    fn default() -> GraphOptions {
        GraphOptions {
            activation: DType::F32,
            fuse: true,
            quantize: None,
            paged: None,
            tensor_parallel: None,
        }
    }
}

impl GraphOptions {
    /// These options with the ranks of a target, and the words of the target's platforms: a list of platforms has a rank on
    /// each, and of a single one [`PlatformSpec::rank_words`] makes as many as there are ranks.
    ///
    /// # Errors
    /// If a platform is unknown, or a list is not as long as there are ranks.
    pub fn for_target(self, target: &str) -> Result<(GraphOptions, String)> {
        let named = PlatformSpec::parse_ranks(target)?.len();
        let ranks = match self.tensor_parallel {
            None if named == 1 => return Ok((self, target.into())),
            None => u32::try_from(named).unwrap_or(u32::MAX),
            Some(ranks) => ranks,
        };
        let words = PlatformSpec::rank_words(target, ranks)?;
        Ok((GraphOptions { tensor_parallel: Some(ranks), ..self }, words))
    }

    /// The model shared out among the ranks, if there are several.
    ///
    /// # Errors
    /// As [`tapml_graph::Graph::shard`].
    pub(crate) fn share_out(&self, model: Model) -> Result<Model> {
        match self.tensor_parallel {
            None | Some(1) => Ok(model),
            Some(ranks) => model.with_graph(model.graph().shard(ranks)?),
        }
    }

    /// Opens a checkpoint; logits for these rows. Fails if a weight holds NaN or infinity.
    ///
    /// # Errors
    /// Those of [`Checkpoint::open_with`], and those of quantising.
    pub fn open(&self, path: &Path, logits: LogitRows) -> Result<(Checkpoint, Model)> {
        self.open_with(path, ImportOptions { logits, ..ImportOptions::default() })
    }

    /// The model that a folder's `config.json` describes, with random weights: for measuring speed.
    pub fn random(&self, path: &Path, logits: LogitRows) -> Result<(Checkpoint, Model)> {
        let options = ImportOptions { activation: self.activation, logits, ..ImportOptions::default() };
        let checkpoint = Checkpoint::random(path, &options, 1)?;
        let model = self.apply(&checkpoint)?;
        if self.quantize.is_none() {
            return Ok((checkpoint, model));
        }
        // Words and scales at random too: packing weights of no meaning would take time for nothing.
        // The same seed each time, so that runs compare.
        let weights = random_weights(model.graph(), 1)?;
        Ok((checkpoint, Model::new(model.graph().clone(), weights)?))
    }

    /// As [`GraphOptions::open`] without a look at the values of weights: a file of any size opens at once.
    pub fn open_unread(&self, path: &Path) -> Result<(Checkpoint, Model)> {
        self.open_with(path, ImportOptions { check_finite: false, ..ImportOptions::default() })
    }

    /// Import, then quantise, then fuse.
    fn open_with(&self, path: &Path, options: ImportOptions) -> Result<(Checkpoint, Model)> {
        let options = ImportOptions { activation: self.activation, ..options };
        let checkpoint = Checkpoint::open_with(path, &options)?;
        let model = self.apply(&checkpoint)?;
        Ok((checkpoint, model))
    }

    /// The checkpoint's model, quantised and fused as these options say.
    ///
    /// Quantised first: fused operators are chosen for the types that stand in the graph then.
    pub fn apply(&self, checkpoint: &Checkpoint) -> Result<Model> {
        let model = match &self.quantize {
            None => checkpoint.model().clone(),
            Some(scheme) => {
                quantize(checkpoint.model(), scheme).context(|| checkpoint.dir().display().to_string())?.0
            }
        };
        let model = if self.fuse { model.with_graph(fuse(model.graph())?)? } else { model };
        let model = match self.paged {
            None => model,
            Some(page) => model.with_graph(model.graph().to_paged_with_encoder(single_text_layout(
                page,
                checkpoint.context().min(PAGED_POSITIONS),
            ))?)?,
        };
        self.share_out(model)
    }
}

/// Positions that a text may take in pages, of which each recorded call holds all: the longest bundled prompt fits.
const PAGED_POSITIONS: usize = 544;

/// The layout of one text of so many positions in pages of this many rows.
pub(crate) fn single_text_layout(page: u32, positions: usize) -> PageLayout {
    let positions = u32::try_from(positions).unwrap_or(u32::MAX);
    let blocks = positions.div_ceil(page.max(1));
    // One page more than the text needs, so that its first page is none of the caches' first rows. A state has slots to go to.
    PageLayout { page, pages: blocks.saturating_add(1), texts: 1, blocks, wanted: Some(1), states: 3 }
}

/// Larger files are no configurations.
const MAX_CONFIG: u64 = 64 << 20;

/// Who a model is, for suites and ledgers. Weights are named by the suite one by one.
pub fn identity(checkpoint: &Checkpoint) -> Result<ModelIdentity> {
    let config = checkpoint.dir().join("config.json");
    let bytes = if checkpoint.dir().is_dir() {
        tapml_files::read(&config, MAX_CONFIG, "a configuration")?
    } else {
        // A GGUF file has none; what follows from its metadata stands for it.
        // Keys keep their order, so equal metadata gives equal bytes.
        serde_json::to_vec(checkpoint.config().json())
            .map_err(|e| Error::bug(format!("a configuration does not serialise: {e}")))?
    };
    // A suite is checked from other folders than the one in which it was carved.
    let path = std::path::absolute(checkpoint.dir()).unwrap_or_else(|_| checkpoint.dir().to_path_buf());
    Ok(ModelIdentity {
        name: path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
        path: path.display().to_string(),
        config: Hash::compute(&bytes).to_string(),
        ..ModelIdentity::default()
    })
}

/// A suite's graph with weights: from `given`, from the suite itself, or from where it was carved.
///
/// # Errors
/// With advice if the checkpoint is not where the suite says.
pub fn suite_model(suite: &Suite, given: Option<&Path>) -> Result<Model> {
    let manifest = suite.manifest();
    let path = match given {
        None if manifest.settings.self_contained => return suite.model(None),
        None => Path::new(&manifest.model.path),
        Some(path) => path,
    };
    let checkpoint = Checkpoint::open(path).map_err(|e| {
        e.context(format!("the suite's weights, carved from {}", manifest.model.path))
            .with_hint("name the checkpoint with --model, or carve with --self-contained")
    })?;
    let model = checkpoint.model();
    // The packed weights of a suite of a quantised model follow from the checkpoint's weights.
    let numbers = |name: &str| model.weight_type(name).is_some_and(|ty| ty.dtype.is_float());
    let mut weights = suite.graph().weights();
    let quantised = weights.any(|(_, weight)| weight.ty.dtype.packing().is_some() && numbers(&weight.name));
    // What cannot be derived is left to the check of the suite, which names the weight.
    let derived = if quantised { derive(model, suite.graph().clone()).ok() } else { None };
    // Ranks have slices, which the graph names.
    let derived = match suite.graph().ranks() {
        Some(_) if derived.is_none() => model.with_graph(suite.graph().clone()).ok(),
        _ => derived,
    };
    suite.model(Some(derived.as_ref().unwrap_or(model)))
}

/// The folder in which a migration and a diagnosis keep what they found: `.tapml/MODEL-TARGET`, or `.tapml/MODEL-SCHEME-TARGET`
/// of a model that is quantised on the way.
pub fn default_ledger(model: &Path, target: &str, graph: &GraphOptions) -> PathBuf {
    let mut name = model.file_name().map_or_else(|| "model".into(), |n| n.to_string_lossy().into_owned());
    // A target's word holds signs such as `:` and `?` that file systems refuse.
    let safe = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
    };
    if let Some(scheme) = &graph.quantize {
        name = format!("{name}-{}", safe(&scheme.to_string()));
    }
    if let Some(page) = graph.paged {
        name = format!("{name}-paged{page}");
    }
    if let Some(ranks) = graph.tensor_parallel.filter(|&ranks| ranks > 1) {
        name = format!("{name}-ranks{ranks}");
    }
    PathBuf::from(".tapml").join(format!("{name}-{}", safe(target)))
}

/// One run over a whole prompt, all in f32: the model's outputs, and further values of the graph as `(output, value)`.
///
/// # Errors
/// If ids or image do not fit the model's interface.
pub fn teacher_forced<'a>(
    model: &Model,
    (ids, image): (&[u32], Option<&Image>),
    platform: &mut dyn Platform,
    more: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<BTreeMap<String, Tensor>> {
    let model = model.with_graph(model.graph().with_outputs(more)?)?;
    let interface = Interface::from_graph(model.graph())?;
    interface.check(ids)?;
    if let Some(image) = image {
        interface.check_image(image)?;
    }
    let symbols = Symbols::np(ids.len() as u64, 0);
    let mut loaded = tapml_exec::load(platform, &model, &symbols)?;
    let results = loaded.run(&symbols, &interface.inputs_at(ids, 0, image)?, None)?;
    let to_f32 = |(name, t): (String, Tensor)| -> Result<(String, Tensor)> {
        let values = t.to_f32().into_owned();
        Ok((name, Tensor::from_f32(t.shape().to_vec(), values)?))
    };
    results.into_iter().map(to_f32).collect::<Result<_>>().context(|| "the results".to_string())
}

/// Fails unless `prompt` tokens and `new` ones fit the context.
pub fn expect_context(prompt: usize, new: usize, context: usize) -> Result<()> {
    if prompt + new <= context && prompt > 0 {
        return Ok(());
    }
    Err(match prompt {
        0 => Error::invalid("the prompt is empty").with_hint("give some text, or token ids"),
        _ => Error::invalid(format!(
            "the prompt has {prompt} tokens and {new} follow, the model's context is {context}"
        ))
        .with_hint("shorten the prompt, or ask for fewer tokens"),
    })
}
