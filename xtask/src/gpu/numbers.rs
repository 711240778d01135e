//! What a record keeps of a step's report: the numbers that say how much was checked, with which result, and how fast.

use super::plan::ReportKind;
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most failures that a record lists; the counts have all.
const MAX_FAILURES: usize = 20;

/// The numbers of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Numbers {
    DeviceCheck(DeviceCheck),
    Migrate(Migrate),
    Bugs(Bugs),
    Decode(Decode),
}

/// The device that a run is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    pub platform: String,
    pub name: String,
    pub driver: String,
    /// `discrete`, `integrated`, `cpu` or `other`.
    pub kind: String,
    pub features: Features,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Features {
    pub f16: bool,
    pub subgroups: Option<(u32, u32)>,
    #[serde(default)]
    pub cuda: Option<u32>,
    #[serde(default)]
    pub matrices: bool,
}

impl Device {
    /// Whether it is no processor in a GPU's place, whose speed says nothing.
    pub fn is_hardware(&self) -> bool {
        self.platform != "emulator" && self.kind != "cpu"
    }
}

/// The conformance suite, and the operators' samples if they were asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceCheck {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
    /// Operators with samples.
    pub operators: u64,
    /// The largest ratio of observed to allowed error among the samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<Worst>,
    /// Cases and samples that were skipped, counted by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped_because: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

/// Where the largest ratio is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    pub ratio: f64,
    /// The operator or the kernel.
    pub of: String,
}

/// A migration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Migrate {
    pub verdict: String,
    /// Operator kinds, fused ones included.
    pub operators: u64,
    pub accepted: u64,
    /// Calls that were run on the device, recorded and composed ones.
    pub cases: u64,
    pub failed: u64,
    /// Recorded calls, and those that were checked.
    pub calls: u64,
    pub checked: u64,
    /// Nodes that were not checked.
    pub skipped: u64,
    pub launches: Launches,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<Worst>,
    /// Of the hybrid models: the largest divergence of the distributions, the least share of positions with the same first
    /// token, the largest ratio of logits, and whether all texts were equal.
    pub kl: Option<f64>,
    pub top1: Option<f64>,
    pub logits: Option<f64>,
    pub text_equal: Option<bool>,
    /// Kernels of the deployed program.
    pub deployed: Vec<Deployed>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

/// Launches of one decode step and of one prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launches {
    pub decode: LaunchCount,
    pub prefill: LaunchCount,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchCount {
    pub of: u64,
    pub checked: u64,
}

/// A row of the kernel list in a deployed program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deployed {
    pub phase: String,
    pub kernel: String,
    pub launches: u64,
    pub cases: u64,
    pub failed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<f64>,
}

/// The bench of faults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bugs {
    pub mutants: u64,
    /// Mutants that change something.
    pub faults: u64,
    /// Faults that nothing sees.
    pub missed: u64,
    /// Mutants that did not end, or by which the device was lost.
    pub lost: u64,
    pub clean: u64,
    pub false_alarms: u64,
    /// Faults of whole diagnoses, those without a report, and reports without a fault.
    pub diagnoses: u64,
    pub diagnosed_faults: u64,
    pub diagnoses_missed: u64,
    pub diagnoses_false: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

/// Speeds of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decode {
    /// Tokens a second.
    pub decode: Rate,
    pub prefill: Rate,
    pub tokens: u64,
    pub prompt_tokens: u64,
    pub prefill_tokens: u64,
    pub runs: u64,
    pub bytes_per_token: u64,
    /// Bytes a second.
    pub bandwidth: f64,
    pub share_of_floor: f64,
    pub peak_bytes: u64,
    pub load_seconds: f64,
}

/// The median of the runs, the slowest and the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

/// Takes the numbers out of a report.
pub fn extract(kind: ReportKind, report: &str) -> Result<Numbers> {
    Ok(match kind {
        ReportKind::DeviceCheck => Numbers::DeviceCheck(read::<CheckReport>(report)?.numbers()),
        ReportKind::Migrate => Numbers::Migrate(read::<MigrateReport>(report)?.numbers()),
        ReportKind::Bugs => Numbers::Bugs(read::<BugsReport>(report)?.numbers()),
        ReportKind::Decode => Numbers::Decode(read::<DecodeReport>(report)?.numbers()),
    })
}

/// The device that a report of the conformance suite is about.
pub fn device(report: &str) -> Result<Device> {
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
    target: Device,
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
}

#[derive(Deserialize)]
struct SampleFailure {
    sample: String,
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
                format!("{}, sample {}: expected {}, found {}", op.op, f.sample, f.expected, f.found)
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
    #[serde(default)]
    beyond: Vec<serde_json::Value>,
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
        self.is_fault() && !seen && s.attributes.is_empty() && s.beyond.is_empty()
    }
}

#[derive(Deserialize)]
struct CleanRun {
    name: String,
    failed: u64,
    accused: u64,
    beyond: u64,
}

impl CleanRun {
    fn is_alarm(&self) -> bool {
        self.failed > 0 || self.accused > 0 || self.beyond > 0
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

impl Numbers {
    /// What went wrong, in words.
    pub fn failures(&self) -> &[String] {
        match self {
            Numbers::DeviceCheck(n) => &n.failures,
            Numbers::Migrate(n) => &n.failures,
            Numbers::Bugs(n) => &n.failures,
            Numbers::Decode(_) => &[],
        }
    }

    /// One line for who watches.
    pub fn summary(&self) -> String {
        let worst = |worst: &Option<Worst>| {
            worst.as_ref().map_or(String::new(), |w| format!(", worst {:.2}", w.ratio))
        };
        match self {
            Numbers::DeviceCheck(n) => {
                format!("{} passed, {} failed, {} skipped{}", n.passed, n.failed, n.skipped, worst(&n.worst))
            }
            Numbers::Migrate(n) => format!(
                "{}; {} of {} calls checked, {} of {} cases failed{}; launches checked: {} of {} in decode, {} of {} in prefill",
                n.verdict,
                n.checked,
                n.calls,
                n.failed,
                n.cases,
                worst(&n.worst),
                n.launches.decode.checked,
                n.launches.decode.of,
                n.launches.prefill.checked,
                n.launches.prefill.of
            ),
            Numbers::Bugs(n) => format!(
                "{} mutants, {} faults, {} missed; {} clean runs, {} false alarms; {} diagnoses, {} missed, {} false",
                n.mutants,
                n.faults,
                n.missed,
                n.clean,
                n.false_alarms,
                n.diagnoses,
                n.diagnoses_missed,
                n.diagnoses_false
            ),
            Numbers::Decode(n) => format!(
                "decode {:.1} tokens/s ({:.1} to {:.1}), prefill {:.0} ({:.0} to {:.0})",
                n.decode.median, n.decode.min, n.decode.max, n.prefill.median, n.prefill.min, n.prefill.max
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn captured(name: &str) -> Value {
        let path = format!("{}/tests/reports/{name}.json", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn of(kind: ReportKind, report: &Value) -> Numbers {
        extract(kind, &report.to_string()).unwrap()
    }

    #[test]
    fn device_checks_count_and_say_why() {
        let mut report = captured("samples");
        assert_eq!(device(&report.to_string()).unwrap().features.subgroups, Some((32, 32)));
        let Numbers::DeviceCheck(n) = of(ReportKind::DeviceCheck, &report) else { panic!() };
        assert_eq!((n.passed, n.failed, n.skipped), (470, 0, 0));
        assert_eq!((n.operators, n.failures.len()), (report["ops"].as_array().unwrap().len() as u64, 0));
        let worst = n.worst.unwrap();
        assert!(worst.ratio > 0.98 && worst.ratio < 1.0, "{worst:?}");

        report["cases"][0] = json!({"case": "copies", "outcome": "failed", "reason": "a byte differs"});
        report["cases"][1] = json!({"case": "f16", "outcome": "skipped", "reason": "no f16"});
        report["ops"][2]["worst"] = json!(7.5);
        report["ops"][2]["failures"] =
            json!([{"sample": "odd", "call": "", "expected": "1 ± 0.1", "found": "2", "criterion": ""}]);
        report["ops"][3]["skipped"] =
            json!([{"sample": "a", "reason": "no f16"}, {"sample": "b", "reason": "no f16"}]);
        let [failing, skipping] = [2, 3].map(|i| report["ops"][i]["op"].as_str().unwrap().to_string());
        let Numbers::DeviceCheck(n) = of(ReportKind::DeviceCheck, &report) else { panic!() };
        assert_eq!(n.worst, Some(Worst { ratio: 7.5, of: failing.clone() }));
        let sample = format!("{failing}, sample odd: expected 1 ± 0.1, found 2");
        assert_eq!(n.failures, ["copies: a byte differs".to_string(), sample]);
        let because = [("no f16".to_string(), 1), (format!("{skipping}: no f16"), 2)];
        assert_eq!(n.skipped_because, BTreeMap::from(because));
    }

    #[test]
    fn migrations_give_coverage_and_the_worst_of_all_operators() {
        let report = captured("migrate");
        let Numbers::Migrate(n) = of(ReportKind::Migrate, &report) else { panic!() };
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
        let Numbers::Migrate(n) = of(ReportKind::Migrate, &captured("rejected")) else { panic!() };
        assert_eq!((n.verdict.as_str(), n.operators, n.accepted, n.failed), ("rejected", 9, 8, 8));
        let worst = n.worst.unwrap();
        assert!(worst.ratio > 1e4 && worst.of.starts_with("rms_norm ("), "{worst:?}");
        assert!(n.failures[0].starts_with("rms_norm is rejected: 8 of 8 cases"), "{:?}", n.failures);
    }

    #[test]
    fn faults_count_as_missed_only_if_nothing_sees_them() {
        let mut report = captured("bugs");
        let Numbers::Bugs(n) = of(ReportKind::Bugs, &report) else { panic!() };
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
        let Numbers::Bugs(n) = of(ReportKind::Bugs, &report) else { panic!() };
        assert_eq!(
            (n.missed, n.lost, n.false_alarms, n.diagnoses_missed, n.diagnoses_false),
            (1, 1, 1, 1, 1)
        );
        assert_eq!(n.failures[0], format!("missed: {}", report["mutants"][0]["id"].as_str().unwrap()));
        assert_eq!(n.failures.len(), 4, "{:?}", n.failures);
    }

    #[test]
    fn speeds_keep_median_and_spread() {
        let Numbers::Decode(n) = of(ReportKind::Decode, &captured("decode")) else { panic!() };
        assert_eq!(
            n.decode,
            Rate { median: 40.0883780364516, min: 28.702559906691423, max: 44.183923512635616 }
        );
        assert_eq!((n.tokens, n.prefill_tokens, n.runs, n.peak_bytes), (8, 16, 3, 3456088));
    }

    #[test]
    fn a_report_of_another_form_is_an_error_that_names_the_field() {
        let error = extract(ReportKind::Migrate, &captured("decode").to_string()).unwrap_err();
        assert!(format!("{error:#}").contains("missing field `verdict`"), "{error:#}");
    }

    #[test]
    fn no_number_counts_as_the_worst() {
        let worst = largest([(0.5, "a".to_string()), (f64::NAN, "b".into()), (0.9, "c".into())].into_iter());
        assert_eq!(worst, Some(Worst { ratio: f64::MAX, of: "b".into() }));
        assert_eq!(largest(std::iter::empty()), None);
    }
}
