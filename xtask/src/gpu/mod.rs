//! `cargo xtask gpu`: runs all that needs a GPU against one device, and writes one dated file of what came out.
//!
//! It is a program beside `tapml`, not a command of it: users of `tapml` have no need of a plan of our tests. It needs no
//! toolchain when `--tapml` names a built program, so that both can be carried to a machine with a GPU and little else.

mod extract;
mod numbers;
pub mod page;
mod plan;
mod record;
mod run;

use crate::process::Stop;
use anyhow::{Context, Result, bail};
use clap::Parser;
use plan::{FoundModel, Plan, Step};
use record::Run;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Where the files are kept that `docs/results/gpu.md` is made from.
const DATA: &str = "docs/data/gpu";

/// Run all that needs a GPU: conformance, every kernel on its samples, migrations of trained models, faults, speeds.
///
/// Exit codes: 0 no step failed, 1 a step failed or the run was stopped, 2 nothing could be run.
#[derive(Parser)]
#[command(
    name = "cargo xtask gpu",
    after_help = "Examples:
  cargo xtask gpu --target cuda --quick
  xtask gpu --root . --tapml ./tapml --commit 1a2b3c4 --target cuda --seconds 570 --out cuda.json
  cargo xtask gpu --page

With a file that is there, the same command goes on: steps that passed or failed are not run again."
)]
struct GpuArgs {
    /// The device, as `tapml --target` takes it; the first GPU of `tapml device list` if not given
    #[arg(long, value_name = "PLATFORM")]
    target: Option<String>,
    /// Only the steps that the plan marks as quick
    #[arg(long)]
    quick: bool,
    /// Only steps of these names, or whose names begin so: `migrate/llama`, `migrate/*/f16`; the others are recorded as not run
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Stop after so many seconds in all; what did not fit is recorded as not run
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// Run steps again that the file has already
    #[arg(long)]
    again: bool,
    /// The file to write or to go on with; docs/data/gpu/DATE-TARGET.json if not given, for a software device in target/gpu
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// A built `tapml`; if not given, cargo builds one
    #[arg(long, value_name = "PATH")]
    tapml: Option<PathBuf>,
    /// The project's folder, if it is not where this program was compiled
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Folders of trained models, beside the project's models; $TAPML_MODELS if not given; may repeat
    #[arg(long, value_name = "DIR")]
    models: Vec<PathBuf>,
    /// The commit that `tapml` was built from; git is asked if not given
    #[arg(long, value_name = "HASH")]
    commit: Option<String>,
    /// What to run, in place of the built-in plan, xtask/src/gpu/plan.toml
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Keep what the steps printed and their whole reports in this folder
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    /// Print the steps that there are, and end
    #[arg(long)]
    list: bool,
    /// Make docs/results/gpu.md from the newest file of each device, and end
    #[arg(long)]
    page: bool,
}

/// Runs the command. `compiled` is the project's folder when this program was compiled.
pub fn main(compiled: &Path, arguments: &[String]) -> ExitCode {
    let words = std::iter::once("cargo xtask gpu").chain(arguments.iter().map(String::as_str));
    let args = match GpuArgs::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match args.run(compiled) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

impl GpuArgs {
    /// Whether no step failed.
    fn run(self, compiled: &Path) -> Result<bool> {
        let root = project(self.root.as_deref(), compiled)?;
        if self.page {
            let page = page::make(&root)?;
            std::fs::write(root.join(page::PAGE), page)
                .with_context(|| format!("could not write {}", page::PAGE))?;
            println!("wrote {}", page::PAGE);
            return Ok(true);
        }
        let start = Instant::now();
        let plan = Plan::read(self.plan.as_deref())?;
        let models = self.models(&root)?;
        if self.list {
            self.list(&plan, &models)?;
            return Ok(true);
        }
        let stop = Stop::on_signal()?;
        let tapml = Tapml { program: self.program(&root)?, root: root.clone() };
        let (commit, version) = (self.commit(&root)?, tapml.version()?);
        let target = self.target.clone().map_or_else(|| tapml.first_gpu(), Ok)?;
        let steps = self.choose_steps(plan.steps(&target, &models)?)?;
        let scratch = Scratch::new(self.logs.as_deref())?;
        let runner = run::PlanRunner {
            tapml: &tapml,
            scratch: &scratch.folder,
            stop: &stop,
            until: self.seconds.map(|seconds| (start, seconds)),
            again: self.again,
        };
        let identified = runner.identify(&plan.identify(&target)?)?;
        let run = Run {
            schema: record::SCHEMA,
            date: record::utc_now().chars().take(10).collect(),
            commit,
            version,
            target,
            device: identified.device,
            machine: record::Machine::current(),
            quick: self.quick,
            complete: false,
            steps: vec![identified.record],
        };
        let out = self.out_file(&root, &run)?;
        let run = continue_run(run, &out)?;
        runner.run_all(run, &steps, &out)
    }

    /// The folders given, or those of `TAPML_MODELS`, behind the project's own.
    fn models(&self, root: &Path) -> Result<Vec<FoundModel>> {
        let mut folders = vec![root.join("models")];
        match std::env::var_os("TAPML_MODELS") {
            Some(folder) if self.models.is_empty() => folders.push(PathBuf::from(folder)),
            _ => folders.extend(self.models.iter().cloned()),
        }
        let absolute = |folder: &PathBuf| {
            std::path::absolute(folder).with_context(|| format!("{} is no folder", folder.display()))
        };
        for folder in &self.models {
            if !folder.is_dir() {
                bail!("--models: {} is no folder", folder.display());
            }
        }
        let folders = folders.iter().map(absolute).collect::<Result<Vec<PathBuf>>>()?;
        Ok(plan::find_models(root, &folders))
    }

    /// The steps of the plan, each with whether this call is to run it. Fails if a name of `--only` is no step's.
    fn choose_steps(&self, steps: Vec<Step>) -> Result<Vec<(Step, bool)>> {
        for pattern in &self.only {
            if !steps.iter().any(|step| plan::matches(pattern, &step.name)) {
                let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
                bail!("--only: no step is named `{pattern}`; there are {}", names.join(", "));
            }
        }
        // What `--only` names is run even if the short plan lacks it.
        let named = |step: &Step| self.only.iter().any(|pattern| plan::matches(pattern, &step.name));
        let steps = steps.into_iter().map(|step| {
            let wanted = if self.only.is_empty() { !self.quick || step.quick } else { named(&step) };
            (step, wanted)
        });
        Ok(steps.filter(|(step, wanted)| *wanted || !self.quick || step.quick).collect())
    }

    fn list(&self, plan: &Plan, models: &[FoundModel]) -> Result<()> {
        let target = self.target.as_deref().unwrap_or("TARGET");
        let identify = plan.identify(target)?;
        println!("{}: {}", identify.name, identify.shown);
        for (step, _) in self.choose_steps(plan.steps(target, models)?)?.iter().filter(|(_, wanted)| *wanted)
        {
            println!("{}: {}", step.name, step.shown);
        }
        Ok(())
    }

    /// The program to run; built if none was given.
    fn program(&self, root: &Path) -> Result<PathBuf> {
        if let Some(path) = &self.tapml {
            if !path.is_file() {
                bail!("--tapml: there is no file {}", path.display());
            }
            return std::path::absolute(path).with_context(|| path.display().to_string());
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        println!("building tapml: cargo build --release");
        let built =
            Command::new(cargo).args(["build", "--release", "-p", "tapml-cli"]).current_dir(root).status();
        match built {
            Ok(status) if status.success() => Ok(crate::target(root).join("release").join("tapml")),
            Ok(_) => bail!("tapml does not build; --tapml PATH takes one that is built"),
            Err(error) => {
                bail!("could not start cargo ({error}); --tapml PATH takes a program that is built")
            }
        }
    }

    fn commit(&self, root: &Path) -> Result<String> {
        if let Some(commit) = &self.commit {
            return Ok(commit.clone());
        }
        let describe = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"];
        let output = Command::new("git").args(describe).current_dir(root).output();
        let output = output.ok().filter(|output| output.status.success());
        let output = output.context("git knows no commit here; say --commit HASH")?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
    }

    fn out_file(&self, root: &Path, run: &Run) -> Result<PathBuf> {
        let path = self.out.clone().unwrap_or_else(|| {
            let folder =
                if run.device.is_hardware() { root.join(DATA) } else { crate::target(root).join("gpu") };
            let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
            let target: String = run.target.chars().map(plain).collect();
            folder.join(format!("{}-{target}.json", run.date))
        });
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("could not create {}", folder.display()))?;
        }
        Ok(path)
    }
}

/// The project's folder: the one given, else the one of compilation, else where we are.
fn project(given: Option<&Path>, compiled: &Path) -> Result<PathBuf> {
    let is_project = |folder: &Path| folder.join("tools").join("shapes").is_dir();
    if let Some(root) = given {
        if !is_project(root) {
            bail!("--root: {} is not the project's folder, it has no tools/shapes", root.display());
        }
        return std::path::absolute(root).with_context(|| root.display().to_string());
    }
    let here = std::env::current_dir().context("there is no current folder")?;
    let found = [compiled.to_path_buf(), here].into_iter().find(|folder| is_project(folder));
    found.context("the project's folder is not here; say --root DIR")
}

/// The run to go on with: that of the file, if there is one and it is of the same program and device.
fn continue_run(run: Run, out: &Path) -> Result<Run> {
    if !out.exists() {
        return Ok(run);
    }
    let mut old = Run::read(out)?;
    if let Some(difference) = run.differs_from(&old) {
        bail!("{} holds another run: {difference}; say another --out, or move it away", out.display());
    }
    println!("going on with {}: {} steps are there", out.display(), old.steps.len());
    old.quick &= run.quick;
    (old.device, old.machine) = (run.device, run.machine);
    run.steps.into_iter().for_each(|record| old.put(record));
    Ok(old)
}

/// The program under test.
pub struct Tapml {
    program: PathBuf,
    root: PathBuf,
}

/// Platforms in the order in which a GPU is looked for.
const PREFERRED: &[&str] = &["cuda", "hip", "metal", "vulkan", "dx12", "opencl"];

impl Tapml {
    /// The program with these arguments, in the project's folder.
    pub fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&self.root);
        command
    }

    fn output(&self, arguments: &[&str]) -> Result<String> {
        let arguments: Vec<String> = arguments.iter().map(|word| word.to_string()).collect();
        let what = || format!("{} {}", self.program.display(), arguments.join(" "));
        let output = self.command(&arguments).output().with_context(what)?;
        if !output.status.success() {
            bail!("{}: {}", what(), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
    }

    fn version(&self) -> Result<String> {
        self.output(&["--version"])
    }

    /// The device string of the first GPU.
    fn first_gpu(&self) -> Result<String> {
        let list: serde_json::Value =
            serde_json::from_str(&self.output(&["device", "list", "--json", "-"])?)?;
        let devices = list["devices"].as_array().context("`tapml device list` gives no devices")?;
        let gpu =
            |platform: &&&str| devices.iter().any(|d| d["platform"] == ***platform && d["kind"] != "cpu");
        let found = PREFERRED.iter().find(gpu);
        found.map(|platform| platform.to_string()).context("there is no GPU here; say --target PLATFORM")
    }
}

/// Where the steps write; gone at the end unless it was asked for.
struct Scratch {
    folder: PathBuf,
    temporary: bool,
}

impl Scratch {
    fn new(logs: Option<&Path>) -> Result<Scratch> {
        let own = || std::env::temp_dir().join(format!("tapml-gpu-{}", std::process::id()));
        let folder = std::path::absolute(logs.map_or_else(own, PathBuf::from))?;
        std::fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
        Ok(Scratch { folder, temporary: logs.is_none() })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.temporary {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
