//! Faults of the kernels of fused operators: those that a device of this kind launches, on composed calls.
#![allow(clippy::unwrap_used)]

mod common;

use common::{ids, model};
use std::collections::BTreeSet;
use std::path::PathBuf;
use tapml_bugs::bench::{
    Fixture, FixtureOptions, MutantRecord, Prepared, RunOptions, Sampling, Selection, clean, platform,
};
use tapml_bugs::mutation_score::{ScoreOptions, recorded_cases, score};
use tapml_bugs::{Catalogue, Mutant, RowMutants, Workbench};
use tapml_device::Device;
use tapml_diagnose::{DiagnoseOptions, Subject, diagnose};
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::{CpuPlatform, LoadOptions, Overrides, Platform};
use tapml_graph::{DType, Model, Result, Symbols, fusion};
use tapml_import::{Checkpoint, ImportOptions};
use tapml_kernels::{CompileOptions, compile};
use tapml_migrate::suite::part;
use tapml_migrate::{CheckOptions, Quiet, Stop, check};

fn emulator(query: &str) -> Result<Box<dyn Device>> {
    Ok(Box::new(Emulator::new(EmulatorOptions::parse(query)?)?))
}

fn open() -> Result<Box<dyn Device>> {
    emulator("kind=gpu")
}

fn open_checker() -> Result<Box<dyn Device>> {
    emulator("kind=gpu&check=all")
}

/// Shapes that matrix units serve, with activations in f16.
fn shapes() -> Model {
    let config = r#"{ "architectures": ["LlamaForCausalLM"], "model_type": "llama", "intermediate_size": 1024,
        "hidden_size": 512, "head_dim": 64, "num_attention_heads": 8, "num_key_value_heads": 2, "num_hidden_layers": 2,
        "vocab_size": 512, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "rope_theta": 10000.0, "tie_word_embeddings": false, "torch_dtype": "float16" }"#;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    let options = ImportOptions { activation: DType::F16, ..ImportOptions::default() };
    let checkpoint = Checkpoint::random(folder.path(), &options, 1).unwrap();
    common::fuse_model(&checkpoint)
}

fn run() -> RunOptions<'static> {
    common::run(&open, &open_checker)
}

/// The wanted mutants of the kernels of fused operators.
fn fused_mutants(name: &str, model: &Model, wanted: impl Fn(&Mutant) -> bool) -> Vec<Mutant> {
    let info = Workbench::new(open().unwrap()).info().clone();
    let fused = |m: &Mutant| !m.is_between() && fusion::find(&m.op).is_some() && wanted(m);
    Catalogue::generate_wanted(name, model.graph(), &info, &fused).unwrap().mutants
}

fn run_mutants(bed: &Fixture, mutants: &[Mutant]) -> Vec<MutantRecord> {
    common::run_mutants(bed, mutants, &run())
}

/// Rows with the phases in which they are launched.
fn group_phases(rows: impl Iterator<Item = (String, Vec<String>)>) -> BTreeSet<(String, String)> {
    rows.flat_map(|(row, phases)| phases.into_iter().map(move |phase| (row.clone(), phase))).collect()
}

#[test]
fn mutants_are_of_exactly_what_the_program_launches() {
    let plain = |path: PathBuf| (model(&path), "kind=gpu");
    let mut models = vec![plain(tapml_testing::model("llama")), (shapes(), "kind=gpu&matrices=on")];
    models.extend(tapml_testing::extra_model("qwen2_moe").map(plain));
    for (model, query) in models {
        let matrices = query.contains("matrices");
        let bench = Workbench::new(emulator(query).unwrap());
        let catalogue = Catalogue::generate("model", model.graph(), bench.info()).unwrap();
        // As greedy generation loads it.
        let options = LoadOptions { greedy: true, ..LoadOptions::default() };
        let launches = platform(&bench, &[]).launches(model.graph(), &options).unwrap().unwrap();
        let launched = group_phases(launches.into_iter().map(|l| (l.row, vec![l.phase.name().to_string()])));
        let rows = catalogue.rows.iter();
        assert_eq!(
            group_phases(rows.clone().map(|r| (r.row.clone(), r.phases.clone()))),
            launched,
            "{query}"
        );
        assert!(
            rows.clone().all(|row| row.mutants > row.invalid && row.none.is_none()),
            "{:?}",
            catalogue.rows
        );
        assert_eq!(rows.clone().any(|row| row.row.ends_with("_coopmat")), matrices);
        let of_kernels: Vec<&Mutant> = catalogue.mutants.iter().filter(|m| !m.is_between()).collect();
        assert_eq!(rows.map(|row| row.mutants).sum::<usize>(), of_kernels.len());
        let options = CompileOptions::new(Symbols::np(64, 64));
        let deployed = model.graph().greedy().unwrap().unwrap();
        let program = compile(&deployed, bench.info(), &options).unwrap();
        let names: BTreeSet<&str> = program.kernels.iter().map(|k| k.name.as_str()).collect();
        assert!(of_kernels.iter().all(|m| names.contains(m.target.as_str())));
        assert!(of_kernels.iter().all(|m| m.row.split('/').next() == Some(m.op.as_str())));
        assert!(of_kernels.iter().any(|m| m.op == "argmax"), "the choice of the next token");
        for op in ["norm_linear", "rope_append_attention"] {
            let own = of_kernels.iter().filter(|m| m.op == op).count();
            assert!(own > 100 && fusion::find(op).is_some(), "{op}: {own}");
        }
        let between = |op: &str| catalogue.mutants.iter().any(|m| m.is_between() && m.op == op);
        assert!(between("norm_linear") && between("rope_append_attention"), "faults between fused kernels");
    }
}

#[test]
fn a_row_without_mutants_keeps_its_reason_until_another_model_has_some() {
    let row = |mutants: usize, phase: &str| RowMutants {
        row: "linear/one".into(),
        phases: vec![phase.into()],
        mutants,
        invalid: 1,
        none: (mutants == 0).then(|| "no place".into()),
    };
    let mut all = Vec::new();
    [row(0, "decode"), row(0, "decode")].into_iter().for_each(|r| r.join(&mut all));
    assert_eq!((all.len(), all[0].invalid, all[0].none.as_deref()), (1, 2, Some("no place")));
    row(3, "prefill").join(&mut all);
    assert_eq!((all[0].mutants, &all[0].none, all[0].phases.len()), (3, &None, 2));
}

#[test]
fn faults_of_fused_kernels_are_seen_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(&tapml_testing::model("llama_draft"));
    let options = FixtureOptions { prompts: vec![ids(1, 11), ids(500, 5)], steps: 1 };
    let bed = Fixture::carve("llama_draft", &model, &options, folder.path(), &Quiet, &Stop::new()).unwrap();
    let mutants = Selection { limit: Some(36), seed: 3, ..Selection::default() }
        .choose_mutants(fused_mutants("llama_draft", &model, |_| true));
    let found = run_mutants(&bed, &mutants);
    let missed: Vec<&MutantRecord> = found.iter().filter(|r| r.real() && !r.sighting.is_caught()).collect();
    assert!(found.len() == 36 && missed.is_empty(), "{missed:?}");
    let real = found.iter().filter(|r| r.real()).count();
    assert!(real >= 18, "{real} of 36 mutants are faults");
    let ops: BTreeSet<&str> = found.iter().filter(|r| r.real()).map(|r| r.op.as_str()).collect();
    assert_eq!(ops, ["norm_linear", "rope_append", "rope_append_attention"].into(), "each has some");
    let run = run();
    let prepared = Prepared::new(std::slice::from_ref(&bed), run.sampling);
    let clean = clean(&bed, "llama_draft", &prepared, &run).unwrap();
    assert!(!clean.alarm(), "{clean:?}");
}

/// Parts of a long cache are joined by code that no recorded call of a short prompt runs.
#[test]
fn a_fault_behind_a_border_is_found_by_a_made_call() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model(&tapml_testing::model("llama")));
    let options = FixtureOptions { prompts: vec![ids(1, 7)], steps: 1 };
    let bed = Fixture::carve("llama", &model, &options, folder.path(), &Quiet, &Stop::new()).unwrap();
    let joins = |m: &Mutant| m.op == "rope_append_attention" && m.diff.contains("(total) / (sum)");
    let mutants = fused_mutants("llama", &model, joins);
    assert_eq!(mutants.len(), 1, "the division of joined parts");
    let found = run_mutants(&bed, &mutants).remove(0);
    let sighting = &found.sighting;
    assert!(found.real() && sighting.is_caught() && !sighting.seen_unmade(), "{sighting:?}");
    assert_eq!(sighting.differing, 0, "no recorded call tells");
    assert!(sighting.made.len() == 1 && sighting.made[0].starts_with("made.n1.p"), "{sighting:?}");
}

#[test]
fn a_suite_is_scored_by_what_the_device_runs() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model(&tapml_testing::model("llama_draft")));
    let options = FixtureOptions { prompts: vec![ids(1, 11), ids(500, 5)], steps: 1 };
    let (whole, small) = (folder.path().join("whole"), folder.path().join("small"));
    let bed = Fixture::carve("llama_draft", &model, &options, &whole, &Quiet, &Stop::new()).unwrap();
    let run = RunOptions { sampling: Sampling::ALL, checker: None, ..run() };
    let scored = |bed: &Fixture, ops: &[&str]| {
        let ops = ops.iter().map(|op| op.to_string()).collect();
        score(bed, &ScoreOptions { ops, mutants: 12, seed: 0 }, &run, &Quiet, &Stop::new())
    };
    let found = scored(&bed, &["norm_linear", "rope_append_attention"]).unwrap();
    let names: Vec<&str> = found.ops.iter().map(|op| op.op.as_str()).collect();
    assert_eq!(names, ["norm_linear", "rope_append_attention"]);
    assert!(found.ops.iter().all(|op| op.killed > 0 && !op.needed.is_empty()), "{:?}", found.ops);
    // A decode step behind five tokens knows nothing of a second block of keys.
    let row = found.regimes.iter().find(|row| row.counts.kernel == "rope_append_attention/gemv").unwrap();
    let count = &row.counts;
    assert!(count.recorded > 0 && count.made as usize == row.unrecorded.len(), "{row:?}");
    assert!(row.unrecorded.iter().any(|regime| regime == "keys > 1024"), "{row:?}");
    assert_eq!(count.of, count.recorded + count.made + count.unreached.len() as u64, "{row:?}");
    assert!(found.coverage.regimes.of >= count.of);
    // The calls that a fused one stands for are enough to compose it.
    let needed: Vec<&str> = found.ops.iter().flat_map(|op| &op.needed).map(String::as_str).collect();
    let cases = recorded_cases(&bed, &needed, &run).unwrap();
    part(&bed.suite, &bed.model, &cases, &small, false).unwrap();
    let again = Fixture::open("llama_draft", &model, &small).unwrap();
    let again = scored(&again, &["norm_linear", "rope_append_attention"]).unwrap();
    assert_eq!(again.total(), found.total());
    let error = scored(&bed, &["rope"]).unwrap_err();
    assert!(error.hint().unwrap().contains("norm_linear"), "what is fused everywhere does not run: {error}");
}

/// What a wrong fused operator, and a wrong choice of the next token, do to what is generated.
#[test]
fn the_harm_of_a_fault_in_a_lowered_graph_is_measured() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model(&tapml_testing::model("llama_draft")));
    let options = FixtureOptions { prompts: vec![ids(1, 5)], steps: 2 };
    let bed = Fixture::carve("llama_draft", &model, &options, folder.path(), &Quiet, &Stop::new()).unwrap();
    let bench = Workbench::new(open().unwrap());
    let chosen = |m: &Mutant| ["wrong-constant", "no-store"].contains(&m.operator.as_str());
    let all =
        Catalogue::generate_wanted("llama_draft", model.graph(), bench.info(), &chosen).unwrap().mutants;
    let wrong = |op: &str, operator: &str, diff: &str| {
        let own = |m: &&Mutant| m.op == op && m.operator == operator && m.diff.contains(diff);
        all.iter().find(own).unwrap_or_else(|| panic!("no {operator} of {op}")).clone()
    };
    let faults = [
        ("norm_linear", wrong("norm_linear", "wrong-constant", "EPS")),
        ("rope_append_attention", wrong("rope_append_attention", "wrong-constant", "SCALE")),
        ("argmax", wrong("argmax", "no-store", "best[lane] = top")),
    ];
    for (op, mutant) in faults {
        let mut target = platform(&bench, std::slice::from_ref(&mutant));
        let subject = Subject {
            suite: &bed.suite,
            model: &bed.model,
            oracles: &bed.oracles,
            source: &mut CpuPlatform::new(),
            target: &mut target,
            checker: None,
            overrides: &Overrides::default(),
            reopen: None,
        };
        let options = DiagnoseOptions { between: false, ..DiagnoseOptions::default() };
        let found = diagnose(subject, &options, &Quiet, &Stop::new()).unwrap();
        let fault = found.faults.iter().find(|fault| fault.op == op).unwrap_or_else(|| panic!("{found:?}"));
        let harm = fault.output_impact.as_ref().unwrap_or_else(|| panic!("{fault:?}"));
        assert_eq!(harm.positions, 1, "a step of one token: {harm:?}");
        assert!(harm.case.contains(".s1.") || harm.case.contains(".s2."), "{harm:?}");
        assert_eq!(harm.kl > 0.0, op != "argmax", "{op}: {harm:?}");
        assert!(op != "argmax" || harm.top1_changed && harm.changed == 1, "{harm:?}");
    }
}

/// The gate of a normalised row, and scores with a soft cap: no recorded input is large enough.
#[test]
fn a_probe_tells_what_overflows_within_a_fused_operator() {
    let llama = Some(tapml_testing::model("llama"));
    let cases = [
        ("llama", llama, "norm_linear", "overflowing-exp"),
        ("gemma2", tapml_testing::extra_model("gemma2"), "rope_append_attention", "overflowing-tanh"),
    ];
    for (name, path, op, operator) in cases {
        let Some(path) = path else { continue };
        let (folder, model) = (tempfile::tempdir().unwrap(), model(&path));
        let options = FixtureOptions { prompts: vec![ids(1, 7)], steps: 1 };
        let bed = Fixture::carve(name, &model, &options, folder.path(), &Quiet, &Stop::new()).unwrap();
        let mutants = fused_mutants(name, &model, |m| m.op == op && m.operator == operator);
        assert!(!mutants.is_empty(), "{op} has no {operator}");
        for record in run_mutants(&bed, &mutants) {
            assert!(record.sighting.is_caught() && record.sighting.failed == 0, "{record:?}");
            assert_eq!(record.sighting.overflows[0].observed, "NaN", "{record:?}");
        }
        // A check probes every kernel variant, whichever nodes of the operator come first.
        let bench = Workbench::new(open().unwrap());
        let mut target = platform(&bench, &mutants[..1]);
        let only = CheckOptions { ops: vec![op.into()], cases: Vec::new() };
        let checked =
            check(&bed.suite, &bed.model, &mut target, &bed.oracles, &only, &Quiet, &Stop::new()).unwrap();
        assert!(!checked.report.ops[0].overflows.is_empty(), "{:?}", checked.report.ops);
    }
}
