//! The report of a diagnosis: its JSON fields are a promise to users, see `docs/reference/reports.md`.

use serde::{Deserialize, Serialize, Serializer};
use tapml_cause::{ErrorMap, Tested};
use tapml_device::Finding;
use tapml_exec::PlatformInfo;
use tapml_migrate::report::SkippedNode;
use tapml_migrate::verdict::JudgedElement;
use tapml_migrate::{ModelCheck, ModelIdentity};

/// Version of the report's fields.
pub const SCHEMA: u32 = 1;

/// The cause of a fault that no hypothesis explains.
pub const UNKNOWN: &str = "unknown";

/// What a diagnosis found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// The model.
    pub model: ModelIdentity,
    /// The source platform.
    pub source: PlatformInfo,
    /// The target platform.
    pub target: PlatformInfo,
    /// The suite's folder, which `tapml reduce` takes.
    pub suite: String,
    /// Operators first, in graph order, then faults between operators.
    pub faults: Vec<Fault>,
    /// Operator kinds of which every call was checked and no node has a fault, in graph order.
    pub clean_ops: Vec<String>,
    /// Operators and kernels that did not run, or not for every node: nothing is known of them.
    #[serde(default)]
    pub not_run: Vec<NotRun>,
    /// Nodes that were not checked on the target, and stages that were not run.
    pub skipped: Vec<SkippedNode>,
    /// What a checking device watched of kernels that do not fail; absent if there was none, or if it was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<Watched>,
    /// Things to know that are no fault: choices that a rounding decides, a source that departs.
    pub notes: Vec<String>,
    /// Recorded calls that were replayed on the target and judged.
    pub calls: u64,
    /// The check of the model with everything on the target but the nodes of faulty operators; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<ModelCheck>,
    /// Wall-clock time.
    pub seconds: f64,
    /// Wall-clock time by stage, in the order of the stages.
    pub stages: Vec<Stage>,
}

/// An operator, or a kernel that the user gave, that did not run on the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRun {
    /// Operator name.
    pub op: String,
    /// Name of the kernel; empty if the target has none.
    pub kernel: String,
    /// Why it did not run.
    pub reason: String,
}

/// Calls of kernels that do not fail, run by a checking device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// Calls that were run.
    pub calls: u64,
    /// Calls that were not run, each of a kernel and a size of its own.
    pub left_out: Vec<LeftOut>,
}

/// A call that a checking device did not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Name of the kernel.
    pub kernel: String,
    /// Name of the case.
    pub case: String,
    /// Its rows.
    pub rows: u64,
    /// Why it was not run.
    pub reason: String,
}

/// The time that a stage took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Name for people.
    pub name: String,
    /// Wall-clock time.
    pub seconds: f64,
}

/// Where a fault shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultKind {
    /// An operator computes wrong values by itself.
    Operator,
    /// Every operator is right alone, and together they are not.
    Between,
}

/// Whose fault it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Blames {
    /// The platform under test.
    #[default]
    Target,
    /// The platform that the model works on: the target may be right.
    Source,
}

/// One fault: one report for one root cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Operator name; several are joined by `+`.
    pub op: String,
    /// Name of the kernel; several are joined by `+`.
    pub kernel: String,
    /// The nodes that are concerned, in graph order.
    pub nodes: Vec<String>,
    /// Where it shows.
    pub kind: FaultKind,
    /// Whose fault it is.
    #[serde(default)]
    pub blames: Blames,
    /// When it shows, as a condition on the call with the recorded calls that meet it; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Name of the hypothesis that explains it, or [`UNKNOWN`].
    pub cause: String,
    /// Whether the hypothesis predicts every wrong value, or a checking device saw the defect itself.
    pub certain: bool,
    /// A sentence that a person can act on.
    pub evidence: String,
    /// Of a fused operator the one within that is at fault; absent for others, and where more than one may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_operator: Option<String>,
    /// Name of the first call that fails, in the order of execution. Not a case of the suite if the fault shows only in
    /// a run that the suite does not hold; then the name tells which.
    pub first_bad_case: String,
    /// Name of the case of the suite with the largest ratio; absent if no case of the suite fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_case: Option<String>,
    /// Largest observed error over allowed error; above 1 fails. Infinity is written as the largest finite number.
    #[serde(serialize_with = "finite")]
    pub worst_ratio: f64,
    /// The test that decided, in plain words.
    pub criterion: String,
    /// The worst element of the first bad call; absent if it could not be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<JudgedElement>,
    /// How the wrong elements are spread, in one sentence; empty if unknown.
    pub pattern: String,
    /// The wrong elements of a bad call, drawn; absent if there is nothing to draw.
    #[serde(rename = "picture", default, skip_serializing_if = "Option::is_none")]
    pub error_map: Option<ErrorMap>,
    /// Cases that were run of these nodes, and how many of them failed.
    pub cases: u64,
    /// See `cases`.
    pub failed: u64,
    /// Share of the wrong elements that the hypothesis predicts.
    pub fit: f64,
    /// The best hypothesis of every cause that was tested, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tested: Vec<Tested>,
    /// The kernel's variants by the types of its inputs: which fail and which do not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
    /// Defects that a checking device saw while it ran the kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// What the wrong values do to the model's logits; absent if that was not measured.
    pub output_impact: Option<Impact>,
    /// The command that makes a standalone reproducer; absent if neither a case of the suite nor a few nodes show the fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reproduce: Option<String>,
}

/// Calls of a kernel that run the same code at the same types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Types of the inputs, as the graph has them.
    pub types: String,
    /// The nodes.
    pub nodes: Vec<String>,
    /// Cases that were run.
    pub cases: u64,
    /// Cases that failed.
    pub failed: u64,
}

/// The harm of a fault: the wrong output of the worst call, put into the source's run in the place of the right one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Impact {
    /// The call whose output was replaced; for a fault between operators, the whole run.
    pub case: String,
    /// Mean of KL(source ‖ changed) over the positions of that run, nats.
    #[serde(serialize_with = "finite")]
    pub kl: f64,
    /// Largest KL of one position, nats.
    #[serde(serialize_with = "finite")]
    pub kl_max: f64,
    /// Whether at any position another token comes first.
    pub top1_changed: bool,
    /// Positions at which another token comes first.
    pub changed: u64,
    /// Positions compared.
    pub positions: u64,
}

impl Impact {
    /// How much it is, to compare: the mean over positions, because a text is read from all of them. Another token from the
    /// same logits is as bad as can be.
    pub(crate) fn weight(&self) -> f64 {
        let chosen = self.changed > 0 && self.kl == 0.0;
        if self.kl.is_nan() || chosen { f64::INFINITY } else { self.kl }
    }
}

impl Fault {
    /// How sure the cause is, in a word; empty if it is unknown.
    pub fn sure(&self) -> &'static str {
        match (self.cause.as_str(), self.certain) {
            (UNKNOWN, _) => "",
            (_, true) => "certain",
            (_, false) => "probable",
        }
    }

    /// Of a fault of nodes that run as one model, those of the first place where it shows.
    pub fn joint_nodes(&self) -> &[String] {
        let count = self.op.split('+').count();
        self.nodes.get(..count).unwrap_or(&self.nodes)
    }
}

impl Diagnosis {
    /// The faults, the one that does most to the logits first; those whose harm was not measured come last, by how far they
    /// are off.
    pub fn faults_by_impact(&self) -> Vec<&Fault> {
        let mut faults: Vec<&Fault> = self.faults.iter().collect();
        let order = |a: &&Fault, b: &&Fault| {
            let harm = |f: &Fault| f.output_impact.as_ref().map(Impact::weight);
            match (harm(a), harm(b)) {
                (Some(a), Some(b)) => b.total_cmp(&a),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => b.worst_ratio.total_cmp(&a.worst_ratio),
            }
        };
        faults.sort_by(order);
        faults
    }

    /// The faults of the target.
    pub fn of_target(&self) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(|fault| fault.blames == Blames::Target)
    }

    /// Whether the target has no fault, and everything ran.
    pub fn holds(&self) -> bool {
        self.of_target().next().is_none() && self.not_run.is_empty()
    }
}

/// Writes infinity as the largest finite number: JSON has none.
fn finite<S: Serializer>(value: &f64, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_f64(if value.is_nan() { f64::MAX } else { value.clamp(f64::MIN, f64::MAX) })
}
