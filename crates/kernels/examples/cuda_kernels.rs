//! Writes the kernels in CUDA C++ that a Hopper chip and an Ampere chip get for the samples of all operators and for the
//! layers of published models, each as one text, for `tools/kernels/compare_cuda.py`.
//!
//! `cargo run -p tapml-kernels --example cuda_kernels FOLDER`

use std::collections::HashSet;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use tapml_device::{DeviceInfo, KernelDesc, Language};
use tapml_graph::op::OPS;
use tapml_graph::{DType, Graph, Symbols};
use tapml_kernels::{CompileOptions, Phase, any_device, compile, plan_variants};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The sizes of a layer, and of what stands behind the last one.
struct Shape {
    hidden: u32,
    middle: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    vocabulary: u32,
    bias: bool,
    window: Option<u32>,
    experts: Option<Experts>,
}

/// The sizes of a sparse layer beside a dense one.
#[derive(Clone, Copy)]
struct Experts {
    count: u32,
    slots: u32,
    middle: u32,
}

const LLAMA_8B: Shape = Shape {
    hidden: 4096,
    middle: 14336,
    heads: 32,
    kv_heads: 8,
    head_dim: 128,
    vocabulary: 128_256,
    bias: false,
    window: None,
    experts: None,
};
const SHAPES: [Shape; 6] = [
    LLAMA_8B,
    // Mistral 7B sees 4096 keys.
    Shape { vocabulary: 32_000, window: Some(4096), ..LLAMA_8B },
    Shape { hidden: 2048, middle: 8192, head_dim: 64, ..LLAMA_8B },
    QWEN_MOE,
    Shape { hidden: 896, middle: 4864, heads: 14, kv_heads: 2, head_dim: 64, bias: true, ..QWEN_DENSE },
    Shape { hidden: 256, middle: 512, heads: 4, kv_heads: 2, head_dim: 64, vocabulary: 64, ..LLAMA_8B },
];
const QWEN_DENSE: Shape = Shape { vocabulary: 151_936, ..LLAMA_8B };
const QWEN_MOE: Shape = Shape {
    hidden: 2048,
    middle: 5632,
    heads: 16,
    kv_heads: 16,
    bias: true,
    experts: Some(Experts { count: 60, slots: 4, middle: 1408 }),
    ..QWEN_DENSE
};

/// How weights are stored.
const STORED: [&str; 8] = ["f16", "bf16", INT4, "int4g64", "int4g128", "int4g128z", "int8g32", "e4m3g32"];
const INT4: &str = "int4g32";

/// A graph as text, line by line.
struct Text<'a> {
    text: String,
    act: &'a str,
    stored: &'a str,
    shape: &'a Shape,
}

impl Text<'_> {
    fn line(&mut self, line: impl AsRef<str>) {
        let _ = writeln!(self.text, "{}", line.as_ref().replace("ACT", self.act));
    }

    /// Declares a weight of these rows; the argument that it is.
    fn weight(&mut self, name: &str, rows: &str, k: u32) -> String {
        self.line(format!("weight {name}: {}[{rows},{k}]", self.stored));
        name.to_string()
    }

    fn linear(&mut self, name: &str, x: &str, [k, outputs]: [u32; 2], bias: bool) {
        let mut arguments = format!("{x}, {}", self.weight(&format!("{name}.w"), &outputs.to_string(), k));
        if bias {
            self.line(format!("weight {name}.b: bf16[{outputs}]"));
            arguments += &format!(", {name}.b");
        }
        self.line(format!("{name}: ACT[n,{outputs}] = linear({arguments})"));
    }

    fn add_gated(&mut self, name: &str, x: &str, [k, outputs]: [u32; 2]) {
        let [gate, up] =
            ["gate", "up"].map(|part| self.weight(&format!("{name}.{part}"), &outputs.to_string(), k));
        self.line(format!("{name}: ACT[n,{outputs}] = gated_linear({x}, {gate}, {up})"));
    }

    fn add_norm(&mut self, name: &str, a: &str, b: &str) {
        let k = self.shape.hidden;
        self.line(format!("weight {name}.w: bf16[{k}]"));
        self.line(format!(
            "{name}.sum: ACT[n,{k}], {name}.y: ACT[n,{k}] = add_rms_norm({a}, {b}, {name}.w) {{\"eps\":0.00001}} as {name}"
        ));
    }

    fn attention(&mut self) {
        let &Shape { hidden, heads, kv_heads, head_dim, bias, window, .. } = self.shape;
        let [wide, narrow] = [heads * head_dim, kv_heads * head_dim];
        let frequencies = vec!["0.5"; head_dim as usize / 2].join(",");
        self.line(format!(
            "angles: f32[n,{head_dim}] = rope_angles() {{\"inv_freq\":[{frequencies}],\"scale\":1.0}}"
        ));
        for (name, outputs) in [("q", wide), ("k", narrow), ("v", narrow)] {
            self.linear(name, "h", [hidden, outputs], bias);
        }
        for (name, outputs) in [("q", wide), ("k", narrow)] {
            self.line(format!(
                "{name}.r: ACT[n,{outputs}] = rope({name}, angles) {{\"head_dim\":{head_dim},\"rotary_dim\":{head_dim},\"interleaved\":false}}"
            ));
        }
        for (name, new) in [("keys", "k.r"), ("values", "v")] {
            self.line(format!("state {name}: ACT[p,{narrow}] -> all.{name}"));
            self.line(format!("all.{name}: ACT[n+p,{narrow}] = append({name}, {new})"));
        }
        let window = window.map_or(String::new(), |keys| format!(",\"window\":{keys}"));
        self.line(format!(
            "a: ACT[n,{wide}] = attention(q.r, all.keys, all.values) {{\"heads\":{heads},\"kv_heads\":{kv_heads},\"head_dim\":{head_dim},\"scale\":0.125{window}}}"
        ));
        self.linear("o", "a", [wide, hidden], false);
    }

    fn sparse(&mut self, Experts { count, slots, middle }: Experts) {
        let &Shape { hidden, middle: dense, .. } = self.shape;
        for (name, outputs) in [("router", count), ("share", 1)] {
            self.line(format!("weight {name}.w: f16[{outputs},{hidden}]"));
            self.line(format!("{name}: ACT[n,{outputs}] = linear(mlp.y, {name}.w)"));
        }
        self.line(format!("chosen: u32[n,{slots}], weights: ACT[n,{slots}] = route(router) {{\"k\":{slots},\"scores\":\"softmax\",\"normalize\":true}} as route"));
        let rows = format!("{count},{middle}");
        let [gate, up] = ["e.gate", "e.up"].map(|name| self.weight(name, &rows, hidden));
        self.line(format!("e: ACT[n,{}] = expert_gated_linear(mlp.y, {gate}, {up}, chosen)", slots * middle));
        let down = self.weight("e.down", &format!("{count},{hidden}"), middle);
        self.line(format!("e.y: ACT[n,{}] = expert_linear(e, {down}, chosen)", slots * hidden));
        self.line(format!("c: ACT[n,{hidden}] = combine(e.y, weights) {{\"k\":{slots}}}"));
        self.add_gated("gated", "mlp.y", [hidden, dense]);
        self.linear("d.y", "gated", [dense, hidden], false);
        self.line("gate: ACT[n,1] = sigmoid(share)");
        self.line(format!("d.s: ACT[n,{hidden}] = mul(d.y, gate)"));
        self.line(format!("down: ACT[n,{hidden}] = add(c, d.s)"));
    }

    /// A layer and the head.
    fn model(mut self) -> Result<Graph> {
        let &Shape { hidden, middle, vocabulary, experts, .. } = self.shape;
        self.line(format!("input x: ACT[n,{hidden}]"));
        self.line(format!("weight norm.w: bf16[{hidden}]"));
        self.line(format!("h: ACT[n,{hidden}] = rms_norm(x, norm.w) {{\"eps\":0.00001}}"));
        self.attention();
        self.add_norm("mlp", "x", "o");
        if let Some(experts) = experts {
            self.sparse(experts);
        } else {
            self.add_gated("gated", "mlp.y", [hidden, middle]);
            self.linear("down", "gated", [middle, hidden], false);
        }
        self.add_norm("next", "mlp.sum", "down");
        self.line(format!("last: ACT[1,{hidden}] = last_row(next.y)"));
        let weight = self.weight("head.w", &vocabulary.to_string(), hidden);
        self.line(format!("head: f32[1,{vocabulary}] = linear(last, {weight}) {{\"dtype\":\"f32\"}}"));
        self.line("output head = head");
        self.line("output stream = next.sum");
        Graph::parse(&self.text).map_err(|error| format!("{error}\n{}", self.text).into())
    }
}

/// A card of this compute capability.
fn card(cuda: u32) -> DeviceInfo {
    let mut info = any_device();
    info.features.cuda = Some(cuda);
    info.features.subgroups = Some((32, 32));
    info.limits.max_workgroup_memory = if cuda == 90 { 227 << 10 } else { 163 << 10 };
    info.limits.max_invocations = 1024;
    info.limits.max_storage_buffers = 64;
    info.limits.max_workgroup_size = [1024, 1024, 64];
    info.limits.max_buffer_size = 1 << 40;
    info.limits.max_binding_size = 1 << 40;
    info
}

fn of_samples(info: &DeviceInfo, halves: bool) -> Vec<KernelDesc> {
    let mut samples: Vec<_> = OPS.iter().flat_map(|op| (op.samples)()).collect();
    if halves {
        let inputs = samples.iter_mut().flat_map(|sample| &mut sample.inputs);
        inputs.filter(|input| input.ty.dtype == DType::F32).for_each(|input| input.ty.dtype = DType::F16);
    }
    // Some operators have inputs that are f32 whatever the activations are.
    let plans = samples
        .iter()
        .filter_map(|s| plan_variants(&s.op, &s.types(), Phase::of_run(&s.symbols), info).ok())
        .flatten();
    plans.flat_map(|plan| plan.launches).map(|launch| launch.desc).collect()
}

fn of_models(info: &DeviceInfo) -> Result<Vec<KernelDesc>> {
    let mut all = Vec::new();
    // Stacks of experts have no zero points.
    let fits = |shape: &Shape, stored: &str| shape.experts.is_none() || !stored.ends_with('z');
    for (shape, stored, act) in SHAPES.iter().flat_map(|shape| {
        STORED.iter().flat_map(move |&stored| ["f16", "f32"].map(|act| (shape, stored, act)))
    }) {
        if !fits(shape, stored) {
            continue;
        }
        let graph = Text { text: "graph model\n".into(), act, stored, shape }.model()?;
        let program = compile(&graph, info, &CompileOptions::new(Symbols::np(8, 64)))?;
        all.extend(program.kernels);
    }
    Ok(all)
}

/// The text of a kernel, as the backend puts it together.
fn text_of(desc: &KernelDesc) -> String {
    let constants = desc
        .constants
        .iter()
        .map(|(name, value)| format!("#define {name} {value:?}\n").replace(".0\n", "\n"));
    let head = std::iter::once(desc.source.prelude.clone());
    head.chain(constants).chain([desc.source.text.clone()]).collect()
}

fn write_all(folder: &Path) -> Result<usize> {
    std::fs::create_dir_all(folder)?;
    let (mut seen, mut written) = (HashSet::new(), 0);
    for cuda in [90, 80] {
        let info = card(cuda);
        let all = [of_samples(&info, false), of_samples(&info, true), of_models(&info)?].concat();
        for desc in all.iter().filter(|desc| desc.source.language == Language::Cuda) {
            let text = text_of(desc);
            if seen.insert((cuda, text.clone())) {
                let name = desc.name.replace('/', "-");
                std::fs::write(folder.join(format!("{written:04}-sm_{cuda}-{name}.cu")), text)?;
                written += 1;
            }
        }
    }
    Ok(written)
}

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).ok_or("expected a folder to write to")?;
    println!("{} kernels in {folder}", write_all(Path::new(&folder))?);
    Ok(())
}
