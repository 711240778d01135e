//! A folder of files from which a browser runs a language model by itself: the page with its runtime, the model's program for
//! each sort of device, the weights in shards, the tokenizer. Any server of files serves it.
//!
//! The programs are those that `exec` makes for a device of the target's limits, in their own serialised form
//! (`tapml_kernels::Program`), so that what runs has the names of the kernel rows that were checked. `site.json` names every
//! other file with its SHA-256. `web/src/site` reads all of it.

mod file;
mod form;
mod image;
mod pages;
mod part;
mod suite;
mod text;
mod weights;

use crate::dry_run::{Lengths, Target};
use crate::model::GraphOptions;
pub use file::SiteFile;
use file::write;
use form::SiteForm;
use image::ImageSettings;
use pages::PAGES;
use part::CompiledPart;
use serde::Serialize;
use std::path::{Path, PathBuf};
pub use suite::SiteSuite;
use suite::{Carving, Recorded, row};
use tapml_engine::Tokenizer;
use tapml_files::NewFolder;
use tapml_graph::{Context, DType, Error, Graph, Model, Result, Symbols};
use tapml_import::quantize::Scheme;
use tapml_import::{Checkpoint, LogitRows};
use tapml_kernels::{CompileOptions, Phase, ProgramMemory, ProgramStep};
use text::{Generation, TextSettings};
use weights::{WeightTable, Weights};

/// The file that names all others.
const MANIFEST: &str = "site.json";
/// The form of [`MANIFEST`].
const SCHEMA: u32 = 1;
/// The largest tokenizer that is copied, in bytes, as `tapml_engine` reads them.
const MAX_TOKENIZER: u64 = 128 << 20;
/// The subgroups that kernels of a site with subgroups are planned for: those of nearly all GPUs of NVIDIA, AMD, Apple and Qualcomm. Kernels
/// ask for the size when they run, and are planned for the smallest one. Narrower ones gain little.
const SUBGROUPS: (u32, u32) = (32, 128);

/// Writes the site of a model.
#[derive(Clone, Debug)]
pub struct SiteJob {
    /// Checkpoint folder or GGUF file.
    pub model: PathBuf,
    /// The folder to write; must not exist unless `overwrite`.
    pub out: PathBuf,
    /// Whether an existing site is replaced.
    pub overwrite: bool,
    /// A target of browsers; see [`SiteJob::TARGETS`].
    pub target: &'static Target,
    /// How weights are quantised, if they are.
    pub quantize: Option<Scheme>,
    /// Most tokens of a step and of a text.
    pub lengths: Lengths,
    /// Whether recorded calls go along, by which a browser checks its device.
    pub suite: bool,
}

/// The program for one sort of device.
#[derive(Clone, Debug, Serialize)]
pub struct SiteProgram {
    /// The file, in the form of `tapml_kernels::Program`.
    #[serde(flatten)]
    pub file: SiteFile,
    /// Dtype of activations and caches.
    pub activation: DType,
    /// Whether it needs f16.
    pub f16: bool,
    /// The smallest and the largest subgroup that its kernels are planned for, if they need subgroups.
    pub subgroups: Option<(u32, u32)>,
    /// The program that makes rows of an image, of a model that sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder: Option<SiteFile>,
    /// Device memory at capacity, of the encoder too.
    pub memory: ProgramMemory,
    /// Rows of the kernel list that it launches, in the order of their names.
    pub rows: Vec<String>,
    /// Recorded calls of its nodes, if they go along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suite: Option<SiteSuite>,
}

/// What was written.
#[derive(Clone, Debug, Serialize)]
pub struct Site {
    /// Programs; a device takes the first one that it can run.
    pub programs: Vec<SiteProgram>,
    /// Most tokens of a text.
    pub context: usize,
    /// Most tokens of one step.
    pub step: usize,
    /// Bytes of all weights, padding included.
    pub weight_bytes: u64,
    /// Files of weights.
    pub shards: usize,
    /// Bytes of all other files.
    pub other_bytes: u64,
}

/// `site.json`.
#[derive(Serialize)]
struct Manifest<'a> {
    schema: u32,
    tapml: &'static str,
    model: &'a str,
    context: usize,
    step: usize,
    programs: &'a [SiteProgram],
    weights: &'a Weights,
    tokenizer: &'a SiteFile,
    text: TextSettings,
    form: &'a SiteForm,
    generation: Generation,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<ImageSettings>,
}

impl SiteJob {
    /// The targets that have a browser, by name.
    pub const TARGETS: [&'static str; 2] = ["webgpu", "mobile-webgpu"];

    /// Writes the site, whole or not at all.
    ///
    /// # Errors
    /// If the target is no browser, the model is no language model or cuts images in parts, some kernel is missing or beyond the
    /// target's limits, the checkpoint has no tokenizer, or the folder cannot be written.
    pub fn run(&self) -> Result<Site> {
        if !Self::TARGETS.contains(&self.target.name) {
            let text = format!("`{}` is no target of a site", self.target.name);
            return Err(Error::unsupported(text).with_hint(format!("targets: {}", Self::TARGETS.join(", "))));
        }
        // What is no checkpoint is told before what it lacks.
        Checkpoint::open(&self.model)?;
        let folder = NewFolder::create(&self.out, MANIFEST, self.overwrite)?;
        let site = self.write(folder.folder()).context(|| self.model.display().to_string())?;
        folder.publish()?;
        Ok(site)
    }

    fn write(&self, folder: &Path) -> Result<Site> {
        let tokenizer = Tokenizer::open(&self.model)?;
        let name = std::path::absolute(&self.model).unwrap_or_else(|_| self.model.clone());
        let name = name.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy());
        let mut table = WeightTable::default();
        let mut programs = Vec::new();
        let mut opened: Option<(Checkpoint, Model)> = None;
        // With f16 first: a device takes the first program that it can run.
        for target in self.targets()? {
            let options = GraphOptions {
                activation: target.activation(),
                quantize: self.quantize,
                ..GraphOptions::default()
            };
            let (checkpoint, model) = options.open(&self.model, LogitRows::Last)?;
            let carving = Carving {
                name: &name,
                checkpoint: &checkpoint,
                model: &model,
                tokenizer: &tokenizer,
                lengths: self.lengths(&checkpoint),
            };
            let in_suite = || "the site's suite".to_string();
            let carved = if self.suite { Some(carving.carve(folder).context(in_suite)?) } else { None };
            for subgroups in self.subgroups() {
                let parts = self.compile(target, subgroups, &checkpoint, &model)?;
                parts.iter().try_for_each(|part| table.add(&part.program, &model))?;
                let mut written = write_programs(folder, (target, subgroups), &parts)?;
                if let Some(carved) = &carved {
                    let file = file_name("suite", target, subgroups);
                    let suite = carved.write(&parts, folder, &file).context(in_suite)?;
                    written.suite = Some(suite);
                }
                programs.push(written);
            }
            carved.map_or(Ok(()), Recorded::remove)?;
            opened = Some((checkpoint, model));
        }
        let (checkpoint, model) = opened.ok_or_else(|| Error::bug("a site of no program"))?;
        let weights = table.write(folder, &model)?;
        let tokenizer_file = write(folder, "tokenizer.json", &self.tokenizer(&tokenizer)?)?;
        let form = SiteForm::write(folder, &tokenizer, &checkpoint, &model)?;
        let (step, context) = self.lengths(&checkpoint);
        let encoder = model.graph().image_encoder()?;
        let read = |encoder: &Graph| ImageSettings::read(&checkpoint, &tokenizer, encoder);
        let manifest = Manifest {
            schema: SCHEMA,
            tapml: env!("CARGO_PKG_VERSION"),
            model: &name,
            context,
            step,
            programs: &programs,
            weights: &weights,
            tokenizer: &tokenizer_file,
            text: TextSettings::from_tokenizer(&tokenizer, &checkpoint),
            form: &form,
            generation: Generation::read(checkpoint.dir())?,
            image: encoder.as_ref().map(read).transpose()?,
        };
        let manifest = serde_json::to_vec(&manifest)
            .map_err(|e| Error::bug(format!("{MANIFEST} does not serialise: {e}")))?;
        let of_program = |p: &SiteProgram| {
            let encoder = p.encoder.as_ref().map_or(0, |file| file.bytes);
            p.file.bytes + encoder + p.suite.as_ref().map_or(0, |suite| suite.calls.bytes + suite.data.bytes)
        };
        let mut other_bytes =
            form.bytes() + tokenizer_file.bytes + programs.iter().map(of_program).sum::<u64>();
        other_bytes += write(folder, MANIFEST, &manifest)?.bytes;
        for (file, bytes) in PAGES {
            other_bytes += write(folder, file, &pages::unpack(bytes)?)?.bytes;
        }
        let (weight_bytes, shards) = (weights.bytes, weights.shards.len());
        Ok(Site { programs, context, step, weight_bytes, shards, other_bytes })
    }

    /// The bytes of the checkpoint's own `tokenizer.json`, or what stands for another file or for the metadata of a GGUF file.
    fn tokenizer(&self, tokenizer: &Tokenizer) -> Result<Vec<u8>> {
        let own = self.model.join("tokenizer.json");
        if own.is_file() {
            tapml_files::read(&own, MAX_TOKENIZER, "a tokenizer")
        } else {
            tokenizer.to_json()
        }
    }

    /// The targets that programs are made for: one with f16 if the site's own has it, and one without.
    fn targets(&self) -> Result<Vec<&'static Target>> {
        let without = Target::find("mobile-webgpu")?;
        Ok(if self.target.f16 { vec![self.target, without] } else { vec![without] })
    }

    /// For each of them: devices with subgroups if the site's target has such, and those of any other.
    fn subgroups(&self) -> impl Iterator<Item = Option<(u32, u32)>> + use<> {
        // A phone's browser may have them; its program must run in one that has none.
        let wide = self.target.f16.then_some(Some(SUBGROUPS));
        wide.into_iter().chain([None])
    }

    /// Tokens of a step and of a text.
    fn lengths(&self, checkpoint: &Checkpoint) -> (usize, usize) {
        let most = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let context = checkpoint.context().min(most(self.lengths.positions));
        (context.min(most(self.lengths.step_tokens)), context)
    }

    /// The program of greedy generation, as `exec` loads it, then that of the encoder of images if the model sees.
    fn compile(
        &self,
        target: &Target,
        subgroups: Option<(u32, u32)>,
        checkpoint: &Checkpoint,
        model: &Model,
    ) -> Result<Vec<CompiledPart>> {
        let mut info = target.info().ok_or_else(|| target.unsupported())?;
        info.features.subgroups = subgroups;
        let encoder = model.graph().image_encoder()?;
        let graph = if encoder.is_some() { model.graph().greedy_reader() } else { model.graph().greedy() };
        let graph = graph?.ok_or_else(|| {
            Error::unsupported("a site runs language models that take token ids, and pictures if they see")
                .with_hint("encoders and other models are served by `tapml serve`")
        })?;
        let (step, context) = self.lengths(checkpoint);
        // The last token has `context - 1` before it.
        let capacity = Symbols::np(step as u64, (context as u64).saturating_sub(1));
        let options = CompileOptions { context: Some(context as u64), ..CompileOptions::new(capacity) };
        let mut parts = vec![CompiledPart::new(&info, &graph, &options)?];
        if let Some(encoder) = encoder {
            // Sizes are constants.
            let options = CompileOptions::new(Symbols::np(1, 0));
            let part = CompiledPart::new(&info, &encoder, &options);
            parts.push(part.context(|| "the encoder of images".to_string())?);
        }
        Ok(parts)
    }
}

/// The name of a file of a program, without its ending.
fn file_name(of: &str, target: &Target, subgroups: Option<(u32, u32)>) -> String {
    let f16 = if target.f16 { "-f16" } else { "" };
    let wide = if subgroups.is_some() { "-subgroups" } else { "" };
    format!("{of}{f16}{wide}")
}

/// Writes the programs of a target, for devices with such subgroups.
fn write_programs(
    folder: &Path,
    (target, subgroups): (&Target, Option<(u32, u32)>),
    parts: &[CompiledPart],
) -> Result<SiteProgram> {
    let [main, encoder @ ..] = parts else { return Err(Error::bug("a target of no program")) };
    let write = |of: &str, part: &CompiledPart| {
        write(folder, &format!("{}.json", file_name(of, target, subgroups)), &part.program.to_bytes()?)
    };
    // A run of the encoder has one row, whatever the image has.
    let encodes = |step: &&ProgramStep| step.runs_in(Phase::Decode);
    let encoding = encoder.iter().flat_map(|part| part.program.steps.iter().filter(encodes));
    let mut rows: Vec<String> = main.program.steps.iter().chain(encoding).filter_map(row).collect();
    rows.sort_unstable();
    rows.dedup();
    Ok(SiteProgram {
        file: write("program", main)?,
        activation: target.activation(),
        f16: target.f16,
        subgroups,
        encoder: encoder.first().map(|part| write("encoder", part)).transpose()?,
        memory: parts.iter().map(|part| part.program.memory()).sum(),
        rows,
        suite: None,
    })
}
