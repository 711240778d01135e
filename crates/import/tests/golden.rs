//! Imported models against Hugging Face Transformers in f32: logits at every position, hidden states after every layer
//! and greedy text. `tools/goldens/llama.py` made the golden files and says what is in them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use tapml_graph::{DType, Graph, Symbols, fuse};
use tapml_import::safetensors::File;
use tapml_import::{Checkpoint, ImportOptions, Rows};
use tapml_reference::{GraphRun, Value, WeightCache, empty_states, run_graph};

/// Largest difference of a logit or hidden value, absolute.
const TOLERANCE: f64 = 2e-4;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A matrix or vector of a golden file.
struct Expected {
    columns: usize,
    values: Vec<f64>,
}

impl Expected {
    fn row(&self, index: usize) -> &[f64] {
        &self.values[index * self.columns..(index + 1) * self.columns]
    }
}

struct Golden {
    file: File,
    prompts: usize,
}

impl Golden {
    fn open(name: &str) -> Golden {
        let file = File::open(&root().join("tests/goldens").join(name).join("golden.safetensors")).unwrap();
        let prompts = file.entries().iter().filter(|e| e.name.ends_with(".input_ids")).count();
        assert!(prompts >= 3);
        Golden { file, prompts }
    }

    fn get(&self, prompt: usize, name: &str) -> Expected {
        let tensor = self.file.tensor(&format!("p{prompt}.{name}")).unwrap();
        Expected { columns: tensor.row_len(), values: tensor.to_f64() }
    }

    fn ids(&self, prompt: usize, name: &str) -> Vec<u32> {
        self.get(prompt, name).values.iter().map(|&v| v as u32).collect()
    }
}

struct Runner {
    checkpoint: Checkpoint,
    weights: WeightCache<f32>,
}

impl Runner {
    fn new(dir: &Path) -> Runner {
        Runner { checkpoint: Checkpoint::open(dir).unwrap(), weights: WeightCache::new() }
    }

    fn step(&self, graph: &Graph, ids: &[u32], cached: usize, states: Vec<Value<f32>>) -> GraphRun<f32> {
        let inputs = HashMap::from([("ids".to_string(), Value::ids(ids.to_vec()))]);
        let symbols = Symbols::np(ids.len() as u64, cached as u64);
        let weights = |name: &str| self.weights.of(self.checkpoint.model(), name);
        run_graph(graph, &symbols, &inputs, &weights, states, None).unwrap()
    }

    /// Logits and hidden states of a whole text.
    fn prefill(&self, graph: &Graph, ids: &[u32]) -> (Vec<f32>, HashMap<String, Vec<f32>>) {
        let wanted: HashSet<String> = self.checkpoint.hidden_values().into_iter().collect();
        let mut hidden = HashMap::new();
        let inputs = HashMap::from([("ids".to_string(), Value::ids(ids.to_vec()))]);
        let weights = |name: &str| self.weights.of(self.checkpoint.model(), name);
        let mut observe = |node: &tapml_graph::Node, _: &[Value<f32>], outputs: &[Value<f32>]| {
            for (id, value) in node.outputs.iter().zip(outputs) {
                let name = &graph.value(*id).name;
                if wanted.contains(name) {
                    hidden.insert(name.clone(), value.as_float()?.values().to_vec());
                }
            }
            Ok(())
        };
        let symbols = Symbols::np(ids.len() as u64, 0);
        let states = empty_states(graph).unwrap();
        let run = run_graph(graph, &symbols, &inputs, &weights, states, Some(&mut observe)).unwrap();
        (logits(&run), hidden)
    }
}

fn logits(run: &GraphRun<f32>) -> Vec<f32> {
    run.output("logits").unwrap().as_float().unwrap().values().to_vec()
}

fn largest_difference(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    // A NaN must not pass as a small difference.
    let differences = found.iter().zip(expected).map(|(&f, e)| (f64::from(f) - e).abs());
    differences.fold(0.0, |worst, d| if d <= worst { worst } else { d })
}

fn argmax(row: &[f32]) -> u32 {
    let best = row.iter().enumerate().fold(0, |best, (i, v)| if *v > row[best] { i } else { best });
    best as u32
}

/// The language-model head in f64: a matrix of one row per token, and a bias.
struct Head {
    matrix: Vec<f64>,
    bias: Vec<f64>,
}

impl Head {
    /// The head by its own names, else the embedding table, to which it is tied.
    fn of(checkpoint: &Checkpoint) -> Head {
        let names =
            ["lm_head.weight", "embed_out.weight", "model.embed_tokens.weight", "gpt_neox.embed_in.weight"];
        let model = checkpoint.model();
        let matrix = names.iter().find_map(|name| model.weight(name).ok()).unwrap().to_f64();
        let bias = model.weight("lm_head.bias").map_or(vec![0.0; checkpoint.vocab()], |b| b.to_f64());
        Head { matrix, bias }
    }
}

/// Transformers' logits at every position, from its final norm and the head, in f64.
fn all_logits(golden: &Golden, prompt: usize, head: &Head) -> Vec<f64> {
    let norm = golden.get(prompt, "final_norm");
    let dot = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(a, b)| a * b).sum::<f64>();
    let of_row = |x: &[f64]| {
        let products = head.matrix.chunks_exact(norm.columns).map(|w| dot(x, w));
        products.zip(&head.bias).map(|(y, b)| y + b).collect::<Vec<f64>>()
    };
    norm.values.chunks_exact(norm.columns).flat_map(of_row).collect()
}

/// The kept rows of logits and of every hidden state, and the logits of every position.
fn check_values(name: &str, runner: &Runner, graph: &Graph, golden: &Golden) {
    let head = Head::of(&runner.checkpoint);
    let vocab = runner.checkpoint.vocab();
    for prompt in 0..golden.prompts {
        let ids = golden.ids(prompt, "input_ids");
        let (found, hidden) = runner.prefill(graph, &ids);
        let all = largest_difference(&found, &all_logits(golden, prompt, &head));
        assert!(all <= TOLERANCE, "{name}, prompt {prompt}: a logit differs by {all}");

        let expected = golden.get(prompt, "logits");
        let states: Vec<Expected> = (0..runner.checkpoint.hidden_values().len())
            .map(|l| golden.get(prompt, &format!("hidden.{l}")))
            .collect();
        for (kept, position) in golden.ids(prompt, "positions").into_iter().enumerate() {
            let at = position as usize;
            let worst = largest_difference(&found[at * vocab..(at + 1) * vocab], expected.row(kept));
            assert!(worst <= TOLERANCE, "{name}, prompt {prompt}, position {at}: a logit differs by {worst}");
            for (value, state) in runner.checkpoint.hidden_values().iter().zip(&states) {
                let row = &hidden[value][at * state.columns..(at + 1) * state.columns];
                let worst = largest_difference(row, state.row(kept));
                assert!(
                    worst <= TOLERANCE,
                    "{name}, prompt {prompt}, position {at}: `{value}` differs by {worst}"
                );
            }
        }
    }
}

/// Greedy text, token by token over the caches; the logits of each step must be those of one run over the whole text.
fn check_greedy(name: &str, runner: &Runner, graph: &Graph, golden: &Golden) {
    let vocab = runner.checkpoint.vocab();
    for prompt in 0..golden.prompts {
        let (ids, expected) = (golden.ids(prompt, "input_ids"), golden.ids(prompt, "greedy_ids"));
        let gaps = golden.get(prompt, "greedy_gap").values;
        assert!(
            gaps.iter().all(|&gap| gap > 2.0 * TOLERANCE),
            "{name}, prompt {prompt}: a near tie decides nothing"
        );
        let mut run = runner.step(graph, &ids, 0, empty_states(graph).unwrap());
        let mut last = logits(&run)[(ids.len() - 1) * vocab..].to_vec();
        let mut found = vec![argmax(&last)];
        let mut steps = Vec::new();
        while found.len() < expected.len() {
            let cached = ids.len() + found.len() - 1;
            run = runner.step(graph, &found[found.len() - 1..], cached, run.states);
            last = logits(&run);
            found.push(argmax(&last));
            steps.push(last.clone());
        }
        assert_eq!(found, expected, "{name}, prompt {prompt}");

        let text: Vec<u32> = ids.iter().chain(&found[..found.len() - 1]).copied().collect();
        let (whole, _) = runner.prefill(graph, &text);
        for (step, row) in steps.iter().zip(whole.chunks_exact(vocab).skip(ids.len())) {
            let row: Vec<f64> = row.iter().map(|&v| f64::from(v)).collect();
            let worst = largest_difference(step, &row);
            assert!(worst <= 1e-4, "{name}, prompt {prompt}: decoding differs from prefill by {worst}");
        }
    }
}

/// Checks the graph as it is imported.
fn check_plain(name: &str, dir: &Path) -> (Golden, Runner) {
    let (golden, runner) = (Golden::open(name), Runner::new(dir));
    check_values(name, &runner, runner.checkpoint.graph(), &golden);
    check_greedy(name, &runner, runner.checkpoint.graph(), &golden);
    (golden, runner)
}

/// Checks the graph as it is imported and with fused operators.
fn check(name: &str, dir: &Path) {
    let (golden, runner) = check_plain(name, dir);
    let plain = runner.checkpoint.graph();
    let fused = fuse(plain).unwrap();
    assert!(fused.nodes().len() < plain.nodes().len());
    check_values(name, &runner, &fused, &golden);
}

#[test]
fn the_bundled_model() {
    check("llama", &root().join("models/llama"));
}

#[test]
fn the_bundled_draft_model() {
    check("llama_draft", &root().join("models/llama_draft"));
}

#[test]
fn llama3_scaling_biases_untied_heads_of_their_own_size() {
    check("llama_tiny_llama3", &root().join("tests/goldens/llama_tiny_llama3"));
}

#[test]
fn linear_scaling_by_older_keys_one_kv_head_shards() {
    check("llama_tiny_linear", &root().join("tests/goldens/llama_tiny_linear"));
}

#[test]
fn full_attention_heads_and_attention_biases_only() {
    check("llama_tiny_plain", &root().join("tests/goldens/llama_tiny_plain"));
}

#[test]
fn gpt_neox_beside_attention_by_erf() {
    check_plain("gpt_neox_tiny", &root().join("tests/goldens/gpt_neox_tiny"));
}

#[test]
fn gpt_neox_after_attention_tied_without_attention_biases() {
    check_plain("gpt_neox_tiny_sequential", &root().join("tests/goldens/gpt_neox_tiny_sequential"));
}

#[test]
fn phi_partly_rotated_grouped_heads_and_a_biased_head() {
    check_plain("phi_tiny", &root().join("tests/goldens/phi_tiny"));
}

#[test]
fn starcoder2_with_a_window_shorter_than_the_text() {
    check_plain("starcoder2_tiny", &root().join("tests/goldens/starcoder2_tiny"));
}

#[test]
fn trained_models_of_other_architectures() {
    for name in ["gpt_neox", "phi", "starcoder2"] {
        if let Some(dir) = tapml_testing::extra_model(name) {
            check_plain(name, &dir);
        }
    }
}

#[test]
fn last_row_and_f16_graphs_compute_the_same() {
    let dir = root().join("tests/goldens/llama_tiny_linear");
    let all = Runner::new(&dir);
    let ids = [3, 1, 4, 1, 5, 9];
    let (expected, _) = all.prefill(all.checkpoint.graph(), &ids);
    let expected: Vec<f64> = expected.iter().map(|&v| f64::from(v)).collect();
    let options = ImportOptions { logits: Rows::Last, activation: DType::F16, ..Default::default() };
    let last =
        Runner { checkpoint: Checkpoint::open_with(&dir, &options).unwrap(), weights: WeightCache::new() };
    let (found, _) = last.prefill(last.checkpoint.graph(), &ids);
    // The reference does not round to storage dtypes, so f16 changes nothing here but the types.
    assert!(largest_difference(&found, &expected[5 * 101..]) <= 1e-5);
}
