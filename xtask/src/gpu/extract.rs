//! Takes the numbers of a record out of the JSON reports of `tapml`; the forms here have only the fields that are read.

use super::numbers::{
    Bugs, Decode, Deployed, DeviceCheck, KernelSamples, Launches, Migrate, Numbers, Rate, RunDevice, Worst,
};
use super::plan::ReportKind;
use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// Most failures that a record lists; the counts have all.
const MAX_FAILURES: usize = 20;

/// Takes the numbers out of a report.
pub fn numbers(kind: ReportKind, report: &str) -> Result<Numbers> {
    Ok(match kind {
        ReportKind::DeviceCheck => Numbers::DeviceCheck(read::<CheckReport>(report)?.numbers()),
        ReportKind::Migrate => Numbers::Migrate(read::<MigrateReport>(report)?.numbers()),
        ReportKind::Bugs => Numbers::Bugs(read::<BugsReport>(report)?.numbers()),
        ReportKind::Decode => Numbers::Decode(read::<DecodeReport>(report)?.numbers()),
    })
}

/// The device that a report of the conformance suite is about.
pub fn device(report: &str) -> Result<RunDevice> {
    Ok(read::<CheckReport>(report)?.target)
}

fn read<T: DeserializeOwned>(report: &str) -> Result<T> {
    serde_json::from_str(report).context("the JSON report is not of the expected form")
}

/// The case with the largest ratio; one that is not a number counts as larger than all.
fn largest(ratios: impl Iterator<Item = (f64, String)>) -> Option<Worst> {
    let key = |ratio: f64| if ratio.is_nan() { f64::INFINITY } else { ratio };
    let worst = ratios.max_by(|(a, _), (b, _)| key(*a).total_cmp(&key(*b)))?;
    // JSON has no infinity.
    Some(Worst { ratio: key(worst.0).min(f64::MAX), of: worst.1 })
}

#[derive(Deserialize)]
struct CheckReport {
    target: RunDevice,
    passed: u64,
    failed: u64,
    skipped: u64,
    cases: Vec<ConformanceCase>,
    #[serde(default)]
    ops: Vec<SampleCheck>,
}

#[derive(Deserialize)]
struct ConformanceCase {
    case: String,
    outcome: String,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct SampleCheck {
    op: String,
    worst: f64,
    failures: Vec<SampleFailure>,
    skipped: Vec<SkippedSample>,
    #[serde(default)]
    kernels: Vec<KernelSamples>,
}

#[derive(Deserialize)]
struct SampleFailure {
    sample: String,
    kernel: Option<String>,
    expected: String,
    found: String,
}

#[derive(Deserialize)]
struct SkippedSample {
    reason: String,
}

impl CheckReport {
    fn numbers(self) -> DeviceCheck {
        let mut skipped_because = BTreeMap::new();
        let mut failures = Vec::new();
        for case in &self.cases {
            let reason = case.reason.clone().unwrap_or_else(|| "no reason given".into());
            match case.outcome.as_str() {
                "skipped" => *skipped_because.entry(reason).or_insert(0) += 1,
                "failed" => failures.push(format!("{}: {reason}", case.case)),
                _ => (),
            }
        }
        for op in &self.ops {
            for skipped in &op.skipped {
                *skipped_because.entry(format!("{}: {}", op.op, skipped.reason)).or_insert(0) += 1;
            }
            let failed = op.failures.iter().map(|f| {
                let by = f.kernel.as_ref().unwrap_or(&op.op);
                format!("{by}, sample {}: expected {}, found {}", f.sample, f.expected, f.found)
            });
            failures.extend(failed);
        }
        failures.truncate(MAX_FAILURES);
        DeviceCheck {
            passed: self.passed,
            failed: self.failed,
            skipped: self.skipped,
            operators: self.ops.len() as u64,
            worst: largest(self.ops.iter().map(|op| (op.worst, op.op.clone()))),
            kernels: self.ops.into_iter().flat_map(|op| op.kernels).collect(),
            skipped_because,
            failures,
        }
    }
}

#[derive(Deserialize)]
struct MigrateReport {
    verdict: String,
    ops: Vec<OpReport>,
    coverage: Coverage,
    #[serde(default)]
    deployed: Vec<Deployed>,
}

#[derive(Deserialize)]
struct OpReport {
    op: String,
    state: String,
    check: Option<OpCheck>,
    model: Option<ModelCheck>,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct OpCheck {
    cases: u64,
    failed: u64,
    worst: Option<OpWorst>,
}

#[derive(Deserialize)]
struct OpWorst {
    ratio: f64,
    case: String,
}

#[derive(Deserialize)]
struct ModelCheck {
    kl: Option<f64>,
    top1_agreement: Option<f64>,
    max_logit_ratio: Option<f64>,
    text_equal: Option<bool>,
}

#[derive(Deserialize)]
struct Coverage {
    calls: u64,
    checked: u64,
    skipped: Vec<serde_json::Value>,
    launches: Launches,
}

impl MigrateReport {
    fn numbers(self) -> Migrate {
        let checks = || self.ops.iter().filter_map(|op| op.check.as_ref());
        let models = || self.ops.iter().filter_map(|op| op.model.as_ref());
        let ratios = self.ops.iter().filter_map(|op| {
            let worst = op.check.as_ref()?.worst.as_ref()?;
            Some((worst.ratio, format!("{} ({})", op.op, worst.case)))
        });
        let mut failures: Vec<String> = Vec::new();
        for op in self.ops.iter().filter(|op| op.state != "accepted") {
            let reason = op.reason.as_deref().unwrap_or("no reason given");
            failures.push(format!("{} is {}: {reason}", op.op, op.state));
        }
        failures.truncate(MAX_FAILURES);
        Migrate {
            operators: self.ops.len() as u64,
            accepted: self.ops.iter().filter(|op| op.state == "accepted").count() as u64,
            cases: checks().map(|c| c.cases).sum(),
            failed: checks().map(|c| c.failed).sum(),
            calls: self.coverage.calls,
            checked: self.coverage.checked,
            skipped: self.coverage.skipped.len() as u64,
            launches: self.coverage.launches,
            worst: largest(ratios),
            kl: models().filter_map(|m| m.kl).max_by(f64::total_cmp),
            top1: models().filter_map(|m| m.top1_agreement).min_by(f64::total_cmp),
            logits: models().filter_map(|m| m.max_logit_ratio).max_by(f64::total_cmp),
            text_equal: models().filter_map(|m| m.text_equal).reduce(|a, b| a && b),
            verdict: self.verdict,
            deployed: self.deployed,
            failures,
        }
    }
}

#[derive(Deserialize)]
struct BugsReport {
    mutants: Vec<MutantRecord>,
    clean: Vec<CleanRun>,
    diagnosed: Vec<Diagnosed>,
}

#[derive(Deserialize)]
struct MutantRecord {
    id: String,
    sighting: Sighting,
}

#[derive(Deserialize)]
struct Sighting {
    class: String,
    failed: u64,
    findings: u64,
    error: Option<String>,
    #[serde(default)]
    attributes: Vec<serde_json::Value>,
    #[serde(rename = "beyond", default)]
    overflows: Vec<serde_json::Value>,
    #[serde(default)]
    lost: bool,
}

impl MutantRecord {
    fn is_fault(&self) -> bool {
        self.sighting.class == "real"
    }

    fn is_missed(&self) -> bool {
        let s = &self.sighting;
        let seen = s.failed > 0 || s.findings > 0 || s.error.is_some();
        self.is_fault() && !seen && s.attributes.is_empty() && s.overflows.is_empty()
    }
}

#[derive(Deserialize)]
struct CleanRun {
    name: String,
    failed: u64,
    accused: u64,
    #[serde(rename = "beyond")]
    overflows: u64,
}

impl CleanRun {
    fn is_alarm(&self) -> bool {
        self.failed > 0 || self.accused > 0 || self.overflows > 0
    }
}

#[derive(Deserialize)]
struct Diagnosed {
    name: String,
    bugs: Vec<String>,
    reports: Vec<DiagnosisReport>,
    #[serde(default)]
    missed: Vec<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct DiagnosisReport {
    op: String,
    cause: String,
    bug: Option<String>,
}

impl BugsReport {
    fn numbers(self) -> Bugs {
        let missed = self.mutants.iter().filter(|m| m.is_missed());
        let mut failures: Vec<String> = missed.map(|m| format!("missed: {}", m.id)).collect();
        let missed = failures.len() as u64;
        let alarms = self.clean.iter().filter(|c| c.is_alarm());
        failures.extend(alarms.map(|c| format!("false alarm: {}", c.name)));
        let mut diagnoses_false = 0;
        for d in &self.diagnosed {
            let errors = d.error.iter().map(|e| format!("no diagnosis of {}: {e}", d.name));
            failures.extend(errors.chain(d.missed.iter().map(|id| format!("{}: missed {id}", d.name))));
            for report in d.reports.iter().filter(|r| r.bug.is_none()) {
                diagnoses_false += 1;
                failures.push(format!("{}: false report of {} ({})", d.name, report.op, report.cause));
            }
        }
        failures.truncate(MAX_FAILURES);
        Bugs {
            mutants: self.mutants.len() as u64,
            faults: self.mutants.iter().filter(|m| m.is_fault()).count() as u64,
            missed,
            lost: self.mutants.iter().filter(|m| m.sighting.lost).count() as u64,
            clean: self.clean.len() as u64,
            false_alarms: self.clean.iter().filter(|c| c.is_alarm()).count() as u64,
            diagnoses: self.diagnosed.len() as u64,
            diagnosed_faults: self.diagnosed.iter().map(|d| d.bugs.len() as u64).sum(),
            diagnoses_missed: self.diagnosed.iter().map(|d| d.missed.len() as u64).sum(),
            diagnoses_false,
            failures,
        }
    }
}

#[derive(Deserialize)]
struct DecodeReport {
    decode: Rate,
    prefill: Rate,
    tokens: u64,
    prompt_tokens: u64,
    prefill_tokens: u64,
    runs: Vec<serde_json::Value>,
    bytes_per_token: u64,
    bandwidth: f64,
    share_of_floor: f64,
    peak_bytes: u64,
    load_seconds: f64,
}

impl DecodeReport {
    fn numbers(self) -> Decode {
        Decode {
            decode: self.decode,
            prefill: self.prefill,
            tokens: self.tokens,
            prompt_tokens: self.prompt_tokens,
            prefill_tokens: self.prefill_tokens,
            runs: self.runs.len() as u64,
            bytes_per_token: self.bytes_per_token,
            bandwidth: self.bandwidth,
            share_of_floor: self.share_of_floor,
            peak_bytes: self.peak_bytes,
            load_seconds: self.load_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::gpu::numbers::LaunchCount;
    use serde_json::{Value, json};

    fn read_captured(name: &str) -> Value {
        let path = format!("{}/tests/reports/{name}.json", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn read_numbers(kind: ReportKind, report: &Value) -> Numbers {
        numbers(kind, &report.to_string()).unwrap()
    }

    #[test]
    fn device_checks_count_and_say_why() {
        let mut report = read_captured("samples");
        assert_eq!(device(&report.to_string()).unwrap().features.subgroups, Some((32, 32)));
        let Numbers::DeviceCheck(n) = read_numbers(ReportKind::DeviceCheck, &report) else { panic!() };
        assert_eq!((n.passed, n.failed, n.skipped), (587, 0, 23));
        assert_eq!((n.operators, n.failures.len()), (report["ops"].as_array().unwrap().len() as u64, 0));
        let rows: Vec<&str> = n.kernels.iter().map(|k| k.kernel.as_str()).collect();
        assert!(rows.contains(&"linear/gemv") && rows.contains(&"linear/portable"), "{rows:?}");
        assert!(
            n.kernels
                .iter()
                .all(|k| k.passed > 0 && k.failed == 0 && k.worst <= n.worst.as_ref().unwrap().ratio)
        );
        let skipped: u64 = n.skipped_because.values().sum();
        assert_eq!(skipped, 5, "of the operators that were kept of the captured report");
        let worst = n.worst.unwrap();
        assert!(worst.ratio > 0.97 && worst.ratio < 1.0, "{worst:?}");

        report["cases"][0] = json!({"case": "copies", "outcome": "failed", "reason": "a byte differs"});
        report["cases"][1] = json!({"case": "f16", "outcome": "skipped", "reason": "no f16"});
        report["ops"][2]["worst"] = json!(7.5);
        report["ops"][2]["failures"] =
            json!([{"sample": "odd", "kernel": "add/row", "call": "", "expected": "1 ± 0.1", "found": "2"}]);
        report["ops"][3]["skipped"] =
            json!([{"sample": "a", "reason": "no f16"}, {"sample": "b", "reason": "no f16"}]);
        report["ops"][4]["skipped"] = json!([]);
        let Numbers::DeviceCheck(n) = read_numbers(ReportKind::DeviceCheck, &report) else { panic!() };
        assert_eq!(n.worst, Some(Worst { ratio: 7.5, of: "add".into() }));
        assert_eq!(n.failures, ["copies: a byte differs", "add/row, sample odd: expected 1 ± 0.1, found 2"]);
        let because = [("no f16".to_string(), 1), ("moe_router: no f16".to_string(), 2)];
        assert_eq!(n.skipped_because, BTreeMap::from(because));
    }

    #[test]
    fn migrations_give_coverage_and_the_worst_of_all_operators() {
        let report = read_captured("migrate");
        let Numbers::Migrate(n) = read_numbers(ReportKind::Migrate, &report) else { panic!() };
        assert_eq!((n.verdict.as_str(), n.operators, n.accepted), ("accepted", 12, 12));
        assert_eq!((n.calls, n.checked, n.skipped, n.cases, n.failed), (2016, 2016, 0, 2704, 0));
        assert_eq!(n.launches.decode, LaunchCount { of: 35, checked: 31 });
        assert_eq!(n.launches.prefill, LaunchCount { of: 48, checked: 48 });
        let worst = n.worst.unwrap();
        let ops = report["ops"].as_array().unwrap();
        let largest = ops.iter().filter_map(|op| op["check"]["worst"]["ratio"].as_f64()).fold(0.0, f64::max);
        assert_eq!(worst.ratio, largest);
        assert_eq!((n.top1, n.text_equal), (Some(1.0), Some(true)));
        let unchecked: Vec<&str> =
            n.deployed.iter().filter(|d| d.cases == 0).map(|d| d.kernel.as_str()).collect();
        assert_eq!(unchecked, ["add/portable"]);
        assert!(n.failures.is_empty());
    }

    #[test]
    fn a_rejected_migration_says_what_was_rejected() {
        let Numbers::Migrate(n) = read_numbers(ReportKind::Migrate, &read_captured("rejected")) else {
            panic!()
        };
        assert_eq!((n.verdict.as_str(), n.operators, n.accepted, n.failed), ("rejected", 9, 8, 8));
        let worst = n.worst.unwrap();
        assert!(worst.ratio > 1e4 && worst.of.starts_with("rms_norm ("), "{worst:?}");
        assert!(n.failures[0].starts_with("rms_norm is rejected: 8 of 8 cases"), "{:?}", n.failures);
    }

    #[test]
    fn faults_count_as_missed_only_if_nothing_sees_them() {
        let mut report = read_captured("bugs");
        let Numbers::Bugs(n) = read_numbers(ReportKind::Bugs, &report) else { panic!() };
        assert_eq!((n.mutants, n.faults, n.missed, n.lost), (6, 4, 0, 0));
        assert_eq!((n.clean, n.false_alarms, n.diagnoses_missed, n.diagnoses_false), (2, 0, 0, 0));

        for i in 0..4 {
            report["mutants"][i]["sighting"]["failed"] = json!(0);
            report["mutants"][i]["sighting"]["findings"] = json!(0);
        }
        report["mutants"][1]["sighting"]["findings"] = json!(1);
        report["mutants"][2]["sighting"]["error"] = json!("the device was lost");
        report["mutants"][2]["sighting"]["lost"] = json!(true);
        report["mutants"][3]["sighting"]["beyond"] = json!([{}]);
        report["clean"][1]["accused"] = json!(1);
        report["diagnosed"][0]["missed"] = report["diagnosed"][0]["bugs"].clone();
        report["diagnosed"][0]["reports"][0]["bug"] = Value::Null;
        let Numbers::Bugs(n) = read_numbers(ReportKind::Bugs, &report) else { panic!() };
        assert_eq!(
            (n.missed, n.lost, n.false_alarms, n.diagnoses_missed, n.diagnoses_false),
            (1, 1, 1, 1, 1)
        );
        assert_eq!(n.failures[0], format!("missed: {}", report["mutants"][0]["id"].as_str().unwrap()));
        assert_eq!(n.failures.len(), 4, "{:?}", n.failures);
    }

    #[test]
    fn speeds_keep_median_and_spread() {
        let Numbers::Decode(n) = read_numbers(ReportKind::Decode, &read_captured("decode")) else { panic!() };
        assert_eq!(
            n.decode,
            Rate { median: 40.0883780364516, min: 28.702559906691423, max: 44.183923512635616 }
        );
        assert_eq!((n.tokens, n.prefill_tokens, n.runs, n.peak_bytes), (8, 16, 3, 3456088));
    }

    #[test]
    fn a_report_of_another_form_is_an_error_that_names_the_field() {
        let error = numbers(ReportKind::Migrate, &read_captured("decode").to_string()).unwrap_err();
        assert!(format!("{error:#}").contains("missing field `verdict`"), "{error:#}");
    }

    #[test]
    fn no_number_counts_as_the_worst() {
        let worst = largest([(0.5, "a".to_string()), (f64::NAN, "b".into()), (0.9, "c".into())].into_iter());
        assert_eq!(worst, Some(Worst { ratio: f64::MAX, of: "b".into() }));
        assert_eq!(largest(std::iter::empty()), None);
    }
}
