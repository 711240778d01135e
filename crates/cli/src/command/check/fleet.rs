//! `tapml check --fleet`: the cases spread over many devices, and a matrix of what is right where.
//!
//! Devices that are lost are opened again, and their cases given to others meanwhile. At a broker several processes
//! share the work, and a run outlives each of them.

use crate::Outcome;
use crate::command::common::TargetArgs;
use crate::output::{self, JsonArg, table};
use crate::progress::Bar;
use crate::stopping;
use anyhow::{Result, bail};
use clap::Args;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tapml::fleet::{BrokerQueue, Cell, Fleet, FleetQueue, FleetReport, Identity, Memory, Spread};
use tapml::graph::Model;
use tapml::jobs;
use tapml::migrate::suite::Suite;
use tapml::migrate::{Oracles, Stop};
use tapml::platform::PlatformSpec;
use tapml::shown;

/// How cases are spread.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum SpreadArg {
    /// Every case on one device: whichever is free
    Share,
    /// Every case on one device of each class of devices: platform, device, driver and agent
    Class,
    /// Every case on every device
    Every,
}

/// Many devices instead of one.
#[derive(Args)]
pub struct FleetArgs {
    /// Spread the cases over all devices that the targets name: `--target hub/webgpu,hub/vulkan` is every such device of the
    /// hub. `share` runs every case on one device, `class` on one of each class of devices, `every` on every device; if nothing is said, `every`
    /// where a target is someone else's runtime, such as `ort,openvino`, else `share`
    #[arg(long, value_name = "SPREAD", value_enum, num_args = 0..=1, require_equals = true,
          conflicts_with_all = ["watch", "junit"])]
    pub fleet: Option<Option<SpreadArg>>,
    /// Seconds that a device of the fleet may be away before it is given up
    #[arg(long, alias = "patience", value_name = "SECONDS", default_value_t = 60, requires = "fleet")]
    wait_timeout: u64,
    /// Keep the work and its results at this broker (`nats://host:4222`): several processes with the same --run share the
    /// work, and the same command given again goes on where a killed one was
    #[arg(long, value_name = "URL", requires = "fleet", requires = "run")]
    broker: Option<String>,
    /// The name of the run at the broker: letters, digits, `-` and `_`. It stands for one check: another suite, selection,
    /// kernel, option, driver or version needs another name
    #[arg(long, value_name = "NAME", requires = "broker")]
    run: Option<String>,
}

/// What is checked, and where the report goes.
pub struct FleetCheck<'a> {
    pub suite: &'a Arc<Suite>,
    pub model: &'a Model,
    pub oracles: &'a Oracles,
    pub target: &'a TargetArgs,
    /// Only these operators, if there are any.
    pub ops: &'a [String],
    /// Only these cases, if there are any.
    pub cases: &'a [String],
    pub json: &'a JsonArg,
    pub stop: &'a Stop,
}

impl FleetArgs {
    /// Checks on all devices that the targets name.
    ///
    /// # Errors
    /// If no device can be opened, or cases are left that no device could run.
    pub fn check(&self, check: &FleetCheck<'_>) -> Result<Outcome> {
        let bar = Bar::new();
        let targets: Vec<String> = check.target.target.split(',').map(str::to_string).collect();
        // What is right on one runtime says nothing of another.
        let runtimes =
            targets.iter().any(|word| PlatformSpec::parse(word).is_ok_and(|spec| spec.is_runtime()));
        let fleet = Fleet {
            suite: check.suite,
            model: check.model,
            oracles: check.oracles,
            kernels: &jobs::overrides_for(&check.target.kernel, check.suite.graph())?,
            ops: check.ops,
            cases: check.cases,
            spread: match self.fleet.flatten() {
                Some(SpreadArg::Class) => Spread::Class,
                Some(SpreadArg::Every) => Spread::Every,
                Some(SpreadArg::Share) => Spread::Share,
                None if runtimes => Spread::Every,
                None => Spread::Share,
            },
            wait_timeout: Duration::from_secs(self.wait_timeout),
            progress: &bar,
            stop: check.stop,
        };
        let identity = Identity::new(&fleet, &targets)?;
        let work = self.work(&identity)?;
        // Whoever is stopped wants to know what was right so far.
        let (of, with, json) = (check.suite.clone(), work.clone(), check.json.clone());
        let (spread, start) = (fleet.spread, Instant::now());
        stopping::set_last_words(move || {
            let told = FleetReport::for_stopped(&of, spread, with.as_ref(), start.elapsed());
            if let Err(error) =
                told.map_err(anyhow::Error::from).and_then(|report| write_report(&report, &json))
            {
                output::print_error(&error);
            }
        });
        let report = stopping::or_last_words(fleet.run(&targets, work.as_ref()));
        bar.finish();
        let report = report?;
        write_report(&report, check.json)?;
        // Cases that ran nowhere are no result: the command could not do its work.
        if !report.missing.is_empty() {
            let reasons =
                report.devices.iter().filter_map(|d| d.given_up.clone()).collect::<Vec<_>>().join("; ");
            bail!(
                "{} cases could not be run, because no device was left for them: {reasons}",
                report.missing.len()
            );
        }
        Ok(if report.passes() { Outcome::Holds } else { Outcome::Fails })
    }

    /// Where the work is kept: at a broker, or in this process.
    fn work(&self, identity: &Identity) -> Result<Arc<dyn FleetQueue>> {
        Ok(match (&self.broker, &self.run) {
            (Some(broker), Some(run)) => Arc::new(BrokerQueue::connect(broker, run, identity)?),
            _ => Arc::new(Memory::default()),
        })
    }
}

/// Prints the report, and writes it.
fn write_report(report: &FleetReport, json: &JsonArg) -> Result<()> {
    json.say(&render(report))?;
    json.write(report)
}

/// The devices, the matrix of operators and devices, and the first failures.
fn render(report: &FleetReport) -> String {
    let mut devices = table(&["", "TARGET", "DEVICE", "DRIVER", "AGENT", "CASES", "FAILED", "LOST"])
        .with_optional(&["AGENT", "DRIVER", "DEVICE"]);
    for (i, d) in report.devices.iter().enumerate() {
        let sum = |of: fn(&Cell) -> u64| d.ops.iter().map(of).sum::<u64>().to_string();
        let m = &d.member;
        let (cases, failed) = (sum(|c| c.cases), sum(|c| c.failed));
        // Options make columns wide and say little here.
        let target = m.target.split('?').next().unwrap_or_default().to_string();
        let lost = if d.given_up.is_some() { "given up".into() } else { d.lost.to_string() };
        devices.add_row([
            (i + 1).to_string(),
            target,
            m.device.clone(),
            m.driver.clone(),
            m.agent.clone(),
            cases,
            failed,
            lost,
        ]);
    }
    // Devices are numbered: their names would make the columns wide.
    let names: Vec<String> = (1..=report.devices.len()).map(|i| i.to_string()).collect();
    let head: Vec<&str> = std::iter::once("OP").chain(names.iter().map(String::as_str)).collect();
    let mut matrix = table(&head);
    // In the order of their first appearance.
    let mut ops: Vec<&str> = Vec::new();
    for cell in report.devices.iter().flat_map(|d| &d.ops) {
        if !ops.contains(&cell.op.as_str()) {
            ops.push(&cell.op);
        }
    }
    for op in ops {
        // A dash means that the device ran no case of the operator.
        let cell = |cells: &[Cell]| cells.iter().find(|c| c.op == op).map_or("-".into(), state);
        let cells = report.devices.iter().map(|d| cell(&d.ops));
        matrix.add_row(std::iter::once(op.to_string()).chain(cells));
    }
    let mut text = format!("{} on {} devices\n\n{devices}\n\n{matrix}", report.suite, report.devices.len());
    for f in report.failures.iter().take(10) {
        let target = f.member.target.split('?').next().unwrap_or_default();
        text += &format!(
            "\n\n{} {} on {target}: {} ({})",
            f.op,
            f.case,
            shown::first_lines(&f.reason).replace('\n', "\n  "),
            tapml::migrate::ratio_text(f.ratio)
        );
    }
    for d in report.devices.iter().filter(|d| !d.defects.is_empty()) {
        text += &format!("\n\ndefects seen on {}:\n  {}", d.member.target, d.defects.join("\n  "));
    }
    if report.stopped {
        text += "\n\nstopped before all cases were run";
    }
    let n = report.skipped;
    text + &format!(
        "\n\n{} cases, {} failed, {n} not checked, {:.2} s",
        report.cases, report.failed, report.seconds
    )
}

/// A cell of the matrix.
fn state(cell: &Cell) -> String {
    match (cell.failed, cell.skipped, cell.cases) {
        (0, 0, cases) => format!("{cases} ok"),
        (0, skipped, 0) => format!("{skipped} unsupported"),
        (0, skipped, cases) => format!("{cases} ok, {skipped} unsupported"),
        (failed, _, cases) => format!("{failed} of {cases} FAILED"),
    }
}
