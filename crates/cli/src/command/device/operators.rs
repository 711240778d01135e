//! `tapml device check` of a device that runs operators itself: what it does on the wire, then every announced operator on
//! its sample cases.
//!
//! Such a device has no buffers and no kernels: it is given tensors and nodes, and announces which operators it
//! serves.

use crate::Outcome;
use crate::output::JsonArg;
use anyhow::Result;
use serde::Serialize;
use tapml::device::conformance::CaseOutcome as Found;
use tapml::exec::{NodeServer, OperatorPlatform, Platform, PlatformInfo};
use tapml::graph::op::OPS;
use tapml::migrate::{SampleCheck, check_samples};
use tapml::rpc::client::node_cases::{Tester, cases};
use tapml::rpc::{Address, Remote, RemoteOperators};

/// Failed samples of an operator that are shown in full; JSON has all.
const SHOWN: usize = 3;

/// What is written as JSON.
#[derive(Default, Serialize)]
struct Report {
    schema: u32,
    target: Option<PlatformInfo>,
    /// Cases and samples.
    passed: u64,
    failed: u64,
    skipped: u64,
    /// What the device does on the wire.
    cases: Vec<CaseReport>,
    /// Operators on their samples.
    ops: Vec<SampleCheck>,
    /// Announced names that are no operators.
    unknown: Vec<String>,
}

/// A case of the wire.
#[derive(Serialize)]
struct CaseReport {
    case: &'static str,
    outcome: &'static str,
    reason: Option<String>,
}

/// Checks the device behind these operators.
///
/// # Errors
/// If the device cannot be opened again, or runs commands instead.
pub fn check(address: &Address, operators: RemoteOperators, json: &JsonArg) -> Result<Outcome> {
    let mut report = Report { schema: 1, target: Some(operators.describe().clone()), ..Report::default() };
    let ops = operators.ops().to_vec();
    // The device may serve one session at a time.
    drop(operators);
    let tester = Tester::new(address, &ops)?;
    for case in cases() {
        let (outcome, reason) = match case.run(&tester) {
            Found::Passed => ("passed", None),
            Found::Skipped(reason) => ("skipped", Some(reason)),
            Found::Failed(reason) => ("failed", Some(reason)),
        };
        match outcome {
            "passed" => report.passed += 1,
            "skipped" => report.skipped += 1,
            _ => report.failed += 1,
        }
        let note = reason.as_ref().map_or(String::new(), |r| format!(": {r}"));
        json.say(&format!("{outcome:8} {}{note}", case.name))?;
        report.cases.push(CaseReport { case: case.name, outcome, reason });
    }
    let Remote::Operators(operators) = Remote::open(address)? else {
        anyhow::bail!("the device runs operators no more");
    };
    let mut platform = OperatorPlatform::new(operators);
    // Taken first: checking borrows the platform.
    let names: Vec<String> = platform.ops().iter().map(|op| op.name.clone()).collect();
    for name in names {
        operator(&mut platform, name, &mut report, json)?;
    }
    json.say(&format!("{} passed, {} failed, {} skipped", report.passed, report.failed, report.skipped))?;
    json.write(&report)?;
    Ok(if report.failed == 0 { Outcome::Holds } else { Outcome::Fails })
}

/// Checks one announced operator; a name that is none counts as a failure.
fn operator(platform: &mut dyn Platform, name: String, report: &mut Report, json: &JsonArg) -> Result<()> {
    let Some(info) = OPS.iter().find(|info| info.name == name) else {
        json.say(&format!("failed   {}: expected the name of an operator", name.escape_debug()))?;
        report.failed += 1;
        report.unknown.push(name);
        return Ok(());
    };
    let check = check_samples(platform, info).map_err(|e| e.context(format!("operator `{name}`")))?;
    say(&check, &name, json)?;
    let skipped = check.skipped.len() as u64;
    (report.passed, report.failed) = (report.passed + check.passed, report.failed + check.failed);
    report.skipped += skipped;
    report.ops.push(check);
    Ok(())
}

/// One line of an operator, and the first of its wrong samples.
pub fn say(check: &SampleCheck, name: &str, json: &JsonArg) -> Result<()> {
    let skipped = check.skipped.len() as u64;
    // An operator that serves none of its samples has not failed.
    let outcome = match (check.failed, check.passed) {
        (0, 0) => "skipped",
        (0, _) => "passed",
        _ => "failed",
    };
    let (ran, by) = match check.kernels.len() {
        0 => ("samples", String::new()),
        1 => ("runs", " by 1 kernel".into()),
        count => ("runs", format!(" by {count} kernels")),
    };
    json.say(&format!(
        "{outcome:8} {name}: {} {ran} right, {} wrong{by}, {skipped} not served (worst {:.2} of the allowed error)",
        check.passed, check.failed, check.worst
    ))?;
    for f in check.failures.iter().take(SHOWN) {
        let by = f.kernel.as_ref().map_or(String::new(), |kernel| format!(" by {kernel}"));
        let pattern = f.pattern.as_ref().map_or(String::new(), |text| format!("\n             {text}"));
        json.say(&format!(
            "           {}{by}: {}\n             {}\n             expected {}\n             found    {}{pattern}",
            f.sample, f.criterion, f.call, f.expected, f.found
        ))?;
    }
    Ok(())
}
