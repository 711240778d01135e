//! `tapml bench bugs`: put faults into kernels and between them, and count what is found.

use super::super::common::{self, Activation};
use super::models::{self, BenchModel};
use super::table;
use crate::Outcome;
use crate::output::{self, JsonArg};
use crate::progress::Bar;
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tapml::bugs::bench::{self, Bed, Prepared, Report, RunOptions, Sampling, Selection};
use tapml::bugs::{Catalogue, Family, Mutant};
use tapml::device::{Device, DeviceInfo};
use tapml::migrate::Stop;
use tapml::platform::{self, PlatformSpec};

/// Put faults into kernels and between them, on every model, and count what is found and what is missed.
#[derive(Args)]
#[command(
    after_help = "Example:\n  tapml bench bugs --models models --target emulator --limit 300 --clean 16 --json bugs.json"
)]
pub struct BugsCommand {
    /// Folders of models, or folders that hold some; $TAPML_MODELS and `models` if not given
    #[arg(long, value_name = "DIR", num_args = 1..)]
    models: Vec<PathBuf>,
    /// The device that gets the faults
    #[arg(long, value_name = "PLATFORM", default_value = "emulator")]
    target: String,
    /// A device that checks kernels while they run; `none` for none
    #[arg(long, value_name = "PLATFORM", default_value = "emulator?check=all")]
    checker: String,
    /// Only faults of this family: arithmetic, indexing, state, synchronisation, between; may repeat
    #[arg(long)]
    family: Vec<String>,
    /// Only faults of this operator; may repeat
    #[arg(long)]
    op: Vec<String>,
    /// Only this mutant; may repeat
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// At most so many mutants
    #[arg(long)]
    limit: Option<usize>,
    /// Runs without a fault, over models, dtypes and prompts
    #[arg(long, value_name = "N", default_value_t = 0)]
    clean: usize,
    /// Decides which mutants and prompts come first
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Begin nothing new after so many minutes; the same command with the same --json file goes on
    #[arg(long)]
    minutes: Option<f64>,
    /// Mutants that are tried at once, each on a device of its own
    #[arg(long)]
    workers: Option<usize>,
    /// Measure what other constants of the verdict would decide too
    #[arg(long)]
    grid: bool,
    /// Print the ids of the mutants there are, and end
    #[arg(long)]
    list: bool,
    /// Print what a mutant changes, and end
    #[arg(long, value_name = "ID")]
    show: Option<String>,
    /// Write the tables as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArg,
}

/// The report is written at least this often.
const SAVE_EVERY: Duration = Duration::from_secs(15);

impl BugsCommand {
    pub fn run(self) -> Result<Outcome> {
        output::expect_writable(self.json.json.as_deref())?;
        output::expect_writable(self.markdown.as_deref())?;
        let spec = device_spec(&self.target)?;
        let info = platform::open_device(&spec)?.info().clone();
        let models = self.open_models()?;
        let mutants = self.mutants(&models, &info)?;
        if let Some(id) = &self.show {
            let mutant = mutants.iter().find(|m| m.id == *id).ok_or_else(|| unknown(id))?;
            self.json
                .say(&format!("{}\n{}, {}\n{}", mutant.id, mutant.family, mutant.operator, mutant.diff))?;
            self.json.write(mutant)?;
            return Ok(Outcome::Holds);
        }
        if self.list {
            let ids: Vec<&str> = mutants.iter().map(|m| m.id.as_str()).collect();
            self.json.say(&ids.join("\n"))?;
            self.json.write(&ids)?;
            return Ok(Outcome::Holds);
        }
        self.measure(&models, &mutants, &spec, &info)
    }

    fn open_models(&self) -> Result<Vec<BenchModel>> {
        let wanted: Vec<&str> =
            self.only.iter().chain(&self.show).filter_map(|id| id.split('/').next()).collect();
        let mut found = models::find(&self.models)?;
        if !wanted.is_empty() {
            found.retain(|p| wanted.iter().any(|w| p.file_stem().is_some_and(|n| *n == **w)));
        }
        found.iter().map(|path| BenchModel::open(path)).collect()
    }

    /// The mutants to try, in order.
    fn mutants(&self, models: &[BenchModel], info: &DeviceInfo) -> Result<Vec<Mutant>> {
        let families = self.family.iter().map(|f| Family::parse(f)).collect::<tapml::Result<_>>()?;
        let mut all = Vec::new();
        for model in models {
            all.extend(Catalogue::of(&model.name, model.model.graph(), info)?.mutants);
        }
        if let Some(id) = self.only.iter().find(|id| !all.iter().any(|m| m.id == **id)) {
            return Err(unknown(id));
        }
        let selection = Selection {
            families,
            ops: self.op.clone(),
            ids: self.only.clone(),
            limit: self.limit,
            seed: self.seed,
        };
        Ok(selection.of(all.into_iter().filter(|m| !m.between())))
    }

    fn measure(
        &self,
        models: &[BenchModel],
        mutants: &[Mutant],
        spec: &PlatformSpec,
        info: &DeviceInfo,
    ) -> Result<Outcome> {
        let start = Instant::now();
        let stop = common::stop_on_signal()?;
        let folder = tempfile::tempdir().context("could not create a folder for recorded calls")?;
        let open = || -> tapml::Result<Box<dyn Device>> { platform::open_device(spec) };
        let checker = (self.checker != "none").then(|| device_spec(&self.checker)).transpose()?;
        let open_checker = || platform::open_device(checker.as_ref().unwrap_or(spec));
        let options = RunOptions {
            open: &open,
            checker: checker.is_some().then_some(&open_checker as bench::Opener<'_>),
            workers: self.workers.unwrap_or_else(workers),
            sampling: Sampling::default(),
            grid: self.grid,
            until: bench::deadline(self.minutes),
        };
        let names: Vec<&str> = models.iter().map(|m| m.name.as_str()).collect();
        let settings = format!("{} seed {}", names.join(","), self.seed);
        let target = format!("{} ({}, {})", self.target, info.name, info.driver);
        let kept = Kept::open(self, target, settings, start)?;
        let open_mutants: Vec<Mutant> = mutants.iter().filter(|m| !kept.has(&m.id)).cloned().collect();
        let beds = models
            .iter()
            .filter(|m| open_mutants.iter().any(|mutant| mutant.model == m.name))
            .map(|m| m.bed(Activation::F32, self.seed, true, folder.path(), &stop))
            .collect::<Result<Vec<Bed>>>()?;
        let prepared = Prepared::new(&beds, options.sampling);
        let bar = Bar::new();
        let found = |record| kept.add(|report| report.mutants.push(record));
        let done = bench::kernels(&prepared, &open_mutants, &options, &found, &bar, &stop);
        bar.finish();
        drop(prepared);
        if done? {
            self.clean_runs(models, info, &options, &kept, folder.path(), &stop)?;
        }
        self.finish(kept)
    }

    /// Runs without a fault: every model in turn, dtypes and prompts after that.
    fn clean_runs(
        &self,
        models: &[BenchModel],
        info: &DeviceInfo,
        options: &RunOptions<'_>,
        kept: &Kept<'_>,
        folder: &Path,
        stop: &Stop,
    ) -> Result<()> {
        let bar = Bar::new();
        tapml::migrate::Progress::stage(&bar, "clean runs", self.clean as u64);
        let dtypes = [Activation::F32, Activation::F16]
            .into_iter()
            .filter(|d| *d == Activation::F32 || info.features.f16);
        let dtypes: Vec<Activation> = dtypes.collect();
        for run in 0..self.clean {
            let model = &models[run % models.len()];
            let round = run / models.len();
            let (dtype, seed) = (dtypes[round % dtypes.len()], self.seed + (round / dtypes.len()) as u64);
            let name = format!("{}/{dtype:?}/seed {seed}", model.name).to_lowercase();
            if kept.has(&name) {
                continue;
            }
            if stop.check().is_err() || options.until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            // The long prompts of windows take long and say the same each time.
            let bed = model.bed(dtype, seed, round == 0, folder, stop)?;
            let prepared = Prepared::new(std::slice::from_ref(&bed), options.sampling);
            let done = bench::clean(&bed, &name, &prepared, options)?;
            kept.add(|report| report.clean.push(done));
            tapml::migrate::Progress::advance(&bar, 1);
        }
        bar.finish();
        Ok(())
    }

    fn finish(&self, kept: Kept<'_>) -> Result<Outcome> {
        let report = kept.into_report()?;
        self.json.say(&table::text(&report))?;
        if let Some(path) = &self.markdown {
            output::write_file(path, table::markdown(&report).as_bytes())?;
        }
        self.json.write(&report)?;
        let holds = report.missed().next().is_none() && report.false_alarms().next().is_none();
        Ok(if holds { Outcome::Holds } else { Outcome::Fails })
    }
}

fn unknown(id: &str) -> anyhow::Error {
    tapml::Error::invalid(format!("there is no mutant `{id}`"))
        .with_hint("`tapml bench bugs --list` prints the ids")
        .into()
}

fn device_spec(word: &str) -> Result<PlatformSpec> {
    let spec = PlatformSpec::parse(word)?;
    if spec.word == "cpu" {
        return Err(tapml::Error::invalid(
            "`cpu` runs the reference, which has no kernels to put faults into",
        )
        .with_hint("take `emulator`, which needs no GPU")
        .into());
    }
    Ok(spec)
}

/// One worker for each processor, a few at most: each holds a device.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(8)
}

/// The report so far, saved now and then, and continued from an earlier run's file.
struct Kept<'a> {
    command: &'a BugsCommand,
    state: Mutex<(Report, Instant)>,
    start: Instant,
    before: f64,
}

impl<'a> Kept<'a> {
    fn open(command: &'a BugsCommand, target: String, settings: String, start: Instant) -> Result<Kept<'a>> {
        let fresh = Report { schema: bench::SCHEMA, target, settings, ..Report::default() };
        let old = command.json.json.as_deref().filter(|p| p.is_file()).map(std::fs::read).transpose()?;
        let old = old.and_then(|bytes| serde_json::from_slice::<Report>(&bytes).ok());
        let same = |old: &Report| (&old.target, &old.settings) == (&fresh.target, &fresh.settings);
        let report = match old {
            Some(old) if same(&old) => {
                output::note(
                    "resuming",
                    &format!("{} mutants, {} clean runs", old.mutants.len(), old.clean.len()),
                );
                old
            }
            _ => fresh,
        };
        let before = report.seconds;
        Ok(Kept { command, state: Mutex::new((report, Instant::now())), start, before })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Report, Instant)> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn has(&self, name: &str) -> bool {
        let state = self.lock();
        state.0.mutants.iter().any(|m| m.id == name) || state.0.clean.iter().any(|c| c.name == name)
    }

    fn add(&self, change: impl FnOnce(&mut Report)) {
        let mut state = self.lock();
        change(&mut state.0);
        state.0.seconds = self.before + self.start.elapsed().as_secs_f64();
        if state.1.elapsed() > SAVE_EVERY && !self.command.json.on_stdout() {
            state.1 = Instant::now();
            if let Err(error) = self.command.json.write(&state.0) {
                output::print_error(&error);
            }
        }
    }

    fn into_report(self) -> Result<Report> {
        let (mut report, _) = self.state.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        report.seconds = self.before + self.start.elapsed().as_secs_f64();
        Ok(report)
    }
}
