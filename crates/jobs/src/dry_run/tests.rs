//! Dry runs of configurations that exist nowhere.

use super::*;
use crate::model::GraphOptions;
use std::path::Path;

fn config(text: &str) -> Config {
    Config::parse(Path::new("config.json"), text.as_bytes()).unwrap()
}

/// A Llama of 2 layers, width 64, 4 heads of 16, 256 between, 1,000 tokens.
fn llama(more: &str) -> Config {
    config(&format!(
        r#"{{"model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 256,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2{more}}}"#
    ))
}

fn plan(config: &Config, target: &str, memory: Option<u64>) -> ModelPlan {
    let target = Target::find(target).unwrap();
    DryRun::new(&[target], memory, Lengths::default()).unwrap().plan("tiny", config).unwrap()
}

#[test]
fn sizes_are_those_counted_by_hand() {
    let plan = plan(&llama(r#", "max_position_embeddings": 1024"#), "vulkan", None);
    let size = plan.size.unwrap();
    // Embedding and head; by layer q and o, k and v, three matrices between; five norms.
    let matrices = 2 * 1000 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 256);
    let norms = 5 * 64;
    assert_eq!(size.parameters, matrices + norms);
    assert_eq!(size.weight_bytes_f16, 2 * (matrices + norms));
    assert_eq!(size.weight_bytes_q4, matrices / 32 * 18 + 2 * norms);
    assert_eq!((size.context, size.positions, size.step_tokens), (1024, 1024, 512));
    // Keys and values of two heads of 16 in two layers.
    assert_eq!(size.state_bytes, 1024 * 2 * 2 * 32 * 2);
    let memory = plan.targets[0].memory.unwrap();
    assert_eq!((memory.weights, memory.states), (size.weight_bytes_f16, size.state_bytes));
    assert!(plan.targets[0].f16.fits() && plan.targets[0].q4.fits());
}

#[test]
fn targets_without_f16_cache_in_f32() {
    let plan = plan(&llama(""), "mobile-webgpu", None);
    let (size, row) = (plan.size.unwrap(), &plan.targets[0]);
    assert_eq!(row.activation, DType::F32);
    assert_eq!(row.memory.unwrap().states, 2 * size.state_bytes);
}

#[test]
fn what_memory_does_not_hold_is_too_big_and_may_fit_in_4_bits() {
    let room = |memory| plan(&llama(""), "vulkan", Some(memory)).targets.remove(0);
    let peak = room(1 << 30).memory.unwrap().peak();
    let tight = room(peak - 1);
    assert!(matches!(&tight.f16, Fit::TooBig { limit, asked, .. } if limit == "memory" && *asked == peak));
    assert!(tight.q4.fits() && room(peak).f16.fits());
    assert!(!room(100).q4.fits());
}

#[test]
fn quantised_plans_are_those_of_the_real_checkpoint() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/llama");
    let (config, lengths) = (tapml_import::read_config(&folder).unwrap(), Lengths::default());
    let target = Target::find("vulkan").unwrap();
    let schemes =
        ["q4", "q4a", "q8", "q4,embedding=q4,head=q4", "q4,embedding=keep,head=keep", "keep,head=q4a"];
    let mut weights = std::collections::BTreeSet::new();
    for text in schemes {
        let scheme: Scheme = text.parse().unwrap();
        let dry_run = DryRun::new(&[target], None, lengths).unwrap();
        let plan = dry_run.with_quantization(scheme).plan("llama", &config).unwrap();
        let (size, row) = (plan.size.unwrap(), plan.targets[0].quantized.clone().unwrap());
        assert!(row.fit.fits() && plan.targets[0].f16.fits(), "{text}: {row:?}");

        let options = GraphOptions {
            activation: target.activation(),
            quantize: Some(scheme),
            ..GraphOptions::default()
        };
        let (_, model) = options.open(&folder, LogitRows::Last).unwrap();
        let capacity = Symbols::np(size.step_tokens, size.positions);
        let compile = CompileOptions { context: Some(size.positions), ..CompileOptions::new(capacity) };
        let program = tapml_kernels::compile(model.graph(), &target.info().unwrap(), &compile).unwrap();
        assert_eq!(row.memory, Some(program.memory()), "{text}");
        let moved = traffic::of_step(model.graph(), &Symbols::np(1, size.positions - 1)).unwrap();
        assert_eq!(row.bytes_per_token, Some(moved), "{text}");
        weights.insert(program.memory().weights);
    }
    assert!(weights.len() >= 5, "{weights:?}");
}

#[test]
fn what_no_scheme_can_serve_is_told_and_does_not_hide_the_plan_in_f16() {
    let scheme = "keep,embedding=keep,head=keep".parse().unwrap();
    let dry_run = DryRun::new(&[Target::find("webgpu").unwrap()], None, Lengths::default()).unwrap();
    let plan = dry_run.with_quantization(scheme).plan("tiny", &llama("")).unwrap();
    let row = &plan.targets[0];
    let fit = &row.quantized.as_ref().unwrap().fit;
    assert!(matches!(fit, Fit::Failed { reason } if reason.contains("no weight can be quantised")), "{fit}");
    assert!(row.f16.fits() && !row.fits());
}

#[test]
fn a_tensor_beyond_a_binding_is_named() {
    let text = llama("").json().clone();
    let wide = serde_json::Value::Object(text)
        .to_string()
        .replace("\"intermediate_size\":256", "\"intermediate_size\":262144");
    let plan = plan(&config(&wide), "webgpu", None);
    match &plan.targets[0].f16 {
        Fit::TooBig { what, limit, asked, offered } => {
            assert!(what.starts_with("model.layers.0.mlp"), "{what}");
            assert_eq!(
                (limit.as_str(), *asked, *offered),
                ("max_binding_size", 512 * 262_144 * 2, 128 << 20)
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_supported_or_cannot_be_right_is_told() {
    let of = |config: &Config| plan(config, "webgpu", None).targets.remove(0).f16.to_string();
    assert_eq!(of(&config(r#"{"model_type": "eliza"}"#)), "unsupported: architecture eliza");
    let quantised = of(&llama(r#", "quantization_config": {}"#));
    assert!(
        quantised.starts_with("unsupported: ") && quantised.contains("quantization_config"),
        "{quantised}"
    );
    let odd = of(&llama(r#", "num_key_value_heads": 3"#));
    assert!(odd.starts_with("failed: config.json: ") && odd.contains("num_key_value_heads"), "{odd}");
}

#[test]
fn targets_without_limits_say_so() {
    for (name, why) in [("hip", "never run on hardware"), ("opencl", "it runs")] {
        let error = DryRun::new(&[Target::find(name).unwrap()], None, Lengths::default()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("not planned for") && error.to_string().contains(why), "{error}");
    }
    assert!(Target::find("abacus").unwrap_err().hint().unwrap().contains("webgpu"));
}
