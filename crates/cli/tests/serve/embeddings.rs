//! `tapml serve` with an encoder.

use super::common::{self, draft, stderr, tapml};
use super::process::ServeProcess;
use serde_json::{Value, json as value};
use std::path::Path;

/// An encoder with a tokenizer, whose vectors are made by this pooling, in a folder of its own.
fn write_encoder(folder: &Path, pooling: &Value) -> String {
    let golden = tapml_testing::golden("bert_tiny");
    let model = folder.join("encoder");
    std::fs::create_dir_all(model.join("1_Pooling")).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden.join(file), model.join(file)).unwrap();
    }
    let modules = value!([
        { "idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer" },
        { "idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling" },
    ]);
    let words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "once", "upon", "a", "time", "##s"];
    let vocab: serde_json::Map<String, Value> =
        words.iter().zip(0..).map(|(w, at)| (w.to_string(), at.into())).collect();
    let part = |id: &str| value!({ "SpecialToken": { "id": id, "type_id": 0 } });
    let special = |id: &str, number| value!({ "id": id, "ids": [number], "tokens": [id] });
    let tokenizer = value!({
        "version": "1.0", "added_tokens": [], "normalizer": { "type": "Lowercase" },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": {
            "type": "TemplateProcessing", "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
            "single": [part("[CLS]"), { "Sequence": { "id": "A", "type_id": 0 } }, part("[SEP]")],
            "special_tokens": { "[CLS]": special("[CLS]", 2), "[SEP]": special("[SEP]", 3) },
        },
        "model": {
            "type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
        },
        "truncation": { "direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0 },
    });
    for (name, json) in
        [("modules.json", &modules), ("tokenizer.json", &tokenizer), ("1_Pooling/config.json", pooling)]
    {
        std::fs::write(model.join(name), json.to_string()).unwrap();
    }
    model.display().to_string()
}

fn vectors(answer: &Value) -> Vec<Vec<f64>> {
    let list = |value: &Value| value.as_array().unwrap().clone();
    let numbers = |entry: &Value| list(&entry["embedding"]).iter().map(|n| n.as_f64().unwrap()).collect();
    list(&answer["data"]).iter().map(numbers).collect()
}

#[test]
fn vectors_of_an_encoder_are_those_of_transformers() {
    let golden = tapml::import::safetensors::File::open(
        &tapml_testing::golden("bert_tiny").join("golden.safetensors"),
    )
    .unwrap();
    let ids = [0, 1, 2].map(|prompt| golden.tensor(&format!("p{prompt}.input_ids")).unwrap().to_f64());
    let ids = ids.map(|ids| ids.iter().map(|id| *id as u32).collect::<Vec<u32>>());
    let last = |prompt: usize| {
        let states = golden.tensor(&format!("p{prompt}.hidden.2")).unwrap().to_f64();
        states[states.len() - 32..].to_vec()
    };
    let folder = tempfile::tempdir().unwrap();
    let model = write_encoder(
        folder.path(),
        &value!({ "pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true }),
    );
    for target in ["cpu", "emulator"] {
        let server = ServeProcess::start_model(&model, folder.path(), &["--target", target]);
        let expected = value!({ "size": 32, "pooling": ["lasttoken"], "normalized": false });
        assert_eq!((&server.report["embedding"], &server.report["context"]), (&expected, &value!(64)));
        assert_eq!(server.report["checked"].as_u64().is_some_and(|calls| calls > 0), target != "cpu");
        let (status, answer) = server.post("/v1/embeddings", "", &value!({ "input": ids }));
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["usage"]["prompt_tokens"], 1 + 9 + 64);
        let found = vectors(&answer);
        for (prompt, found) in found.iter().enumerate() {
            let expected = last(prompt);
            let range = expected.iter().fold(0.0_f64, |most, v| most.max(v.abs()));
            let wrong = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(
                found.len() == 32 && wrong <= 1e-4 * range,
                "{target}, prompt {prompt}: {wrong} of {range}"
            );
        }
        // Alone, a text has the same bits as among others.
        for (ids, found) in ids.iter().zip(&found) {
            let (_, alone) = server.post("/v1/embeddings", "", &value!({ "input": ids }));
            assert_eq!(vectors(&alone), std::slice::from_ref(found), "{target}");
        }
        // The tokenizer's file asks to cut texts, which would be another text's vector.
        let (_, texts) = server.post(
            "/v1/embeddings",
            "",
            &value!({ "input": ["Once upon a times", [2, 4, 5, 6, 7, 8, 3]] }),
        );
        let texts = vectors(&texts);
        assert!(texts[0] == texts[1] && texts[0] != found[1], "{texts:?}");
        let (status, error) = server.post(
            "/v1/chat/completions",
            "",
            &value!({ "messages": [{ "role": "user", "content": "a" }] }),
        );
        assert!(
            status == 400 && error["error"]["message"].as_str().unwrap().contains("/v1/embeddings"),
            "{error}"
        );
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn an_encoder_that_cannot_be_served_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str]| stderr(tapml(folder.path()).arg("serve").args(arguments), 2);
    let model = write_encoder(folder.path(), &value!({ "pooling_mode_cls_token": true }));
    let wrong =
        common::changed_kernel(folder.path(), "layer_norm", ["/ f32(K) + EPS", "/ f32(K + 1u) + EPS"]);
    let said = refused(&[&model, "--target", "emulator", "--kernel", &wrong]);
    assert!(said.contains("computes wrong results: `layer_norm`") && !said.contains("--paged"), "{said}");
    let said = refused(&[&model, "--target", "cpu", "--shadow", "cpu:1"]);
    assert!(said.contains("the model is an encoder") && said.contains("leave `--shadow` out"), "{said}");
    let said = refused(&[&model, "--target", "cpu", "--ngram", "2"]);
    assert!(said.contains("the model is an encoder"), "{said}");
    let said = refused(&[&draft(), "--target", "cpu", "--draft", &model]);
    assert!(said.contains("the small model is an encoder"), "{said}");
}
