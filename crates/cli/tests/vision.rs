//! Models that see, and encoders, on the command line: images for prompts and in prompt files, and clear refusals.
#![allow(clippy::unwrap_used)]

mod common;

use common::{draft, json, stderr, tapml};
use std::path::PathBuf;
use tapml::import::safetensors::File;

fn tiny(name: &str) -> PathBuf {
    tapml_testing::golden(name)
}

fn text(path: PathBuf) -> String {
    path.display().to_string()
}

/// A vector of the golden of a model as the command line has ids.
fn golden_of(model: &str, name: &str) -> String {
    let golden = File::open(&tiny(model).join("golden.safetensors")).unwrap();
    let ids = golden.tensor(name).unwrap().to_f64();
    ids.iter().map(|id| id.to_string()).collect::<Vec<String>>().join(",")
}

/// Text after the first prompt of a golden with an image; `row` is a token that stands for one of its rows, so many times.
fn is_as_published(model: &str, (row, count): (&str, usize)) {
    let folder = tempfile::tempdir().unwrap();
    let (path, image) = (text(tiny(model)), text(tiny(model).join("image.png")));
    let ids = golden_of(model, "p1.input_ids");
    let generate = |target: &str, ids: &str| {
        let mut command = tapml(folder.path());
        command.args(["generate", &path, "--target", target, "--max-tokens", "16", "--ignore-eos"]);
        let report = json(command.args(["--image", &image, "--ids", ids]), 0);
        let ids = report["ids"].as_array().unwrap().iter().map(|id| id.to_string());
        ids.collect::<Vec<String>>().join(",")
    };
    let expected = golden_of(model, "p1.greedy_ids");
    assert_eq!(generate("cpu", &ids), expected);
    assert_eq!(generate("emulator", &ids), expected);
    let rows = format!(",{row}").repeat(count - 1);
    assert_eq!(
        generate("cpu", &ids.replacen(&rows, "", 1)),
        expected,
        "one token stands for the whole image"
    );
}

#[test]
fn text_after_an_image_is_that_of_transformers() {
    is_as_published("llava_tiny", ("97", 16));
}

#[test]
fn text_after_an_image_in_parts_is_that_of_its_authors() {
    is_as_published("phi3_v_tiny", ("97", (2 * 3 + 1) * 4 + 1 + (2 + 1) * 2));
}

#[test]
fn an_image_in_parts_is_named_in_the_text_as_its_authors_do() {
    let folder = tempfile::tempdir().unwrap();
    let (model, image) = (text(tiny("phi3_v_tiny")), text(tiny("phi3_v_tiny").join("image.png")));
    let ids = |prompt: &str, more: &[&str]| -> Vec<u64> {
        let mut command = tapml(folder.path());
        command.args(["generate", &model, "--target", "cpu", "--max-tokens", "2", "--ignore-eos"]);
        let report = json(command.args(["--prompt", prompt, "--image", &image]).args(more), 0);
        report["prompt_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
    };
    let named = ids("what <|image_1|> is this", &["--raw"]);
    // Each text around the image is tokenised on its own, so each begins as texts do.
    assert_eq!((named[0], named[2], named[36], named[37]), (0, 97, 97, 0), "{named:?}");
    let plain = ids("what is this", &["--raw"]);
    assert_eq!((plain[0], plain[1], plain[35], plain[36]), (0, 97, 97, 0), "{plain:?}");
    assert_eq!(ids("what is this", &[]), plain, "a chat of one message and no words of its own");
}

#[test]
fn a_text_may_leave_the_image_token_out() {
    let folder = tempfile::tempdir().unwrap();
    let (model, image) = (text(tiny("llava_tiny")), text(tiny("llava_tiny").join("image.png")));
    let generate = |more: &[&str]| {
        let mut command = tapml(folder.path());
        command.args(["generate", &model, "--target", "cpu", "--max-tokens", "4", "--ignore-eos"]);
        json(command.args(more), 0)
    };
    let plain = generate(&["--prompt", "what is this", "--image", &image, "--raw"]);
    let prompt: Vec<u64> =
        plain["prompt_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    assert_eq!((prompt[0], prompt.iter().filter(|&&id| id == 97).count()), (0, 16), "{prompt:?}");
    let named = generate(&["--prompt", "<image> what is this", "--image", &image, "--raw"]);
    assert_eq!(plain["ids"], named["ids"]);
    let chat = generate(&["--prompt", "what is this", "--image", &image]);
    assert_eq!(chat["prompt_ids"].as_array().unwrap().iter().filter(|id| **id == 97).count(), 16);
    let blind = generate(&["--prompt", "what is this"]);
    assert!(blind["prompt_ids"].as_array().unwrap().iter().all(|id| *id != 97));
}

#[test]
fn a_model_that_sees_migrates_with_the_image_in_the_prompt() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(tiny("llava_tiny").join("image.png"), folder.path().join("house.png")).unwrap();
    std::fs::write(folder.path().join("with.txt"), "![](house.png) what is this\nthe red house\n").unwrap();
    std::fs::write(folder.path().join("without.txt"), "the red house\n").unwrap();
    let migrate = |prompts: &str, exit: i32| {
        let mut command = tapml(folder.path());
        command.args(["migrate", &text(tiny("llava_tiny")), "--target", "emulator", "--steps", "2"]);
        json(command.args(["--ledger", prompts, "--prompts", &format!("{prompts}.txt")]), exit)
    };
    let with = migrate("with", 0);
    assert_eq!(
        (&with["verdict"], &with["coverage"]["calls"]),
        (&"accepted".into(), &with["coverage"]["checked"])
    );
    let without = migrate("without", 1);
    assert_eq!(without["verdict"], "incomplete");
    let op =
        |name: &str| without["ops"].as_array().unwrap().iter().find(|op| op["op"] == name).unwrap().clone();
    assert_eq!((&op("patches")["state"], &op("linear")["state"]), (&"pending".into(), &"accepted".into()));
    let skipped = without["coverage"]["skipped"].as_array().unwrap();
    assert!(skipped.iter().any(|s| s["node"] == "multi_modal_projector.linear_2"), "{skipped:?}");
    assert!(skipped.iter().all(|s| s["reason"].as_str().unwrap().contains("image")), "{skipped:?}");
}

#[test]
fn a_suite_holds_the_calls_of_the_encoder_where_there_is_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let model = text(tiny("llava_siglip_tiny"));
    let carved = json(tapml(folder.path()).args(["carve", &model, "--out", "suite", "--steps", "1"]), 0);
    let checked = json(tapml(folder.path()).args(["check", "suite", "--target", "emulator"]), 0);
    assert_eq!((&carved["totals"]["calls"], &checked["failed"]), (&checked["cases"], &0.into()));
    let patches = checked["ops"].as_array().unwrap().iter().find(|op| op["op"] == "patches").unwrap();
    assert_eq!(patches["cases"], 1, "the bundled image, and no other prompt has one");
}

#[test]
fn what_cannot_be_is_refused_clearly() {
    let folder = tempfile::tempdir().unwrap();
    let image = text(tiny("llava_tiny").join("image.png"));
    let refused = |arguments: &[&str], words: &[&str]| {
        let error = stderr(tapml(folder.path()).args(arguments), 2);
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    let (bert, llava) = (text(tiny("bert_tiny")), text(tiny("llava_tiny")));
    let encoder = ["encoder", "`hidden` and `pooled`", "tapml migrate"];
    refused(&["generate", &bert, "--ids", "1,2"], &encoder);
    refused(&["logits", &bert, "--ids", "1,2", "--out", "x"], &encoder);
    refused(&["generate", &draft(), "--ids", "1,2", "--image", &image], &["llama", "takes no images"]);
    refused(&["generate", &llava, "--ids", "1,2", "--image", &image], &["token 97"]);
    let config = text(tiny("llava_tiny").join("config.json"));
    refused(&["generate", &llava, "--ids", "1,97", "--image", &config], &["JPEG or WebP", "config.json"]);
}
