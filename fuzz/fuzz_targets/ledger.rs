//! The ledger of a migration: any text, and one of ours with changes, is refused, or read as it is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use tapml_migrate::ledger::{Entry, LEDGER, Ledger, LedgerFolder, OpState, VERSION};
use tapml_migrate::{Hash, ModelIdentity, Quiet};

static FOLDER: LazyLock<LedgerFolder> =
    LazyLock::new(|| LedgerFolder::take(tapml_fuzz::folder()).expect("the folder"));

fn identity() -> ModelIdentity {
    ModelIdentity { weights: "ab".into(), ..ModelIdentity::default() }
}

static BASE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let platform = serde_json::json!({"platform": "cpu", "device": "d", "driver": "1"});
    let platform = || serde_json::from_value(platform.clone()).expect("a platform");
    let entry = |op: &str, state| Entry { op: op.into(), state, nodes: 3, ..Entry::default() };
    let ledger = Ledger {
        version: VERSION,
        model: identity(),
        graph: Hash::compute(b"graph"),
        source: platform(),
        target: platform(),
        suite: Some(Hash::compute(b"suite")),
        ops: vec![entry("add", OpState::Accepted), entry("linear", OpState::Rejected)],
        limits: None,
    };
    serde_json::to_vec(&ledger).expect("a text")
});

fuzz_target!(|data: &[u8]| {
    let folder = &*FOLDER;
    let [kind, rest @ ..] = data else { return };
    let text = if kind % 4 == 0 { rest.to_vec() } else { tapml_fuzz::edit_text(&BASE, rest) };
    tapml_fuzz::put(LEDGER, &text);
    let Ok(Some(ledger)) = folder.load(Hash::compute(b"graph"), &identity(), &Quiet) else { return };
    folder.save(&ledger).expect("a ledger is written");
    let again = folder.load(ledger.graph, &identity(), &Quiet).expect("what was written is read");
    assert_eq!(again, Some(ledger));
});
