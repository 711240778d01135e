//! Whether the causes that diagnoses state are those that their faults have, and whether what is stated as certain is right.
//!
//! The causes that are expected stand with the mutation operators, and are looked up by the id of the fault.

use super::report::BenchReport;
use super::whole::{Diagnosed, Reported};
use crate::mutant::Family;
use crate::operators::{BETWEEN, OPERATORS, appends};
use serde::Serialize;
use std::collections::BTreeMap;
use tapml_cause::Cause;

/// What is told of the faults of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CauseRate {
    /// The family; `further reports` for those that stand for no fault, or repeat one.
    pub family: String,
    /// Faults that were diagnosed.
    pub faults: usize,
    /// Reports that stand for them.
    pub reported: usize,
    /// Reports whose cause is among those expected.
    pub right: usize,
    /// Reports that are stated as certain.
    pub certain: usize,
    /// Reports that are stated as certain, with another cause than those expected.
    pub certain_wrong: usize,
}

/// The row of reports that stand for no fault.
/// Their causes are compared with those of all faults of the run.
const FURTHER: &str = "further reports";

/// Family and expected causes of a fault, by its id `MODEL/OP/OPERATOR/HASH`.
/// `None` for ids of operators that do not exist.
fn known_fault(id: &str) -> Option<(Family, &'static [Cause])> {
    let mut parts = id.split('/').skip(1);
    let (op, operator) = (parts.next()?, parts.next()?);
    let kernel = OPERATORS.iter().find(|o| o.name == operator);
    let kernel = kernel.map(|o| (if appends(op) { Family::State } else { o.family }, o.causes));
    kernel.or_else(|| BETWEEN.iter().find(|o| o.name == operator).map(|o| (o.family, o.causes)))
}

/// Whether the cause is among those expected: of its fault, or, of a report that stands for none, of any fault of the run.
fn right(diagnosed: &Diagnosed, report: &Reported) -> bool {
    let expects =
        |id: &String| known_fault(id).is_some_and(|(_, c)| c.iter().any(|c| c.name() == report.cause));
    match &report.bug {
        Some(bug) => expects(bug),
        None => diagnosed.bugs.iter().any(expects),
    }
}

impl BenchReport {
    /// How often the stated cause is right, by family, and in all.
    pub fn causes(&self) -> Vec<CauseRate> {
        let mut rows: BTreeMap<String, CauseRate> = BTreeMap::new();
        let name = |id: &str| known_fault(id).map_or(FURTHER, |(family, _)| family.name());
        for d in &self.diagnosed {
            for bug in &d.bugs {
                rows.entry(name(bug).into()).or_default().faults += 1;
            }
            for report in &d.reports {
                let row = rows.entry(report.bug.as_deref().map_or(FURTHER, name).into()).or_default();
                let right = right(d, report);
                row.reported += 1;
                row.right += usize::from(right);
                row.certain += usize::from(report.certain);
                // This is the number that must be zero.
                row.certain_wrong += usize::from(report.certain && !right);
            }
        }
        let mut rows: Vec<CauseRate> =
            rows.into_iter().map(|(family, row)| CauseRate { family, ..row }).collect();
        let mut all = CauseRate { family: "all".into(), ..CauseRate::default() };
        for row in &rows {
            all.faults += row.faults;
            all.reported += row.reported;
            all.right += row.right;
            all.certain += row.certain;
            all.certain_wrong += row.certain_wrong;
        }
        // The sum stands last, behind the families in alphabetical order.
        rows.push(all);
        rows
    }

    /// Reports that are stated as certain and wrong, with the diagnoses they belong to.
    pub fn certain_and_wrong(&self) -> impl Iterator<Item = (&Diagnosed, &Reported)> {
        let reports = self.diagnosed.iter().flat_map(|d| d.reports.iter().map(move |r| (d, r)));
        reports.filter(|(d, r)| r.certain && !right(d, r))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(cause: &str, certain: bool, bug: Option<&str>) -> Reported {
        Reported {
            op: "linear".into(),
            kind: "operator".into(),
            cause: cause.into(),
            certain,
            ratio: 9.0,
            evidence: String::new(),
            bug: bug.map(String::from),
        }
    }

    #[test]
    fn faults_of_kernels_that_append_are_of_a_state() {
        let family = |id: &str| known_fault(id).map(|(family, _)| family);
        assert_eq!(family("m/append/wrong-sign/1"), Some(Family::State));
        assert_eq!(family("m/rope_append/wrong-sign/1"), Some(Family::State));
        assert_eq!(family("m/rope/wrong-sign/1"), Some(Family::Arithmetic));
    }

    #[test]
    fn certain_and_wrong_causes_are_counted_by_family() {
        let (sign, slot) = ("m/linear/wrong-sign/1", "m/append/wrong-sign/2");
        let diagnosed = Diagnosed {
            name: "several/m/0.0".into(),
            model: "m".into(),
            tuned_on: false,
            bugs: vec![sign.into(), slot.into(), "m/rope/late/3".into()],
            equivalent: Vec::new(),
            reports: vec![
                report("wrong_sign", true, Some(sign)),
                report("transposed", true, Some(slot)),
                report("not_written", false, None),
                report("rounding", true, None),
            ],
            missed: vec!["m/rope/late/3".into()],
            named: 1,
            error: None,
            seconds: 1.0,
        };
        let found = BenchReport { diagnosed: vec![diagnosed], ..BenchReport::default() };
        let row = |name: &str| {
            let rows = found.causes();
            let row = rows.iter().find(|r| r.family == name).unwrap();
            [row.faults, row.reported, row.right, row.certain, row.certain_wrong]
        };
        assert_eq!(row("arithmetic"), [1, 1, 1, 1, 0]);
        assert_eq!(row("state"), [1, 1, 0, 1, 1], "a fault of a cache, whatever the change");
        assert_eq!(row("between"), [1, 0, 0, 0, 0], "missed");
        assert_eq!(row(FURTHER), [0, 2, 1, 1, 1]);
        assert_eq!(row("all"), [3, 4, 2, 3, 2]);
        let wrong: Vec<&str> = found.certain_and_wrong().map(|(_, r)| r.cause.as_str()).collect();
        assert_eq!(wrong, ["transposed", "rounding"]);
    }
}
