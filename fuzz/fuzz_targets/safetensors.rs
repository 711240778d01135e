//! Safetensors: the header, and every tensor that it lists; and compressed files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tapml_import::safetensors::{File, Header};

fuzz_target!(|data: &[u8]| {
    drop(File::open(&tapml_fuzz::put("model.safetensors.zst", data)));
    // A length in front of the header, so that inputs need not guess it.
    let bytes = [&(data.len() as u64).to_le_bytes()[..], data].concat();
    for bytes in [&bytes[..], data] {
        if Header::parse(bytes).is_err() {
            continue;
        }
        let file = File::open(&tapml_fuzz::put("model.safetensors", bytes)).expect("the header was read");
        for entry in file.entries() {
            drop(file.load(entry));
        }
    }
});
