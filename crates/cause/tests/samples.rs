//! Outputs of every operator, right ones and ones spoilt after the fact.
#![allow(clippy::unwrap_used)]

mod common;

use common::{brief, samples};
use std::time::Instant;
use tapml_cause::Cause;

#[test]
fn correct_outputs_have_no_cause() {
    for case in samples() {
        let said = case.explain(case.correct.clone());
        let judged = case.judge(&case.correct);
        assert!(judged.passes(), "{}: {judged:?}", case.name);
        assert!(
            said.cause == Cause::Unknown && !said.certain && said.fit == 0.0,
            "{}: {}",
            case.name,
            brief(&said)
        );
    }
}

#[test]
fn outputs_that_are_not_written_are_named() {
    let mut slowest = (0.0, String::new());
    for case in samples() {
        let zeros = case.change_outputs(|values, _| values.fill(0.0));
        if !case.fails(&zeros) {
            continue;
        }
        let start = Instant::now();
        let said = case.explain(zeros);
        let seconds = start.elapsed().as_secs_f64();
        if seconds > slowest.0 {
            slowest = (seconds, case.name.clone());
        }
        assert!(said.cause == Cause::NotWritten || !said.certain, "{}: {}", case.name, brief(&said));
    }
    println!("slowest: {slowest:?}");
}

#[test]
fn every_cause_is_documented() {
    let page = std::fs::read_to_string(tapml_testing::root().join("docs/reference/causes.md")).unwrap();
    for cause in Cause::ALL {
        assert!(page.contains(&format!("`{cause}`")), "docs/reference/causes.md does not tell of `{cause}`");
    }
}
