//! Migrations of a toy model to a platform that errs as it is told: what is accepted, rejected, left on the source, and
//! what a second run does again.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Twist, Twisted, decode, identity, prompts, sparse, toy};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use tapml_exec::CpuPlatform;
use tapml_graph::{ErrorKind, Model, Result};
use tapml_migrate::ledger::{Entry, OpState};
use tapml_migrate::report::{MigrateReport, Outcome};
use tapml_migrate::suite::{self, Suite};
use tapml_migrate::{
    CheckOptions, MigrateOptions, Oracles, Progress, PromptInput, Quiet, Stop, check, junit, migrate,
};

fn run_with(
    model: &Model,
    ledger: &Path,
    target: &mut Twisted,
    prompts: &[PromptInput],
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<MigrateReport> {
    let options = MigrateOptions { ledger, steps: 3, context: 64, import_seconds: 0.0, decode: &decode };
    let mut source = CpuPlatform::new();
    migrate(model, identity(), prompts, &mut source, target, &options, progress, stop).map(|m| m.report)
}

fn run(model: &Model, ledger: &Path, target: &mut Twisted) -> Result<MigrateReport> {
    run_with(model, ledger, target, &prompts(), &Quiet, &Stop::new())
}

fn state(report: &MigrateReport, op: &str) -> OpState {
    report.ops.iter().find(|o| o.op == op).unwrap().state
}

#[test]
fn a_correct_platform_is_accepted_whole() {
    let dir = tempfile::tempdir().unwrap();
    let model = toy(1);
    let report = run(&model, dir.path(), &mut Twisted::default()).unwrap();
    assert_eq!(report.verdict, Outcome::Accepted);
    let kinds: Vec<&str> = model.graph().op_kinds().iter().map(|k| k.0).collect();
    assert_eq!(report.ops.iter().map(|o| o.op.as_str()).collect::<Vec<_>>(), kinds);
    assert_eq!(report.coverage.calls, report.coverage.checked);
    assert!(report.coverage.skipped.is_empty());
    for op in &report.ops {
        let model = op.model.as_ref().unwrap();
        assert!(
            model.passed && model.text_equal == Some(true) && model.top1_agreement == Some(1.0),
            "{op:?}"
        );
        assert_eq!(model.positions, (6 + 4 + 2 * 3) as u64);
        let check = op.check.as_ref().unwrap();
        assert_eq!(check.histogram.iter().sum::<u64>(), check.cases);
        assert!(check.worst.as_ref().unwrap().ratio <= 1.0);
    }
    for text in &report.texts {
        assert_eq!(Some(&text.source), text.target.as_ref());
    }
    let json = serde_json::to_value(&report).unwrap();
    for field in ["schema", "model", "source", "target", "verdict", "ops", "coverage", "seconds"] {
        assert!(json.get(field).is_some(), "{field}");
    }
    assert_eq!(json["verdict"], "accepted");
    assert_eq!(json["ops"][0]["state"], "accepted");
    for field in ["kl", "top1_agreement", "max_logit_ratio", "text_equal", "passed"] {
        assert!(json["ops"][0]["model"].get(field).is_some(), "{field}");
    }
    for field in ["import", "compile", "carve", "check", "model", "total"] {
        assert!(json["seconds"].get(field).is_some(), "{field}");
    }
    let back: MigrateReport = serde_json::from_value(json).unwrap();
    assert_eq!(back, report);
}

#[test]
fn a_sparse_model_is_accepted_whole_unless_its_router_errs() {
    let model = sparse(1);
    let dir = tempfile::tempdir().unwrap();
    let report = run(&model, dir.path(), &mut Twisted::default()).unwrap();
    assert_eq!(report.verdict, Outcome::Accepted);
    assert_eq!(report.coverage.calls, report.coverage.checked);
    for twist in [Twist::LastColumnZero, Twist::Scale(1.001)] {
        let dir = tempfile::tempdir().unwrap();
        let report = run(&model, dir.path(), &mut Twisted::from_twists(&[("route", twist)])).unwrap();
        for op in &report.ops {
            let expected = if op.op == "route" { OpState::Rejected } else { OpState::Accepted };
            assert_eq!(op.state, expected, "{twist:?}, {}: {:?}", op.op, op.reason);
        }
    }
}

#[test]
fn a_wrong_operator_is_rejected_and_the_rest_goes_on() {
    let cases = [
        ("rms_norm", Twist::LastColumnZero),
        ("rms_norm", Twist::Scale(1.0005)),
        ("attention", Twist::Scale(0.999)),
        ("silu", Twist::Nan),
        ("mul", Twist::Fails),
    ];
    for (op, twist) in cases {
        let dir = tempfile::tempdir().unwrap();
        let report = run(&toy(1), dir.path(), &mut Twisted::from_twists(&[(op, twist)])).unwrap();
        assert_eq!(report.verdict, Outcome::Rejected, "{op} {twist:?}");
        for other in &report.ops {
            let expected = if other.op == op { OpState::Rejected } else { OpState::Accepted };
            assert_eq!(other.state, expected, "{} with {op} {twist:?}: {:?}", other.op, other.reason);
        }
        let rejected = report.ops.iter().find(|o| o.op == op).unwrap();
        let reason = rejected.reason.as_ref().unwrap();
        assert!(reason.contains("cases exceed the allowed error"), "{reason}");
        if twist == Twist::LastColumnZero {
            assert!(reason.contains("only in columns 23"), "{reason}");
        }
        if twist == Twist::Fails {
            assert!(reason.contains("unknown name"), "{reason}");
        }
        assert!(rejected.model.is_none());
        assert!(report.texts.iter().all(|t| Some(&t.source) == t.target.as_ref()));
    }
}

#[test]
fn an_operator_that_errs_only_in_the_whole_model_is_rejected_there() {
    let dir = tempfile::tempdir().unwrap();
    let report =
        run(&toy(1), dir.path(), &mut Twisted::from_twists(&[("silu", Twist::ScaleInModel(1.01))])).unwrap();
    let silu = report.ops.iter().find(|o| o.op == "silu").unwrap();
    assert_eq!(silu.state, OpState::Rejected);
    assert_eq!(silu.check.as_ref().unwrap().failed, 0);
    let model = silu.model.as_ref().unwrap();
    assert!(!model.passed && model.max_logit_ratio > 10.0, "{model:?}");
    assert!(silu.reason.as_ref().unwrap().contains("logits differ"), "{:?}", silu.reason);
    assert_eq!(state(&report, "mul"), OpState::Accepted);
}

#[test]
fn errors_of_the_size_that_the_verdict_allows_pass_in_the_whole_model() {
    let dir = tempfile::tempdir().unwrap();
    let slight =
        ["linear", "rms_norm", "attention", "silu", "mul", "add"].map(|op| (op, Twist::Scale(1.0 + 2e-7)));
    let report = run(&toy(1), dir.path(), &mut Twisted::from_twists(&slight)).unwrap();
    assert_eq!(
        report.verdict,
        Outcome::Accepted,
        "{:?}",
        report.ops.iter().map(|o| &o.reason).collect::<Vec<_>>()
    );
    let last = report.ops.last().unwrap().model.as_ref().unwrap();
    assert!(last.max_logit_ratio > 0.001, "the errors are seen: {last:?}");
}

#[test]
fn a_missing_kernel_stays_on_the_source_and_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let report =
        run(&toy(1), dir.path(), &mut Twisted::from_twists(&[("rope", Twist::Unsupported)])).unwrap();
    assert_eq!(report.verdict, Outcome::Incomplete);
    assert_eq!(state(&report, "rope"), OpState::Unsupported);
    assert_eq!(state(&report, "attention"), OpState::Accepted);
    let names: Vec<&str> = report.coverage.skipped.iter().map(|s| s.node.as_str()).collect();
    assert_eq!(names, ["layers.0.q_rope", "layers.0.k_rope", "layers.1.q_rope", "layers.1.k_rope"]);
    assert!(report.coverage.skipped[0].reason.contains("no kernel for `rope`"));
    assert_eq!(report.coverage.checked, report.coverage.calls - 4 * 8);
}

#[test]
fn calls_refused_when_run_leave_their_nodes_on_the_source_and_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let mut target = Twisted::from_twists(&[("silu", Twist::DecodeOnly)]);
    for turn in ["fresh", "from the ledger"] {
        let report = run(&toy(1), dir.path(), &mut target).unwrap();
        assert_eq!(report.verdict, Outcome::Incomplete, "{turn}");
        let silu = report.ops.iter().find(|o| o.op == "silu").unwrap();
        assert_eq!(silu.state, OpState::Unsupported, "{turn}");
        assert!(silu.reason.as_ref().unwrap().contains("more than one row"), "{:?}", silu.reason);
        let names: Vec<&str> = report.coverage.skipped.iter().map(|s| s.node.as_str()).collect();
        assert_eq!(names, ["layers.0.silu", "layers.1.silu"], "{turn}");
    }
}

#[test]
fn a_lost_device_ends_the_migration_and_keeps_what_is_decided() {
    let dir = tempfile::tempdir().unwrap();
    let error =
        run(&toy(1), dir.path(), &mut Twisted::from_twists(&[("attention", Twist::Lost)])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
    let mut target = Twisted::default();
    let report = run(&toy(1), dir.path(), &mut target).unwrap();
    assert_eq!(report.verdict, Outcome::Accepted);
    assert!(target.replayed.load(Ordering::Relaxed) < report.coverage.calls);
}

#[test]
fn a_second_run_does_nothing_and_a_changed_kernel_what_depends_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let model = toy(1);
    let mut target = Twisted::default();
    let first = run(&model, dir.path(), &mut target).unwrap();
    let counts = |t: &Twisted| (t.replayed.swap(0, Ordering::Relaxed), t.runs.swap(0, Ordering::Relaxed));
    let (replayed, runs) = counts(&target);
    let checks = || first.ops.iter().filter_map(|op| op.check.as_ref());
    let probes: u64 = checks().map(|check| check.probes).sum();
    assert_eq!(probes, 1, "`silu` saturates");
    let made: u64 = checks().map(|check| check.made).sum();
    assert!(
        made > 0 && checks().all(|check| check.regimes.is_empty()),
        "kernels of a foreign platform: {made}"
    );
    assert_eq!(replayed, first.coverage.calls + probes + made);
    assert!(runs > 0);

    let second = run(&model, dir.path(), &mut target).unwrap();
    assert_eq!(counts(&target), (0, 0));
    assert_eq!(second.ops, first.ops);
    assert_eq!(second.verdict, Outcome::Accepted);

    // `silu` comes late: what was decided before it stands.
    target.version.insert("silu", 1);
    let third = run(&model, dir.path(), &mut target).unwrap();
    let (replayed, later) = counts(&target);
    let silu = third.ops.iter().find(|op| op.op == "silu").and_then(|op| op.check.as_ref()).unwrap();
    assert_eq!(replayed, 2 * 8 + probes + silu.made, "two nodes in eight runs, the probe, and extreme rows");
    assert!(later > 0 && later < runs, "{later} of {runs}");
    assert_eq!(third.verdict, Outcome::Accepted);

    // Other prompts are another suite.
    let other = [PromptInput { text: "x".into(), ids: vec![1, 2, 3], image: None, most_steps: None }];
    let fourth = run_with(&model, dir.path(), &mut target, &other, &Quiet, &Stop::new()).unwrap();
    let made: u64 = fourth.ops.iter().filter_map(|op| op.check.as_ref()).map(|check| check.made).sum();
    assert_eq!(counts(&target).0, 4 * model.graph().nodes().len() as u64 + probes + made);
}

/// Stops the migration once so many operators are decided.
struct StopAfter<'a> {
    left: Mutex<u32>,
    stop: &'a Stop,
}

impl Progress for StopAfter<'_> {
    fn on_decided(&self, _entry: &Entry) {
        let mut left = self.left.lock().unwrap();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.stop.request();
        }
    }
}

#[test]
fn an_interrupted_migration_goes_on_where_it_was() {
    let model = toy(1);
    let whole = tempfile::tempdir().unwrap();
    let mut reference = Twisted::default();
    run(&model, whole.path(), &mut reference).unwrap();
    let all = reference.replayed.load(Ordering::Relaxed);
    for after in 1..5 {
        let dir = tempfile::tempdir().unwrap();
        let mut target = Twisted::default();
        let stop = Stop::new();
        let progress = StopAfter { left: Mutex::new(after), stop: &stop };
        let error = run_with(&model, dir.path(), &mut target, &prompts(), &progress, &stop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        assert!(error.hint().unwrap().contains("run the same command again"), "{error}");
        let before = target.replayed.load(Ordering::Relaxed);
        assert!(before > 0 && before < all);
        let report = run(&model, dir.path(), &mut target).unwrap();
        assert_eq!(report.verdict, Outcome::Accepted);
        assert_eq!(target.replayed.load(Ordering::Relaxed), all, "nothing is replayed twice");
    }
}

#[test]
fn a_killed_migration_goes_on_where_it_was() {
    // The child is this test binary; it kills itself the hard way after two operators.
    if let Some(folder) = std::env::var_os("TAPML_TEST_KILLED") {
        struct Abort(Mutex<u32>);
        impl Progress for Abort {
            fn on_decided(&self, _entry: &Entry) {
                let mut left = self.0.lock().unwrap();
                *left += 1;
                // The third decision is announced before it is saved: it is lost, the two before it are not.
                if *left == 3 {
                    std::process::abort();
                }
            }
        }
        let _ = run_with(
            &toy(1),
            Path::new(&folder),
            &mut Twisted::default(),
            &prompts(),
            &Abort(Mutex::new(0)),
            &Stop::new(),
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_migration_goes_on_where_it_was"])
        .env("TAPML_TEST_KILLED", dir.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(!status.success());
    let model = toy(1);
    let mut target = Twisted::default();
    let report = run(&model, dir.path(), &mut target).unwrap();
    assert_eq!(report.verdict, Outcome::Accepted);
    let kinds = model.graph().op_kinds();
    let done: u64 = kinds[..2].iter().map(|k| k.1 as u64 * 8).sum();
    let replayed = target.replayed.load(Ordering::Relaxed);
    assert!(replayed <= report.coverage.calls - done, "{replayed} of {} after {done}", report.coverage.calls);
}

#[test]
fn a_damaged_suite_is_carved_again_and_another_model_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let model = toy(1);
    run(&model, dir.path(), &mut Twisted::default()).unwrap();
    let bin = dir.path().join("suite").join(suite::TENSORS);
    let mut bytes = fs::read(&bin).unwrap();
    bytes[40] ^= 1;
    fs::write(&bin, bytes).unwrap();
    struct Notes(Mutex<Vec<String>>);
    impl Progress for Notes {
        fn note(&self, text: &str) {
            self.0.lock().unwrap().push(text.into());
        }
    }
    let notes = Notes(Mutex::default());
    let mut target = Twisted::default();
    let report = run_with(&model, dir.path(), &mut target, &prompts(), &notes, &Stop::new()).unwrap();
    assert_eq!(report.verdict, Outcome::Accepted);
    assert!(
        notes.0.lock().unwrap().iter().any(|n| n.contains("carving again") && n.contains("changed since"))
    );
    assert_eq!(target.replayed.load(Ordering::Relaxed), 0, "the same suite came out");
    Suite::open(&dir.path().join("suite")).unwrap().verify().unwrap();

    let error = run(&toy(2), dir.path(), &mut Twisted::default()).unwrap_err();
    assert!(error.to_string().contains("is of model `toy` at `models/toy`"), "{error}");
    assert!(error.hint().unwrap().contains("--ledger"));
}

#[test]
fn check_reports_and_junit_name_every_case() {
    let dir = tempfile::tempdir().unwrap();
    let model = toy(1);
    run(&model, dir.path(), &mut Twisted::default()).unwrap();
    let suite = Suite::open(&dir.path().join("suite")).unwrap();
    let replay = suite.model(Some(&model)).unwrap();
    let oracles = Oracles::new(usize::MAX);
    let mut target = Twisted::from_twists(&[("rope", Twist::Unsupported), ("add", Twist::Scale(1.001))]);
    let mut go =
        |options: &CheckOptions| check(&suite, &replay, &mut target, &oracles, options, &Quiet, &Stop::new());
    let checked = go(&CheckOptions::default()).unwrap();
    let report = &checked.report;
    assert!(!report.passes());
    assert_eq!(report.cases + report.skipped.len() as u64, suite.cases().count() as u64);
    assert_eq!(report.skipped.len(), 4 * 8);
    assert_eq!(report.failed, 4 * 8);
    let add = report.ops.iter().find(|o| o.op == "add").unwrap();
    assert_eq!((add.cases, add.failed), (32, 32));
    assert!(add.worst.as_ref().unwrap().ratio > 100.0);
    assert!(
        add.failures[0].pattern.as_ref().unwrap().text.contains("scaled by 1.001"),
        "{:?}",
        add.failures[0]
    );
    let xml = junit(&checked, &suite).unwrap();
    assert!(xml.contains("p0.s0.layers.0.residual") && xml.contains("no kernel for"), "{xml:.500}");
    let made: usize = report.ops.iter().map(|op| op.made_failures.len()).sum();
    assert!(made > 0, "rows of zeros and ties are scaled, too");
    assert_eq!(xml.matches("<testcase").count(), suite.cases().count() + made);
    let json = serde_json::to_value(report).unwrap();
    for field in ["schema", "suite", "target", "cases", "failed", "skipped", "ops", "seconds"] {
        assert!(json.get(field).is_some(), "{field}");
    }
    for field in ["op", "kernel", "cases", "failed", "worst", "seconds"] {
        assert!(json["ops"][0].get(field).is_some(), "{field}");
    }

    let only = go(&CheckOptions { ops: vec!["add".into()], ..CheckOptions::default() }).unwrap();
    assert_eq!((only.report.cases, only.report.ops.len()), (32, 1));
    let one =
        go(&CheckOptions { cases: vec!["p1.s2.layers.1.silu".into()], ..CheckOptions::default() }).unwrap();
    assert_eq!((one.report.cases, one.report.failed), (1, 0));
    let error = go(&CheckOptions { ops: vec!["conv".into()], ..CheckOptions::default() }).unwrap_err();
    assert!(error.hint().unwrap().contains("rms_norm"), "{error}");
}
