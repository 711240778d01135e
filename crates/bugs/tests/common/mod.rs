//! Shared by the tests of the bench: models, how it runs, and mutants tried on a bed.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::sync::Mutex;
use tapml_bugs::Mutant;
use tapml_bugs::bench::{Fixture, MutantRecord, Opener, Prepared, RunOptions, Sampling, kernels};
use tapml_graph::{Model, fuse};
use tapml_import::Checkpoint;
use tapml_migrate::{Quiet, Stop};

/// Token ids that say nothing.
pub fn ids(from: u32, len: u32) -> Vec<u32> {
    (0..len).map(|i| (from + 131 * i) % 4000 + 3).collect()
}

/// A checkpoint as it is carved.
pub fn model(path: &Path) -> Model {
    fuse_model(&Checkpoint::open(path).unwrap())
}

/// The model of a checkpoint with its graph as it is carved.
pub fn fuse_model(checkpoint: &Checkpoint) -> Model {
    checkpoint.model().with_graph(fuse(checkpoint.graph()).unwrap()).unwrap()
}

/// Two workers, one node of each kernel variant.
pub fn run<'a>(open: Opener<'a>, checker: Opener<'a>) -> RunOptions<'a> {
    RunOptions {
        open,
        checker: Some(checker),
        workers: 2,
        sampling: Sampling { nodes: 1, ..Sampling::default() },
        grid: false,
        until: None,
    }
}

/// What is seen of these mutants.
pub fn run_mutants(bed: &Fixture, mutants: &[Mutant], options: &RunOptions<'_>) -> Vec<MutantRecord> {
    let prepared = Prepared::new(std::slice::from_ref(bed), options.sampling);
    let found = Mutex::new(Vec::new());
    let add = |record: MutantRecord| found.lock().unwrap().push(record);
    assert!(kernels(&prepared, mutants, options, &add, &Quiet, &Stop::new()).unwrap());
    found.into_inner().unwrap()
}
