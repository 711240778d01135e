//! Suites: the files of a small one with changes, hashes made right again, opened and replayed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::LazyLock;
use tapml_exec::CpuPlatform;
use tapml_graph::{DType, Graph, Model, Tensor};
use tapml_migrate::suite::{FRAMES, INDEX, MANIFEST, Suite, TENSORS};
use tapml_migrate::{CarveOptions, Hash, ModelIdentity, PromptInput, Quiet, Stop, carve};

const GRAPH: &str = "graph toy
input ids: u32[n]
weight embed.weight: f32[8,4]
embed: f32[n,4] = embedding(ids, embed.weight) {\"dtype\":\"f32\"}
state k: f32[p,4] -> cache
cache: f32[n+p,4] = append(k, embed)
act: f32[n,4] = silu(embed)
logits: f32[n,8] = linear(act, embed.weight)
output logits = logits
";
const FILES: [&str; 4] = [MANIFEST, FRAMES, INDEX, TENSORS];

struct Base {
    model: Model,
    path: PathBuf,
    files: [Vec<u8>; 4],
}

static BASE: LazyLock<Base> = LazyLock::new(|| {
    let values: Vec<f64> = (0..32).map(|i| f64::from(i) / 16.0 - 1.0).collect();
    let weight = Tensor::from_f64(DType::F32, vec![8, 4], &values).expect("a weight");
    let graph = Graph::parse(GRAPH).expect("a graph");
    let model = Model::new(graph, HashMap::from([("embed.weight".to_string(), weight)])).expect("a model");
    let path = tapml_fuzz::folder().join("suite");
    let prompt = PromptInput { text: "a".into(), ids: vec![1, 2, 3], image: None, most_steps: None };
    let decode = |ids: &[u32]| format!("{ids:?}");
    let options = CarveOptions {
        out: &path,
        overwrite: true,
        steps: 2,
        self_contained: false,
        context: 64,
        decode: &decode,
    };
    let mut platform = CpuPlatform::new();
    carve(&mut platform, &model, ModelIdentity::default(), &[prompt], &options, &Quiet, &Stop::new())
        .expect("a suite");
    let files = FILES.map(|name| std::fs::read(path.join(name)).expect("a file of the suite"));
    Base { model, path, files }
});

fuzz_target!(|data: &[u8]| {
    let [kind, edits @ ..] = data else { return };
    let base = &*BASE;
    let at = usize::from(*kind) % FILES.len();
    let changed = tapml_fuzz::edit_text(&base.files[at], edits);
    let put =
        |name: &str, bytes: &[u8]| std::fs::write(base.path.join(name), bytes).expect("a file of the suite");
    put(FILES[at], &changed);
    if at > 0 {
        let mut manifest: Value = serde_json::from_slice(&base.files[0]).expect("a manifest");
        for file in manifest["files"].as_array_mut().into_iter().flatten() {
            if file["name"] == FILES[at] {
                file["bytes"] = json!(changed.len());
                if file.get("blake3").is_some() {
                    file["blake3"] = json!(Hash::compute(&changed));
                }
            }
        }
        put(MANIFEST, manifest.to_string().as_bytes());
    }
    if let Ok(suite) = Suite::open(&base.path) {
        drop(suite.verify());
        if let Ok(model) = suite.model(Some(&base.model)) {
            for case in suite.cases().take(64) {
                drop(suite.call(case, &model));
                drop(suite.find_case(&suite.case_id(case)));
            }
        }
        for frame in 0..suite.frames().len().min(8) {
            drop(suite.inputs(frame));
        }
    }
    put(FILES[at], &base.files[at]);
    put(MANIFEST, &base.files[0]);
});
