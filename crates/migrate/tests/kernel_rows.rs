//! Which rows of the kernel list calls of a model run on: those of the bundled models, of the small checkpoints of
//! `tests/goldens/` and of the folder that `TAPML_MODELS` names, by planning alone, in every form and on every kind of
//! device. `docs/data/kernel_rows.tsv` has the first such model of each row; `cargo xtask tidy` compares the kernel list
//! with it.
#![allow(clippy::unwrap_used)]

mod common;

use common::forms::{FORMS, devices, open_with};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tapml_exec::{DevicePlatform, LoadOptions, Overrides, Phase, Platform};
use tapml_graph::Graph;
use tapml_graph::paged::PageLayout;
use tapml_import::{Checkpoint, LogitRows};
use tapml_kernels::{KERNELS, KernelRow};

const FILE: &str = "docs/data/kernel_rows.tsv";

/// What stands in place of a model before the reason why there is none.
const NONE: &str = "none: ";
/// Why no model of this test reaches a kernel of an operator of others: the test has no ONNX files.
const OTHERS: &str = "ONNX; samples run it";
/// Rows that no model reaches, with the reason.
const UNREACHED: &[(&str, &str)] = &[
    (
        "relu/portable",
        "configurations may name it, no checkpoint of the tests does; the operator's samples run it",
    ),
    (
        "dequantize/portable",
        "packed weights of the models are read by operators that take them; samples run the operator for others",
    ),
];

/// The folders of a folder with a checkpoint in them, sorted.
fn checkpoints(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let folders = entries.map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = folders.filter(|folder| folder.join("config.json").is_file()).collect();
    found.sort();
    found
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap().to_string_lossy().into_owned()
}

/// The name of the row that a plan or a launch names.
fn row(name: &str) -> String {
    // Settings stand behind the name.
    let name = name.split('@').next().unwrap();
    let known = KERNELS.iter().find(|row| row.name == name || row.also == Some(name));
    known.unwrap_or_else(|| panic!("no row is named {name}")).name.to_string()
}

/// The rows that calls of the nodes of a graph run on.
fn called_rows(graph: &Graph, platform: &dyn Platform) -> BTreeSet<String> {
    let both = graph.nodes().iter().flat_map(|node| Phase::ALL.map(|phase| (node, phase)));
    let choices = both.filter_map(|(node, phase)| {
        platform.kernel_for(&node.op, &graph.input_types(node), phase).ok().map(|choice| row(&choice.name))
    });
    choices.collect()
}

/// Pages as a server of several texts has them.
const LAYOUT: PageLayout = PageLayout { page: 16, pages: 8, texts: 2, blocks: 4, wanted: None, states: 4 };

/// The rows that a checkpoint reaches: with the calls of its graph, as it is imported and fused, for several texts and for two
/// ranks, and with the launches of its program.
fn reached_rows(dir: &Path) -> BTreeSet<String> {
    let mut rows = BTreeSet::new();
    let checked = FORMS.iter().map(|form| (*form, LogitRows::All));
    for (form, logits) in checked.chain([(FORMS[1], LogitRows::Last)]) {
        // Rows of some small checkpoints are too short for a packing.
        let Ok(model) = open_with(dir, form, logits) else { continue };
        let options = LoadOptions { greedy: logits == LogitRows::Last, ..LoadOptions::default() };
        for (_, device) in devices() {
            let platform = DevicePlatform::new(Box::new(device), Overrides::default());
            rows.extend(called_rows(model.graph(), &platform));
            // Of encoders there is no such graph.
            if let Ok(paged) = model.graph().to_paged(LAYOUT) {
                rows.extend(called_rows(&paged, &platform));
                let options = LoadOptions { row_invariant: true, ..LoadOptions::default() };
                if let Ok(Some(launches)) = platform.launches(&paged, &options) {
                    rows.extend(launches.iter().map(|launched| row(&launched.row)));
                }
            }
            if let Ok(Some(launches)) = platform.launches(model.graph(), &options) {
                rows.extend(launches.iter().map(|launched| row(&launched.row)));
            }
        }
    }
    let plain = Checkpoint::open(dir).unwrap();
    // Not every model can be shared out.
    let ranks = plain.graph().shard(2);
    for (_, device) in devices() {
        let platform = DevicePlatform::new(Box::new(device), Overrides::default());
        for graph in std::iter::once(plain.graph()).chain(&ranks) {
            rows.extend(called_rows(graph, &platform));
        }
    }
    rows
}

/// The first model of each row, in the order of these folders.
fn first(folders: &[PathBuf]) -> BTreeMap<String, String> {
    let all: Vec<BTreeSet<String>> = folders.par_iter().map(|dir| reached_rows(dir)).collect();
    let mut models = BTreeMap::new();
    for (dir, rows) in folders.iter().zip(all) {
        for row in rows {
            models.entry(row).or_insert_with(|| name(dir));
        }
    }
    models
}

#[test]
fn every_row_is_reached_by_a_model() {
    let root = tapml_testing::root();
    let mut folders = tapml_testing::models();
    folders.extend(tapml_testing::goldens().into_iter().filter(|dir| dir.join("config.json").is_file()));
    let own: BTreeSet<String> = folders.iter().map(|dir| name(dir)).collect();
    let extra = std::env::var_os("TAPML_MODELS").map(|folder| checkpoints(&root.join(folder)));
    folders.extend(extra.unwrap_or_default().into_iter().filter(|dir| !own.contains(&name(dir))));
    let present: BTreeSet<String> = folders.iter().map(|dir| name(dir)).collect();
    let mut models = first(&folders);
    // What only a model that is not here reaches stays as it was.
    for line in std::fs::read_to_string(root.join(FILE)).unwrap_or_default().lines().skip(1) {
        let (row, model) = line.split_once('\t').unwrap();
        let absent = !model.starts_with(NONE) && !present.contains(model);
        if absent && KERNELS.iter().any(|known| known.name == row) {
            models.entry(row.to_string()).or_insert_with(|| model.to_string());
        }
    }
    let of_others = |row: &&KernelRow| row.samples().iter().any(|sample| sample.op.is_foreign());
    let own = KERNELS.iter().filter(|row| !of_others(row)).map(|row| row.name);
    let unreached = own.filter(|row| !models.contains_key(*row));
    let named: Vec<&str> = UNREACHED.iter().map(|(row, _)| *row).collect();
    assert_eq!(
        unreached.collect::<Vec<_>>(),
        named,
        "rows that no model reaches, and those named in UNREACHED"
    );
    let reasons = UNREACHED.iter().map(|(row, reason)| (row.to_string(), format!("{NONE}{reason}")));
    models.extend(reasons);
    let others = KERNELS.iter().filter(of_others);
    models.extend(others.map(|row| (row.name.to_string(), format!("{NONE}{OTHERS}"))));
    let lines = models.iter().map(|(row, model)| format!("{row}\t{model}\n"));
    tapml_testing::expect_file(FILE, &format!("row\tmodel\n{}", lines.collect::<String>()));
}
