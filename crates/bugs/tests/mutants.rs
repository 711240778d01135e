//! The catalogue of mutants: enough of them, all families, equal at every generation, named, and found again by name.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashSet};
use tapml_bugs::{BETWEEN, Catalogue, Edit, Family, OPERATORS, Workbench};
use tapml_device::Device;
use tapml_device::conformance::{CaseOutcome, run_all};
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_graph::Packing;
use tapml_graph::rewrite::quantize;
use tapml_graph::{Graph, Value, fuse};
use tapml_import::Checkpoint;

const MODELS: [&str; 2] = ["qwen2_moe", "gemma2"];

fn graph(path: &std::path::Path) -> Graph {
    fuse(Checkpoint::open(path).unwrap().graph()).unwrap()
}

fn workbench() -> Workbench {
    Workbench::new(Box::new(Emulator::new(EmulatorOptions::default()).unwrap()))
}

fn catalogue(name: &str, graph: &Graph) -> Catalogue {
    Catalogue::generate(name, graph, workbench().info()).unwrap()
}

#[test]
fn a_catalogue_is_large_and_the_same_every_time() {
    let graph = graph(&tapml_testing::model("llama"));
    let (first, second) = (catalogue("llama", &graph), catalogue("llama", &graph));
    assert_eq!(first.mutants, second.mutants);
    assert!(first.mutants.len() >= 300, "{} mutants", first.mutants.len());
    let ids: HashSet<&str> = first.mutants.iter().map(|m| m.id.as_str()).collect();
    assert_eq!(ids.len(), first.mutants.len(), "ids are unique");
    for family in Family::ALL {
        assert!(first.mutants.iter().any(|m| m.family == family), "{family}");
    }
    for mutant in &first.mutants {
        assert_eq!(second.find(&mutant.id).unwrap(), mutant);
        // SiLU is the only activation of this model: other functions of the prelude are dead text.
        assert!(!mutant.diff.contains("fn tanh_accurate"), "{}", mutant.diff);
        if let Edit::Text { start, end, old, new, .. } = &mutant.edit {
            assert!(start <= end && old != new, "{}: {}", mutant.id, mutant.diff);
        }
        let (old, new) = (mutant.diff.contains("\n- "), mutant.diff.contains("\n+"));
        assert!(old && new, "{}: {}", mutant.id, mutant.diff);
        let text = serde_json::to_string(mutant).unwrap();
        assert_eq!(serde_json::from_str::<tapml_bugs::Mutant>(&text).unwrap(), *mutant);
    }
    // Those of one operator alone are what they are among all, and so are the counts of its rows.
    let own = |m: &tapml_bugs::Mutant| m.op == "rms_norm";
    let mut alone = Catalogue::generate_wanted("llama", &graph, workbench().info(), &own).unwrap();
    let among: Vec<&tapml_bugs::Mutant> = first.mutants.iter().filter(|m| own(m)).collect();
    assert!(among.len() > 10 && alone.mutants.iter().eq(among), "{:?}", alone.rows);
    let mut rows = first.rows.clone();
    rows.retain(|row| row.row.starts_with("rms_norm/"));
    alone.rows.sort_by(|a, b| a.row.cmp(&b.row));
    rows.sort_by(|a, b| a.row.cmp(&b.row));
    assert_eq!(alone.rows, rows);
    let error = first.find("llama/linear/nothing/0").unwrap_err();
    assert!(error.hint().unwrap().contains("llama/"), "{error}");
}

#[test]
fn every_operator_of_the_tables_finds_a_place_in_some_model() {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let mut models = vec![("llama", tapml_testing::model("llama"))];
    models.extend(MODELS.iter().filter_map(|m| Some((*m, tapml_testing::extra_model(m)?))));
    let all = models.len() == MODELS.len() + 1;
    for (name, path) in models {
        for mutant in catalogue(name, &graph(&path)).mutants {
            *found.entry(mutant.operator).or_default() += 1;
        }
    }
    let packing = Packing::integers(4, 32, true);
    let draft = Checkpoint::open(tapml_testing::model("llama_draft")).unwrap();
    let stored = |v: &Value| v.name.ends_with("proj.weight").then_some(packing);
    let quantised = fuse(&quantize(draft.graph(), &stored).unwrap()).unwrap();
    for mutant in catalogue("llama_4bit", &quantised).mutants {
        *found.entry(mutant.operator).or_default() += 1;
    }
    let names = OPERATORS.iter().map(|o| o.name).chain(BETWEEN.iter().map(|o| o.name));
    for name in names.filter(|_| all) {
        // Activations of these models are f32, and kernels in WGSL have no rings of stages.
        let elsewhere = ["truncated-store", "stage"].contains(&name);
        assert!(found.contains_key(name) || elsewhere, "`{name}` never applies");
    }
}

#[test]
fn a_device_without_faults_is_the_device() {
    let bench = workbench();
    let mut plain = Emulator::new(EmulatorOptions::default()).unwrap();
    let mut faulty = bench.device(&[]);
    let failed = |device: &mut dyn Device| {
        let rows = run_all(device).unwrap().rows.into_iter();
        rows.filter(|(_, o)| matches!(o, CaseOutcome::Failed(_))).map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert!(failed(&mut plain).is_empty());
    // Kernels without a fault are shared by all faulty devices, so that freeing one does not end it.
    assert_eq!(failed(&mut faulty), ["kernels_bad_handles", "lists_with_destroyed_parts"]);
    assert_eq!(faulty.info(), plain.info());
}
