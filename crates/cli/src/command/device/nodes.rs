//! `tapml device check --nodes`: ONNX's node tests on a platform, and a table of what it serves rightly.
//!
//! The tests are folders with a model of one node, its inputs and its outputs. What TapML does not judge is listed
//! apart, so that the counts say what they mean.

use crate::Outcome;
use crate::output::{JsonArg, table};
use crate::progress::Bar;
use anyhow::Result;
use serde::Serialize;
use std::path::Path;
use tapml::exec::PlatformInfo;
use tapml::jobs;
use tapml::migrate::{Oracles, SampleCheck, check_calls};
use tapml::node_tests::NodeTests;

/// Failed tests that are shown in full; JSON has all.
const SHOWN: usize = 20;

/// What is written as JSON.
#[derive(Serialize)]
struct Report {
    schema: u32,
    target: PlatformInfo,
    /// Calls of tests.
    /// Counts are of calls, of which a test may have several.
    passed: u64,
    failed: u64,
    /// Calls that the platform does not serve.
    skipped: u64,
    /// By operator.
    ops: Vec<SampleCheck>,
    /// Tests without a call that TapML can judge.
    apart: Vec<Apart>,
}

/// A test that is left out.
#[derive(Serialize)]
struct Apart {
    test: String,
    /// Why TapML cannot judge it.
    reason: String,
}

/// Runs all tests; one that fails does not end the others.
///
/// # Errors
/// If the folder holds no tests, or the platform cannot be opened.
pub fn check(target: &str, folder: &Path, json: &JsonArg) -> Result<Outcome> {
    let tests = NodeTests::read(folder)?;
    let mut platform = jobs::open_platform(target, &[])?;
    let (oracles, bar) = (Oracles::new(0), Bar::new());
    bar.stage("node tests", tests.calls.len() as u64);
    let mut ops = Vec::new();
    for (op, calls) in &tests.calls {
        let check = check_calls(platform.as_mut(), op, calls, &oracles);
        ops.push(check.map_err(|e| e.context(format!("operator `{op}`")))?);
        bar.advance(1);
    }
    bar.finish();
    let sum = |of: fn(&SampleCheck) -> u64| ops.iter().map(of).sum();
    let apart = tests.apart.into_iter().map(|(test, reason)| Apart { test, reason }).collect();
    let (passed, failed) = (sum(|op| op.passed), sum(|op| op.failed));
    let skipped = sum(|op| op.skipped.len() as u64);
    let report = Report { schema: 1, target: platform.describe(), passed, failed, skipped, ops, apart };
    json.say(&render(&report))?;
    json.write(&report)?;
    Ok(if failed == 0 { Outcome::Holds } else { Outcome::Fails })
}

/// A line for each operator, then the first failures.
fn render(report: &Report) -> String {
    let mut rows = table(&["OPERATOR", "RIGHT", "WRONG", "NOT SERVED", "WORST"]);
    for op in &report.ops {
        let worst =
            if op.passed + op.failed == 0 { "-".into() } else { tapml::migrate::ratio_text(op.worst) };
        let cells = [
            op.op.clone(),
            op.passed.to_string(),
            op.failed.to_string(),
            op.skipped.len().to_string(),
            worst,
        ];
        rows.add_row(cells);
    }
    let mut text =
        format!("{} ({}, {})\n\n{rows}", report.target.platform, report.target.device, report.target.driver);
    let failures = report.ops.iter().flat_map(|op| &op.failures);
    for f in failures.clone().take(SHOWN) {
        let (sample, criterion, call) = (&f.sample, &f.criterion, &f.call);
        text += &format!(
            "\n\n{sample}: {criterion}\n  {call}\n  expected {}\n  found    {}",
            f.expected, f.found
        );
    }
    let more = failures.count().saturating_sub(SHOWN);
    if more > 0 {
        text += &format!("\n\n… and {more} more (see the report)");
    }
    let all = report.passed + report.failed;
    text + &format!(
        "\n\n{} of {all} calls right, {} wrong, {} not served; {} tests apart, which TapML does not judge",
        report.passed,
        report.failed,
        report.skipped,
        report.apart.len()
    )
}
