//! What the bench found, as data: one record for each mutant and each clean run, and the rates.

use super::mutation_run::{MutantClass, Sighting};
use super::policy::POLICIES;
use super::select::tuned_on;
use super::whole::Diagnosed;
use crate::catalogue::RowMutants;
use crate::mutant::{Family, Mutant};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tapml_migrate::filter::Lost;

/// Version of the report's fields.
pub const SCHEMA: u32 = 1;

/// One mutant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MutantRecord {
    /// The mutant's id.
    pub id: String,
    /// The model.
    pub model: String,
    /// The family.
    pub family: Family,
    /// The mutation operator.
    pub operator: String,
    /// The operator that is faulty.
    pub op: String,
    /// The row of the kernel list whose kernel is.
    #[serde(default)]
    pub row: String,
    /// The change.
    pub diff: String,
    /// Whether constants were tuned on it.
    pub tuned_on: bool,
    /// What was seen.
    pub sighting: Sighting,
}

impl MutantRecord {
    /// The record of a mutant.
    pub fn from_sighting(mutant: &Mutant, sighting: Sighting) -> MutantRecord {
        MutantRecord {
            id: mutant.id.clone(),
            model: mutant.model.clone(),
            family: mutant.family,
            operator: mutant.operator.clone(),
            op: mutant.op.clone(),
            row: mutant.row.clone(),
            diff: mutant.diff.clone(),
            tuned_on: tuned_on(&mutant.id),
            sighting,
        }
    }

    /// Whether it counts as a fault.
    pub fn real(&self) -> bool {
        self.sighting.class == MutantClass::Real
    }
}

/// All operators of a model without a fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CleanRun {
    /// Model, dtype of activations and prompts, such as `llama/f32/seed 0`.
    pub name: String,
    /// Whether constants were tuned on it.
    pub tuned_on: bool,
    /// Calls judged.
    pub cases: u64,
    /// Calls that the verdict refuses.
    pub failed: u64,
    /// Names of some of them with their ratios.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<(String, f64)>,
    /// Calls made beside recorded ones, and judged.
    #[serde(default)]
    pub made: u64,
    /// Names of those that the verdict refuses, with their ratios.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made_failures: Vec<(String, f64)>,
    /// What the matched filter measured, by operator, of attributes whose loss it could tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<(String, Lost)>,
    /// Operators that it accuses.
    #[serde(default)]
    pub accused: u64,
    /// Operators of which a probe of the range gives NaN or infinity.
    #[serde(rename = "beyond", default)]
    pub overflows: u64,
    /// The largest ratio.
    pub ratio: f64,
    /// Whether each of [`POLICIES`] refuses a call.
    pub policies: Vec<bool>,
    /// Whether a unit test on random normal inputs refuses.
    pub random: bool,
    /// The largest ratio under each set of constants that was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grid: Vec<f64>,
    /// Wall-clock time.
    pub seconds: f64,
}

/// The bench on one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// Platform, device and driver.
    pub target: String,
    /// Models, seed and what else decides which mutants there are; reports go on only where this is equal.
    pub settings: String,
    /// What the programs of these models launch, with the mutants there are.
    #[serde(default)]
    pub rows: Vec<RowMutants>,
    /// Mutants, in the order in which they were tried.
    pub mutants: Vec<MutantRecord>,
    /// Runs without a fault.
    pub clean: Vec<CleanRun>,
    /// Full diagnoses, with one fault, several, or none.
    #[serde(default)]
    pub diagnosed: Vec<Diagnosed>,
    /// Wall-clock time of all sessions together.
    pub seconds: f64,
}

/// How often one policy is right.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PolicyRate {
    /// Name.
    pub policy: String,
    /// Who uses it.
    pub used_by: String,
    /// Faults.
    pub faults: usize,
    /// Faults that it does not see.
    pub missed: usize,
    /// Clean runs.
    pub clean: usize,
    /// Clean runs in which it sees a fault.
    pub false_alarms: usize,
}

impl CleanRun {
    /// Whether a fault is seen where there is none.
    pub fn alarm(&self) -> bool {
        self.failed > 0 || self.accused > 0 || self.overflows > 0 || !self.made_failures.is_empty()
    }
}

impl BenchReport {
    /// Faults and clean runs of one half, or of all.
    ///
    /// `tuned` chooses the half: `true` for what constants were tuned on. The first rows are of TapML's verdict, with more and more of
    /// it left out; then come the policies that it is compared with.
    pub fn rates(&self, tuned: Option<bool>) -> Vec<PolicyRate> {
        let wanted = |own: bool| tuned.is_none_or(|t| t == own);
        let faults: Vec<&MutantRecord> =
            self.mutants.iter().filter(|r| r.real() && wanted(r.tuned_on)).collect();
        let clean: Vec<&CleanRun> = self.clean.iter().filter(|c| wanted(c.tuned_on)).collect();
        let rate = |policy: &str,
                    used_by: &str,
                    sees: &dyn Fn(&MutantRecord) -> bool,
                    alarm: &dyn Fn(&CleanRun) -> bool| PolicyRate {
            policy: policy.into(),
            used_by: used_by.into(),
            faults: faults.len(),
            missed: faults.iter().filter(|r| !sees(r)).count(),
            clean: clean.len(),
            false_alarms: clean.iter().filter(|c| alarm(c)).count(),
        };
        let mut rates =
            vec![rate("verdict and checks", "TapML", &|r| r.sighting.is_caught(), &CleanRun::alarm)];
        rates.push(rate("verdict alone", "TapML", &|r| r.sighting.is_seen(), &CleanRun::alarm));
        // Without made calls their false alarms go, too.
        let unmade = |c: &CleanRun| c.failed > 0 || c.accused > 0 || c.overflows > 0;
        rates.push(rate("verdict, no made calls", "TapML", &|r| r.sighting.seen_unmade(), &unmade));
        // Without the matched filter and the probes only single verdicts are left.
        let elements = |r: &MutantRecord| r.sighting.failed > 0 || r.sighting.error.is_some();
        rates.push(rate("verdict, no filter", "TapML", &elements, &|c| c.failed > 0));
        let unprobed = |r: &MutantRecord| elements(r) || !r.sighting.attributes.is_empty();
        let accused = |c: &CleanRun| c.failed > 0 || c.accused > 0;
        rates.push(rate("verdict, no probes", "TapML", &unprobed, &accused));
        for (i, policy) in POLICIES.iter().enumerate() {
            let sees = |r: &MutantRecord| r.sighting.policies.get(i) == Some(&true);
            rates.push(rate(policy.name, policy.used_by, &sees, &|c| c.policies.get(i) == Some(&true)));
        }
        rates.push(rate("random normal inputs", "unit tests", &|r| r.sighting.random, &|c| c.random));
        rates
    }

    /// How many mutants are of each class.
    pub fn classes(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for record in &self.mutants {
            let name = match record.sighting.class {
                MutantClass::Real => "faults",
                MutantClass::Equivalent => "equivalent here",
                MutantClass::AsExact => "as exact as the original",
                MutantClass::Invalid => "not taken by the compiler",
            };
            *counts.entry(name).or_default() += 1;
        }
        counts
    }

    /// Whether nothing was missed, nothing is false, and nothing is stated as certain that is not so.
    pub fn holds(&self) -> bool {
        let wrong = |d: &Diagnosed| d.error.is_some() || !d.missed.is_empty() || d.false_reports() > 0;
        self.missed_faults().next().is_none()
            && self.certain_and_wrong().next().is_none()
            && self.false_alarms().next().is_none()
            && !self.diagnosed.iter().any(wrong)
    }

    /// Faults that the verdict and the checks do not see.
    pub fn missed_faults(&self) -> impl Iterator<Item = &MutantRecord> {
        self.mutants.iter().filter(|r| r.real() && !r.sighting.is_caught())
    }

    /// Clean runs in which the verdict sees a fault.
    pub fn false_alarms(&self) -> impl Iterator<Item = &CleanRun> {
        self.clean.iter().filter(|c| c.alarm())
    }
}
