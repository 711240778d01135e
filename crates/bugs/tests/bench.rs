//! A small run of the bench: every fault of a few of every family is seen, and nothing else.
#![allow(clippy::unwrap_used)]

mod common;

use common::ids;
use std::collections::HashSet;
use std::sync::{Mutex, OnceLock};
use tapml_bugs::bench::{
    BenchReport, Fixture, FixtureOptions, MutantRecord, POLICIES, PlannedCase, Prepared, RunOptions,
    Sampling, Selection, clean, diagnoses, kernels, platform,
};
use tapml_bugs::mutation_score::{ScoreOptions, score, seek};
use tapml_bugs::{Catalogue, Family, Mutant, Workbench};
use tapml_device::Device;
use tapml_emulator::{Checks, Emulator, EmulatorOptions};
use tapml_graph::Packing;
use tapml_graph::rewrite::quantize;
use tapml_graph::{DType, Model, Origin, Result, Tensor, Value, fuse};
use tapml_import::Checkpoint;
use tapml_migrate::{CheckOptions, Quiet, Stop, check};

fn open() -> Result<Box<dyn Device>> {
    Ok(Box::new(Emulator::new(EmulatorOptions::default())?))
}

fn open_gpu() -> Result<Box<dyn Device>> {
    Ok(Box::new(Emulator::new(EmulatorOptions { gpu: true, ..EmulatorOptions::default() })?))
}

fn open_checker() -> Result<Box<dyn Device>> {
    Ok(Box::new(Emulator::new(EmulatorOptions { check: Checks::ALL, ..EmulatorOptions::default() })?))
}

fn run() -> RunOptions<'static> {
    common::run(&open, &open_checker)
}

fn model() -> Model {
    common::model(&tapml_testing::model("llama_draft"))
}

fn fixture(folder: &std::path::Path) -> Fixture {
    let options = FixtureOptions { prompts: vec![ids(1, 11), ids(500, 5)], steps: 1 };
    Fixture::carve("llama_draft", &model(), &options, folder, &Quiet, &Stop::new()).unwrap()
}

fn catalogue() -> &'static Catalogue {
    static MADE: OnceLock<Catalogue> = OnceLock::new();
    MADE.get_or_init(|| {
        let info = Workbench::new(open().unwrap()).info().clone();
        Catalogue::generate("llama_draft", model().graph(), &info).unwrap()
    })
}

/// A few of each family of kernel faults.
fn sample_mutants(count: usize) -> Vec<Mutant> {
    let families = Family::ALL.into_iter().filter(|f| *f != Family::Between);
    let of = |family| {
        let all = catalogue().mutants.iter().filter(|m| !m.is_between()).cloned();
        Selection { families: vec![family], limit: Some(count), ..Selection::default() }.choose_mutants(all)
    };
    families.flat_map(of).collect()
}

fn run_mutants(bed: &Fixture, mutants: &[Mutant]) -> Vec<MutantRecord> {
    common::run_mutants(bed, mutants, &run())
}

#[test]
fn every_fault_of_every_family_is_seen_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let bed = fixture(folder.path());
    let mutants = sample_mutants(4);
    let mut report = BenchReport { mutants: run_mutants(&bed, &mutants), ..BenchReport::default() };
    assert_eq!(report.mutants.len(), mutants.len());
    let options = run();
    let prepared = Prepared::new(std::slice::from_ref(&bed), options.sampling);
    report.clean.push(clean(&bed, "llama_draft", &prepared, &options).unwrap());
    let missed: Vec<&String> = report.missed_faults().map(|r| &r.id).collect();
    assert!(missed.is_empty(), "{missed:?}");
    assert_eq!(report.false_alarms().count(), 0, "{:?}", report.clean);
    let real = report.mutants.iter().filter(|r| r.real()).count();
    assert!(real >= mutants.len() / 2, "{real} of {} mutants are faults", mutants.len());
    let rates = report.rates(None);
    assert_eq!(rates.len(), POLICIES.len() + 6);
    assert_eq!((rates[0].faults, rates[0].missed, rates[0].clean, rates[0].false_alarms), (real, 0, 1, 0));
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<BenchReport>(&text).unwrap(), report);
}

#[test]
fn missing_barriers_change_nothing_on_the_emulator_and_are_found_by_its_checks() {
    let folder = tempfile::tempdir().unwrap();
    let barriers = |m: &&Mutant| m.operator == "no-barrier" && m.op == "rms_norm";
    let mutants: Vec<Mutant> = catalogue().mutants.iter().filter(barriers).cloned().collect();
    assert!(mutants.len() >= 3);
    let records = run_mutants(&fixture(folder.path()), &mutants);
    // The last barrier of the sum lets a second sum begin, which this kernel has not.
    let seen = records.iter().filter(|r| r.sighting.findings > 0).count();
    assert_eq!(seen, records.len() - 1, "{records:?}");
    assert!(records.iter().all(|r| r.sighting.failed == 0 && (r.sighting.findings == 0 || r.real())));
}

#[test]
fn a_kernel_that_does_not_end_is_a_fault_and_the_bench_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let bed = fixture(folder.path());
    // A bound that loses its offset and then 1 runs below zero.
    let endless = |m: &&Mutant| m.op == "attention" && m.operator == "offset-ignored";
    let (mut mutants, others): (Vec<Mutant>, Vec<Mutant>) =
        catalogue().mutants.iter().filter(endless).cloned().partition(|m| m.diff.contains(" - 1u"));
    mutants.extend(others.into_iter().take(2));
    let open = || -> Result<Box<dyn Device>> {
        let timeout = Some(std::time::Duration::from_secs(2));
        Ok(Box::new(Emulator::new(EmulatorOptions { timeout, ..EmulatorOptions::default() })?))
    };
    let options = RunOptions { open: &open, workers: 1, ..run() };
    let prepared = Prepared::new(std::slice::from_ref(&bed), options.sampling);
    let found = Mutex::new(Vec::new());
    let add = |record: MutantRecord| found.lock().unwrap().push(record);
    assert!(kernels(&prepared, &mutants, &options, &add, &Quiet, &Stop::new()).unwrap());
    let found = found.into_inner().unwrap();
    assert_eq!(found.len(), mutants.len(), "the bench goes on");
    let lost: Vec<&MutantRecord> = found.iter().filter(|r| r.sighting.lost).collect();
    assert_eq!(lost.len(), 1, "{found:?}");
    assert!(lost[0].real() && lost[0].sighting.is_caught());
    assert!(lost[0].sighting.error.as_ref().unwrap().starts_with("did not end"), "{lost:?}");
    // A diagnosis loses the device too, and says so.
    let case = PlannedCase::single(mutants.iter().find(|m| m.id == lost[0].id).unwrap());
    let found = Mutex::new(Vec::new());
    let add = |diagnosed| found.lock().unwrap().push(diagnosed);
    diagnoses(std::slice::from_ref(&bed), &[case], &options, &add, &Quiet, &Stop::new()).unwrap();
    let diagnosed = found.into_inner().unwrap();
    assert!(diagnosed[0].error.as_ref().unwrap().contains("still running"), "{diagnosed:?}");
}

/// A model with windows and soft caps, if it is here, and a folder for its calls.
fn gemma2() -> Option<(tempfile::TempDir, Model)> {
    let checkpoint = Checkpoint::open(tapml_testing::extra_model("gemma2")?).unwrap();
    let model = checkpoint.model().with_graph(fuse(checkpoint.graph()).unwrap()).unwrap();
    Some((tempfile::tempdir().unwrap(), model))
}

/// What `tapml check` says of one operator on a device with this fault, or none.
fn check_operator(bed: &Fixture, op: &str, mutants: &[Mutant]) -> tapml_migrate::report::CheckReport {
    let bench = Workbench::new(open().unwrap());
    let mut target = platform(&bench, mutants);
    let options = CheckOptions { ops: vec![op.into()], ..CheckOptions::default() };
    check(&bed.suite, &bed.model, &mut target, &bed.oracles, &options, &Quiet, &Stop::new()).unwrap().report
}

#[test]
fn an_attribute_that_no_element_misses_is_found_lost() {
    let Some((folder, model)) = gemma2() else { return };
    let options = FixtureOptions { prompts: vec![ids(1, 12), ids(500, 7)], steps: 1 };
    let bed = Fixture::carve("gemma2", &model, &options, folder.path(), &Quiet, &Stop::new()).unwrap();
    let info = Workbench::new(open().unwrap()).info().clone();
    let all = Catalogue::generate("gemma2", model.graph(), &info).unwrap().mutants;
    let op = "add_rms_norm";
    let lost: Vec<&Mutant> = all
        .iter()
        .filter(|m| m.op == op && m.operator == "dropped-term" && m.diff.contains("+ EPS"))
        .collect();
    assert_eq!(lost.len(), 1);
    let records = run_mutants(&bed, std::slice::from_ref(lost[0]));
    let sighting = &records[0].sighting;
    assert_eq!((sighting.failed, sighting.attributes[0].attribute.as_str()), (0, "eps"), "{sighting:?}");
    assert!((sighting.attributes[0].share - 1.0).abs() < 0.2 && records[0].real(), "{sighting:?}");
    let report = check_operator(&bed, op, std::slice::from_ref(lost[0]));
    let failure = &report.ops[0].failures[0];
    assert_eq!((report.failed, failure.criterion.as_str()), (1, "an attribute left out"));
    assert!(failure.pattern.as_ref().unwrap().text.contains("`eps`"), "{failure:?}");
    assert_eq!(check_operator(&bed, op, &[]).failed, 0);
}

#[test]
fn a_probe_tells_what_no_recorded_input_reaches() {
    let Some((folder, model)) = gemma2() else { return };
    let options = FixtureOptions { prompts: vec![ids(1, 6)], steps: 1 };
    let bed = Fixture::carve("gemma2", &model, &options, folder.path(), &Quiet, &Stop::new()).unwrap();
    let info = Workbench::new(open().unwrap()).info().clone();
    let all = Catalogue::generate("gemma2", model.graph(), &info).unwrap().mutants;
    for op in ["softcap", "attention"] {
        let overflowing: Vec<Mutant> =
            all.iter().filter(|m| m.op == op && m.operator == "overflowing-tanh").cloned().collect();
        assert_eq!(overflowing.len(), 1);
        let report = check_operator(&bed, op, &overflowing);
        let found = &report.ops[0];
        assert!(report.failed == 0 && !report.passes() && found.probes > 0, "{found:?}");
        let beyond = &found.overflows[0];
        assert!(beyond.observed == "NaN" && beyond.input.abs() > beyond.recorded, "{beyond:?}");
        let clean = check_operator(&bed, op, &[]);
        assert!(clean.passes() && clean.ops[0].probes == found.probes, "{clean:?}");
        let records = run_mutants(&bed, &overflowing);
        assert!(records[0].sighting.is_caught() && records[0].sighting.failed == 0, "{records:?}");
        let found = Mutex::new(Vec::new());
        let add = |diagnosed| found.lock().unwrap().push(diagnosed);
        let case = PlannedCase::single(&overflowing[0]);
        diagnoses(std::slice::from_ref(&bed), &[case], &run(), &add, &Quiet, &Stop::new()).unwrap();
        let found = found.into_inner().unwrap();
        assert!(found[0].missed.is_empty() && found[0].reports.len() == 1, "{found:?}");
        assert_eq!((found[0].reports[0].cause.as_str(), found[0].named), ("overflow", 1), "{found:?}");
    }
}

/// A tile loop that begins at element 1 leaves nothing out, because tiles are loaded from multiples of 4; but its partial
/// sums never join, so that all products are added up one by one.
#[test]
fn a_sum_longer_than_declared_is_seen_in_the_kernels_of_a_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::open(tapml_testing::model("llama")).unwrap();
    let model = checkpoint.model().with_graph(fuse(checkpoint.graph()).unwrap()).unwrap();
    let options = FixtureOptions { prompts: vec![ids(1, 12)], steps: 1 };
    let bed = Fixture::carve("llama", &model, &options, folder.path(), &Quiet, &Stop::new()).unwrap();
    let info = Workbench::new(open_gpu().unwrap()).info().clone();
    let all = Catalogue::generate("llama", model.graph(), &info).unwrap().mutants;
    let late = |m: &&Mutant| m.op == "linear" && m.diff.contains("+ for (var k = 1u; k < K; k += DEPTH)");
    let late: Vec<Mutant> = all.iter().filter(late).cloned().collect();
    assert_eq!(late.len(), 1);
    let found = Mutex::new(Vec::new());
    let add = |record| found.lock().unwrap().push(record);
    let prepared = Prepared::new(std::slice::from_ref(&bed), Sampling::default());
    let options = RunOptions { open: &open_gpu, checker: None, ..run() };
    kernels(&prepared, &late, &options, &add, &Quiet, &Stop::new()).unwrap();
    let sighting = found.into_inner().unwrap().remove(0).sighting;
    assert!(sighting.failed == 0 && sighting.ratio < 1.0 && sighting.is_caught(), "{sighting:?}");
    let [declared, shown] = sighting.overflows[0].chain.unwrap();
    assert!(shown > 2 * declared, "{declared} declared, {shown} shown");
    let run = clean(&bed, "llama/clean", &prepared, &options).unwrap();
    assert!(!run.alarm(), "{run:?}");
}

/// A weight in 4 bits, 32 elements to a scale and a zero point.
fn pack_weight(weight: &Tensor, packing: Packing) -> Tensor {
    let (mut words, mut scales, mut zeros) = (Vec::new(), Vec::new(), Vec::new());
    for group in weight.to_f64().chunks(32) {
        let bound = |pick: fn(f64, f64) -> f64| group.iter().copied().fold(0.0, pick);
        let (least, most) = (bound(f64::min), bound(f64::max));
        let scale = ((most - least) / 15.0).max(1e-6);
        let zero = (-least / scale).round();
        scales.push(scale);
        zeros.push(zero);
        for eight in group.chunks(8) {
            let value = |v: &f64| (v / scale + zero).round().clamp(0.0, 15.0) as u32;
            let word = eight.iter().rev().fold(0u32, |word, v| word << 4 | value(v));
            words.extend(word.to_le_bytes());
        }
    }
    let halves = |values: &[f64]| Tensor::from_f64(DType::F16, vec![values.len()], values).unwrap();
    let (scales, zeros) = (halves(&scales), halves(&zeros));
    Tensor::from_packed(packing, weight.shape().to_vec(), &[&words, scales.bytes(), zeros.bytes()]).unwrap()
}

/// The model with all matrices but the embedding in 4 bits.
fn quantised_model() -> Model {
    let checkpoint = Checkpoint::open(tapml_testing::model("llama_draft")).unwrap();
    let (plain, packing) = (checkpoint.model(), Packing::integers(4, 32, true));
    let chosen = |v: &Value| v.name.ends_with("proj.weight");
    let graph = quantize(checkpoint.graph(), &|v| chosen(v).then_some(packing)).unwrap();
    let mut weights = std::collections::HashMap::new();
    for value in checkpoint.graph().values().iter().filter(|v| v.origin == Origin::Weight) {
        let weight = plain.weight(&value.name).unwrap();
        if !chosen(value) {
            weights.insert(value.name.clone(), weight.clone());
            continue;
        }
        weights.insert(value.name.clone(), pack_weight(&weight, packing));
    }
    Model::new(fuse(&graph).unwrap(), weights).unwrap()
}

#[test]
fn weights_unpacked_in_another_order_are_found() {
    let (folder, model) = (tempfile::tempdir().unwrap(), quantised_model());
    assert!(model.graph().weights().any(|(_, weight)| weight.ty.dtype.packing().is_some()));
    let options = FixtureOptions { prompts: vec![ids(1, 11)], steps: 1 };
    let bed = Fixture::carve("llama_4bit", &model, &options, folder.path(), &Quiet, &Stop::new()).unwrap();
    let info = Workbench::new(open().unwrap()).info().clone();
    let all = Catalogue::generate("llama_4bit", model.graph(), &info).unwrap().mutants;
    let rows = ["element-order", "conversion-order", "zero-after-scale", "neighbouring-group"];
    let mutants: Vec<Mutant> = all.into_iter().filter(|m| rows.contains(&m.operator.as_str())).collect();
    let records = run_mutants(&bed, &mutants);
    for row in rows {
        let of_row = records.iter().filter(|r| r.operator == row);
        let real = of_row.clone().filter(|r| r.real()).count();
        let missed: Vec<&MutantRecord> = of_row.filter(|r| r.real() && !r.sighting.is_caught()).collect();
        assert!(real > 0 && missed.is_empty(), "{row}: {real} faults; missed: {missed:?}");
    }
    for op in ["linear", "gated_linear"] {
        assert!(records.iter().filter(|r| r.op == op && r.real()).count() >= 8, "{op}");
    }
}

#[test]
fn a_longer_prompt_is_found_for_what_a_suite_is_blind_to() {
    let Some((folder, model)) = gemma2() else { return };
    let carve = |name: &str, len: u32| {
        let options = FixtureOptions { prompts: vec![ids(1, len)], steps: 0 };
        Fixture::carve("gemma2", &model, &options, &folder.path().join(name), &Quiet, &Stop::new()).unwrap()
    };
    let window = Fixture::window(&model).unwrap();
    let (short, long) = (carve("short", 12), carve("long", window + 9));
    assert_eq!((short.long, long.long), (false, true));
    let info = Workbench::new(open().unwrap()).info().clone();
    let all = Catalogue::generate("gemma2", model.graph(), &info).unwrap().mutants;
    let ignored =
        |m: &&Mutant| m.op == "attention" && m.operator == "wrong-flag" && m.diff.contains("WINDOW");
    let windows: Vec<String> = all.iter().filter(ignored).map(|m| m.id.clone()).collect();
    let run = RunOptions { checker: None, ..run() };
    let found = |bed: &Fixture, ids: &[String]| seek(bed, ids, &run, &Quiet, &Stop::new()).unwrap();
    let seen = found(&short, &windows);
    let blind: Vec<String> =
        windows.into_iter().filter(|id| !seen.iter().any(|found| found.id == *id)).collect();
    assert!(!blind.is_empty(), "no position of the short prompt is out of the window");
    let told = found(&long, &blind);
    assert!(!told.is_empty() && told.iter().all(|found| blind.contains(&found.id)), "{told:?}");
    assert_eq!(told[0].prompt.len() as u32, window + 9);
    assert!(long.suite.find_case(&told[0].case).is_ok(), "{told:?}");
}

#[test]
fn faults_at_once_are_reported_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let bed = fixture(folder.path());
    let real: HashSet<String> = run_mutants(&bed, &sample_mutants(3))
        .into_iter()
        .filter(|r| r.real() && r.sighting.failed > 0)
        .map(|r| r.id)
        .collect();
    let real: Vec<Mutant> = sample_mutants(3).into_iter().filter(|m| real.contains(&m.id)).collect();
    let mut cases = PlannedCase::combine_faults(&real, &[], 1, 3);
    cases.push(PlannedCase::clean("llama_draft", "llama_draft"));
    assert!(cases[0].mutants.len() > 1);
    let found = Mutex::new(Vec::new());
    let add = |diagnosed| found.lock().unwrap().push(diagnosed);
    diagnoses(std::slice::from_ref(&bed), &cases, &run(), &add, &Quiet, &Stop::new()).unwrap();
    for diagnosed in found.into_inner().unwrap() {
        assert!(diagnosed.missed.is_empty() && diagnosed.false_reports() == 0, "{diagnosed:?}");
        assert_eq!(diagnosed.reports.len(), diagnosed.bugs.len());
    }
}

#[test]
fn a_suite_is_scored_by_what_its_cases_kill() {
    let folder = tempfile::tempdir().unwrap();
    let bed = fixture(folder.path());
    let options = ScoreOptions { ops: vec!["rms_norm".into(), "append".into()], mutants: 16, seed: 0 };
    let run = RunOptions { sampling: Sampling::ALL, checker: None, ..run() };
    let found = score(&bed, &options, &run, &Quiet, &Stop::new()).unwrap();
    assert_eq!(found.ops.iter().map(|o| o.op.as_str()).collect::<Vec<_>>(), ["rms_norm", "append"]);
    for op in &found.ops {
        assert_eq!(op.killed + op.survivors.len(), op.mutants);
        assert!(op.killed > 0 && !op.needed.is_empty() && op.needed.len() < op.cases, "{op:?}");
        assert!(op.zeros_pass.is_empty(), "{op:?}");
        assert!(op.needed.iter().all(|case| bed.suite.find_case(case).is_ok()));
    }
    // Eps is of the size of the mean square in the first layers: a wrong one shows.
    assert!(!found.blind.iter().any(|b| b.op == "rms_norm" && b.attribute == "EPS"), "{:?}", found.blind);
    assert_eq!(found.total().1, found.ops.iter().map(|o| o.mutants).sum::<usize>());
}

/// Where no kernel appends anything, an append that does not run is no fault of its own.
#[test]
fn a_fault_that_others_hide_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let options = FixtureOptions { prompts: vec![ids(1, 3), ids(500, 2)], steps: 1 };
    let bed = Fixture::carve("llama_draft", &model(), &options, folder.path(), &Quiet, &Stop::new()).unwrap();
    let of_append = |operator: &str| {
        let own = |m: &&Mutant| m.op == "append" && m.operator == operator && m.target != "append/copy";
        catalogue().mutants.iter().find(own).unwrap().clone()
    };
    // One workgroup appends these short texts.
    let (silent, missing) = (of_append("last-workgroup"), of_append("missing"));
    let name = "several/llama_draft/0.0".to_string();
    let case =
        PlannedCase { name, model: "llama_draft".into(), mutants: vec![silent.clone(), missing.clone()] };
    let found = Mutex::new(Vec::new());
    let add = |diagnosed| found.lock().unwrap().push(diagnosed);
    let cases = [case, PlannedCase::single(&missing)];
    diagnoses(std::slice::from_ref(&bed), &cases, &run(), &add, &Quiet, &Stop::new()).unwrap();
    let mut found = found.into_inner().unwrap();
    found.sort_by_key(|d| d.name != "several/llama_draft/0.0");
    assert_eq!((&found[0].bugs, &found[0].equivalent), (&vec![silent.id], &vec![missing.id.clone()]));
    assert_eq!((&found[1].bugs, found[1].missed.len()), (&vec![missing.id], 0), "alone it counts");
}
