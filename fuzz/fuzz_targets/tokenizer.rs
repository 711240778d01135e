//! `tokenizer.json`: any text is refused, or cuts and joins a text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tapml_engine::Tokenizer;

fuzz_target!(
    init: tapml_fuzz::allow_panics_of_libraries(),
    |data: &[u8]| {
        tapml_fuzz::put("tokenizer.json", data);
        let Ok(tokenizer) = Tokenizer::open(tapml_fuzz::folder()) else { return };
        let ids = tokenizer.encode("The old man ab <s> 12é \u{fdfa}\n  aaaa").unwrap_or_default();
        drop(tokenizer.decode(&ids));
        let mut stream = tokenizer.stream();
        for id in ids.into_iter().chain([0, 1, 2, 3, u32::MAX]) {
            drop(stream.push(id));
        }
    }
);
