//! Files that fill the inputs of an ONNX model: images, sound, texts, numbers, and what is said of those that do not fit.
#![allow(clippy::unwrap_used)]

mod common;

use common::python::made_by;
use common::{json, stderr};
use std::path::Path;
use tapml::graph::Tensor;
use tapml::import::npy;

/// Writes models that give what they are given, files for them, and the arrays that these files are.
const FILES: &str = r#"
import json, os, sys, wave, numpy as np, onnx
from PIL import Image
from onnx import helper as h, TensorProto as T
os.chdir(sys.argv[1])
def model(name, **inputs):
    infos = [h.make_tensor_value_info(k, *v) for k, v in inputs.items()]
    nodes = [h.make_node("Identity", [k], [k + "_out"]) for k in inputs]
    outs = [h.make_tensor_value_info(k + "_out", v[0], None) for k, v in inputs.items()]
    onnx.save(h.make_model(h.make_graph(nodes, name, infos, outs), opset_imports=[h.make_opsetid("", 17)], ir_version=8), f"{name}.onnx")
model("free", x=(T.FLOAT, [1, 3, "h", "w"]))
model("fixed", x=(T.UINT8, [1, 6, 8, 3]))
model("grey", x=(T.FLOAT, [1, 1, 6, 8]))
model("sound", s=(T.FLOAT, [1, "samples"]))
model("window", s=(T.FLOAT, ["batch", 6, 1]))
model("text", input_ids=(T.INT64, ["b", "n"]), attention_mask=(T.INT64, ["b", "n"]), token_type_ids=(T.INT32, ["b", "n"]))
model("padded", input_ids=(T.INT32, [1, 5]), attention_mask=(T.FLOAT, [1, 5]))
model("numbers", size=(T.INT64, [2]), table=(T.FLOAT, ["r", "c"]), on=(T.BOOL, []))
model("wide", x=(T.FLOAT, [1, 16, 6, 8]))
samples = np.random.default_rng(1).integers(0, 256, (9, 12, 3), dtype=np.uint8)
picture = Image.fromarray(samples)
for ending in ("png", "webp"):
    picture.save(f"p.{ending}", lossless=True)
open("cut.png", "wb").write(open("p.png", "rb").read()[:120])
small = np.asarray(picture.resize((8, 6), Image.BILINEAR))
cubic = np.asarray(picture.resize((8, 6), Image.BICUBIC))
save = lambda name, array: np.save(f"{name}.npy", np.ascontiguousarray(array))
mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
planes = lambda a: a.transpose(2, 0, 1)[None]
save("as_is", planes(samples / 255).astype("f4"))
save("normal", planes((small / 255 - mean) / std).astype("f4"))
save("bgr", planes(cubic[..., ::-1] * 2.0 - 1).astype("f4"))
save("bytes", small[None])
save("luma", (np.asarray(picture.resize((8, 6), Image.BILINEAR).convert("L"))[None, None] / 255).astype("f4"))
tones = (np.sin(np.arange(16) / 3) * 30000).astype("<i2")
def wav(name, channels, data):
    with wave.open(name, "wb") as file:
        file.setnchannels(channels); file.setsampwidth(2); file.setframerate(16000); file.writeframes(data.tobytes())
wav("mono.wav", 1, tones)
wav("two.wav", 2, tones)
open("cut.wav", "wb").write(open("mono.wav", "rb").read()[:50])
save("tones", (tones / 32768).astype("f4")[None])
save("window_of", np.concatenate([tones[12:] / 32768, [0, 0]]).astype("f4").reshape(1, 6, 1))
save("second", (tones[1::2] / 32768).astype("f4")[None])
vocab = {"[PAD]": 0, "[UNK]": 1, "hello": 2, "small": 3, "world": 4}
added = [{"id": 0, "content": "[PAD]", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}]
json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "Lowercase"},
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}}, open("tokenizer.json", "w"))
open("t.txt", "w").write("Hello small world\n")
save("ids", np.array([[2, 3, 4]])); save("ones", np.ones((1, 3), "i8")); save("zeros", np.zeros((1, 3), "i4"))
save("ids_padded", np.array([[2, 3, 4, 0, 0]], "i4")); save("mask", np.array([[1, 1, 1, 0, 0]], "f4"))
open("size.csv", "w").write("9007199254740993, -4\n"); open("table.csv", "w").write("1 2 3\n4,5,6.5\n"); open("on.csv", "w").write("true")
save("size_is", np.array([9007199254740993, -4])); save("table_is", np.array([[1, 2, 3], [4, 5, 6.5]], "f4")); np.save("on_is.npy", np.array(True))
"#;

fn folder() -> Option<tempfile::TempDir> {
    made_by(FILES, &["numpy", "onnx", "PIL"], "models for input files")
}

fn array(folder: &Path, name: &str) -> Tensor {
    npy::read(&folder.join(format!("{name}.npy"))).unwrap()
}

/// What a model was given, by the outputs of its run: pairs of an output and the array that it must be.
fn expect_given(folder: &Path, model: &str, inputs: &[&str], expected: &[(&str, &str)]) {
    let mut run = common::tapml(folder);
    run.args(["run", model, "--target", "cpu", "--out", "o", "--overwrite"]);
    for input in inputs {
        run.args(["--input", input]);
    }
    json(&mut run, 0);
    for (output, name) in expected {
        let (found, expected) = (array(&folder.join("o"), output), array(folder, name));
        assert_eq!((found.dtype(), found.shape()), (expected.dtype(), expected.shape()), "{inputs:?}");
        let far =
            found.to_f64().iter().zip(expected.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(far < 1e-6 || found.dtype() != tapml::graph::DType::F32 && far == 0.0, "{inputs:?}: {far}");
    }
}

#[test]
fn images_become_arrays_as_the_options_say() {
    let Some(folder) = folder() else { return };
    let given = |model: &str, input: &str, expected: &str| {
        expect_given(folder.path(), model, &[input], &[("x_out", expected)])
    };
    given("free.onnx", "x=p.png", "as_is");
    given("free.onnx", "x=p.webp", "as_is");
    let imagenet = "x=p.png?size=6x8&scale=1/255&mean=0.485,0.456,0.406&std=0.229,0.224,0.225";
    given("free.onnx", imagenet, "normal");
    given("free.onnx", "x=p.png?size=6x8&scale=2&mean=1&channels=bgr&filter=bicubic", "bgr");
    given("fixed.onnx", "x=p.png", "bytes");
    given("grey.onnx", "x=p.png", "luma");
    // How the file became an array is told.
    let mut run = common::tapml(folder.path());
    run.args(["run", "fixed.onnx", "--input", "x=p.png", "--target", "cpu", "--out", "told"]);
    let output = run.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.contains("p.png, 9×12 pixels resized to 6×8 (bilinear), channels rgb, layout nhwc"),
        "{told}"
    );
}

#[test]
fn sound_texts_and_numbers_become_arrays() {
    let Some(folder) = folder() else { return };
    let given = |model: &str, inputs: &[&str], expected: &[(&str, &str)]| {
        expect_given(folder.path(), model, inputs, expected)
    };
    given("sound.onnx", &["s=mono.wav?rate=16000"], &[("s_out", "tones")]);
    given("sound.onnx", &["s=two.wav?channel=1"], &[("s_out", "second")]);
    given("window.onnx", &["s=mono.wav?start=12"], &[("s_out", "window_of")]);
    let outputs = [("input_ids_out", "ids"), ("attention_mask_out", "ones"), ("token_type_ids_out", "zeros")];
    given("text.onnx", &["input_ids=t.txt"], &outputs);
    given(
        "padded.onnx",
        &["input_ids=t.txt"],
        &[("input_ids_out", "ids_padded"), ("attention_mask_out", "mask")],
    );
    let outputs = [("size_out", "size_is"), ("table_out", "table_is"), ("on_out", "on_is")];
    given("numbers.onnx", &["size=size.csv", "table=table.csv", "on=on.csv"], &outputs);
}

#[test]
fn folders_hold_files_of_every_kind() {
    let Some(folder) = folder() else { return };
    for (set, file) in [("a", "p.png"), ("b", "p.webp")] {
        std::fs::create_dir_all(folder.path().join("sets").join(set)).unwrap();
        let name = format!("x.{}", file.split_once('.').unwrap().1);
        std::fs::copy(folder.path().join(file), folder.path().join("sets").join(set).join(name)).unwrap();
    }
    let carve = |inputs: &str, model: &str, code: i32| {
        let mut carve = common::tapml(folder.path());
        carve.args(["carve", model, "--inputs", inputs, "--out", "suite", "--overwrite"]);
        if code == 0 { json(&mut carve, 0).to_string() } else { stderr(&mut carve, code) }
    };
    let report = carve("sets?size=6x8", "free.onnx", 0);
    assert!(report.contains("\"prompts\":2"), "{report}");
    assert!(carve("sets?rate=3", "free.onnx", 2).contains("no file of sets has the option `rate`"));
    assert!(carve("sets?colour=red", "free.onnx", 2).contains("no option `colour`"));
    std::fs::copy(folder.path().join("as_is.npy"), folder.path().join("sets/a/x.npy")).unwrap();
    assert!(carve("sets", "free.onnx", 2).contains("`x` is given twice"));
}

#[test]
fn files_that_do_not_fit_are_told() {
    let Some(folder) = folder() else { return };
    let told = |model: &str, input: &str| {
        let mut carve = common::tapml(folder.path());
        stderr(carve.args(["carve", model, "--input", input, "--out", "s"]), 2)
    };
    std::fs::write(folder.path().join("odd.csv"), "1, two").unwrap();
    std::fs::write(folder.path().join("long.txt"), "hello ".repeat(9)).unwrap();
    for (model, input, expected) in [
        ("free.onnx", "z=p.png", "no input `z`"),
        ("free.onnx", "x=p.png?colour=red", "an image has no option `colour`"),
        ("free.onnx", "x=as_is.npy?scale=2", "an array has no option `scale`"),
        ("free.onnx", "x=p.png?size=6", "height and width"),
        ("free.onnx", "x=p.png?size=20000x6", "a picture of 20000×6 pixels"),
        ("free.onnx", "x=p.png?mean=1,2", "one number, or 3"),
        ("free.onnx", "x=p.png?std=0", "other than 0"),
        ("free.onnx", "x=p.png?layout=hwc", "another number of sizes than the layout `hwc`"),
        ("free.onnx", "x=p.png?channels=grey", "has 3 channels"),
        ("free.onnx", "x=cut.png", "could not read the image"),
        ("free.onnx", "x=none.png", "none.png"),
        ("fixed.onnx", "x=p.png?size=9x9", "has 6 where `size` asks for 9"),
        ("fixed.onnx", "x=p.png?scale=1.5", "u8 does not hold 257"),
        ("wide.onnx", "x=p.png", "f32[1, 16, 6, 8], which is no image"),
        ("sound.onnx", "s=two.wav", "has 2 channels, expected one"),
        ("sound.onnx", "s=mono.wav?rate=8000", "16000 samples a second, expected 8000"),
        ("sound.onnx", "s=mono.wav?start=16", "less than the 16 samples"),
        ("sound.onnx", "s=cut.wav", "could not read the sound"),
        ("free.onnx", "x=mono.wav", "is no row of samples"),
        ("free.onnx", "x=t.txt", "are no ids of tokens"),
        ("text.onnx", "input_ids=t.txt?tokenizer=nowhere", "the tokenizer"),
        ("padded.onnx", "input_ids=long.txt", "has 9 tokens, expected 1 to 5"),
        ("numbers.onnx", "size=odd.csv", "found `two`"),
        ("numbers.onnx", "size=table.csv", "not of the 6 numbers"),
        ("numbers.onnx", "table=table.csv?shape=4x2", "sizes of the 6 numbers"),
    ] {
        let text = told(model, input);
        assert!(text.contains(expected), "{model} {input}: expected {expected}, found {text}");
    }
    assert!(!folder.path().join("s").exists());
}
