//! `tapml device check`: the conformance suite, and for a device behind an agent the rules of the wire.
//!
//! Every case prints a line as soon as it is done. A case that fails does not end the others, and exit code 1 tells
//! of it.

use super::operators;
use super::speed::{self, Speed};
use crate::Outcome;
use crate::output::JsonArg;
use crate::progress::Bar;
use anyhow::Result;
use serde::Serialize;
use tapml::device::{Device, DeviceInfo, ErrorKind, conformance};
use tapml::graph::fusion::FUSIONS;
use tapml::graph::op::{Foreign, OPS};
use tapml::kernels::{KERNELS, Overrides};
use tapml::migrate::{SampleCheck, check_rows};
use tapml::platform::{self, PlatformSpec};
use tapml::rpc::{self, Address, Remote};

/// Seconds that a hub may look for a free session, unless the address says otherwise.
const WAIT: u64 = 20;

/// What is written as JSON.
#[derive(Serialize)]
struct Report {
    schema: u32,
    target: DeviceInfo,
    /// Cases and samples that hold.
    passed: usize,
    failed: usize,
    skipped: usize,
    /// In the order in which they ran.
    cases: Vec<CaseReport>,
    /// Every operator on its samples, if asked for; each sample counts above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ops: Vec<SampleCheck>,
    /// How fast it is to be reached, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<Speed>,
}

/// A case of the suite, or a rule of the wire.
#[derive(Serialize)]
struct CaseReport {
    case: &'static str,
    /// What is asked for, where the name does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'static str>,
    outcome: &'static str,
    /// What was expected and found, or why it was skipped.
    reason: Option<String>,
}

impl CaseReport {
    /// What a case came to, in words.
    fn new(case: &'static str, rule: Option<&'static str>, outcome: conformance::CaseOutcome) -> CaseReport {
        let (outcome, reason) = match outcome {
            conformance::CaseOutcome::Passed => ("passed", None),
            conformance::CaseOutcome::Skipped(reason) => ("skipped", Some(reason)),
            conformance::CaseOutcome::Failed(reason) => ("failed", Some(reason)),
        };
        CaseReport { case, rule, outcome, reason }
    }

    /// Prints a line; a failed rule is told in full.
    fn say(&self, json: &JsonArg) -> Result<()> {
        let note = self.reason.as_ref().map_or(String::new(), |r| format!(": {r}"));
        json.say(&format!("{:8} {}{note}", self.outcome, self.case))?;
        match (self.outcome, self.rule) {
            ("failed", Some(rule)) => json.say(&format!("         the rule: {rule}")),
            _ => Ok(()),
        }
    }
}

/// Runs all cases, and with `ops` the samples of all operators; one that fails does not end the others.
///
/// # Errors
/// If the device cannot be opened at all.
pub fn check(target: &str, ops: bool, speed: bool, json: &JsonArg) -> Result<Outcome> {
    let mut spec = PlatformSpec::parse(target)?;
    if spec.is_remote() {
        // At a hub: a device that somebody else has is no reason to wait for ever.
        if spec.option("wait").is_none() {
            spec.options.push(("wait".into(), WAIT.to_string()));
        }
        let address = Address::parse(&spec.word, &spec.options)?;
        // Where there is none, the rules of the wire say more.
        if let Ok(Remote::Operators(operators)) = Remote::open(&address) {
            if speed {
                json.say("skipped  speed: the device runs operators and has no buffers to fill")?;
            }
            return operators::check(&address, *operators, json);
        }
    }
    let mut opened = platform::open_device(&spec);
    let mut cases = Vec::new();
    // Where nobody is, or no such device, no rule says more.
    let there = !opened.as_ref().is_err_and(|e| e.kind() == ErrorKind::Unavailable);
    if spec.is_remote() && there {
        // The device may serve one session at a time.
        drop(opened);
        wire(&Address::parse(&spec.word, &spec.options)?, json, &mut cases)?;
        opened = platform::open_device(&spec);
    }
    let mut device = opened?;
    let target = device.info().clone();
    let speed = speed.then(|| speed::measure(device.as_mut(), json)).transpose()?;
    commands(&spec, device, json, &mut cases)?;
    let count = |outcome: &str| cases.iter().filter(|c| c.outcome == outcome).count();
    let (mut passed, mut failed, mut skipped) = (count("passed"), count("failed"), count("skipped"));
    let ops = if ops { samples(&spec, json)? } else { Vec::new() };
    for op in &ops {
        (passed, failed) = (passed + op.passed as usize, failed + op.failed as usize);
        skipped += op.skipped.len();
    }
    json.say(&format!("{passed} passed, {failed} failed, {skipped} skipped"))?;
    json.write(&Report { schema: 1, target, passed, failed, skipped, cases, ops, speed })?;
    Ok(if failed == 0 { Outcome::Holds } else { Outcome::Fails })
}

/// All operators and fused operators on their samples, by every row of the kernel list that serves them on the device.
fn samples(spec: &PlatformSpec, json: &JsonArg) -> Result<Vec<SampleCheck>> {
    let mut platform = platform::open_with_kernels(spec, Overrides::default())?;
    let mut checks = Vec::new();
    let own = OPS.iter().map(|info| (info.name, (info.samples)()));
    let fused = FUSIONS.iter().map(|fusion| (fusion.name, (fusion.samples)()));
    let others = KERNELS.iter().filter(|row| Foreign::is_kind(row.op())).map(|row| (row.op(), row.samples()));
    let bar = Bar::new();
    for (name, samples) in own.chain(fused).chain(others) {
        bar.stage(name, 0);
        let check =
            check_rows(&mut platform, name, &samples).map_err(|e| e.context(format!("operator `{name}`")))?;
        // Lines are printed above the bar.
        bar.suspend(|| operators::say(&check, name, json))?;
        checks.push(check);
    }
    Ok(checks)
}

/// The rules of the wire.
fn wire(address: &Address, json: &JsonArg, cases: &mut Vec<CaseReport>) -> Result<()> {
    for rule in rpc::conformance::rules() {
        let case = CaseReport::new(rule.name, Some(rule.text), rule.check(address));
        case.say(json)?;
        cases.push(case);
    }
    Ok(())
}

/// The conformance suite. A device that a case has lost is opened again for the next one.
/// A case that loses the device has failed.
fn commands(
    spec: &PlatformSpec,
    device: Box<dyn Device>,
    json: &JsonArg,
    cases: &mut Vec<CaseReport>,
) -> Result<()> {
    let mut opened = Ok(device);
    for case in conformance::cases() {
        let outcome = match &mut opened {
            Ok(device) => case.run(device.as_mut()),
            Err(error) => {
                Ok(conformance::CaseOutcome::Failed(format!("the device cannot be opened again: {error}")))
            }
        };
        let outcome = outcome.unwrap_or_else(|error| {
            opened = platform::open_device(spec);
            conformance::CaseOutcome::Failed(format!("the device was lost: {error}"))
        });
        let case = CaseReport::new(case.name, None, outcome);
        case.say(json)?;
        cases.push(case);
    }
    Ok(())
}
