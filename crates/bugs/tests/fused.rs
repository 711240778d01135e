//! Faults of the kernels of fused operators: those that a device of this kind launches, on composed calls.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tapml_bugs::bench::{
    Bed, BedOptions, Prepared, Record, RunOptions, Sampling, Selection, clean, kernels, platform,
};
use tapml_bugs::{Catalogue, Mutant, RowMutants, Workbench};
use tapml_device::Device;
use tapml_emulator::{Emulator, Options};
use tapml_exec::{LoadOptions, Platform};
use tapml_graph::{DType, Model, Result, Symbols, fuse, fusion};
use tapml_import::{Checkpoint, ImportOptions};
use tapml_kernels::{CompileOptions, compile};
use tapml_migrate::{Quiet, Stop};

fn emulator(query: &str) -> Result<Box<dyn Device>> {
    Ok(Box::new(Emulator::new(Options::parse(query)?)?))
}

fn open() -> Result<Box<dyn Device>> {
    emulator("kind=gpu")
}

fn open_checker() -> Result<Box<dyn Device>> {
    emulator("kind=gpu&check=all")
}

fn model(path: &Path) -> Model {
    let checkpoint = Checkpoint::open(path).unwrap();
    checkpoint.model().with_graph(fuse(checkpoint.graph()).unwrap()).unwrap()
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
    checkpoint.model().with_graph(fuse(checkpoint.graph()).unwrap()).unwrap()
}

/// Token ids that say nothing.
fn ids(from: u32, len: u32) -> Vec<u32> {
    (0..len).map(|i| (from + 131 * i) % 4000 + 3).collect()
}

fn run() -> RunOptions<'static> {
    RunOptions {
        open: &open,
        checker: Some(&open_checker),
        workers: 2,
        sampling: Sampling { nodes: 1, ..Sampling::default() },
        grid: false,
        until: None,
    }
}

/// The mutants of the kernels of fused operators.
fn fused(name: &str, model: &Model) -> Vec<Mutant> {
    let info = Workbench::new(open().unwrap()).info().clone();
    let all = Catalogue::of(name, model.graph(), &info).unwrap().mutants.into_iter();
    all.filter(|m| !m.between() && fusion::find(&m.op).is_some()).collect()
}

fn tried(bed: &Bed, mutants: &[Mutant]) -> Vec<Record> {
    let run = run();
    let prepared = Prepared::new(std::slice::from_ref(bed), run.sampling);
    let found = Mutex::new(Vec::new());
    let add = |record: Record| found.lock().unwrap().push(record);
    assert!(kernels(&prepared, mutants, &run, &add, &Quiet, &Stop::new()).unwrap());
    found.into_inner().unwrap()
}

/// Rows with the phases in which they are launched.
fn named(rows: impl Iterator<Item = (String, Vec<String>)>) -> BTreeSet<(String, String)> {
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
        let catalogue = Catalogue::of("model", model.graph(), bench.info()).unwrap();
        let launches =
            platform(&bench, &[]).launches(model.graph(), &LoadOptions::default()).unwrap().unwrap();
        let launched = named(launches.into_iter().map(|l| (l.row, vec![l.phase.name().to_string()])));
        let rows = catalogue.rows.iter();
        assert_eq!(named(rows.clone().map(|r| (r.row.clone(), r.phases.clone()))), launched, "{query}");
        assert!(
            rows.clone().all(|row| row.mutants > row.invalid && row.none.is_none()),
            "{:?}",
            catalogue.rows
        );
        assert_eq!(rows.clone().any(|row| row.row.ends_with("_coopmat")), matrices);
        let of_kernels: Vec<&Mutant> = catalogue.mutants.iter().filter(|m| !m.between()).collect();
        assert_eq!(rows.map(|row| row.mutants).sum::<usize>(), of_kernels.len());
        let options = CompileOptions::new(Symbols::np(64, 64));
        let program = compile(model.graph(), bench.info(), &options).unwrap();
        let names: BTreeSet<&str> = program.kernels.iter().map(|k| k.name.as_str()).collect();
        assert!(of_kernels.iter().all(|m| names.contains(m.target.as_str())));
        assert!(of_kernels.iter().all(|m| m.row.split('/').next() == Some(m.op.as_str())));
        for op in ["norm_linear", "rope_append_attention"] {
            let own = of_kernels.iter().filter(|m| m.op == op).count();
            assert!(own > 100 && fusion::find(op).is_some(), "{op}: {own}");
        }
        let between = |op: &str| catalogue.mutants.iter().any(|m| m.between() && m.op == op);
        assert!(between("norm_linear") && between("rope_append_attention"), "faults between fused kernels");
        let plain = Catalogue::of_plain("model", model.graph(), bench.info()).unwrap();
        assert!(plain.mutants.iter().all(|m| fusion::find(&m.op).is_none()));
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
    let options = BedOptions { prompts: vec![ids(1, 11), ids(500, 5)], steps: 1 };
    let bed = Bed::carve("llama_draft", &model, &options, folder.path(), &Quiet, &Stop::new()).unwrap();
    let mutants =
        Selection { limit: Some(36), seed: 3, ..Selection::default() }.of(fused("llama_draft", &model));
    let found = tried(&bed, &mutants);
    let missed: Vec<&Record> = found.iter().filter(|r| r.real() && !r.sighting.caught()).collect();
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
        let options = BedOptions { prompts: vec![ids(1, 7)], steps: 1 };
        let bed = Bed::carve(name, &model, &options, folder.path(), &Quiet, &Stop::new()).unwrap();
        let mutants: Vec<Mutant> =
            fused(name, &model).into_iter().filter(|m| m.op == op && m.operator == operator).collect();
        assert!(!mutants.is_empty(), "{op} has no {operator}");
        for record in tried(&bed, &mutants) {
            assert!(record.sighting.caught() && record.sighting.failed == 0, "{record:?}");
            assert_eq!(record.sighting.beyond[0].observed, "NaN", "{record:?}");
        }
    }
}
