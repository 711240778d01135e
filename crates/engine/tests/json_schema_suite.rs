//! The JSON-Schema-Test-Suite: of what a schema calls invalid, nothing can be written under its grammar.
//! <https://github.com/json-schema-org/JSON-Schema-Test-Suite>
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use serde_json::Value;
use std::ops::ControlFlow;
use std::path::PathBuf;
use tapml_engine::{CompiledGrammar, Grammar, GrammarCompiler, Tokenizer};

/// Whether a text can be written under a grammar, to its end.
fn takes(tokenizer: &Tokenizer, grammar: &CompiledGrammar, text: &str) -> bool {
    let mut mask = grammar.mask();
    let ids = tokenizer.encode_plain(text).unwrap();
    assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    let count = ids.len();
    for (at, id) in ids.into_iter().chain([1]).enumerate() {
        let mut words = vec![0; tokenizer.vocab().div_ceil(32)];
        let allowed = mask.fill(&mut words).is_ok() && words[id as usize / 32] >> (id % 32) & 1 == 1;
        match allowed.then(|| mask.accept(id)) {
            Some(Ok(ControlFlow::Continue(()))) => {}
            // Where nothing can follow, the text is complete without a token for its end.
            Some(Ok(ControlFlow::Break(()))) => return at + 1 >= count,
            _ => return false,
        }
    }
    false
}

#[test]
fn nothing_invalid_can_be_written() {
    let Some(folder) = std::env::var_os("TAPML_JSON_SCHEMA_SUITE") else {
        tapml_testing::skip("JSON-Schema-Test-Suite", "TAPML_JSON_SCHEMA_SUITE names no folder of it");
        return;
    };
    let folder = tapml_testing::root().join(folder).join("tests/draft2020-12");
    let tokenizer = Tokenizer::open(tapml_testing::model("llama")).unwrap();
    let grammars = GrammarCompiler::new(&tokenizer, tokenizer.vocab(), &[1]).unwrap();
    let mut files: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let (mut enforced, mut refused, mut valid, mut missed, mut invalid) = (0, 0, 0, 0, 0);
    let mut wrong = Vec::new();
    for file in files {
        let groups: Vec<Value> = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        for group in groups {
            let Ok(grammar) = grammars.compile(&Grammar::Json(group["schema"].clone())) else {
                refused += 1;
                continue;
            };
            enforced += 1;
            for test in group["tests"].as_array().unwrap() {
                let taken = takes(&tokenizer, &grammar, &test["data"].to_string());
                match (test["valid"].as_bool().unwrap(), taken) {
                    (true, true) => valid += 1,
                    (true, false) => missed += 1,
                    (false, false) => invalid += 1,
                    (false, true) => {
                        let name = file.file_name().unwrap().to_string_lossy().into_owned();
                        wrong.push(format!("{name}: {}: {}", group["description"], test["description"]));
                    }
                }
            }
        }
    }
    println!("schemas: {enforced} enforced, {refused} refused");
    println!(
        "valid: {valid} can be written, {missed} cannot; invalid: {invalid} cannot be written, {} can",
        wrong.len()
    );
    assert_eq!(wrong, Vec::<String>::new());
    assert!(enforced >= 149 && valid >= 313, "{enforced} {valid}");
}
