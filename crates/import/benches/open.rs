//! How long it takes to open the bundled model, with and without looking at every weight, and to hash it.

use std::path::{Path, PathBuf};
use tapml_import::{Checkpoint, ImportOptions};

fn main() {
    divan::main();
}

fn llama() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/llama")
}

#[divan::bench(args = [true, false])]
fn open(check_finite: bool) -> Checkpoint {
    let options = ImportOptions { check_finite, ..Default::default() };
    Checkpoint::open_with(llama(), &options).expect("the bundled model opens")
}

#[divan::bench]
fn hash(bencher: divan::Bencher) {
    let fresh = || Checkpoint::open(llama()).expect("the bundled model opens");
    bencher.with_inputs(fresh).bench_values(|checkpoint| checkpoint.weights_hash().to_string());
}
