//! A check's report as JUnit XML, for continuous integration: one suite per operator, one test per case, and
//! one for each defect that a checking device found.
//!
//! A wrong result is a failure; a call that could not be run is an error.

use crate::check::Checked;
use crate::report::is_defect;
use crate::suite::Suite;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use tapml_graph::{Error, Result};

/// The XML text.
pub fn junit(checked: &Checked, suite: &Suite) -> Result<String> {
    let target = &checked.report.target;
    let mut report = Report::new(format!("tapml check on {}", target.platform));
    for op in &checked.report.ops {
        let mut tests = TestSuite::new(op.op.clone());
        tests.add_property(("kernel", op.kernel.as_str()));
        tests.add_property(("device", target.device.as_str()));
        let of_op = checked.results.iter().filter(|r| suite.graph().node(r.case.node).op.name() == op.op);
        for result in of_op {
            let status = match &result.outcome {
                Ok(j) if j.passes() => TestCaseStatus::success(),
                Ok(j) => {
                    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                    let pattern = j.pattern.as_ref().map(|p| p.text.as_str()).unwrap_or_default();
                    status.set_message(format!(
                        "{:.3e} times the allowed error ({}): {pattern}",
                        j.ratio,
                        j.criterion.name()
                    ));
                    status.set_type("verdict");
                    status
                }
                Err(e) => {
                    let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
                    status.set_message(e.to_string());
                    status.set_type(e.kind().name());
                    status
                }
            };
            tests.add_test_case(TestCase::new(suite.case_id(result.case), status));
        }
        let skipped = checked.report.skipped.iter().filter(|s| {
            suite.find_case(&s.case).is_ok_and(|c| suite.graph().node(c.node).op.name() == op.op)
        });
        for skipped in skipped {
            let mut status = TestCaseStatus::skipped();
            status.set_message(skipped.reason.clone());
            tests.add_test_case(TestCase::new(skipped.case.clone(), status));
        }
        for beyond in &op.overflows {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(beyond.text());
            status.set_type("probe");
            tests.add_test_case(TestCase::new(format!("probe {}", beyond.node), status));
        }
        for failure in &op.made_failures {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(failure.error.clone().unwrap_or_else(|| failure.criterion.clone()));
            status.set_type("made");
            tests.add_test_case(TestCase::new(failure.case.clone(), status));
        }
        for finding in op.findings.iter().filter(|f| is_defect(f)) {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(finding.to_string());
            status.set_type(finding.kind.name());
            tests.add_test_case(TestCase::new(format!("{} {}", finding.file, finding.line), status));
        }
        report.add_test_suite(tests);
    }
    report.to_string().map_err(|e| Error::bug(format!("JUnit report: {e}")))
}
