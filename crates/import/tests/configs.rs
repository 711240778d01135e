//! A configuration means the same in every spelling: as published, as Transformers 4 writes it and as Transformers 5 does.
//! `tools/goldens/configs.py` made `tests/configs`.
#![allow(clippy::unwrap_used)]

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tapml_graph::DType;
use tapml_import::{ARCHITECTURES, Config, ImportOptions, Outline};

/// What one version of Transformers writes.
struct Written {
    version: String,
    /// `config.json` by the name of the golden checkpoint.
    configs: Map<String, Value>,
    /// What a class has without arguments, by model type.
    defaults: Map<String, Value>,
    /// The `attribute_map` of a class, other names to those in files, by model type.
    renamed: Map<String, Value>,
    /// Checkpoints that the version does not know, with the reason.
    unknown: Map<String, Value>,
}

impl Written {
    fn read(major: u32) -> Written {
        let file = format!("crates/import/tests/configs/transformers-{major}.json.zst");
        let text = tapml_testing::read_packed(&file);
        let all = Value::Object(Config::parse(Path::new(&file), &text).unwrap().json().clone());
        let group = |key: &str| all[key].as_object().unwrap().clone();
        let version = all["transformers"].as_str().unwrap().to_string();
        assert!(version.starts_with(&format!("{major}.")), "{version}");
        let (configs, defaults) = (group("configs"), group("defaults"));
        Written { version, configs, defaults, renamed: group("renamed"), unknown: group("unknown") }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a configuration means: the graph with its sizes, and how its weights are packed.
#[derive(PartialEq)]
struct Meaning {
    text: String,
    packing: Option<Value>,
}

impl Meaning {
    fn read(json: &Value) -> Result<Meaning, String> {
        let mut json = json.clone();
        // Without weights at hand, packed ones have no outline. The section itself is compared.
        let packing = json.as_object_mut().unwrap().remove("quantization_config");
        let config = Config::parse(Path::new("config.json"), json.to_string().as_bytes()).unwrap();
        let outline = Outline::new(&config, DType::BF16, &ImportOptions::default());
        let outline = outline.map_err(|error| error.to_string())?;
        let text =
            format!("vocab {} context {}\n{}", outline.vocab, outline.context, outline.graph.to_text());
        Ok(Meaning { text, packing })
    }

    /// Where this differs from what `json` means, if it does.
    fn difference(&self, json: &Value) -> Option<String> {
        let found = match Meaning::read(json) {
            Ok(found) if found == *self => return None,
            Ok(found) => found,
            Err(error) => return Some(error),
        };
        let lines = self.text.lines().zip(found.text.lines()).find(|(a, b)| a != b);
        Some(lines.map_or(format!("{:?}, {:?}", self.packing, found.packing), |(a, b)| {
            format!("\n    expected {a:.300}\n    found    {b:.300}")
        }))
    }
}

/// The published configurations of the golden checkpoints, by name.
fn golden_configs() -> Vec<(String, Value)> {
    let folders = std::fs::read_dir(root().join("tests/goldens")).unwrap().map(|e| e.unwrap().path());
    let files = folders.map(|folder| folder.join("config.json")).filter(|file| file.is_file());
    let read = |file: PathBuf| {
        let name = file.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        (name, Value::Object(Config::read(&file).unwrap().json().clone()))
    };
    let mut all: Vec<(String, Value)> = files.map(read).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// The published configuration of one golden checkpoint.
fn golden_config(name: &str) -> Value {
    golden_configs().into_iter().find(|(found, _)| found == name).unwrap().1
}

/// Model types that no golden has.
fn uncovered_types(published: &[(String, Value)]) -> BTreeSet<&'static str> {
    let have: BTreeSet<&str> = published.iter().filter_map(|(_, json)| json["model_type"].as_str()).collect();
    ARCHITECTURES.iter().flat_map(|a| a.model_types).copied().filter(|kind| !have.contains(kind)).collect()
}

/// Fails with all that is wrong.
fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_configuration_means_the_same_as_transformers_4_and_5_write_it() {
    let published = golden_configs();
    assert_eq!(uncovered_types(&published), BTreeSet::new(), "model types without a golden");
    let mut wrong = Vec::new();
    for written in [4, 5].map(Written::read) {
        for (name, json) in &published {
            let Some(rewritten) = written.configs.get(name) else {
                assert!(written.unknown.contains_key(name), "{name}: run tools/goldens/configs.py");
                eprintln!("skipped {name}, Transformers {}: {}", written.version, written.unknown[name]);
                continue;
            };
            let meaning = Meaning::read(json).unwrap_or_else(|error| panic!("{name}: {error}"));
            let difference = meaning.difference(rewritten);
            wrong.extend(difference.map(|text| format!("{name}, Transformers {}: {text}", written.version)));
        }
    }
    assert_none(&wrong);
}

#[test]
fn the_defaults_of_a_class_mean_the_same_in_transformers_4_and_5() {
    // What the classes themselves changed. Both versions write the value.
    let changed = BTreeMap::from([("cohere", "rope_theta is 10,000 in 4 and 500,000 in 5")]);
    let [older, newer] = [4, 5].map(Written::read);
    let mut wrong = Vec::new();
    for (kind, json) in &newer.defaults {
        let Some(before) = older.defaults.get(kind) else {
            eprintln!("skipped {kind}: Transformers {} does not have it", older.version);
            continue;
        };
        let difference = match Meaning::read(before) {
            Ok(meaning) => meaning.difference(json),
            // Defaults need not be a model: what is refused is refused for the same reason.
            Err(error) => Meaning::read(json).err().filter(|e| *e != error),
        };
        match (changed.get(kind.as_str()), difference) {
            (Some(reason), Some(_)) => eprintln!("skipped {kind}: {reason}"),
            (Some(_), None) => wrong.push(format!("{kind} is listed as changed, and is not")),
            (None, difference) => wrong.extend(difference.map(|text| format!("{kind}: {text}"))),
        }
    }
    assert_none(&wrong);
}

#[test]
fn the_other_names_that_transformers_has_for_a_key_are_read() {
    let mut tried = BTreeSet::new();
    let mut wrong = Vec::new();
    for written in [4, 5].map(Written::read) {
        for (name, json) in &golden_configs() {
            let kind = json["model_type"].as_str().unwrap();
            let Some(renamed) = written.renamed.get(kind).and_then(Value::as_object) else { continue };
            for (other, key) in renamed {
                let mut json = json.as_object().unwrap().clone();
                let Some(value) = json.remove(key.as_str().unwrap()) else { continue };
                let meaning = Meaning::read(&golden_config(name)).unwrap();
                json.insert(other.clone(), value);
                tried.insert((key.as_str().unwrap().to_string(), other.clone()));
                let difference = meaning.difference(&Value::Object(json));
                wrong.extend(difference.map(|text| format!("{name}, {other} for {key}: {text}")));
            }
        }
    }
    assert_none(&wrong);
    assert!(tried.contains(&("num_local_experts".into(), "num_experts".into())), "{tried:?}");
}

#[test]
fn a_missing_key_is_named_in_all_spellings() {
    let mut json = golden_config("gpt2_tiny");
    json.as_object_mut().unwrap().remove("n_embd");
    let error = Meaning::read(&json).err().unwrap();
    assert!(error.contains("config.json: `hidden_size` (or `n_embd`) is missing"), "{error}");

    let mut json = golden_config("qwen3_moe_tiny");
    let keys = json.as_object_mut().unwrap();
    keys.remove("num_experts");
    keys.insert("num_local_experts".into(), "many".into());
    let error = Meaning::read(&json).err().unwrap();
    assert!(error.contains("config.json: `num_local_experts`: expected a whole number"), "{error}");
}

#[test]
fn the_outer_configuration_says_whether_the_head_of_mistral3_is_tied() {
    let nested = golden_config("ministral3_tiny_nested");
    // What the outer and the text configuration say, and whether the head has no matrix of its own.
    for (outer, text, tied) in
        [(Some(true), false, true), (Some(false), true, false), (None, true, true), (None, false, false)]
    {
        let mut json = nested.clone();
        json["tie_word_embeddings"] = outer.map_or(Value::Null, Value::Bool);
        json["text_config"]["tie_word_embeddings"] = Value::Bool(text);
        let graph = Meaning::read(&json).unwrap().text;
        assert_eq!(!graph.contains("language_model.lm_head.weight"), tied, "{outer:?}, {text}:\n{graph}");
    }
}
