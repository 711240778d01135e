//! Vocabularies in other files than `tokenizer.json`: SentencePiece's messages, GGUF's metadata, and RWKV's lines.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tapml_engine::Tokenizer;

const FILES: [&str; 3] = ["tokenizer.model", "model.gguf", "rwkv_vocab_v20230424.txt"];

fuzz_target!(
    init: tapml_fuzz::allow_panics_of_libraries(),
    |data: &[u8]| {
        let [kind, data @ ..] = data else { return };
        let name = FILES[usize::from(*kind) % FILES.len()];
        let path = tapml_fuzz::put(name, data);
        let opened = if name.ends_with("gguf") { Tokenizer::open(&path) } else { Tokenizer::open(tapml_fuzz::folder()) };
        std::fs::remove_file(path).expect("the file is there");
        let Ok(tokenizer) = opened else { return };
        let ids = tokenizer.encode("The old man ab <s> 12é\n  aaaa").unwrap_or_default();
        drop(tokenizer.decode(&ids));
    }
);
