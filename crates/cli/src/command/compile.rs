//! `tapml compile`: what a model, or each of a list, would take on targets, which reads configurations and no weights; or a
//! site from which a browser runs a model.
//!
//! Limits and memories of targets are assumptions that the report states. Nothing is opened but configurations.

use crate::Outcome;
use crate::output::{self, JsonArg, bytes, table};
use crate::progress::Bar;
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tapml::dry_run::{DryRun, Lengths, Target, TargetPlan, read_list};
use tapml::import::quantize::{FORMS_HELP, Scheme};

mod page;
mod report;
mod site;

use report::{ModelReport, Report, TargetReport, cells};

/// Write a site from which a browser runs a model, or plan models for targets from their `config.json` alone
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tapml compile models/llama --target webgpu --out site\n  tapml compile models/llama --target webgpu --dry-run\n  \
                        tapml compile models/llama --target webgpu --dry-run --quantize q4\n  \
                        tapml compile --dry-run --list docs/data/models.tsv\n\n\
                        Exit code 1: a model does not fit or is not supported on a target asked for."
)]
pub struct CompileCommand {
    /// Folder that holds a `config.json`
    #[arg(required_unless_present = "list")]
    model: Option<PathBuf>,
    /// Plan every model of this list instead
    #[arg(long, value_name = "TSV", conflicts_with = "model")]
    list: Option<PathBuf>,
    /// Where it is to run: mobile-webgpu, webgpu; to plan only, also vulkan and cuda; may repeat then, and all of them if there is none
    #[arg(long, value_name = "TARGET")]
    target: Vec<String>,
    /// The folder to write: page, program, weights, tokenizer, for any server of files
    #[arg(long, short, value_name = "DIR", conflicts_with_all = ["list", "memory", "markdown"])]
    out: Option<PathBuf>,
    /// Replace a site that is there
    #[arg(long, requires = "out")]
    overwrite: bool,
    /// Leave out the recorded calls by which the page checks the device that it runs on
    #[arg(long, requires = "out")]
    no_suite: bool,
    /// Plan only: nothing is written and no device is opened
    #[arg(long, required_unless_present = "out", conflicts_with = "out")]
    dry_run: bool,
    /// Most tokens of one step
    #[arg(long, value_name = "N", default_value_t = Lengths::default().step_tokens,
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    step_tokens: u64,
    /// Most positions of a sequence; fewer where the model's context is shorter
    #[arg(long, value_name = "N", default_value_t = Lengths::default().positions,
          value_parser = clap::value_parser!(u64).range(1..=1 << 26))]
    positions: u64,
    /// Gigabytes of memory of each target, instead of those assumed
    #[arg(long, value_name = "GB", value_parser = gigabytes)]
    memory: Option<u64>,
    #[arg(long, value_name = "SCHEME", help = format!("Quantise the weights: {FORMS_HELP}. A plan has both forms"))]
    quantize: Option<Scheme>,
    /// Write the matrix as a page in Markdown, too
    #[arg(long, value_name = "FILE", value_parser = output::writable())]
    markdown: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArg,
}

impl CompileCommand {
    /// Writes a site; or plans every model for every target, prints the matrix, and fails if something does not fit.
    ///
    /// # Errors
    /// If a target is unknown, a configuration cannot be read, or a site cannot be written. A model that is not supported is a result.
    pub fn run(self) -> Result<Outcome> {
        let started = Instant::now();
        if let (Some(model), Some(out)) = (&self.model, &self.out) {
            return self.write_site(model, out, started);
        }
        let targets = if self.target.is_empty() {
            Target::planned_targets().collect()
        } else {
            self.target.iter().map(|name| Target::find(name)).collect::<Result<Vec<_>, _>>()?
        };
        let lengths = Lengths { step_tokens: self.step_tokens, positions: self.positions };
        let mut dry_run = DryRun::new(&targets, self.memory, lengths)?;
        if let Some(scheme) = self.quantize {
            dry_run = dry_run.with_quantization(scheme);
        }
        let models = match (&self.model, &self.list) {
            (_, Some(list)) => plan_list(&mut dry_run, list)?,
            (Some(model), None) => {
                let plan = dry_run.plan(&model.display().to_string(), &tapml::import::read_config(model)?)?;
                vec![ModelReport { published_parameters: None, plan }]
            }
            // `clap` demands one of both.
            (None, None) => Vec::new(),
        };
        let described = targets.iter().filter_map(|t| {
            let (target, about, memory) = (t.name, t.about, self.memory.unwrap_or(t.memory));
            Some(TargetReport {
                target,
                about,
                activation: t.activation(),
                memory,
                // Targets without limits are only named on the page.
                limits: t.limits.clone()?,
            })
        });
        let report = Report {
            schema: 1,
            lengths,
            q4_bits_per_weight: 4.5,
            quantize: self.quantize,
            targets: described.collect(),
            models,
            seconds: started.elapsed().as_secs_f64(),
        };
        self.json.say(&render(&report))?;
        self.json.write(&report)?;
        if let Some(path) = &self.markdown {
            tapml::files::write(path, page::page(&report).as_bytes())?;
        }
        let all_fit = report.models.iter().flat_map(|m| &m.plan.targets).all(TargetPlan::fits);
        Ok(if all_fit { Outcome::Holds } else { Outcome::Fails })
    }
}

/// The plan of each model of a list.
fn plan_list(dry_run: &mut DryRun, list: &Path) -> Result<Vec<ModelReport>> {
    let models = read_list(list)?;
    let bar = Bar::new();
    bar.stage("plan models", models.len() as u64);
    let plan = |listed: tapml::dry_run::ListedModel| {
        bar.advance(1);
        // Lists tell them in billions.
        let published_parameters = Some((listed.billions * 1e9).round() as u64);
        Ok(ModelReport { published_parameters, plan: dry_run.plan(&listed.name, &listed.config)? })
    };
    models.into_iter().map(plan).collect()
}

/// Bytes from a number of gigabytes, which are powers of 1000.
fn gigabytes(text: &str) -> Result<u64, String> {
    let number = text.parse::<f64>().ok().filter(|n| (1e-3..1e6).contains(n));
    let number = number.ok_or_else(|| format!("`{text}` is no number of gigabytes from 0.001 to 1000000"))?;
    Ok((number * 1e9) as u64)
}

/// The assumptions, then a line for each model.
fn render(report: &Report) -> String {
    let mut text = format!("{}\n\n", notes(report).join("\n"));
    let fixed = ["MODEL", "ARCHITECTURE", "PARAMETERS", "CONTEXT", "PLANNED", "CACHE", "F16", "4-BIT"];
    let names = report.targets.iter().map(|t| t.target.to_uppercase());
    let header: Vec<String> = fixed.iter().map(ToString::to_string).chain(names).collect();
    let mut rows = table(&header.iter().map(String::as_str).collect::<Vec<_>>()).with_optional(&[
        "CONTEXT",
        "PLANNED",
        "ARCHITECTURE",
        "CACHE",
        "F16",
        "4-BIT",
    ]);
    report.models.iter().for_each(|model| {
        rows.add_row(cells(&model.plan));
    });
    text += &rows.to_string();
    text
}

/// What a reader must know to read the matrix.
fn notes(report: &Report) -> Vec<String> {
    let Lengths { step_tokens, positions } = report.lengths;
    let mut lines = vec![
        format!("Planned: steps of up to {step_tokens} tokens, up to {positions} positions (fewer where the context is shorter),"),
        "logits of the last position. CACHE: caches and other states in f16 at the planned positions.".to_string(),
        "Weights in f16 are compiled for. 4-BIT is a plan of the weights' size alone (32 weights of a row share a scale".to_string(),
        "in f16: 4.5 bits for each); with `--quantize` what is compiled has quantised weights.".to_string(),
    ];
    if let Some(scheme) = &report.quantize {
        lines.push(format!("Targets: weights quantised by {scheme}, with the memory of the program and the bytes that a token reads."));
    }
    lines.extend(report.targets.iter().map(|t| {
        format!("{}: {}; {} of memory, activations in {}", t.target, t.about, bytes(t.memory), t.activation)
    }));
    lines
}
