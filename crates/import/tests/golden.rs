//! Imported models against public implementations in f32: logits at the last positions, hidden states after every layer,
//! greedy text, and decoding step by step against prefill. `tools/goldens/` made the golden files and says what is in them.
//! Every folder below `tests/goldens/` with a golden is checked: one with a `config.json` is a checkpoint itself, the
//! others belong to trained models of the same name.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use tapml_graph::{DType, Graph, Symbols, fuse};
use tapml_import::safetensors::File;
use tapml_import::{ARCHITECTURES, Checkpoint, Config, ImportOptions, LogitRows};
use tapml_reference::{GraphRun, Value, WeightCache, empty_states, run_graph};

/// Largest difference of a logit or hidden value, as a share of the range of the expected ones.
const TOLERANCE: f64 = 1e-4;
/// Largest difference between decoding step by step and prefill, likewise.
const STEP_TOLERANCE: f64 = 2e-5;

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
    name: String,
    file: File,
    prompts: usize,
}

impl Golden {
    fn open(name: &str) -> Golden {
        let file = File::open(&tapml_testing::golden(name).join("golden.safetensors")).unwrap();
        let prompts = file.entries().iter().filter(|e| e.name.ends_with(".input_ids")).count();
        assert!(prompts >= 3, "{name}: only {prompts} prompts");
        Golden { name: name.to_string(), file, prompts }
    }

    /// Prompts for which decoding gives other results than prefill by the model's own definition.
    fn decode_differs(&self) -> Vec<usize> {
        let prompts = self.file.metadata().get("decode_differs");
        prompts.map_or(Vec::new(), |prompts| serde_json::from_str(prompts).unwrap())
    }

    fn get(&self, prompt: usize, name: &str) -> Expected {
        let tensor = self.file.tensor(&format!("p{prompt}.{name}")).unwrap();
        Expected { columns: tensor.row_len(), values: tensor.to_f64() }
    }

    fn has(&self, prompt: usize, name: &str) -> bool {
        let name = format!("p{prompt}.{name}");
        self.file.entries().iter().any(|e| e.name == name)
    }

    fn ids(&self, prompt: usize, name: &str) -> Vec<u32> {
        self.get(prompt, name).values.iter().map(|&v| v as u32).collect()
    }

    /// The positions whose hidden states are kept.
    fn positions(&self, prompt: usize) -> Vec<usize> {
        self.ids(prompt, "positions").into_iter().map(|position| position as usize).collect()
    }
}

struct Runner {
    checkpoint: Checkpoint,
    weights: WeightCache<f32>,
    /// The image of prompts that have tokens for one.
    pixels: Option<Value<f32>>,
    /// In which parts it is cut.
    parts: [u32; 2],
}

impl Runner {
    fn new(dir: &Path) -> Runner {
        Runner {
            checkpoint: Checkpoint::open(dir).unwrap(),
            weights: WeightCache::new(),
            pixels: None,
            parts: [1, 1],
        }
    }

    fn open(dir: &Path, golden: &Golden) -> Runner {
        let pixels = golden.file.tensor("pixels").ok().map(|t| Value::from_tensor(&t).unwrap());
        let parts = golden.file.tensor("parts").map_or([1, 1], |t| [0, 1].map(|i| t.to_f64()[i] as u32));
        Runner { pixels, parts, ..Runner::new(dir) }
    }

    /// The inputs of a step: each token of an image stands for its next row.
    fn inputs(&self, ids: &[u32]) -> HashMap<String, Value<f32>> {
        let mut inputs = HashMap::from([("ids".to_string(), Value::ids(ids.to_vec()))]);
        if let (Some(pixels), Some(image)) = (&self.pixels, self.checkpoint.image()) {
            let mut rows = image.rows(self.parts).unwrap().into_iter();
            let slot = |&id: &u32| if id == image.id { rows.next().unwrap() } else { u32::MAX };
            inputs.insert("slots".to_string(), Value::ids(ids.iter().map(slot).collect()));
            inputs.insert("pixels".to_string(), pixels.clone());
        }
        inputs
    }

    fn step(&self, graph: &Graph, ids: &[u32], cached: usize, states: Vec<Value<f32>>) -> GraphRun<f32> {
        let inputs = self.inputs(ids);
        let symbols = Symbols::np(ids.len() as u64, cached as u64);
        let weights = |name: &str| self.weights.get_weight(self.checkpoint.model(), name);
        run_graph(graph, &symbols, &inputs, &weights, states, None).unwrap()
    }

    /// Logits and hidden states of a whole text.
    fn prefill(&self, graph: &Graph, ids: &[u32]) -> (Vec<f32>, HashMap<String, Vec<f32>>) {
        let (run, hidden) = self.run_observed(graph, ids);
        (logits(&run), hidden)
    }

    /// A run over a whole text, and its hidden states.
    fn run_observed(&self, graph: &Graph, ids: &[u32]) -> (GraphRun<f32>, HashMap<String, Vec<f32>>) {
        let wanted: HashSet<String> = self.checkpoint.hidden_values().into_iter().collect();
        let mut hidden = HashMap::new();
        let inputs = self.inputs(ids);
        let weights = |name: &str| self.weights.get_weight(self.checkpoint.model(), name);
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
        (run, hidden)
    }
}

fn logits(run: &GraphRun<f32>) -> Vec<f32> {
    run.output("logits").unwrap().as_float().unwrap().values().to_vec()
}

/// The largest difference as a share of the range of the expected values.
fn largest_difference(found: &[f32], expected: &[f64], range: f64) -> f64 {
    assert_eq!(found.len(), expected.len());
    // A NaN must not pass as a small difference.
    let differences = found.iter().zip(expected).map(|(&f, e)| (f64::from(f) - e).abs() / range);
    differences.fold(0.0, |worst, d| if d <= worst { worst } else { d })
}

/// Largest minus smallest value.
fn range(values: &[f64]) -> f64 {
    let largest = values.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    let smallest = values.iter().fold(f64::INFINITY, |a, &b| a.min(b));
    (largest - smallest).max(f64::MIN_POSITIVE)
}

fn argmax(row: &[f32]) -> u32 {
    let best = row.iter().enumerate().fold(0, |best, (i, v)| if *v > row[best] { i } else { best });
    best as u32
}

/// The language-model head in f64: a matrix of one row per token, a bias, and what follows. The golden names the
/// tensors, which may be the embedding table's, and the numbers.
struct Head {
    matrix: Vec<f64>,
    bias: Vec<f64>,
    factor: f64,
    cap: Option<f64>,
}

impl Head {
    fn open(checkpoint: &Checkpoint, golden: &Golden) -> Head {
        let metadata = golden.file.metadata();
        let weight =
            |key: &str| metadata.get(key).map(|name| checkpoint.model().weight(name).unwrap().to_f64());
        let number = |key: &str| metadata.get(key).map(|value| value.parse::<f64>().unwrap());
        let mut matrix = weight("head").expect("the golden names the head");
        let width = matrix.len() / checkpoint.vocab();
        if metadata.get("head_rows").is_some_and(|rows| rows == "unit") {
            for row in matrix.chunks_exact_mut(width) {
                let length = row.iter().map(|w| w * w).sum::<f64>().sqrt();
                row.iter_mut().for_each(|w| *w /= length);
            }
        }
        Head {
            matrix,
            bias: weight("head_bias").unwrap_or(vec![0.0; checkpoint.vocab()]),
            factor: number("logit_scale").unwrap_or(1.0),
            cap: number("logit_softcap"),
        }
    }

    /// Logits at every position from rows of the final norm.
    fn logits(&self, rows: &Expected) -> Vec<f64> {
        let dot = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(a, b)| a * b).sum::<f64>();
        let of_row = |x: &[f64]| {
            let products = self.matrix.chunks_exact(rows.columns).map(|w| dot(x, w));
            let scaled = products.zip(&self.bias).map(|(y, b)| self.factor * (y + b));
            scaled.map(|y| self.cap.map_or(y, |cap| cap * (y / cap).tanh())).collect::<Vec<f64>>()
        };
        rows.values.chunks_exact(rows.columns).flat_map(of_row).collect()
    }
}

/// The worst differences seen, as shares of the range of the expected values.
#[derive(Clone, Copy, Default)]
struct Worst {
    logits: f64,
    hidden: f64,
    steps: f64,
}

/// The kept rows of every hidden state, and logits.
fn check_values(runner: &Runner, graph: &Graph, golden: &Golden) -> Worst {
    let mut worst = Worst::default();
    for prompt in 0..golden.prompts {
        let (found, hidden) = runner.prefill(graph, &golden.ids(prompt, "input_ids"));
        let difference = logits_difference(runner, golden, prompt, &found);
        assert!(
            difference <= TOLERANCE,
            "{}, prompt {prompt}: a logit differs by {difference:.1e} of their range",
            golden.name
        );
        worst.logits = worst.logits.max(difference);
        // Of the prompts between them no golden has hidden states.
        if ![0, golden.prompts - 1].contains(&prompt) {
            continue;
        }
        for (layer, value) in runner.checkpoint.hidden_values().iter().enumerate() {
            let state = golden.get(prompt, &format!("hidden.{layer}"));
            for (kept, at) in golden.positions(prompt).into_iter().enumerate() {
                let row = &hidden[value][at * state.columns..(at + 1) * state.columns];
                let found = largest_difference(row, state.row(kept), range(&state.values));
                assert!(
                    found <= TOLERANCE,
                    "{}, prompt {prompt}, position {at}: `{value}` differs by {found:.1e} of its range",
                    golden.name
                );
                worst.hidden = worst.hidden.max(found);
            }
        }
    }
    worst
}

/// Logits at the last positions, which follow from the final norm, and those kept of the first prompt.
fn logits_difference(runner: &Runner, golden: &Golden, prompt: usize, found: &[f32]) -> f64 {
    let all = Head::open(&runner.checkpoint, golden).logits(&golden.get(prompt, "final_norm"));
    let mut worst = largest_difference(&found[found.len() - all.len()..], &all, range(&all));
    if prompt == 0 || golden.has(prompt, "logits") {
        let expected = golden.get(prompt, "logits");
        for (kept, at) in golden.positions(prompt).into_iter().enumerate() {
            let row = &found[at * expected.columns..(at + 1) * expected.columns];
            worst = worst.max(largest_difference(row, expected.row(kept), range(&expected.values)));
        }
    }
    worst
}

/// What an encoder gives: the kept rows of every hidden state, the last hidden state at every position, and the pooled
/// output.
fn check_encoder(runner: &Runner, graph: &Graph, golden: &Golden) -> Worst {
    let mut worst = Worst::default();
    for prompt in 0..golden.prompts {
        let ids = golden.ids(prompt, "input_ids");
        let (run, hidden) = runner.run_observed(graph, &ids);
        let mut check = |what: &str, found: &[f32], expected: &[f64], range: f64| {
            let difference = largest_difference(found, expected, range);
            let name = &golden.name;
            assert!(
                difference <= TOLERANCE,
                "{name}, prompt {prompt}: `{what}` differs by {difference:.1e} of its range"
            );
            worst.hidden = worst.hidden.max(difference);
        };
        for (output, name) in [("hidden", "embeddings"), ("pooled", "pooled")] {
            let expected = golden.get(prompt, name).values;
            check(
                output,
                run.output(output).unwrap().as_float().unwrap().values(),
                &expected,
                range(&expected),
            );
        }
        for (layer, value) in runner.checkpoint.hidden_values().iter().enumerate() {
            let state = golden.get(prompt, &format!("hidden.{layer}"));
            for (kept, at) in golden.positions(prompt).into_iter().enumerate() {
                let row = &hidden[value][at * state.columns..][..state.columns];
                check(value, row, state.row(kept), range(&state.values));
            }
        }
    }
    worst
}

/// Greedy text, token by token over the caches; the logits of each step must be those of one run over the whole text.
/// Where they differ by definition, the text is that of runs over the whole text so far.
fn check_greedy(runner: &Runner, graph: &Graph, golden: &Golden) -> f64 {
    let mut worst = 0f64;
    for prompt in 0..golden.prompts {
        let (ids, expected) = (golden.ids(prompt, "input_ids"), golden.ids(prompt, "greedy_ids"));
        let gaps = golden.get(prompt, "greedy_gap").values;
        let name = format!("{}, prompt {prompt}", golden.name);
        assert!(gaps.iter().all(|&gap| gap > 4e-4), "{name}: a near tie decides nothing");
        if golden.decode_differs().contains(&prompt) {
            assert_eq!(generate_again(runner, graph, &ids, expected.len()), expected, "{name}");
        } else {
            worst = worst.max(check_steps(&name, runner, graph, &ids, &expected));
        }
    }
    worst
}

/// Greedy text with the whole text run again for each token.
fn generate_again(runner: &Runner, graph: &Graph, ids: &[u32], steps: usize) -> Vec<u32> {
    let mut text = ids.to_vec();
    for _ in 0..steps {
        let (logits, _) = runner.prefill(graph, &text);
        text.push(argmax(&logits[logits.len() - runner.checkpoint.vocab()..]));
    }
    text.split_off(ids.len())
}

fn check_steps(name: &str, runner: &Runner, graph: &Graph, ids: &[u32], expected: &[u32]) -> f64 {
    let vocab = runner.checkpoint.vocab();
    let mut run = runner.step(graph, ids, 0, empty_states(graph).unwrap());
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
    assert_eq!(found, expected, "{name}");

    let text: Vec<u32> = ids.iter().chain(&found[..found.len() - 1]).copied().collect();
    let (whole, _) = runner.prefill(graph, &text);
    let mut worst = 0f64;
    for (step, row) in steps.iter().zip(whole.chunks_exact(vocab).skip(ids.len())) {
        let row: Vec<f64> = row.iter().map(|&v| f64::from(v)).collect();
        worst = worst.max(largest_difference(step, &row, range(&row)));
    }
    assert!(worst <= STEP_TOLERANCE, "{name}: decoding differs from prefill by {worst:.1e} of the range");
    worst
}

/// Where the checkpoint of a golden lies; skips it if it is not here.
fn checkpoint_of(name: &str) -> Option<PathBuf> {
    let own = [tapml_testing::golden(name), tapml_testing::model(name)];
    let found = own.into_iter().find(|dir| dir.join("config.json").is_file());
    found.or_else(|| tapml_testing::extra_model(name))
}

#[test]
fn every_golden() {
    let present: Vec<(String, PathBuf)> = tapml_testing::golden_names()
        .into_iter()
        .filter_map(|name| checkpoint_of(&name).map(|dir| (name, dir)))
        .collect();
    let check = |(name, dir): &(String, PathBuf)| {
        let golden = Golden::open(name);
        let runner = Runner::open(dir, &golden);
        assert_eq!(runner.checkpoint.notes(), Vec::<String>::new());
        let plain = runner.checkpoint.graph();
        if golden.has(0, "pooled") {
            return (name.clone(), check_encoder(&runner, plain, &golden));
        }
        let mut worst = check_values(&runner, plain, &golden);
        let fused = fuse(plain).unwrap();
        if fused != *plain {
            check_values(&runner, &fused, &golden);
        }
        worst.steps = check_greedy(&runner, plain, &golden);
        (name.clone(), worst)
    };
    let checked: Vec<_> =
        present.par_iter().map(|one| std::panic::catch_unwind(|| check(one)).map_err(|_| &one.0)).collect();
    println!("differences as shares of the range\n{:32} {:>8} {:>8} {:>8}", "", "logits", "hidden", "steps");
    for (name, worst) in checked.iter().flatten() {
        println!("{name:32} {:8.1e} {:8.1e} {:8.1e}", worst.logits, worst.hidden, worst.steps);
    }
    let failed: Vec<&String> = checked.iter().filter_map(|one| one.as_ref().err().copied()).collect();
    assert!(failed.is_empty(), "{} of {} failed: {failed:?}", failed.len(), checked.len());
}

#[test]
fn every_architecture_has_a_golden() {
    let configs = tapml_testing::golden_names()
        .into_iter()
        .map(|name| root().join("tests/goldens").join(name).join("config.json"));
    let configs = configs.filter(|path| path.exists()).map(|path| Config::read(&path).unwrap());
    let types: HashSet<String> = configs.map(|config| config.json()["model_type"].to_string()).collect();
    for architecture in ARCHITECTURES {
        let any = architecture.model_types.iter().any(|name| types.contains(&format!("\"{name}\"")));
        assert!(any, "no golden of {:?}: see tools/goldens", architecture.model_types);
    }
}

#[test]
fn last_row_and_f16_graphs_compute_the_same() {
    let dir = tapml_testing::golden("llama_tiny_linear");
    let all = Runner::new(&dir);
    let ids = [3, 1, 4, 1, 5, 9];
    let (expected, _) = all.prefill(all.checkpoint.graph(), &ids);
    let expected: Vec<f64> = expected.iter().map(|&v| f64::from(v)).collect();
    let options = ImportOptions { logits: LogitRows::Last, activation: DType::F16, ..Default::default() };
    let last = Runner { checkpoint: Checkpoint::open_with(&dir, &options).unwrap(), ..Runner::new(&dir) };
    let (found, _) = last.prefill(last.checkpoint.graph(), &ids);
    // The reference does not round to storage dtypes, so f16 changes nothing here but the types.
    let row = &expected[5 * 101..];
    assert!(largest_difference(&found, row, range(row)) <= 1e-5);
}
