//! Planted faults: kernels with one thing wrong, and real calls of small models on which they show.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tapml_device::Device;
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::{Call, CpuPlatform, DevicePlatform, Overrides};
use tapml_graph::op::OPS;
use tapml_graph::{Model, Tensor, fuse};
use tapml_import::Checkpoint;
use tapml_kernels::{Phase, plan_node};
use tapml_migrate::suite::Suite;
use tapml_migrate::{
    CarveOptions, CheckOptions, ModelIdentity, Oracles, PromptInput, Quiet, Stop, carve, check,
};

/// One wrong kernel.
pub struct Fault {
    /// What is wrong.
    pub name: &'static str,
    pub op: &'static str,
    pub find: &'static str,
    pub replace: &'static str,
    /// Where the calls are from: below `models`, or below `tests/goldens`.
    pub model: &'static str,
}

impl Fault {
    /// The wrong text.
    pub fn text(&self) -> String {
        let right = self.right();
        assert!(right.contains(self.find), "{}: the kernel no longer holds `{}`", self.name, self.find);
        right.replacen(self.find, self.replace, 1)
    }

    /// The built-in text.
    pub fn right(&self) -> String {
        let info = OPS.iter().find(|info| info.name == self.op).unwrap();
        let sample = (info.samples)().remove(0);
        let emulator = Emulator::new(EmulatorOptions::default()).unwrap();
        let plan = plan_node(
            &sample.op,
            &sample.types(),
            Phase::of_run(&sample.symbols),
            emulator.info(),
            &Overrides::default(),
        )
        .unwrap();
        let main = plan.launches.into_iter().find(|l| l.desc.name == plan.kernel).unwrap();
        main.desc.source.text
    }

    /// The emulator with this kernel.
    pub fn platform(&self, text: &str) -> DevicePlatform {
        let mut overrides = Overrides::default();
        overrides.add_text(self.op, Path::new("wrong.wgsl"), text).unwrap();
        DevicePlatform::new(Box::new(Emulator::new(EmulatorOptions::default()).unwrap()), overrides)
    }
}

/// Carved suites, one for each model.
#[derive(Default)]
pub struct Suites {
    known: HashMap<&'static str, (tempfile::TempDir, Suite, Model)>,
}

impl Suites {
    pub fn get(&mut self, name: &'static str) -> (&Suite, &Model) {
        let (_, suite, model) = self.known.entry(name).or_insert_with(|| carve_named(name));
        (suite, model)
    }

    /// The first call that fails on the platform: its name, the call, and the recorded outputs.
    pub fn first_failing(
        &mut self,
        fault: &Fault,
        platform: &mut DevicePlatform,
    ) -> (String, Call, Vec<Tensor>) {
        let (suite, model) = self.get(fault.model);
        let options = CheckOptions { ops: vec![fault.op.into()], cases: Vec::new() };
        let oracles = Oracles::new(0);
        let checked = check(suite, model, platform, &oracles, &options, &Quiet, &Stop::new()).unwrap();
        let failures = &checked.report.ops[0].failures;
        let id = failures.first().unwrap_or_else(|| panic!("{} shows nowhere", fault.name)).case.clone();
        let (call, recorded) = suite.call(suite.find_case(&id).unwrap(), model).unwrap();
        (id, call, recorded)
    }
}

fn carve_named(name: &str) -> (tempfile::TempDir, Suite, Model) {
    let bundled = tapml_testing::model(name);
    let path: PathBuf = if bundled.is_dir() { bundled } else { tapml_testing::golden(name) };
    let checkpoint = Checkpoint::open(&path).unwrap();
    let model = checkpoint.model().with_graph(fuse(checkpoint.graph()).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("suite");
    let ids = |seed: u32, count: u32| (0..count).map(|i| (seed + i * 7) % 60).collect();
    let prompts =
        [(3, 13), (11, 5)].map(|(seed, n)| PromptInput { ids: ids(seed, n), ..PromptInput::default() });
    let options = CarveOptions {
        out: &out,
        overwrite: false,
        steps: 2,
        self_contained: false,
        context: 0,
        decode: &|_| String::new(),
    };
    let identity =
        ModelIdentity { name: name.into(), path: path.display().to_string(), ..ModelIdentity::default() };
    carve(&mut CpuPlatform::new(), &model, identity, &prompts, &options, &Quiet, &Stop::new()).unwrap();
    (folder, Suite::open(&out).unwrap(), model)
}

const fn fault(
    name: &'static str,
    op: &'static str,
    [find, replace]: [&'static str; 2],
    model: &'static str,
) -> Fault {
    Fault { name, op, find, replace, model }
}

/// The faults, each on real calls.
pub const FAULTS: &[Fault] = &[
    fault("eps left out", "rms_norm", ["/ f32(K) + EPS", "/ f32(K)"], "llama_draft"),
    fault(
        "mean over one element too many",
        "rms_norm",
        ["/ f32(K) + EPS", "/ f32(K + 1u) + EPS"],
        "llama_draft",
    ),
    fault(
        "weights of the next column",
        "rms_norm",
        ["weight(run, j))", "weight(run, min(j + 1u, K - 1u)))"],
        "llama_draft",
    ),
    fault(
        "last pair of a sum dropped",
        "linear",
        ["if k + 1u < K {\n        let values", "if k + 3u < K {\n        let values"],
        "llama_draft",
    ),
    fault(
        "second half of a sum dropped",
        "linear",
        ["if k + 1u < K {\n        let values", "if k + 1u < min(K, 64u) {\n        let values"],
        "llama_draft",
    ),
    fault(
        "last output of a tile is another's",
        "linear",
        [
            "if row < rows { store(row, output + c, sums0[c]); }",
            "if row < rows { store(row, output + c, sums0[min(c, 2u)]); }",
        ],
        "llama_draft",
    ),
    fault(
        "tiles from 96 on skip every other",
        "linear",
        ["k += DEPTH) {", "k += DEPTH + DEPTH * (k / 96u)) {"],
        "llama_draft",
    ),
    fault(
        "mask one key short",
        "attention",
        ["end = position + 1u;", "end = max(position, 1u);"],
        "llama_draft",
    ),
    fault(
        "mask one key wide",
        "attention",
        ["end = position + 1u;", "end = min(position + 2u, symbols.n + symbols.p);"],
        "llama_draft",
    ),
    fault(
        "wrong head mapping",
        "attention",
        ["group.x / (HEADS / KV_HEADS)", "group.x % KV_HEADS"],
        "llama_draft",
    ),
    fault("scale left out", "attention", ["let score = SCALE *", "let score ="], "llama_draft"),
    fault(
        "cached tokens not counted",
        "attention",
        ["return symbols.p + row;", "return max(symbols.p, 1u) - 1u + row;"],
        "llama_draft",
    ),
    fault(
        "one wrong column",
        "embedding",
        [
            "y[e] = to_out(table_value(at));",
            "y[e] = to_out(table_value(at) * select(1.0, 1.01, e % K == 7u));",
        ],
        "llama_draft",
    ),
    fault(
        "odd ids take the row before",
        "embedding",
        ["let id = ids[e / K];", "let id = ids[e / K] & 0xfffffffeu;"],
        "llama_draft",
    ),
    fault(
        "sine with the wrong sign",
        "rope",
        ["b * cosine + a * sine", "b * cosine - a * sine"],
        "llama_draft",
    ),
    fault(
        "new rows one row too late",
        "append",
        ["let start = (", "let start = (min(symbols.p, 1u) + "],
        "llama_draft",
    ),
    fault(
        "up instead of gate",
        "gated_linear",
        ["store(row, first, gated(x_tile[0], w_tile[0]))", "store(row, first, gated(w_tile[0], x_tile[0]))"],
        "llama_draft",
    ),
    fault(
        "eps a hundred times too large",
        "add_rms_norm",
        ["/ f32(K) + EPS", "/ f32(K) + 100.0 * EPS"],
        "llama_draft",
    ),
    fault(
        "mean not subtracted from the squares",
        "layer_norm",
        ["let v = f32(x[first + j]) - mean;\n        squares", "let v = f32(x[first + j]);\n        squares"],
        "gpt2_tiny",
    ),
    fault("bias left out", "linear", ["value + bias(output)", "value"], "gpt2_tiny"),
    fault("another formula", "gelu", ["formula(f32(x[at]))", "formula(f32(x[at])) * 1.001"], "gpt2_tiny"),
    fault("softcap left out", "softcap", ["formula(f32(x[at]))", "f32(x[at])"], "gemma2_tiny"),
    fault(
        "first state row skipped",
        "causal_conv",
        ["z = state[at];", "z = state[max(at, K)];"],
        "mamba2_tiny",
    ),
    fault("first column left out", "columns", ["GROUP + FIRST + column", "GROUP + column"], "mamba2_tiny"),
    fault(
        "row before is one too far",
        "token_shift",
        ["x[e - K]", "x[select(e - K, e - 2u * K, e >= 2u * K)]"],
        "rwkv7_tiny",
    ),
    fault(
        "weight of another slot",
        "combine",
        ["weights[row * K + slot]", "weights[row * K]"],
        "mixtral_tiny",
    ),
    fault(
        "all slots read one block",
        "expert_linear",
        ["select(place, place / SLOTS, SHARED == 1u)", "(place / SLOTS)"],
        "mixtral_tiny",
    ),
    fault(
        "decay one percent off",
        "selective_scan",
        ["fma(decay, s[i]", "fma(0.99 * decay, s[i]"],
        "mamba2_tiny",
    ),
];
