//! `tapml bench bugs`: put faults into kernels and between them, and count what is found.
//!
//! Results are kept in the report's file: the same command goes on where another one was stopped, as long as its
//! settings are the same.

use super::super::common::{ActivationArg, GraphArgs};
use super::super::guard::Guard;
use super::models::{self, BenchModel};
use super::table;
use crate::Outcome;
use crate::output::{self, JsonArg};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tapml::ErrorKind;
use tapml::bugs::bench::{
    self, BenchReport, Diagnosed, Fixture, PlannedCase, Prepared, RunOptions, Sampling, Selection,
};
use tapml::bugs::{Catalogue, Family, Mutant, RowMutants};
use tapml::device::{AdapterKind, Device, DeviceInfo};
use tapml::files::Lock;
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
    #[command(flatten)]
    graph: GraphArgs,
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
    /// Full diagnoses of so many single faults, half of them between kernels as far as there are some
    #[arg(long, value_name = "N", default_value_t = 0)]
    diagnose: usize,
    /// Of each mutation operator in each operator N mutants, drawn from all models, and a full diagnosis of each that shows
    #[arg(long, value_name = "N", conflicts_with = "diagnose")]
    each_operator: Option<usize>,
    /// Full diagnoses of 2 to 11 faults at once
    #[arg(long, value_name = "N", default_value_t = 0)]
    several: usize,
    /// Decides which mutants and prompts come first
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Begin nothing new after so many minutes; the same command with the same --json file goes on
    #[arg(long)]
    minutes: Option<f64>,
    /// Mutants that are tried at once, each on a device of its own; as many as there are processors, 8 at most, if not given
    #[arg(long)]
    workers: Option<usize>,
    /// Seconds after which a kernel counts as one that does not end; 0 for no limit
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    deadline: u64,
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
    #[arg(long, value_name = "FILE", value_parser = output::writable())]
    markdown: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArg,
}

/// What all parts of the bench share.
///
/// It borrows everything, because workers on other threads share it.
struct BenchWork<'a> {
    /// Models in the order in which they were found.
    models: &'a [BenchModel],
    /// Those to try, in order.
    mutants: &'a [Mutant],
    info: &'a DeviceInfo,
    options: RunOptions<'a>,
    /// Where recorded calls go; it is removed at the end.
    folder: &'a Path,
    stop: &'a Stop,
    kept: &'a Kept<'a>,
}

/// Larger files are no reports.
const MOST_BYTES: u64 = 1 << 30;
/// The report is written at least this often.
const SAVE_EVERY: Duration = Duration::from_secs(15);

impl BugsCommand {
    pub fn run(self) -> Result<Outcome> {
        let spec = device_spec(&self.target)?;
        let info = platform::open_device(&spec)?.info().clone();
        let models = self.open_models()?;
        let (mutants, rows) = self.mutants(&models, &info)?;
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
        self.measure(&models, &mutants, rows, (&spec, &info))
    }

    /// The models; only those that the named mutants belong to, whose ids begin with a model's name.
    fn open_models(&self) -> Result<Vec<BenchModel>> {
        let wanted: Vec<&str> =
            self.only.iter().chain(&self.show).filter_map(|id| id.split('/').next()).collect();
        let mut found = models::find(&self.models)?;
        if !wanted.is_empty() {
            found.retain(|p| wanted.iter().any(|w| p.file_stem().is_some_and(|n| *n == **w)));
        }
        found.iter().map(|path| BenchModel::open(path, &self.graph)).collect()
    }

    /// The mutants to try, in order, and what the programs launch of their rows.
    fn mutants(&self, models: &[BenchModel], info: &DeviceInfo) -> Result<(Vec<Mutant>, Vec<RowMutants>)> {
        let families = self.family.iter().map(|f| Family::parse(f)).collect::<tapml::Result<_>>()?;
        let selection = Selection {
            families,
            ops: self.op.clone(),
            ids: self.only.clone(),
            limit: None,
            each: self.each_operator,
            seed: self.seed,
        };
        let shown = |m: &Mutant| self.show.as_ref().is_none_or(|id| *id == m.id);
        let wanted = |m: &Mutant| self.only.contains(&m.id) || selection.includes(m) && shown(m);
        let (mut all, mut rows) = (Vec::new(), Vec::new());
        for model in models {
            let found = Catalogue::generate_wanted(&model.name, model.model.graph(), info, &wanted)?;
            all.extend(found.mutants);
            found.rows.into_iter().for_each(|row| row.join(&mut rows));
        }
        for row in rows.iter().filter(|row| row.none.is_some()) {
            let why = row.none.as_deref().unwrap_or_default();
            output::note("without faults", &format!("{}: {why}", row.row));
        }
        if let Some(id) = self.only.iter().find(|id| !all.iter().any(|m| m.id == **id)) {
            return Err(unknown(id));
        }
        Ok((selection.choose_mutants(all), rows))
    }

    /// Tries all mutants, runs clean ones and diagnoses, and reports.
    fn measure(
        &self,
        models: &[BenchModel],
        mutants: &[Mutant],
        rows: Vec<RowMutants>,
        (spec, info): (&PlatformSpec, &DeviceInfo),
    ) -> Result<Outcome> {
        let start = Instant::now();
        let stop = stopping::stop_on_signal()?;
        let folder = tapml::files::Temporary::new("tapml-calls-")?;
        let workers = self.workers.unwrap_or_else(workers).max(1);
        let guard = Guard::new(spec, info, workers, self.deadline)?;
        let open = || -> tapml::Result<Box<dyn Device>> { guard.open() };
        let checker = (self.checker != "none").then(|| self.open_checking(workers, info)).transpose()?;
        let open_checker = || checker.as_ref().map_or(&guard, |(guard, _)| guard).open();
        let options = RunOptions {
            open: &open,
            checker: checker.is_some().then_some(&open_checker as bench::Opener<'_>),
            workers,
            sampling: Sampling::default(),
            grid: self.grid,
            until: bench::deadline(self.minutes),
        };
        let settings = self.settings(models, checker.as_ref().map(|(_, info)| info))?;
        let target = format!("{} ({}, {})", self.target, info.name, info.driver);
        // Two processes that continue and save one report would lose each other's results.
        let _writer = self.json.file().map(Lock::writer).transpose()?;
        let kept = Kept::open(self, (target, settings), start)?;
        kept.lock().0.rows = rows;
        let work =
            BenchWork { models, mutants, info, options, folder: folder.path(), stop: &stop, kept: &kept };
        match self.all(&work) {
            // What is done is reported all the same.
            Err(e)
                if e.downcast_ref::<tapml::Error>().is_some_and(|e| e.kind() == ErrorKind::Interrupted) =>
            {
                output::note("stopped", "the same command with the same --json file goes on");
            }
            Err(error) => {
                if self.json.file().is_some() {
                    self.json.write(&kept.report())?;
                }
                return Err(error);
            }
            Ok(()) => {}
        }
        stopping::forget_last_words();
        self.finish(&kept)
    }

    /// What decides a mutant's result beside the target and what its id says, the kernel's text among it: results are kept under
    /// it.
    fn settings(&self, models: &[BenchModel], checking: Option<&DeviceInfo>) -> Result<String> {
        // A new option stands here, or is among those that choose what is tried, and when, or where it is told.
        let BugsCommand {
            checker,
            graph,
            each_operator,
            seed,
            deadline,
            grid,
            models: _,
            target: _,
            family: _,
            op: _,
            only: _,
            limit: _,
            clean: _,
            diagnose: _,
            several: _,
            minutes: _,
            workers: _,
            list: _,
            show: _,
            markdown: _,
            json: _,
        } = self;
        let names: Vec<&str> = models.iter().map(|m| m.name.as_str()).collect();
        let of = models.iter().map(BenchModel::hash).collect::<tapml::Result<Vec<String>>>()?.join(",");
        let each = each_operator.map_or(String::new(), |n| format!(" each {n}"));
        let graph = match graph {
            plain if plain.options() == tapml::model::GraphOptions::default() => String::new(),
            GraphArgs { activation, no_fuse, quantize, paged, tensor_parallel } => {
                let packed = quantize.as_ref().map_or(String::new(), |scheme| format!(" {scheme}"));
                let paged = paged.map_or(String::new(), |rows| format!(" paged {rows}"));
                let ranks = tensor_parallel.map_or(String::new(), |ranks| format!(" ranks {ranks}"));
                format!(" {activation:?} fused {}{packed}{paged}{ranks}", !no_fuse).to_lowercase()
            }
        };
        let checked = checking
            .map_or(String::new(), |info| format!(", checked by {checker} ({}, {})", info.name, info.driver));
        let grid = if *grid { ", other constants too" } else { "" };
        let version = env!("CARGO_PKG_VERSION");
        Ok(format!(
            "{} ({of}) seed {seed}{each}{graph}{checked}, {deadline} s for a kernel{grid}, tapml {version}",
            names.join(",")
        ))
    }

    /// The devices that check kernels while they run, and what they are: an emulator is of the target's kind, so that it gets its
    /// kernels.
    fn open_checking(&self, workers: usize, target: &DeviceInfo) -> Result<(Guard, DeviceInfo)> {
        let mut spec = device_spec(&self.checker)?;
        if spec.word == "emulator" && spec.option("kind").is_none() {
            let kind = if target.kind == AdapterKind::Cpu { "cpu" } else { "gpu" };
            spec.options.push(("kind".into(), kind.into()));
            if target.features.matrices && spec.option("matrices").is_none() {
                spec.options.push(("matrices".into(), "on".into()));
            }
        }
        let info = platform::open_device(&spec)?.info().clone();
        Ok((Guard::new(&spec, &info, workers, self.deadline)?, info))
    }

    /// Mutants of kernels, then clean runs, then full diagnoses, as far as the time reaches.
    fn all(&self, work: &BenchWork<'_>) -> Result<()> {
        let limit = self.limit.unwrap_or(usize::MAX);
        let of_kernels = work.mutants.iter().filter(|m| !m.is_between()).take(limit);
        let open: Vec<Mutant> = of_kernels.filter(|m| !work.kept.has(&m.id)).cloned().collect();
        let needed = |m: &&BenchModel| open.iter().any(|mutant| mutant.model == m.name);
        let beds = work.models.iter().filter(needed);
        let beds =
            beds.map(|m| m.record_fixture(self.graph.activation, self.seed, true, work.folder, work.stop));
        let beds = beds.collect::<Result<Vec<Fixture>>>()?;
        let prepared = Prepared::new(&beds, work.options.sampling);
        let bar = Bar::new();
        let found = |record| work.kept.add(|report| report.mutants.push(record));
        let done = bench::kernels(&prepared, &open, &work.options, &found, &bar, work.stop)?;
        bar.finish();
        drop(prepared);
        drop(beds);
        if done && self.clean_runs(work)? {
            self.diagnoses(work)?;
        }
        Ok(())
    }

    /// Full diagnoses of single faults, of several at once, and of none.
    fn diagnoses(&self, work: &BenchWork<'_>) -> Result<()> {
        let BenchWork { models, mutants, options, kept, .. } = work;
        // By what costs the device at once no diagnosis can be made.
        let real =
            |m: &&Mutant| kept.lock().0.mutants.iter().any(|r| r.id == m.id && r.real() && !r.sighting.lost);
        let real: Vec<Mutant> = mutants.iter().filter(real).cloned().collect();
        let between: Vec<Mutant> = mutants.iter().filter(|m| m.is_between()).cloned().collect();
        let all = if self.each_operator.is_some() { usize::MAX } else { self.diagnose };
        let half = (all / 2).min(between.len());
        let singles = between.iter().take(half).chain(real.iter().take(all - half));
        let mut cases: Vec<PlannedCase> = singles.map(PlannedCase::single).collect();
        cases.extend(PlannedCase::combine_faults(&real, &between, self.several, self.seed));
        if !cases.is_empty() {
            cases.extend(
                models.iter().map(|m| PlannedCase::clean(&m.name, &format!("{}/seed {}", m.name, self.seed))),
            );
        }
        let stale = |d: &Diagnosed| cases.iter().any(|case| case.name == d.name && !case.is_of(d));
        kept.lock().0.diagnosed.retain(|d| !stale(d));
        cases.retain(|case| !kept.lock().0.diagnosed.iter().any(|d| d.name == case.name));
        // Long prompts take long: they are for those that need them.
        let mut beds: Vec<Fixture> = Vec::new();
        for (model, long) in models.iter().flat_map(|m| [(m, false), (m, true)]) {
            let needed =
                |case: &PlannedCase| case.model == model.name && (case.long() && model.long()) == long;
            if cases.iter().any(needed) {
                beds.push(model.record_fixture(
                    self.graph.activation,
                    self.seed,
                    long,
                    work.folder,
                    work.stop,
                )?);
            }
        }
        let bar = Bar::new();
        let found = |diagnosed| kept.add(|report| report.diagnosed.push(diagnosed));
        bench::diagnoses(&beds, &cases, options, &found, &bar, work.stop)?;
        bar.finish();
        Ok(())
    }

    /// Runs without a fault: every model in turn, dtypes and prompts after that.
    fn clean_runs(&self, work: &BenchWork<'_>) -> Result<bool> {
        let BenchWork { models, options, kept, stop, .. } = work;
        let bar = Bar::new();
        tapml::migrate::Progress::stage(&bar, "clean runs", self.clean as u64);
        let dtypes = [ActivationArg::F32, ActivationArg::F16]
            .into_iter()
            .filter(|d| *d == ActivationArg::F32 || work.info.features.f16);
        let dtypes: Vec<ActivationArg> = dtypes.collect();
        for run in 0..self.clean {
            let model = &models[run % models.len()];
            let round = run / models.len();
            let (dtype, seed) = (dtypes[round % dtypes.len()], self.seed + (round / dtypes.len()) as u64);
            let name = format!("{}/{dtype:?}/seed {seed}", model.name).to_lowercase();
            if kept.has(&name) {
                continue;
            }
            if stop.check().is_err() || options.until.is_some_and(|until| Instant::now() >= until) {
                return Ok(false);
            }
            // The long prompts of windows take long and say the same each time.
            let bed = model.record_fixture(dtype, seed, round == 0, work.folder, stop)?;
            let prepared = Prepared::new(std::slice::from_ref(&bed), options.sampling);
            let done = bench::clean(&bed, &name, &prepared, options)?;
            kept.add(|report| report.clean.push(done));
            tapml::migrate::Progress::advance(&bar, 1);
        }
        bar.finish();
        Ok(true)
    }

    fn finish(&self, kept: &Kept<'_>) -> Result<Outcome> {
        let report = kept.report();
        write_report(&report, &self.json, self.markdown.as_deref())?;
        Ok(if report.holds() { Outcome::Holds } else { Outcome::Fails })
    }
}

fn write_report(report: &BenchReport, json: &JsonArg, markdown: Option<&Path>) -> Result<()> {
    json.say(&table::text(report))?;
    if let Some(path) = markdown {
        tapml::files::write(path, table::markdown(report).as_bytes())?;
    }
    json.write(report)
}

/// The error of an id that no mutant has.
fn unknown(id: &str) -> anyhow::Error {
    tapml::Error::invalid(format!("there is no mutant `{id}`"))
        .with_hint("`tapml bench bugs --list` prints the ids")
        .into()
}

/// A device that runs kernels.
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
    state: Arc<Mutex<(BenchReport, Instant)>>,
    start: Instant,
    before: f64,
}

impl<'a> Kept<'a> {
    fn open(
        command: &'a BugsCommand,
        (target, settings): (String, String),
        start: Instant,
    ) -> Result<Kept<'a>> {
        let fresh = BenchReport { schema: bench::SCHEMA, target, settings, ..BenchReport::default() };
        let old = command.json.json.as_deref().filter(|p| p.exists());
        let old = old.map(|path| tapml::files::read(path, MOST_BYTES, "a report")).transpose()?;
        let old = old.and_then(|bytes| serde_json::from_slice::<BenchReport>(&bytes).ok());
        let same = |old: &BenchReport| (&old.target, &old.settings) == (&fresh.target, &fresh.settings);
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
        let state = Arc::new(Mutex::new((report, Instant::now())));
        let (last, json, markdown) = (state.clone(), command.json.clone(), command.markdown.clone());
        stopping::set_last_words(move || {
            let state = last.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = write_report(&state.0, &json, markdown.as_deref()) {
                output::print_error(&error);
            }
        });
        Ok(Kept { command, state, start, before })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (BenchReport, Instant)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, name: &str) -> bool {
        let state = self.lock();
        state.0.mutants.iter().any(|m| m.id == name) || state.0.clean.iter().any(|c| c.name == name)
    }

    fn add(&self, change: impl FnOnce(&mut BenchReport)) {
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

    fn report(&self) -> BenchReport {
        let mut state = self.lock();
        state.0.seconds = self.before + self.start.elapsed().as_secs_f64();
        std::mem::take(&mut state.0)
    }
}
