//! Texts that are chosen at random among what a grammar allows have the form that was asked for.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::PathBuf;
use tapml_constraint::{CompiledGrammar, Grammar, GrammarCompiler, TokenBytes};
use tapml_engine::Tokenizer;

fn tokenizer() -> Tokenizer {
    Tokenizer::open(tapml_testing::model("llama")).unwrap()
}

fn compiler(tokenizer: &Tokenizer) -> GrammarCompiler {
    GrammarCompiler::new(tokenizer.vocabulary(tokenizer.vocab(), &[1])).unwrap()
}

/// A text of the grammar; `None` if it does not end within so many tokens.
fn random_text(tokenizer: &Tokenizer, grammar: &CompiledGrammar, seed: u64, most: usize) -> Option<String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut mask = grammar.mask();
    let mut ids = Vec::new();
    for _ in 0..most {
        let mut words = vec![0; tokenizer.vocab().div_ceil(32)];
        mask.fill(&mut words).unwrap();
        let allowed: Vec<u32> = (0..tokenizer.vocab() as u32)
            .filter(|id| words[*id as usize / 32] >> (id % 32) & 1 == 1)
            .collect();
        // The end is taken where it may stand, else texts of any length are rarely complete.
        let id = if allowed.contains(&1) { 1 } else { *random.choice(&allowed).unwrap() };
        if id != 1 {
            ids.push(id);
        }
        if mask.accept(id).unwrap() == ControlFlow::Break(()) {
            return Some(tokenizer.decode(&ids).unwrap());
        }
    }
    None
}

/// Texts of a grammar, of which most must be complete.
fn texts(grammar: &Grammar) -> Vec<String> {
    let tokenizer = tokenizer();
    let compiled = compiler(&tokenizer).compile(grammar).unwrap();
    let texts: Vec<String> =
        (0..40).filter_map(|seed| random_text(&tokenizer, &compiled, seed, 400)).collect();
    assert!(texts.len() >= 10, "{grammar:?}: {texts:?}");
    texts
}

fn json_texts(schema: Value) -> Vec<Value> {
    let texts = texts(&Grammar::Json(schema));
    texts.iter().map(|text| serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))).collect()
}

#[test]
fn json_fulfils_its_schema() {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["name", "age", "tags"],
        "properties": {
            "name": { "type": "string", "maxLength": 8 },
            "age": { "type": "integer", "minimum": 3, "maximum": 42 },
            "tags": { "type": "array", "items": { "enum": ["a", "b", 5] }, "minItems": 1, "maxItems": 3 },
            "next": { "$ref": "#/$defs/pair" },
        },
        "$defs": { "pair": { "type": "array", "prefixItems": [{ "type": "boolean" }, { "const": null }], "items": false, "minItems": 2 } },
    });
    let mut with_next = 0;
    for value in json_texts(schema) {
        let object = value.as_object().unwrap();
        assert!(object["name"].as_str().unwrap().chars().count() <= 8, "{value}");
        assert!((3..=42).contains(&object["age"].as_i64().unwrap()), "{value}");
        let tags = object["tags"].as_array().unwrap();
        assert!((1..=3).contains(&tags.len()), "{value}");
        assert!(tags.iter().all(|tag| [json!("a"), json!("b"), json!(5)].contains(tag)), "{value}");
        with_next += usize::from(object.contains_key("next"));
        assert!(object.get("next").is_none_or(|next| next[0].is_boolean() && next[1].is_null()), "{value}");
        assert!(object.keys().all(|key| ["name", "age", "tags", "next"].contains(&key.as_str())), "{value}");
    }
    assert!(with_next > 0);
    assert!(
        json_texts(
            json!({ "type": "object", "maxProperties": 2, "additionalProperties": { "type": "string" } })
        )
        .iter()
        .all(Value::is_object)
    );
}

#[test]
fn a_client_cannot_weaken_a_schema_by_the_librarys_options() {
    let schema = json!({ "type": "string", "x-guidance": { "lenient": true }, "contains": { "const": 5 } });
    assert!(compiler(&tokenizer()).compile(&Grammar::Json(schema)).is_err());
}

#[test]
fn expressions_choices_and_rules_are_kept_to() {
    let codes = texts(&Grammar::Regex(r"[A-Z]{2}-[0-9]{3}(é|/)?".into()));
    assert!(
        codes.iter().all(|code| code.as_bytes()[2] == b'-' && code[3..6].parse::<u32>().is_ok()),
        "{codes:?}"
    );
    // Digits and letters of ASCII, as in the patterns of schemas.
    for code in texts(&Grammar::Regex(r"\d\w{2}".into())) {
        assert!(code.len() == 3 && code.is_ascii() && code.as_bytes()[0].is_ascii_digit(), "{code:?}");
    }
    let words = ["a", "ab", "Say \"no\"\n", "é"];
    let chosen = texts(&Grammar::Choice(words.map(|word| Grammar::Text(word.into())).into()));
    assert!(chosen.iter().all(|text| words.contains(&text.as_str())), "{chosen:?}");
    let sums = "root ::= term (\"+\" term){1,3}\nterm ::= [0-9] | \"(\" term \"-\" term \")\"";
    let lark = "start: term (\"+\" term){1,3}\nterm: /[0-9]/ | \"(\" term \"-\" term \")\"";
    for rules in [sums, lark] {
        for sum in texts(&Grammar::of_rules(rules).unwrap()) {
            assert!(sum.contains('+') && sum.matches('(').count() == sum.matches(')').count(), "{sum}");
        }
    }
    // Texts that begin alike are told apart.
    let alike = texts(&Grammar::of_rules("root ::= \"true\" | [a-z] \"r\" \"x\"").unwrap());
    assert!(alike.iter().all(|text| text == "true" || text.ends_with("rx")), "{alike:?}");
}

#[test]
fn parts_make_a_whole() {
    let schema = json!({ "$ref": "#/$defs/n", "$defs": { "n": { "enum": [1, 22] } } });
    let call = |name: &str| {
        Grammar::Sequence(vec![
            Grammar::Text(format!("<call>\n{{\"name\": \"{name}\", \"arguments\": ")),
            Grammar::Json(schema.clone()),
            Grammar::Text("}\n</call>".into()),
        ])
    };
    let one = Grammar::Choice(vec![call("get"), call("get_time")]);
    let next = Grammar::Sequence(vec![Grammar::Text("\n".into()), one.clone()]);
    let two = Grammar::Sequence(vec![one.clone(), Grammar::Repeat(Box::new(next), 1)]);
    for text in texts(&two) {
        let calls: Vec<&str> = text.split("\n<call>").collect();
        assert_eq!(calls.len(), 2, "{text}");
        assert!(text.ends_with("}\n</call>"), "{text}");
    }
    // A text, or a text and then a call.
    let rest = Grammar::Sequence(vec![
        Grammar::Text("\n{\"name\": \"get\", \"arguments\": ".into()),
        Grammar::Json(schema.clone()),
        Grammar::Text("}\n</call>".into()),
    ]);
    let free = Grammar::Without(vec!["<call>".into()]);
    let until = Grammar::Until { end: "<call>".into(), without: vec!["<other>".into()] };
    let strict = Grammar::Choice(vec![Grammar::Sequence(vec![until, rest]), free]);
    let tokenizer = tokenizer();
    let grammars = compiler(&tokenizer);
    let strict = grammars.compile(&strict).unwrap();
    for (text, taken) in [
        ("Hello < there", true),
        ("<call>\n{\"name\": \"get\", \"arguments\": 1}\n</call>", true),
        ("I look. <call>\n{\"name\": \"get\", \"arguments\": 22}\n</call>", true),
        ("<call>\n{\"name\": \"other\"", false),
        ("I look. <call>\n{\"name\": \"get\", \"arguments\": 3", false),
    ] {
        assert_eq!(takes(&tokenizer, &strict, text), taken, "{text}");
    }
}

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
fn what_cannot_be_enforced_is_refused_before_a_token_is_made() {
    let tokenizer = tokenizer();
    let grammars = compiler(&tokenizer);
    let deep =
        (0..120).fold(json!({ "type": "null" }), |inner, _| json!({ "type": "array", "items": inner }));
    grammars.compile(&Grammar::Json(deep)).unwrap();
    let loops = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/a" } } });
    let wide: Vec<Value> =
        (0..60).map(|i| json!({ "anyOf": [{ "minLength": i }, { "maxLength": 1000 + i }] })).collect();
    let hostile = [
        Grammar::Json(json!({ "type": "strnig" })),
        Grammar::Json(json!({ "$ref": "#/missing" })),
        Grammar::Json(json!({ "$ref": "https://example.com/schema.json" })),
        Grammar::Json(json!({ "not": { "type": "string" } })),
        Grammar::Json(json!(5)),
        Grammar::Json(json!({ "type": "integer", "minimum": 5, "maximum": 3 })),
        Grammar::Json(loops),
        Grammar::Json(json!({ "allOf": wide })),
        Grammar::Regex("(".into()),
        Grammar::Regex("(".repeat(100_000)),
        Grammar::Lark("".into()),
        Grammar::Lark("start: other".into()),
        Grammar::Lark(format!("start: {}", "(".repeat(100_000))),
        Grammar::Lark("x".repeat(2 << 20)),
        Grammar::Choice(Vec::new()),
        Grammar::Choice(vec![Grammar::Text("x".repeat(2 << 20))]),
        Grammar::Choice(vec![Grammar::Text("</s>".repeat(300_000))]),
        Grammar::Sequence(vec![Grammar::Lark("start: \"a\"".into())]),
    ];
    for grammar in hostile {
        let shown: String = format!("{grammar:?}").chars().take(80).collect();
        let start = std::time::Instant::now();
        let error = grammars.compile(&grammar).expect_err(&shown);
        assert!(error.hint().is_some(), "{shown}: {error}");
        println!("{shown}: {error} ({:?})", start.elapsed());
    }
}

#[test]
fn the_bytes_of_tokens_are_the_text() {
    let mut folders = vec![tapml_testing::model("llama")];
    folders
        .extend(["gemma2", "qwen2_moe", "phi3", "rwkv7"].into_iter().filter_map(tapml_testing::extra_model));
    for folder in folders {
        let tokenizer = Tokenizer::open(&folder).unwrap();
        let bytes = tokenizer.token_bytes(tokenizer.vocab());
        let special = bytes.iter().filter(|bytes| matches!(bytes, TokenBytes::Special(_))).count();
        assert!(special > 0 && special < 100, "{special}");
        for text in ["The quick brown fox.\n", "é ü 漢字 🙂", " a  b\t\r\n{\"x\": 5}", "<0x41>"] {
            let ids = tokenizer.encode_plain(text).unwrap();
            let joined: Vec<u8> = ids
                .iter()
                .flat_map(|id| match &bytes[*id as usize] {
                    TokenBytes::Text(bytes) => bytes.clone(),
                    other => panic!("{}: {id}: {other:?}", folder.display()),
                })
                .collect();
            let joined = String::from_utf8(joined).unwrap();
            // Some tokenizers put a blank before a text.
            assert!(joined == text || joined == format!(" {text}"), "{}: {joined:?}", folder.display());
        }
    }
}

/// The JSON-Schema-Test-Suite: of what a schema calls invalid, nothing can be written under its grammar.
/// <https://github.com/json-schema-org/JSON-Schema-Test-Suite>
#[test]
fn nothing_invalid_can_be_written() {
    let Some(folder) = std::env::var_os("TAPML_JSON_SCHEMA_SUITE") else {
        tapml_testing::skip("JSON-Schema-Test-Suite", "TAPML_JSON_SCHEMA_SUITE names no folder of it");
        return;
    };
    let folder = tapml_testing::root().join(folder).join("tests/draft2020-12");
    let tokenizer = tokenizer();
    let grammars = compiler(&tokenizer);
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
