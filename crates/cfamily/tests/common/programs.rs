//! Kernels that exist in programs only: products of one row behind a normalisation, and attention with the rotations and
//! the appending in front.
#![allow(clippy::unwrap_used, dead_code)]

use std::fmt::Write as _;
use tapml_device::{AdapterKind, DeviceInfo, KernelDesc, Language};
use tapml_graph::{Graph, Symbols};
use tapml_kernels::{CompileOptions, compile};

/// How the weights of products are stored, and whether they have biases.
#[derive(Clone, Copy)]
struct Weights {
    /// Of a number, where it is quantised.
    bits: Option<u32>,
    bias: bool,
}

const HIDDEN: u32 = 96;
const WIDE: u32 = 128;
const NARROW: u32 = 64;

struct Text {
    text: String,
    act: &'static str,
    weights: Weights,
}

impl Text {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{}", line.replace("ACT", self.act));
    }

    /// The argument that a weight is.
    fn weight(&mut self, name: &str, o: u32, k: u32) -> String {
        let dtype = self.weights.bits.map_or("bf16".to_string(), |bits| format!("int{bits}g32"));
        self.line(&format!("weight {name}: {dtype}[{o},{k}]"));
        name.to_string()
    }

    fn linear(&mut self, name: &str, x: &str, [k, o]: [u32; 2]) {
        let mut arguments = format!("{x}, {}", self.weight(&format!("{name}.w"), o, k));
        if self.weights.bias {
            self.line(&format!("weight {name}.b: f16[{o}]"));
            arguments += &format!(", {name}.b");
        }
        self.line(&format!("{name}: ACT[n,{o}] = linear({arguments})"));
    }

    fn add_gated(&mut self, name: &str, x: &str) {
        let gate = self.weight(&format!("{name}.gate"), NARROW, HIDDEN);
        let up = self.weight(&format!("{name}.up"), NARROW, HIDDEN);
        self.line(&format!("{name}: ACT[n,{NARROW}] = gated_linear({x}, {gate}, {up})"));
    }

    fn add_norm(&mut self, name: &str, a: &str, b: &str) {
        self.line(&format!("weight {name}.w: bf16[{HIDDEN}]"));
        self.line(&format!(
            "{name}.sum: ACT[n,{HIDDEN}], {name}.y: ACT[n,{HIDDEN}] = add_rms_norm({a}, {b}, {name}.w) {{\"eps\":0.00001}} as {name}"
        ));
    }
}

/// A Llama of one layer.
fn llama(act: &'static str, weights: Weights) -> Graph {
    let mut t = Text { text: "graph llama\n".into(), act, weights };
    t.line("input x: ACT[n,96]");
    t.line("angles: f32[n,32] = rope_angles() {\"inv_freq\":[1.0,0.5,0.25,0.125,0.1,0.05,0.04,0.03,0.02,0.01,0.005,0.004,0.003,0.002,0.001,0.0005],\"scale\":1.0}");
    t.line("weight norm.w: bf16[96]");
    t.line("h: ACT[n,96] = rms_norm(x, norm.w) {\"eps\":0.00001}");
    for (name, o) in [("q", WIDE), ("k", NARROW), ("v", NARROW)] {
        t.linear(name, "h", [HIDDEN, o]);
    }
    for (name, o) in [("q", WIDE), ("k", NARROW)] {
        t.line(&format!("{name}.r: ACT[n,{o}] = rope({name}, angles) {{\"head_dim\":32,\"rotary_dim\":32,\"interleaved\":false}}"));
    }
    for (name, new) in [("keys", "k.r"), ("values", "v")] {
        t.line(&format!("state {name}: ACT[p,64] -> all.{name}"));
        t.line(&format!("all.{name}: ACT[n+p,64] = append({name}, {new})"));
    }
    t.line("a: ACT[n,128] = attention(q.r, all.keys, all.values) {\"heads\":4,\"kv_heads\":2,\"head_dim\":32,\"scale\":0.2}");
    t.linear("o", "a", [WIDE, HIDDEN]);
    t.add_norm("mlp", "x", "o");
    t.add_gated("gated", "mlp.y");
    t.linear("down", "gated", [NARROW, HIDDEN]);
    t.add_norm("next", "mlp.sum", "down");
    t.linear("head", "next.y", [HIDDEN, 72]);
    t.line("output stream = next.sum");
    t.line("output head = head");
    Graph::parse(&t.text).unwrap_or_else(|e| panic!("{e}\n{}", t.text))
}

/// A sparse layer beside a dense one of two experts' width, between two projections. Weights are f16, or 4 bits.
fn sparse(act: &'static str, packed: bool) -> Graph {
    let mut t = Text { text: "graph sparse\n".into(), act, weights: Weights { bits: None, bias: false } };
    let weight = |t: &mut Text, name: &str, rows: &str, k: u32| {
        t.line(&format!("weight {name}: {}[{rows},{k}]", if packed { "int4g32" } else { "f16" }));
        name.to_string()
    };
    t.line("input x: ACT[n,256]");
    t.line("weight norm.w: f16[256]");
    t.line("y: ACT[n,256] = rms_norm(x, norm.w) {\"eps\":0.00001}");
    for (name, outputs) in [("router", 10), ("gate", 1)] {
        t.line(&format!("weight {name}.w: f16[{outputs},256]"));
        t.line(&format!("{name}: ACT[n,{outputs}] = linear(y, {name}.w)"));
    }
    t.line("chosen: u32[n,2], weights: ACT[n,2] = route(router) {\"k\":2,\"scores\":\"softmax\",\"normalize\":true} as route");
    let [gate, up] = ["e.gate", "e.up"].map(|name| weight(&mut t, name, "10,128", 256));
    t.line(&format!("e: ACT[n,256] = expert_gated_linear(y, {gate}, {up}, chosen)"));
    let down = weight(&mut t, "e.down", "10,256", 128);
    t.line(&format!("e.y: ACT[n,512] = expert_linear(e, {down}, chosen)"));
    t.line("c: ACT[n,256] = combine(e.y, weights) {\"k\":2}");
    let [gate, up] = ["d.gate", "d.up"].map(|name| weight(&mut t, name, "256", 256));
    t.line(&format!("d: ACT[n,256] = gated_linear(y, {gate}, {up})"));
    let down = weight(&mut t, "d.down", "256", 256);
    t.line(&format!("d.y: ACT[n,256] = linear(d, {down})"));
    t.line("share: ACT[n,1] = sigmoid(gate)");
    t.line("d.s: ACT[n,256] = mul(d.y, share)");
    t.line("a: ACT[n,256] = add(c, d.s)");
    t.line("weight next.w: f16[256]");
    t.line("sum: ACT[n,256], next: ACT[n,256] = add_rms_norm(x, a, next.w) {\"eps\":0.00001} as next");
    t.line("weight head.w: f16[64,256]");
    t.line("head: ACT[n,64] = linear(next, head.w)");
    t.line("output head = head");
    Graph::parse(&t.text).unwrap_or_else(|e| panic!("{e}\n{}", t.text))
}

/// The kernels in CUDA C++ of a program with a sparse layer.
pub fn of_sparse(info: &DeviceInfo) -> Vec<KernelDesc> {
    let mut all = Vec::new();
    for (act, packed) in [("f16", true), ("f16", false), ("f32", true), ("f32", false)] {
        let program = compile(&sparse(act, packed), info, &CompileOptions::new(Symbols::np(4, 0))).unwrap();
        all.extend(program.kernels.into_iter().filter(|d| d.source.language == Language::Cuda));
    }
    all
}

/// What stands in front of an attention over pages of two texts, and the attention.
fn attention_over_pages(act: &'static str) -> Graph {
    let mut t = Text { text: "graph paged\n".into(), act, weights: Weights { bits: None, bias: false } };
    for name in ["positions", "texts", "slots"] {
        t.line(&format!("input {name}: u32[n]"));
    }
    t.line("input pages: u32[2,4]");
    t.line("input angles: f32[n,32]");
    for (name, width) in [("q", WIDE), ("k", NARROW), ("v", NARROW)] {
        t.line(&format!("input {name}: ACT[n,{width}]"));
    }
    for (name, o) in [("q", WIDE), ("k", NARROW)] {
        t.line(&format!("{name}.r: ACT[n,{o}] = rope({name}, angles) {{\"head_dim\":32,\"rotary_dim\":32,\"interleaved\":false}}"));
    }
    for (name, new) in [("keys", "k.r"), ("values", "v")] {
        t.line(&format!("state {name}: ACT[128,64] -> all.{name}"));
        t.line(&format!("all.{name}: ACT[128,64] = paged_append({name}, {new}, slots)"));
    }
    t.line("a: ACT[n,128] = paged_attention(q.r, all.keys, all.values, positions, texts, pages) {\"attention\":{\"heads\":4,\"kv_heads\":2,\"head_dim\":32,\"scale\":0.2},\"page\":16}");
    t.line("output a = a");
    Graph::parse(&t.text).unwrap_or_else(|e| panic!("{e}\n{}", t.text))
}

/// The kernels of programs for such a device, if its variants are preferred.
pub fn of_programs(info: &DeviceInfo) -> Vec<KernelDesc> {
    let info = DeviceInfo { kind: AdapterKind::Discrete, ..info.clone() };
    let mut all = Vec::new();
    for (bits, bias) in [(None, false), (None, true), (Some(4), false), (Some(8), true)] {
        for act in ["f32", "f16"] {
            let graph = llama(act, Weights { bits, bias });
            for graph in [graph, attention_over_pages(act)] {
                let program = compile(&graph, &info, &CompileOptions::new(Symbols::np(4, 80))).unwrap();
                all.extend(program.kernels.into_iter().filter(|d| d.source.language == Language::Wgsl));
            }
        }
    }
    all
}

/// Fails unless every part that the texts of joined launches are put together of is among these.
pub fn expect_all_parts(all: &[KernelDesc]) {
    let files: Vec<&str> = all.iter().map(|desc| desc.source.file.as_str()).collect();
    let parts = [
        "row_one",
        "row_two",
        "row_gated",
        "row_bias",
        "row_plain",
        "row_packed",
        "row_planes",
        "row_pool",
        "row_floats",
        "row_stream",
        "row_items",
    ];
    for part in parts {
        assert!(files.iter().any(|file| file.contains(&format!("{part}.wgsl"))), "{part}: {files:?}");
    }
    let named = |name: &str| all.iter().any(|desc| desc.name == name);
    assert!(named("rope_append_attention/gemv") && named("rope_append_attention/split"));
}
