//! Faults of kernels in CUDA C++: made without a GPU, and compiled where NVRTC is.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use tapml_bugs::{Catalogue, Edit, Mutant, OPERATORS, apply_mutants};
use tapml_device::{Device, DeviceInfo, Features, KernelDesc, Language, Limits};
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_graph::Packing;
use tapml_graph::rewrite::quantize;
use tapml_graph::{DType, Graph, Symbols, Value, fuse};
use tapml_import::{Checkpoint, ImportOptions};
use tapml_kernels::{CompileOptions, Program, compile};
use tapml_testing::Nvrtc;

/// A Hopper chip.
fn hopper() -> DeviceInfo {
    let info = Emulator::new(EmulatorOptions::default()).unwrap().info().clone();
    let limits =
        Limits { max_workgroup_memory: 227 << 10, max_workgroup_size: [1024, 1024, 64], ..info.limits };
    let features = Features {
        f16: true,
        cuda: Some(90),
        subgroups: Some((32, 32)),
        processors: Some(132),
        ..info.features
    };
    DeviceInfo { limits, features, ..info }
}

/// Shapes that the kernels of a Hopper chip serve: heads of 64, rows of 512.
const SHARED: &str = r#""hidden_size": 512, "head_dim": 64, "num_attention_heads": 8, "num_key_value_heads": 2,
    "num_hidden_layers": 2, "vocab_size": 512, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "rope_theta": 10000.0, "tie_word_embeddings": false, "torch_dtype": "float16""#;
const DENSE: &str =
    r#""architectures": ["LlamaForCausalLM"], "model_type": "llama", "intermediate_size": 1024"#;
const SPARSE: &str = r#""architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "intermediate_size": 1024,
    "moe_intermediate_size": 256, "shared_expert_intermediate_size": 512, "num_experts": 8, "num_experts_per_tok": 2,
    "norm_topk_prob": false, "decoder_sparse_step": 1, "mlp_only_layers": [], "use_sliding_window": false"#;

/// The graph of a configuration with activations in f16, and its weights in 4 bits if asked for.
fn graph(config: &str, packed: bool) -> Graph {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), format!("{{ {config}, {SHARED} }}")).unwrap();
    let options = ImportOptions { activation: DType::F16, ..ImportOptions::default() };
    let model = Checkpoint::random(folder.path(), &options, 1).unwrap();
    let model = model.graph();
    let stored = |v: &Value| v.name.ends_with("proj.weight").then_some(Packing::integers(4, 32, false));
    if packed { fuse(&quantize(model, &stored).unwrap()).unwrap() } else { fuse(model).unwrap() }
}

/// A model with its program and its mutants.
struct Made {
    program: Program,
    catalogue: Catalogue,
}

impl Made {
    fn from_graph(graph: &Graph) -> Made {
        let info = hopper();
        let program = compile(graph, &info, &CompileOptions::new(Symbols::np(64, 64))).unwrap();
        Made { program, catalogue: Catalogue::generate("model", graph, &info).unwrap() }
    }

    /// The mutants of texts in CUDA C++ with the kernel that each changes.
    fn texts(&self) -> Vec<(&Mutant, &KernelDesc)> {
        let of = |m: &&Mutant| matches!(m.edit, Edit::Text { .. });
        let all = self.catalogue.mutants.iter().filter(of);
        let pairs = all.filter_map(|m| {
            let own = |desc: &&KernelDesc| {
                desc.source.language == Language::Cuda
                    && apply_mutants(desc, std::slice::from_ref(m)) != **desc
            };
            Some((m, self.program.kernels.iter().filter(|d| d.name == m.target).find(own)?))
        });
        pairs.collect()
    }
}

fn all_made() -> &'static [Made] {
    static MADE: OnceLock<Vec<Made>> = OnceLock::new();
    let of = |(config, packed)| Made::from_graph(&graph(config, packed));
    MADE.get_or_init(|| [(DENSE, false), (DENSE, true), (SPARSE, false)].map(of).into())
}

/// Mutation operators that have no place in a text in CUDA C++: of what no kernel computes there, of how WGSL packs weights,
/// and of constants and launches.
const ELSEWHERE: [&str; 11] = [
    "overflowing-tanh",
    "wrong-flag",
    "wrong-base",
    "swapped-inputs",
    "wrong-size",
    "element-order",
    "conversion-order",
    "zero-after-scale",
    "neighbouring-group",
    "last-workgroup",
    "racing-lanes",
];

#[test]
fn every_row_in_cuda_has_mutants_and_every_operator_a_place() {
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for made in all_made() {
        for row in &made.catalogue.rows {
            assert!(row.mutants > 0 && row.none.is_none(), "{row:?}");
        }
        for (mutant, _) in made.texts() {
            *found.entry(mutant.operator.as_str()).or_default() += 1;
            *rows.entry(mutant.row.as_str()).or_default() += 1;
        }
    }
    println!("{found:?}\n{rows:?}");
    let missing =
        OPERATORS.iter().map(|o| o.name).filter(|n| !found.contains_key(n) && !ELSEWHERE.contains(n));
    let missing: Vec<&str> = missing.collect();
    assert!(missing.is_empty(), "{missing:?} find no place");
    for row in [
        "norm_linear/gemv_cuda",
        "linear_add/gemv_cuda",
        "linears/gemm_hopper",
        "gated_linear/gemm_hopper",
        "rope_append_attention/flash_decode_cuda",
        "rope_append/rows_cuda",
        "rope_attention/flash_prefill_hopper",
        "moe_router/cluster_cuda",
        "moe_gated_linear/gemv_cuda",
        "moe_down/gemv_cuda",
        "moe_combine/rows_cuda",
        "rms_norm/rows_cuda",
    ] {
        assert!(rows.get(row).is_some_and(|count| *count > 20), "{row}: {rows:?}");
    }
}

#[test]
fn a_fault_is_put_where_the_diff_says_and_the_rest_stays() {
    let (mut headers, mut own) = (0, 0);
    for (mutant, desc) in all_made().iter().flat_map(Made::texts).step_by(7) {
        let Edit::Text { start, end, new, old, .. } = &mutant.edit else { panic!("{mutant:?}") };
        let after = apply_mutants(desc, std::slice::from_ref(mutant));
        let (before, after) = (&desc.source, &after.source);
        assert_eq!(before.full()[..*start], after.full()[..*start]);
        assert_eq!(before.full()[*end..], after.full()[*start + new.len()..], "{}", mutant.diff);
        assert_eq!(&before.full()[*start..*end], old);
        let within = mutant.diff.starts_with("cuda/include/");
        assert_eq!((before.prelude != after.prelude, before.text != after.text), (within, !within));
        let place = mutant.diff.lines().next().unwrap();
        let (file, line) = place.rsplit_once(':').unwrap();
        let text = if within {
            before.prelude.split(&format!("#line 1 \"{file}\"\n")).nth(1).unwrap()
        } else {
            before.text.as_str()
        };
        let line = text.lines().nth(line.parse::<usize>().unwrap() - 1).unwrap();
        assert!(mutant.diff.contains(line.trim()), "{place}: {line}\n{}", mutant.diff);
        headers += usize::from(within);
        own += usize::from(!within);
    }
    assert!(headers > 100 && own > 20, "{headers} in headers, {own} in kernels");
}

#[test]
fn what_an_instance_does_not_reach_gets_no_faults() {
    let of = |made: &'static Made, row: &'static str| {
        made.texts().into_iter().filter(move |(m, _)| m.row == row).map(|(m, _)| m.diff.as_str())
    };
    let [plain, packed, sparse] = all_made() else { panic!() };
    // The residual of a sum is that of `linear_add` alone, the choice of experts that of sparse layers.
    let chosen = |diff: &&str| diff.contains("P::experts");
    assert!(of(sparse, "moe_down/gemv_cuda").any(|diff| chosen(&diff)), "a product of experts reaches them");
    assert!(!of(plain, "linear_add/gemv_cuda").any(|diff| diff.contains("moe_sum")), "another does not");
    let unpacks = |diff: &str| diff.starts_with("cuda/include/load_int4.cuh");
    assert!(of(packed, "linear/gemm_hopper").any(unpacks));
    assert!(!of(plain, "linears/gemm_hopper").any(unpacks));
}

/// The text as the backend hands it to the compiler.
fn full(desc: &KernelDesc) -> String {
    let constants = desc.constants.iter().map(|(name, value)| format!("#define {name} {value}\n"));
    format!("{}{}{}", desc.source.prelude, constants.collect::<String>(), desc.source.text)
}

/// One of each mutation operator in each row, as NVRTC takes them. What it refuses costs nothing but the attempt.
#[test]
fn nearly_all_faults_compile() {
    let Some(nvrtc) = Nvrtc::open() else {
        return tapml_testing::skip("nvrtc", "no NVRTC (TAPML_NVRTC names it)");
    };
    let every: usize = std::env::var("EVERY").ok().and_then(|v| v.parse().ok()).unwrap_or(9);
    let mut kinds = BTreeSet::new();
    let all = all_made().iter().flat_map(Made::texts);
    let sample: Vec<(&Mutant, &KernelDesc)> =
        all.filter(|(m, _)| kinds.insert((m.operator.clone(), m.row.clone()))).step_by(every).collect();
    let (next, refused) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((mutant, desc)) = sample.get(next.fetch_add(1, Ordering::Relaxed)) {
            let text = full(&apply_mutants(desc, std::slice::from_ref(*mutant)));
            if let Err(log) = nvrtc.compile(&text, &["--gpu-architecture=sm_90a", "--std=c++17"]) {
                let why = log.lines().find(|l| l.contains("error")).unwrap_or_default().to_string();
                refused
                    .lock()
                    .unwrap()
                    .push(format!("{} {}\n{}\n  {why}", mutant.row, mutant.operator, mutant.diff));
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    let refused = refused.into_inner().unwrap();
    println!(
        "{} of {} compile; refused:\n{}",
        sample.len() - refused.len(),
        sample.len(),
        refused.join("\n")
    );
    assert!(sample.len() >= 20 && refused.len() * 20 <= sample.len(), "{}", refused.join("\n"));
}
