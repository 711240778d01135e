//! The files beside the weights mean the same as Transformers 4 and 5 write them. `tools/goldens/configs.py` made them.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use tapml_engine::{ImageProcessor, SpecialTokens, Tokenizer};
use tapml_import::{Config, Layout};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The texts of the special tokens. Whether they are put around a text, `tokenizer.json` also says, and Transformers 5
/// says it there only.
fn texts(special: &SpecialTokens) -> [&Option<String>; 4] {
    [&special.bos, &special.eos, &special.pad, &special.unk]
}

#[test]
fn tokenizers_and_image_processors_mean_the_same_as_transformers_4_and_5_write_them() {
    let layout = Layout::Whole { rows: 1 };
    let mut with_begin = 0;
    for major in [4, 5] {
        let file = format!("crates/import/tests/configs/transformers-{major}.json.zst");
        let written = Config::parse(Path::new(&file), &tapml_testing::read_packed(&file)).unwrap();
        let folders = written.json()["files"].as_object().unwrap();
        assert_eq!(folders.len(), 3);
        for (folder, files) in folders {
            let (from, new) = (root().join(folder), tempfile::tempdir().unwrap());
            std::fs::copy(from.join("tokenizer.json"), new.path().join("tokenizer.json")).unwrap();
            for (name, json) in files.as_object().unwrap() {
                std::fs::write(new.path().join(name), json.to_string()).unwrap();
            }
            let [expected, found] = [&from, new.path()].map(|dir| Tokenizer::open(dir).unwrap());
            assert_eq!(texts(found.special()), texts(expected.special()), "{folder}, {major}");
            let text = "Once upon a time, there was a test.";
            assert_eq!(found.encode_plain(text).unwrap(), expected.encode_plain(text).unwrap());
            // Transformers 5 itself does not read `add_bos_token` where `tokenizer.json` has no post-processor.
            if Config::read(&from.join("tokenizer.json")).unwrap().root().get("post_processor").is_some() {
                assert_eq!(found.encode(text).unwrap(), expected.encode(text).unwrap(), "{folder}, {major}");
                with_begin += 1;
            }
            if from.join("preprocessor_config.json").is_file() {
                let [expected, found] =
                    [&from, new.path()].map(|dir| ImageProcessor::open(dir, layout).unwrap());
                assert_eq!(found, expected, "{folder}, {major}");
            }
        }
    }
    assert_eq!(with_begin, 2);
}
