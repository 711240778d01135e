//! Where a newcomer stumbles: models that are nearly right, options that do not apply, places that cannot be written, a mistake in
//! a kernel, a narrow terminal. Each is told by what it is, with what to do.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carve_small, changed_kernel, detector, draft, kernel, prompts, stderr, tapml};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of the small model of this class, with a head of its own if `tied` is false, which it lacks. `rename` gives the names of
/// its tensors.
fn of_class(folder: &Path, class: &str, tied: bool, rename: impl Fn(&str) -> String) -> String {
    let own = folder.join(class);
    std::fs::create_dir_all(&own).unwrap();
    for entry in std::fs::read_dir(draft()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), own.join(entry.file_name())).unwrap();
    }
    let config = own.join("config.json");
    let mut changed: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    changed["architectures"] = json!([class]);
    changed["tie_word_embeddings"] = json!(tied);
    std::fs::write(&config, changed.to_string()).unwrap();
    let weights = own.join("model.safetensors");
    let bytes = tapml_testing::unpack(&std::fs::read(own.join("model.safetensors.zst")).unwrap()).unwrap();
    let end = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..end]).unwrap();
    let header: serde_json::Map<String, Value> =
        header.as_object().unwrap().iter().map(|(name, entry)| (rename(name), entry.clone())).collect();
    let header = Value::Object(header).to_string();
    let padded = format!("{header:width$}", width = header.len().next_multiple_of(8));
    let length = (padded.len() as u64).to_le_bytes();
    std::fs::write(&weights, [&length[..], padded.as_bytes(), &bytes[end..]].concat()).unwrap();
    own.display().to_string()
}

#[test]
fn a_checkpoint_without_a_language_models_head_is_named_by_its_class() {
    let folder = tempfile::tempdir().unwrap();
    let generate = |model: &str, code: i32| {
        let more = ["--target", "cpu", "--ids", "1,2", "--max-tokens", "1"];
        stderr(tapml(folder.path()).args(["generate", model]).args(more), code)
    };
    let bare = |name: &str| name.trim_start_matches("model.").to_string();
    for tied in [false, true] {
        let text = generate(&of_class(folder.path(), "LlamaModel", tied, bare), 2);
        assert!(text.contains("`LlamaModel`, the layers without a language-model head"), "{text}");
        assert!(text.contains("take a checkpoint of `LlamaForCausalLM`"), "{text}");
    }
    let classifier = "LlamaForSequenceClassification";
    let text = generate(&of_class(folder.path(), classifier, false, str::to_string), 2);
    assert!(text.contains("a classifier") && text.contains("`LlamaForCausalLM`"), "{text}");
    assert!(!text.contains("tie_word_embeddings"), "{text}");
    // The embedding is a head, so that it runs.
    let text = generate(&of_class(folder.path(), classifier, true, str::to_string), 0);
    assert!(text.contains("gives classes; its head is left out"), "{text}");
    let text = generate(&of_class(folder.path(), "LlamaForCausalLM", false, str::to_string), 2);
    assert!(text.contains("tie_word_embeddings") && !text.contains("classifier"), "{text}");
}

/// A GGUF file of a Llama with one layer and all weights 0, without a vocabulary.
fn without_vocabulary(path: &Path) {
    fn text(bytes: &mut Vec<u8>, text: &str) {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    let numbers = [
        ("llama.context_length", 64u32),
        ("llama.embedding_length", 32),
        ("llama.block_count", 1),
        ("llama.feed_forward_length", 32),
        ("llama.attention.head_count", 1),
    ];
    let (square, row) = (&[32u64, 32][..], &[32u64][..]);
    let tensors = [
        ("token_embd", &[32u64, 8][..]),
        ("output_norm", row),
        ("blk.0.attn_norm", row),
        ("blk.0.attn_q", square),
        ("blk.0.attn_k", square),
        ("blk.0.attn_v", square),
        ("blk.0.attn_output", square),
        ("blk.0.ffn_norm", row),
        ("blk.0.ffn_gate", square),
        ("blk.0.ffn_up", square),
        ("blk.0.ffn_down", square),
    ];
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((numbers.len() as u64 + 2).to_le_bytes());
    text(&mut bytes, "general.architecture");
    // Types of values: 8 is a text, 4 a u32, 6 an f32.
    bytes.extend(8u32.to_le_bytes());
    text(&mut bytes, "llama");
    for (key, number) in numbers {
        text(&mut bytes, key);
        bytes.extend([4, number].map(u32::to_le_bytes).concat());
    }
    text(&mut bytes, "llama.attention.layer_norm_rms_epsilon");
    bytes.extend(6u32.to_le_bytes());
    bytes.extend(1e-5f32.to_le_bytes());
    let mut offset = 0u64;
    for (name, sizes) in tensors {
        text(&mut bytes, &format!("{name}.weight"));
        bytes.extend((sizes.len() as u32).to_le_bytes());
        sizes.iter().for_each(|size| bytes.extend(size.to_le_bytes()));
        // F32.
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        offset += 4 * sizes.iter().product::<u64>();
    }
    bytes.resize(bytes.len().next_multiple_of(32) + offset as usize, 0);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_gguf_file_without_a_vocabulary_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    without_vocabulary(&folder.path().join("bare.gguf"));
    prompts(folder.path());
    for command in [
        &["generate", "bare.gguf", "--target", "cpu", "--prompt", "a"][..],
        &["carve", "bare.gguf", "--prompts", "prompts.txt", "--out", "s"],
    ] {
        let text = stderr(tapml(folder.path()).args(command), 2);
        assert!(text.contains("bare.gguf: the file holds no vocabulary"), "{text}");
        assert!(text.contains("`tokenizer.ggml.model` is missing"), "{text}");
        assert!(text.contains("convert the model again") && text.contains("--ids"), "{text}");
    }
    let ids = ["generate", "bare.gguf", "--target", "cpu", "--ids", "1,2", "--max-tokens", "1"];
    tapml(folder.path()).args(ids).assert().success();
}

/// An ONNX model of one node of this kind, named `odd`, and its input `x.npy`.
fn one_node(folder: &Path, kind: &str) {
    use ::tapml::graph::{Graph, Op, Tensor};
    use ::tapml::import::onnx::{NewModel, NewNode};
    let text = format!("graph g\ninput x: f32[2,4]\ny: f32[2,4] = {kind}(x)\noutput y = y\n");
    let graph = Graph::parse(&text).unwrap();
    let Op::Foreign(op) = &graph.nodes()[0].op else { panic!("{kind}") };
    let (_, x) = graph.inputs().next().unwrap();
    let node = NewNode { name: "odd", op, inputs: vec!["x".into()], outputs: vec!["y".into()] };
    let (inputs, outputs) = (vec![("x".into(), x.ty.clone())], vec![("y".into(), x.ty.clone())]);
    let model = NewModel { nodes: vec![node], inputs, constants: Vec::new(), outputs };
    std::fs::write(folder.join("odd.onnx"), model.encode().unwrap()).unwrap();
    let x = Tensor::from_f32(vec![2, 4], vec![1.0; 8]).unwrap();
    ::tapml::import::npy::write(&folder.join("x.npy"), &x).unwrap();
}

#[test]
fn an_operator_that_is_not_served_is_named_with_its_node_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let carve = |kind: &str| {
        one_node(folder.path(), kind);
        let arguments = ["carve", "odd.onnx", "--input", "x=x.npy", "--out", "s"];
        stderr(tapml(folder.path()).args(arguments), 2)
    };
    let text = carve("onnx.Frobnicate@17");
    assert!(text.contains("node `odd`") && text.contains("`onnx.Frobnicate@17` has no evaluation"), "{text}");
    assert!(text.contains("--source ort") && !text.contains("convert"), "{text}");
    let text = carve("onnx.GridSample@9");
    assert!(
        text.contains("`onnx.GridSample@9` has no evaluation, `GridSample` has in versions 16"),
        "{text}"
    );
    assert!(text.contains("onnx.version_converter"), "{text}");
    assert!(!folder.path().join("s").exists());
}

#[test]
fn options_that_do_nothing_for_a_suite_or_an_onnx_model_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    detector(folder.path());
    prompts(folder.path());
    let carve = ["carve", "detector.onnx", "--input", "x=x.npy", "--out", "net.suite"];
    tapml(folder.path()).args(carve).assert().success();
    let options = [
        (&["--prompts", "prompts.txt"][..], "prompts"),
        (&["--steps", "2"], "a number of decode steps"),
        (&["--activation", "f16"], "a dtype of activations"),
        (&["--quantize", "q4"], "a scheme to quantise weights"),
        (&["--no-fuse"], "the wish not to fuse operators"),
        (&["--paged", "16"], "rows of a page"),
    ];
    for (option, what) in options {
        for command in ["migrate", "diagnose"] {
            let of_suite = [command, "net.suite", "--target", "cpu"];
            let text = stderr(tapml(folder.path()).args(of_suite).args(option), 2);
            assert!(text.contains(&format!("{what} beside the suite net.suite")), "{command}: {text}");
            assert!(text.contains("hint"), "{text}");
            let of_file = [command, "detector.onnx", "--input", "x=x.npy", "--target", "cpu"];
            let text = stderr(tapml(folder.path()).args(of_file).args(option), 2);
            assert!(text.contains(what) && text.contains("ONNX model"), "{command}: {text}");
        }
    }
    let two = ["diagnose", "net.suite", "--suite", "net.suite", "--target", "cpu"];
    assert!(stderr(tapml(folder.path()).args(two), 2).contains("which stands for the model"));
    assert!(!folder.path().join(".tapml").exists(), "refused before anything was written");
    // Without them both are moved.
    tapml(folder.path()).args(["migrate", "net.suite", "--target", "cpu"]).assert().success();
}

/// A file system of this size that is unmounted at the end; `None`, and a skip, if none can be mounted.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: &Path, options: &str) -> Option<Disk> {
        let place = folder.join("disk");
        std::fs::create_dir(&place).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&place).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Disk(place));
        }
        tapml_testing::skip("tmpfs", "a small file system cannot be mounted here");
        None
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Every command that writes, into `disk`; the faulty kernel gives `reduce` something to do.
fn writers(folder: &Path) -> Vec<Vec<String>> {
    carve_small(folder);
    let faulty = changed_kernel(folder, "rms_norm", ["return OFFSET +", "return 1.5 * OFFSET + 1.5 *"]);
    prompts(folder);
    let model = draft();
    let lines = [
        "carve MODEL --prompts prompts.txt --steps 1 --out disk/x.suite",
        "migrate MODEL --target cpu --prompts prompts.txt --steps 1 --ledger disk/ledger",
        "migrate MODEL --target cpu --prompts prompts.txt --steps 1 --html disk/page.html",
        "check draft.suite --target cpu --json disk/check.json",
        "check draft.suite --target cpu --junit disk/check.xml",
        "compile MODEL --target webgpu --dry-run --markdown disk/page.md",
        "quantize MODEL --scheme q4 --out disk/q4",
        "reduce draft.suite --case p0.s0.model.layers.0.input_layernorm --target emulator --kernel KERNEL --out disk/small",
    ];
    let words = |line: &str| -> Vec<String> {
        line.split(' ').map(|word| word.replace("MODEL", &model).replace("KERNEL", &faulty)).collect()
    };
    lines.into_iter().map(words).collect()
}

#[test]
fn a_place_that_cannot_be_written_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(folder.path(), "ro") else { return };
    for command in writers(folder.path()) {
        let text = stderr(tapml(folder.path()).args(&command), 2);
        let asked = command.iter().find(|word| word.starts_with("disk/")).unwrap();
        assert!(
            text.contains(asked.as_str()) && text.contains("Read-only file system"),
            "{command:?}: {text}"
        );
    }
    assert_eq!(disk.names(), Vec::<String>::new());
}

#[test]
fn a_full_disk_is_named_and_nothing_is_half_written() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(folder.path(), "size=64k") else { return };
    // Names take no room there, so that every command comes as far as its first byte.
    std::fs::write(disk.0.join("filler"), vec![1; 64 << 10]).unwrap();
    for command in writers(folder.path()) {
        let output = tapml(folder.path()).args(&command).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let asked = command.iter().find(|word| word.starts_with("disk/")).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {text}");
        assert!(text.contains(asked.as_str()) && text.to_lowercase().contains("no space left"), "{text}");
        assert!(text.contains("hint"), "{command:?}: {text}");
        let left: Vec<String> = disk.names().into_iter().filter(|name| name != "filler").collect();
        // A ledger's folder holds what was decided: it stays, and nothing is in it.
        for name in &left {
            let count = std::fs::read_dir(disk.0.join(name)).map(Iterator::count);
            assert!(name == "ledger" && count.is_ok_and(|count| count == 0), "{command:?}: {left:?}");
        }
    }
}

#[test]
fn a_mistake_in_a_kernel_is_shown_at_its_line_of_the_users_file() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, file) = (carve_small(folder.path()), kernel(folder.path(), "rms_norm"));
    let right = std::fs::read_to_string(&file).unwrap();
    let (at, line) = right.lines().enumerate().find(|(_, line)| line.contains("let factor =")).unwrap();
    for (mistake, said) in [
        ("    let factor = nothing + ", "no definition in scope"),
        ("    let factor = vec2<f32>(1.0) * vec3<f32>(1.0) + ", ""),
        ("    let factor = ) ", "expected"),
    ] {
        let wrong = line.replace("    let factor = ", mistake);
        std::fs::write(&file, right.replace(line, &wrong)).unwrap();
        let mut check = tapml(folder.path());
        check.arg("check").arg(&suite).args(["--target", "emulator", "--op", "rms_norm"]);
        let text = stderr(check.args(["--kernel", "rms_norm=rms_norm.wgsl"]), 2);
        let place = format!("rms_norm.wgsl:{}:", at + 1);
        assert!(text.contains(said) && text.starts_with(&format!("error: {place}")), "{text}");
        let log = text.split("log:").nth(1).unwrap();
        assert!(log.contains(&place), "the compiler's own text names another line: {text}");
        assert!(log.contains(&format!("{} │", at + 1)), "{text}");
    }
}

/// What a command prints in a terminal of so many columns; `None`, and a skip, without `script`.
fn in_terminal(folder: &Path, columns: u32, arguments: &str) -> Option<String> {
    let command =
        format!("stty cols {columns} rows 50; exec '{}' -q {arguments}", env!("CARGO_BIN_EXE_tapml"));
    let output = Command::new("script").args(["-qec", &command, "/dev/null"]).current_dir(folder).output();
    let Ok(output) = output else {
        tapml_testing::skip("script", "no terminal can be made here");
        return None;
    };
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stdout));
    Some(String::from_utf8_lossy(&output.stdout).replace('\r', ""))
}

#[test]
fn tables_fit_a_terminal_of_80_columns() {
    let folder = tempfile::tempdir().unwrap();
    prompts(folder.path());
    carve_small(folder.path());
    let migrate = format!("migrate {} --target cpu --prompts prompts.txt --steps 1", draft());
    for (arguments, column, kept) in [
        (migrate.as_str(), "SECONDS", "WORST"),
        ("check draft.suite --target emulator --op linear", "", "WORST"),
        ("kernel", "FILES", "KERNEL"),
        (&format!("compile {} --dry-run", draft()), "CONTEXT", "WEBGPU"),
        ("device list", "BINDING", "DRIVER"),
    ] {
        let Some(text) = in_terminal(folder.path(), 80, arguments) else { return };
        let header = text.lines().position(|line| line.contains(kept)).unwrap_or_else(|| panic!("{text}"));
        for line in text.lines().skip(header).take_while(|line| !line.trim().is_empty()) {
            assert!(line.trim_end().chars().count() <= 80, "{arguments}: {line}");
        }
        let whole = in_terminal(folder.path(), 500, arguments).unwrap();
        assert!(!whole.contains("not shown in this width"), "{arguments}: {whole}");
        if !column.is_empty() {
            assert!(text.contains("not shown in this width: ") && whole.contains(column), "{text}");
        }
    }
}
