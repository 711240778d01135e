//! A model made ready to serve: loaded in pages, its kernels checked on recorded calls before anybody is answered.
//!
//! The graph that serves is recorded on the CPU, where it is the reference itself, and its calls are replayed on the target by
//! the kernels that will serve.

use crate::job::{open_platform_for, oracles};
use crate::model::{GraphOptions, default_ledger, identity, single_text_layout};
use crate::shadow::{ShadowSource, ShadowSpec};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use tapml_engine::{
    BatchLimits, DraftModel, EmbeddingOptions, PagedRunner, PlatformEncoder, Tokenizer, Vision,
    bundled_image, bundled_text,
};
use tapml_exec::{CpuPlatform, Image, Interface, NOWHERE, PlatformInfo};
use tapml_graph::paged::PageLayout;
use tapml_graph::{Context, Error, Model, Node, Op, Origin, Result};
use tapml_import::quantize::Scheme;
use tapml_import::{Checkpoint, LogitRows};
use tapml_migrate::report::CheckReport;
use tapml_migrate::suite::Suite;
use tapml_migrate::{CarveOptions, CheckOptions, Progress, PromptInput, Stop, carve, check};
use tapml_server::ServedShadow;

/// Tokens of the recorded prompt: more than the rows of a tile, and than a page.
const CHECKED_TOKENS: usize = 33;
/// Of these, most that stand for rows of an image.
const CHECKED_ROWS: u32 = 16;
/// Tokens that are recorded behind it, one by one.
const CHECKED_STEPS: u32 = 2;
/// Tokens that a small model guesses at once if nobody says how many.
const DRAFT_TOKENS: usize = 4;
/// The small model guesses only while at most so many texts run: the more run, the dearer are rows in vain.
const DRAFTED_REQUESTS: usize = 8;
/// Bytes for pages if nobody says how many.
const USUAL_MEMORY: u64 = 1 << 30;

/// Pages of a model without caches, unless a single text has more.
const COUNTED_PAGES: usize = 1 << 16;

/// How a model is loaded for steps of several texts.
type OpenRunner = fn(&mut dyn tapml_exec::Platform, &Model, BatchLimits) -> Result<PagedRunner>;

/// What to serve, where, and with which sizes.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServeOptions {
    /// Checkpoint folder or GGUF file.
    pub model: PathBuf,
    /// The platform that computes.
    pub target: String,
    /// The user's kernels, as `OP=FILE`.
    pub kernels: Vec<String>,
    /// How the checkpoint becomes a graph.
    pub graph: GraphOptions,
    /// Most tokens of one text; the model's context if absent.
    pub context: Option<usize>,
    /// Whether a context that nobody gave is cut to what `memory` holds, in place of an error.
    pub fit_context: bool,
    /// Positions in one page.
    pub page: usize,
    /// Pages for all texts together; as many as `memory` holds if absent.
    pub pages: Option<usize>,
    /// Bytes for pages.
    pub memory: u64,
    /// Most rows of one step: prompts are computed in pieces of so many.
    pub rows: usize,
    /// Most texts of one step.
    pub sequences: usize,
    /// Whether the kernels are checked before the model is loaded.
    pub check: bool,
    /// A small model of the same vocabulary that guesses the next tokens. It runs on the same platform and is checked likewise.
    pub draft: Option<PathBuf>,
    /// Most tokens that it guesses at once.
    pub draft_tokens: usize,
    /// How its weights are quantised; as the model's if absent.
    pub draft_quantize: Option<Scheme>,
    /// Whether weights are random and words are numbers, so that a configuration is enough: for measuring speed.
    pub random: bool,
    /// A source and the share of live calls that it checks, as `cpu:0.01`; none if absent.
    pub shadow: Option<String>,
    /// The folder for suites of live calls that fail; beside what a migration keeps if absent.
    pub shadow_cases: Option<PathBuf>,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            model: PathBuf::new(),
            target: "cpu".into(),
            kernels: Vec::new(),
            graph: GraphOptions::default(),
            context: None,
            fit_context: false,
            page: 16,
            pages: None,
            memory: USUAL_MEMORY,
            rows: 256,
            sequences: 64,
            check: true,
            draft: None,
            draft_tokens: DRAFT_TOKENS,
            draft_quantize: None,
            random: false,
            shadow: None,
            shadow_cases: None,
        }
    }
}

/// A model that is ready.
pub struct Serving {
    /// Where it came from.
    pub checkpoint: Checkpoint,
    /// What runs it.
    pub model: LoadedModel,
    /// Where.
    pub platform: PlatformInfo,
    /// What the check of its kernels gave; `None` if there was none.
    pub checked: Option<CheckReport>,
    /// Whether words are numbers, as there is no tokenizer.
    pub random: bool,
}

/// A model on its platform.
pub enum LoadedModel {
    /// A language model.
    Generator {
        /// Runs its steps.
        runner: Box<PagedRunner>,
        /// The small model that guesses.
        draft: Option<DraftModel>,
        /// The live calls that are checked; `None` if none are.
        shadow: Option<ServedShadow>,
    },
    /// An encoder of texts.
    Encoder {
        /// Gives the hidden states of a text.
        encoder: Box<PlatformEncoder>,
        /// How they become a vector.
        options: EmbeddingOptions,
    },
}

impl ServeOptions {
    /// Opens, checks and loads.
    ///
    /// # Errors
    /// If the model or the target cannot be opened, if rows of several texts cannot share a step of a language model, if a call
    /// of the check fails, if there is no memory for the pages, or if an encoder takes no texts.
    pub fn load(&self, progress: &dyn Progress, stop: &Stop) -> Result<Serving> {
        self.load_within(usize::MAX, progress, stop)
    }

    /// As [`ServeOptions::load`]; texts have at most `most` tokens, whatever the model takes.
    fn load_within(&self, most: usize, progress: &dyn Progress, stop: &Stop) -> Result<Serving> {
        if self.random && self.shadow.is_some() {
            let text =
                "random weights cannot be shadowed: a case would name weights that no checkpoint holds";
            return Err(Error::invalid(text).with_hint("leave `--random` or `--shadow` out"));
        }
        let (graph, target) = self.graph.for_target(&self.target)?;
        if graph.tensor_parallel != self.graph.tensor_parallel || target != self.target {
            return ServeOptions { graph, target, ..self.clone() }.load_within(most, progress, stop);
        }
        if self.shadow.is_some() && graph.tensor_parallel.is_some_and(|ranks| ranks > 1) {
            return Err(Error::unsupported("several ranks show no values of single nodes")
                .with_hint("leave `--shadow` out, or serve on one device"));
        }
        // What is wrong with it is told before minutes of work.
        let shadow = self.shadow.as_deref().map(ShadowSpec::parse).transpose()?;
        let shadow = shadow.map(ShadowSpec::open).transpose()?;
        let draft = self.draft.as_ref().map(|model| self.load_draft(model, progress, stop)).transpose()?;
        progress.stage("read the model", 0);
        // Pages are made first: the platform shares out what it loads.
        let whole = GraphOptions { tensor_parallel: None, ..self.graph };
        let (checkpoint, model) = if self.random {
            whole.random(&self.model, LogitRows::Last)?
        } else {
            whole.open(&self.model, LogitRows::Last)?
        };
        if !Interface::from_graph(model.graph())?.has_logits() {
            return self.load_encoder(checkpoint, model, progress, stop);
        }
        let limits = self.limits(&checkpoint, &model, most)?;
        let page = u32::try_from(limits.page).unwrap_or(u32::MAX);
        let layout = single_text_layout(page, CHECKED_TOKENS + CHECKED_STEPS as usize);
        let recorded = model.with_graph(model.graph().to_paged_with_encoder(layout)?)?;
        let calls = self.graph.share_out(recorded.clone())?;
        let mut platform = open_platform_for(&self.target, &self.kernels, recorded.graph())?;
        let checked = if self.check && platform.word() != "cpu" {
            let prompts = [self.prompt(&checkpoint, &calls)?];
            Some(self.check_kernels((&checkpoint, &calls), &prompts, platform.as_mut(), progress, stop)?)
        } else {
            None
        };
        progress.stage("load the model", 0);
        let of_model = (&checkpoint, &model);
        let start = |source: ShadowSource| {
            let beside = || default_ledger(&self.model, &self.target, &self.graph).join("shadow");
            let cases = self.shadow_cases.clone().unwrap_or_else(beside);
            source.start((&self.target, platform.as_ref()), of_model, limits, cases)
        };
        let shadow = shadow.map(start).transpose()?;
        let open: OpenRunner = if shadow.is_some() { PagedRunner::observable } else { PagedRunner::new };
        let mut runner = open(platform.as_mut(), &model, limits)?;
        let shadow = shadow.map(|(shadow, sampler)| {
            runner.set_sampler(sampler);
            shadow
        });
        let info = platform.describe();
        let (target, kernels) = (self.target.clone(), self.kernels.clone());
        let runner = runner.with_reopening(move || {
            log::warn!("`{target}` was lost: it is opened again, and the model loaded");
            let mut platform = open_platform_for(&target, &kernels, recorded.graph())?;
            open(platform.as_mut(), &model, limits)
        });
        let model = LoadedModel::Generator { runner: Box::new(runner), draft, shadow };
        Ok(Serving { checkpoint, model, platform: info, checked, random: self.random })
    }

    /// The small model, with pages of its own.
    fn load_draft(&self, model: &Path, progress: &dyn Progress, stop: &Stop) -> Result<DraftModel> {
        if self.draft_tokens == 0 {
            return Err(Error::invalid("a small model must guess at least 1 token at once, found 0"));
        }
        let (model, draft, shadow) = (model.to_path_buf(), None, None);
        let quantize = self.draft_quantize.or(self.graph.quantize);
        let graph = GraphOptions { quantize, ..self.graph };
        let options =
            ServeOptions { model, draft, shadow, graph, context: None, pages: None, ..self.clone() };
        // Its cache has no use for tokens that the large model does not take.
        let most = self.context.unwrap_or(usize::MAX);
        let serving = options.load_within(most, progress, stop).context(|| "the small model".to_string())?;
        let LoadedModel::Generator { runner, .. } = serving.model else {
            return Err(Error::unsupported("the small model is an encoder, which generates no text"));
        };
        let (tokens, requests) = (self.draft_tokens, DRAFTED_REQUESTS);
        Ok(DraftModel { runner, tokens, requests, replace: None })
    }

    /// The sizes, within the model's context and the memory for pages.
    fn limits(&self, checkpoint: &Checkpoint, model: &Model, most: usize) -> Result<BatchLimits> {
        let context = self.context.unwrap_or(checkpoint.context().min(most));
        let sizes = [self.page, self.rows, self.sequences, context];
        if sizes.contains(&0) || context > checkpoint.context() {
            let most = checkpoint.context();
            return Err(Error::invalid(format!(
                "page, rows, sequences and context must be at least 1, and the context at most {most}: found {sizes:?}"
            )));
        }
        let (page_bytes, state_bytes) = cache_bytes(model, self.page)?;
        let within = |memory: u64, bytes: u64| usize::try_from(memory / bytes.max(1)).unwrap_or(usize::MAX);
        // A model that leaves both shares the memory between them. Two slots are what a text that runs takes, two more keep
        // the beginnings of others.
        let shared = if page_bytes > 0 && state_bytes > 0 { self.memory / 2 } else { self.memory };
        let states = if state_bytes == 0 {
            0
        } else {
            within(shared, state_bytes).min(self.sequences.saturating_mul(4))
        };
        if state_bytes > 0 && states < 2 {
            let text =
                format!("a state takes {state_bytes} bytes, a text two of them, and there are {shared}");
            return Err(Error::invalid(text).with_hint("give more memory"));
        }
        let held = within(shared, page_bytes).saturating_mul(self.page);
        let cut = self.fit_context && self.context.is_none() && self.pages.is_none() && held > 0;
        let context = if cut { context.min(held) } else { context };
        let one = context.div_ceil(self.page);
        // No more than all texts of a step could fill. Without caches pages take no memory, and count tokens alone.
        let useful = one.saturating_mul(self.sequences);
        let useful = if page_bytes == 0 { useful.min(one.max(COUNTED_PAGES)) } else { useful };
        let pages = self.pages.unwrap_or(useful.min(within(shared, page_bytes)));
        if pages < one {
            let found = pages;
            return Err(Error::invalid(format!(
                "a text of {context} tokens takes {one} pages of {page_bytes} bytes, and there are {found}"
            ))
            .with_hint("give more memory, or a shorter context"));
        }
        let (page, rows, sequences) = (self.page, self.rows, self.sequences);
        let (length_limit, window) = (None, None);
        Ok(BatchLimits { page, pages, rows, sequences, context, vocab: 0, states, length_limit, window })
    }

    /// Records prompts, and some steps of a language model, on the CPU, and replays every call on the platform.
    pub(crate) fn check_kernels(
        &self,
        (checkpoint, model): (&Checkpoint, &Model),
        prompts: &[Vec<u32>],
        platform: &mut dyn tapml_exec::Platform,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<CheckReport> {
        let folder =
            tempfile::tempdir().map_err(|e| Error::invalid(format!("a folder for recorded calls: {e}")))?;
        let out = folder.path().join("serve.suite");
        let image = self.image(checkpoint, model)?;
        let input = |ids: &Vec<u32>| {
            let (ids, image) = (ids.clone(), image.clone());
            PromptInput { ids, image, ..PromptInput::default() }
        };
        let prompts: Vec<PromptInput> = prompts.iter().map(input).collect();
        let options = CarveOptions {
            out: &out,
            overwrite: false,
            steps: CHECKED_STEPS,
            self_contained: false,
            context: checkpoint.context() as u32,
            decode: &|_| String::new(),
        };
        let identity = identity(checkpoint)?;
        carve(&mut CpuPlatform::new(), model, identity, &prompts, &options, progress, stop)?;
        let suite = Suite::open(&out)?;
        let (oracles, all) = (oracles(None)?, CheckOptions::default());
        let report = check(&suite, model, platform, &oracles, &all, progress, stop)
            .context(|| "the check before serving".to_string())?
            .report;
        if report.passes() {
            return Ok(report);
        }
        let paged = model.graph().states().first().map_or("", |_| " --paged 16");
        Err(failed_check(&report, &self.target, &self.model, paged))
    }

    /// An image for the first tokens of a prompt, so that the calls of its encoder are recorded, too; `None` if the model takes
    /// none, or its images are not served.
    fn image(&self, checkpoint: &Checkpoint, model: &Model) -> Result<Option<Image>> {
        if self.random || !Interface::from_graph(model.graph())?.sees() {
            return Ok(None);
        }
        let Ok(Some(vision)) = Vision::open(checkpoint) else { return Ok(None) };
        let rows = model.graph().image_rows()?.unwrap_or(0).min(CHECKED_ROWS);
        let pixels = vision.processor().bytes(bundled_image())?.values;
        Ok(Some(Image { pixels, slots: std::iter::once(NOWHERE).chain(0..rows).collect() }))
    }

    /// A prompt as long as the check wants, or as the context allows.
    pub(crate) fn prompt(&self, checkpoint: &Checkpoint, model: &Model) -> Result<Vec<u32>> {
        let most = CHECKED_TOKENS.min(checkpoint.context().saturating_sub(CHECKED_STEPS as usize)).max(1);
        let vocab = Interface::from_graph(model.graph())?.vocab().unwrap_or(1).max(1);
        let text = Tokenizer::open(checkpoint.dir()).and_then(|tokenizer| tokenizer.encode(bundled_text()));
        Ok(match text {
            Ok(ids) if ids.len() >= most => ids[..most].to_vec(),
            // A checkpoint without a tokenizer has ids all the same.
            _ => (0..most as u64).map(|at| (at * 7919 % vocab) as u32).collect(),
        })
    }
}

/// Bytes of a page of all caches, and of a slot for the states of all recurrences.
///
/// # Errors
/// If rows of several texts cannot share a step of the model.
fn cache_bytes(model: &Model, page: usize) -> Result<(u64, u64)> {
    let page = u32::try_from(page).unwrap_or(u32::MAX);
    // One page and one slot. Pages hold what attention reads, which need not be what the model's own caches hold.
    let one = PageLayout { page, pages: 1, texts: 1, blocks: 1, wanted: None, states: 1 };
    let graph = model.graph().to_paged(one)?;
    let (mut pages, mut states) = (0u64, 0u64);
    for state in graph.states() {
        let ty = &graph.value(state.input).ty;
        let sizes = ty.shape.iter().map(|size| size.as_const().unwrap_or(0));
        let bytes = sizes.fold(ty.dtype.size() as u64, u64::saturating_mul);
        let is_recurrent = |node: &Node| matches!(node.op, Op::PagedRecurrence(_));
        let maker = match graph.value(state.output).origin {
            Origin::Node { node, .. } => Some(graph.node(node)),
            _ => None,
        };
        let sum = if maker.is_some_and(is_recurrent) { &mut states } else { &mut pages };
        *sum = sum.saturating_add(bytes);
    }
    Ok((pages, states))
}

/// The error of a check that failed, with the first failures. `paged` is the option that makes the same graph.
fn failed_check(report: &CheckReport, target: &str, model: &Path, paged: &str) -> Error {
    let failed = report.ops.iter().filter(|op| !op.passes());
    let failed: Vec<String> = failed
        .map(|op| format!("`{}` by {} ({} of {} calls)", op.op, op.kernel, op.failed, op.cases))
        .collect();
    let text = match report.skipped.first() {
        _ if !failed.is_empty() => format!("`{target}` computes wrong results: {}", failed.join(", ")),
        Some(skipped) => format!("`{}` could not be checked on `{target}`: {}", skipped.case, skipped.reason),
        None => format!("the check on `{target}` was stopped"),
    };
    Error::invalid(text).with_hint(format!(
        "`tapml diagnose {} --target {target}{paged}` names the cause; `--check off` serves all the same",
        model.display()
    ))
}
