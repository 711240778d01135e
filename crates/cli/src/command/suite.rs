//! `tapml suite`: what can be said of a suite itself.
//!
//! A suite is strong if it tells a faulty kernel from a right one. Faults are put into kernels, and the cases that
//! fail then are counted.

use super::guard::Guard;
use crate::Outcome;
use crate::output::{JsonArg, table};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use tapml::bugs::bench::{Fixture, FixtureOptions, RunOptions, Sampling};
use tapml::bugs::mutation_score::{self, KilledSurvivor, ScoreOptions, SuiteScore};
use tapml::device::Device;
use tapml::migrate::suite::{self, Suite};
use tapml::migrate::{Quiet, Stop};
use tapml::model::suite_model;
use tapml::platform::{self, PlatformSpec};

/// Tell how strong a suite is.
#[derive(Args)]
pub struct SuiteCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Score(ScoreCommand),
}

impl SuiteCommand {
    /// Does what was named.
    pub fn run(self) -> Result<Outcome> {
        match self.what {
            What::Score(command) => command.run(),
        }
    }
}

/// Try faults on a suite's cases: which it tells, which cases are enough, and what none of them can see.
#[derive(Args)]
#[command(after_help = "Example:\n  tapml suite score llama.suite --minimise small.suite --json score.json")]
pub struct ScoreCommand {
    /// Folder written by `tapml carve`
    suite: PathBuf,
    /// The device that gets the faults
    #[arg(long, value_name = "PLATFORM", default_value = "emulator")]
    target: String,
    /// The checkpoint, if it is not where it was carved from
    #[arg(long)]
    model: Option<PathBuf>,
    /// Only this operator; may repeat
    #[arg(long)]
    op: Vec<String>,
    /// Most mutants of each operator; those of its attributes are tried in any case
    #[arg(long, default_value_t = 40)]
    mutants: usize,
    /// Decides which mutants come first
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write a suite of the fewest cases that tell as many faults, which `tapml check` replays
    #[arg(long, value_name = "DIR")]
    minimise: Option<PathBuf>,
    /// Replace the folder of --minimise if it is a suite
    #[arg(long, requires = "minimise")]
    overwrite: bool,
    /// Look for prompts that tell the faults of attributes which this suite cannot
    #[arg(long)]
    seek: bool,
    /// Seconds after which a kernel counts as one that does not end; 0 for no limit
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    deadline: u64,
    #[command(flatten)]
    json: JsonArg,
}

/// Lengths of the prompts that are tried by `--seek`, in tokens.
const LENGTHS: [usize; 4] = [4, 24, 72, 144];

impl ScoreCommand {
    /// Scores the suite, and writes a smaller one if asked.
    ///
    /// # Errors
    /// If the suite cannot be read, or the target is no device that opens.
    pub fn run(self) -> Result<Outcome> {
        let spec = PlatformSpec::parse(&self.target)?;
        let bed = self.open_fixture()?;
        let stop = stopping::stop_on_signal()?;
        // Each worker holds a device.
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(8);
        let guard = Guard::new(&spec, platform::open_device(&spec)?.info(), workers, self.deadline)?;
        let open = || -> tapml::Result<Box<dyn Device>> { guard.open() };
        let run = RunOptions {
            open: &open,
            checker: None,
            workers,
            sampling: Sampling::ALL,
            grid: false,
            until: None,
        };
        let options = ScoreOptions { ops: self.op.clone(), mutants: self.mutants, seed: self.seed };
        let bar = Bar::new();
        let mut score = mutation_score::score(&bed, &options, &run, &bar, &stop)?;
        bar.finish();
        // Looks only for faults to which the score found the suite blind.
        if self.seek {
            score.found = self.seek(&bed, &score, &run, &stop)?;
        }
        self.json.say(&render(&score))?;
        if let Some(path) = &self.minimise {
            let needed: Vec<&str> = score.ops.iter().flat_map(|op| &op.needed).map(String::as_str).collect();
            let cases = mutation_score::recorded_cases(&bed, &needed, &run)?;
            let old = bed.suite.manifest().totals.clone();
            let new = suite::part(&bed.suite, &bed.model, &cases, path, self.overwrite)?.totals;
            self.json.say(&format!(
                "{}: {} of {} calls, {} of {} bytes of tensors",
                path.display(),
                new.calls,
                old.calls,
                new.tensor_bytes,
                old.tensor_bytes
            ))?;
        }
        self.json.write(&score)?;
        // A suite that misses faults is what was asked for, not a failure.
        Ok(Outcome::Holds)
    }

    /// The suite with its model, ready for faults.
    fn open_fixture(&self) -> Result<Fixture> {
        let suite = Suite::open(&self.suite)?;
        let name = suite.manifest().model.name.clone();
        let name = if name.is_empty() { "model".into() } else { name };
        let model = suite_model(&suite, self.model.as_deref())?;
        Ok(Fixture::open(&name, &model, &self.suite)?)
    }

    /// Pieces of the suite's own prompts, joined and repeated, in several lengths.
    ///
    /// Its calls go to a folder that is removed at the end.
    fn seek(
        &self,
        bed: &Fixture,
        score: &SuiteScore,
        run: &RunOptions<'_>,
        stop: &Stop,
    ) -> Result<Vec<KilledSurvivor>> {
        let mut open: Vec<String> = score.blind.iter().flat_map(|b| b.mutants.clone()).collect();
        let tokens: Vec<u32> = bed.suite.manifest().prompts.iter().flat_map(|p| p.ids.clone()).collect();
        let folder = tapml::files::Temporary::new("tapml-calls-")?;
        let mut found = Vec::new();
        // A fault of a window shows behind it alone.
        let beyond = Fixture::window(&bed.model).map(|window| window as usize + 9);
        for length in LENGTHS.into_iter().chain(beyond) {
            if open.is_empty() || tokens.is_empty() {
                break;
            }
            // Real tokens in their own order: random ones would be unlike any text.
            let prompt = tokens.iter().cycle().copied().take(length).collect();
            let options = FixtureOptions { prompts: vec![prompt], steps: 1 };
            let out = folder.path().join(length.to_string());
            let other = Fixture::carve(&bed.name, &bed.model, &options, &out, &Quiet, stop)?;
            let bar = Bar::new();
            let told = mutation_score::seek(&other, &open, run, &bar, stop)?;
            bar.finish();
            // What a prompt has told is not looked for again.
            open.retain(|id| !told.iter().any(|f| f.id == *id));
            found.extend(told);
        }
        Ok(found)
    }
}

/// The table of operators, then what the suite cannot see.
fn render(score: &SuiteScore) -> String {
    let mut rows = table(&["operator", "cases", "mutants", "killed", "survive", "cases needed"]);
    for op in &score.ops {
        let survive = op.mutants - op.killed;
        let numbers = [op.cases, op.mutants, op.killed, survive, op.needed.len()];
        rows.add_row([op.op.clone()].into_iter().chain(numbers.map(|n| n.to_string())));
    }
    let mut lines = vec![rows.to_string(), String::new()];
    for op in &score.ops {
        for (what, cases) in [("zeros", &op.zeros_pass), ("a copy of the first input", &op.copies_pass)] {
            if let Some(first) = cases.first() {
                lines.push(format!("{what} would pass {} cases of {}, such as {first}", cases.len(), op.op));
            }
        }
    }
    for blind in &score.blind {
        let (attribute, op, count) = (&blind.attribute, &blind.op, blind.mutants.len());
        lines.push(format!(
            "blind: {count} wrong values of {attribute} of {op}, such as {}",
            blind.mutants[0]
        ));
    }
    for found in &score.found {
        lines.push(format!("a prompt of {} tokens tells {} ({})", found.prompt.len(), found.id, found.case));
    }
    match score.coverage.regimes.text() {
        none if none.is_empty() => {}
        some => lines.push(some),
    }
    for row in &score.regimes {
        let kernel = &row.counts.kernel;
        lines.extend(
            row.unrecorded.iter().map(|regime| format!("  {kernel}: {regime}: no call of the suite")),
        );
        let unreached = row.counts.unreached.iter();
        lines.extend(unreached.map(|none| format!("  {kernel}: {}: {}", none.regime, none.reason)));
    }
    let (killed, mutants) = score.total();
    let suite = Path::new(&score.suite).display();
    lines.push(format!("{suite}: kills {killed} of {mutants} mutants in {:.1} s", score.seconds));
    lines.join("\n")
}
