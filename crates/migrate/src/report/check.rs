//! The records of checks: of an operator, of its kernels, and of all of them.

use crate::judged::{CaseResult, JudgedCall};
use crate::range_test::Overflow;
use crate::reached::KernelRegimes;
use crate::verdict::{JudgedElement, Judgement, Pattern};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeSet;
use tapml_device::Finding;
use tapml_exec::PlatformInfo;

/// The case with the largest ratio of observed to allowed error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    /// Name of the case, see [`crate::suite::Suite::case_id`].
    pub case: String,
    /// Name of the node.
    pub node: String,
    /// Observed error over allowed error; above 1 fails. Infinity is written as the largest finite number.
    #[serde(serialize_with = "finite")]
    pub ratio: f64,
    /// Its worst element; absent if the call could not be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<JudgedElement>,
}

/// Something that was not checked, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedCase {
    /// Name of the case.
    pub case: String,
    /// Why.
    pub reason: String,
}

/// A call that failed, with what decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Name of the case.
    pub case: String,
    /// Name of the node.
    pub node: String,
    /// See [`Worst::ratio`].
    #[serde(serialize_with = "finite")]
    pub ratio: f64,
    /// What decided, in plain words.
    pub criterion: String,
    /// The worst element; absent if the call could not be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub element: Option<JudgedElement>,
    /// How the wrong elements are spread; absent if the call could not be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Pattern>,
    /// The error, if the call could not be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// That sums of all terms one after the other explain it, and how a kernel declares them; absent if they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_chain: Option<String>,
}

impl Failure {
    /// That of a call with this verdict, or with the error for which it could not be run.
    pub(crate) fn from_outcome(
        case: String,
        node: String,
        outcome: &std::result::Result<Judgement, tapml_graph::Error>,
    ) -> Failure {
        match outcome {
            Ok(j) => Failure {
                case,
                node,
                ratio: j.ratio,
                criterion: j.criterion.name().into(),
                element: Some(j.worst),
                pattern: j.pattern.clone(),
                error: None,
                one_chain: j.one_chain.map(|chain| chain.text()),
            },
            Err(e) => Failure {
                case,
                node,
                ratio: f64::INFINITY,
                criterion: e.kind().name().into(),
                element: None,
                pattern: None,
                error: Some(e.to_string()),
                one_chain: None,
            },
        }
    }
}

/// The checks of one operator kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpCheck {
    /// Operator name.
    pub op: String,
    /// Name of the kernel; several are joined by `+`; empty if there is none.
    pub kernel: String,
    /// Cases that were run.
    pub cases: u64,
    /// Cases that failed.
    pub failed: u64,
    /// The case with the largest ratio; absent if none was run.
    pub worst: Option<Worst>,
    /// Wall-clock time.
    pub seconds: f64,
    /// Cases by ratio: entry `i` counts `2^(i-12) ≤ ratio < 2^(i-11)`; the first and last entry take what lies outside.
    pub histogram: Vec<u64>,
    /// Hash of the kernel's text and constants.
    pub kernel_hash: String,
    /// Dtype in which the kernel accumulates.
    pub accumulate: String,
    /// The first failures in suite order, at most [`MAX_FAILURES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// The same for each row of the kernel list that ran the cases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelCheck>,
    /// Defects that a checking device saw in the kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Nodes with a call that was not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedNode>,
    /// Why no case could be run; absent if some could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<String>,
    /// Largest ratio of the source's own recorded outputs; above 1 the source itself departs from the exact result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ratio: Option<f64>,
    /// Choices in all cases that may go either way because a rounding decides them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub undecided: u64,
    /// Calls with made-up inputs over the whole range, apart from `cases`: see [`crate::range_test`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub probes: u64,
    /// Those that gave NaN or infinity where the exact result has none.
    #[serde(rename = "beyond", default, skip_serializing_if = "Vec::is_empty")]
    pub overflows: Vec<Overflow>,
    /// Calls made of recorded ones for regimes that these do not reach, apart from `cases`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub made: u64,
    /// Those that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made_failures: Vec<Failure>,
    /// How many regimes of each kernel the calls reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regimes: Vec<KernelRegimes>,
}

impl OpCheck {
    /// Counts a call of the operator.
    pub(crate) fn add(&mut self, call: &JudgedCall<'_>) {
        let (result, ratio) = (call.result, call.result.ratio());
        self.cases += 1;
        self.histogram.resize(BUCKETS, 0);
        self.histogram[bucket(ratio)] += 1;
        if let Some(kernel) = call.kernel {
            count_kernel(&mut self.kernels, kernel, result);
        }
        // The first of equals, in suite order.
        if self.worst.as_ref().is_none_or(|w| ratio > w.ratio) {
            let element = result.outcome.as_ref().ok().map(|j| j.worst);
            self.worst = Some(Worst { case: call.case.clone(), node: call.node.into(), ratio, element });
        }
        if let Ok(judgement) = &result.outcome {
            self.undecided += judgement.undecided as u64;
            self.source_ratio = self.source_ratio.into_iter().chain(judgement.source_ratio).reduce(f64::max);
        }
        if result.is_failed() {
            self.failed += 1;
            if self.failures.len() < MAX_FAILURES {
                self.failures.push(Failure::from_outcome(
                    call.case.clone(),
                    call.node.into(),
                    &result.outcome,
                ));
            }
        }
    }

    /// This check and another one of the same operator, of the other phase, as one.
    pub(crate) fn and(mut self, other: OpCheck) -> OpCheck {
        let joined = |a: &str, b: &str| {
            let names: BTreeSet<&str> = a.split('+').chain(b.split('+')).filter(|s| !s.is_empty()).collect();
            names.into_iter().collect::<Vec<_>>().join("+")
        };
        self.kernel = joined(&self.kernel, &other.kernel);
        self.kernel_hash = joined(&self.kernel_hash, &other.kernel_hash);
        self.accumulate = joined(&self.accumulate, &other.accumulate);
        // Why no case could be run says nothing where the other phase ran some.
        let none = self.cases + other.cases == 0;
        self.unsupported = self.unsupported.or(other.unsupported).filter(|_| none);
        (self.cases, self.failed) = (self.cases + other.cases, self.failed + other.failed);
        (self.undecided, self.probes) = (self.undecided + other.undecided, self.probes + other.probes);
        self.seconds += other.seconds;
        let worst = [self.worst, other.worst].into_iter().flatten();
        self.worst = worst.max_by(|a, b| a.ratio.total_cmp(&b.ratio));
        self.source_ratio = self.source_ratio.into_iter().chain(other.source_ratio).reduce(f64::max);
        self.histogram.iter_mut().zip(&other.histogram).for_each(|(sum, more)| *sum += more);
        self.failures.extend(other.failures);
        self.failures.truncate(MAX_FAILURES);
        for kernel in other.kernels {
            match self.kernels.iter_mut().find(|known| known.kernel == kernel.kernel) {
                Some(known) => known.add(&kernel),
                None => self.kernels.push(kernel),
            }
        }
        self.findings.extend(other.findings);
        self.skipped.extend(other.skipped);
        self.overflows.extend(other.overflows);
        self.made += other.made;
        self.made_failures.extend(other.made_failures);
        self.made_failures.truncate(MAX_FAILURES);
        other.regimes.into_iter().for_each(|regimes| regimes.join(&mut self.regimes));
        self
    }
}

impl KernelCheck {
    fn add(&mut self, other: &KernelCheck) {
        (self.cases, self.failed) = (self.cases + other.cases, self.failed + other.failed);
        self.worst = self.worst.max(other.worst);
    }
}

/// The cases of an operator that one row of the kernel list ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelCheck {
    /// The row, such as `linear/gemv`.
    pub kernel: String,
    /// Cases that it ran.
    pub cases: u64,
    /// Cases that failed.
    pub failed: u64,
    /// The largest ratio. Infinity is written as the largest finite number.
    #[serde(serialize_with = "finite")]
    pub worst: f64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Most failures listed per operator.
pub const MAX_FAILURES: usize = 20;
/// Entries of [`OpCheck::histogram`].
pub const BUCKETS: usize = 24;

impl OpCheck {
    /// Whether every case was run and passed, no probe overflowed, no made call failed, and no defect was seen.
    pub fn passes(&self) -> bool {
        let defect = self.findings.iter().any(is_defect);
        let made_up = self.overflows.is_empty() && self.made_failures.is_empty();
        self.failed == 0 && made_up && self.unsupported.is_none() && !defect
    }
}

/// Counts a case for the kernel that ran it.
fn count_kernel(kernels: &mut Vec<KernelCheck>, name: &str, result: &CaseResult) {
    let at = kernels.iter().position(|known| known.kernel == name).unwrap_or(kernels.len());
    if at == kernels.len() {
        kernels.push(KernelCheck { kernel: name.into(), ..KernelCheck::default() });
    }
    let known = &mut kernels[at];
    known.cases += 1;
    known.failed += u64::from(result.is_failed());
    known.worst = known.worst.max(result.ratio());
}

/// Whether a finding is a defect of the kernel, and not only a remark: a NaN may be wanted, a limit was met.
pub fn is_defect(finding: &Finding) -> bool {
    use tapml_device::FindingKind::{LimitExceeded, NonFinite};
    !matches!(finding.kind, LimitExceeded | NonFinite)
}

/// The entry of [`OpCheck::histogram`] for this ratio.
pub fn bucket(ratio: f64) -> usize {
    let exponent = if ratio > 0.0 { ratio.log2().floor() } else { f64::NEG_INFINITY };
    (exponent + 12.0).clamp(0.0, (BUCKETS - 1) as f64) as usize
}

/// The report of `tapml check`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
    /// See [`super::SCHEMA`].
    pub schema: u32,
    /// The suite's folder.
    pub suite: String,
    /// The platform that was checked.
    pub target: PlatformInfo,
    /// Cases that were run.
    pub cases: u64,
    /// Cases that failed.
    pub failed: u64,
    /// Cases that were not run.
    pub skipped: Vec<SkippedCase>,
    /// Per operator kind, in graph order.
    pub ops: Vec<OpCheck>,
    /// Wall-clock time.
    pub seconds: f64,
    /// Whether it was stopped before every case was run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
}

impl CheckReport {
    /// Whether every operator passed.
    pub fn passes(&self) -> bool {
        !self.stopped && self.skipped.is_empty() && self.ops.iter().all(OpCheck::passes)
    }
}

/// Writes infinity as the largest finite number: JSON has none.
pub(crate) fn finite<S: Serializer>(value: &f64, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_f64(if value.is_nan() { f64::MAX } else { value.clamp(f64::MIN, f64::MAX) })
}

/// A node that was not checked on the target, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedNode {
    /// Name of the node.
    pub node: String,
    /// Why.
    pub reason: String,
}
