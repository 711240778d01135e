//! The ledger of a migration: any text is refused, or read as it is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use tapml_migrate::ledger::{LEDGER, LedgerFolder};
use tapml_migrate::{Hash, ModelIdentity, Quiet};

static FOLDER: LazyLock<LedgerFolder> =
    LazyLock::new(|| LedgerFolder::take(tapml_fuzz::folder()).expect("the folder"));

fuzz_target!(|data: &[u8]| {
    let folder = &*FOLDER;
    tapml_fuzz::put(LEDGER, data);
    let model = ModelIdentity { weights: "ab".into(), ..ModelIdentity::default() };
    let Ok(Some(ledger)) = folder.load(Hash::of(b"graph"), &model, &Quiet) else { return };
    folder.save(&ledger).expect("a ledger is written");
    let again = folder.load(ledger.graph, &model, &Quiet).expect("what was written is read");
    assert_eq!(again.map(|again| again.ops), Some(ledger.ops));
});
