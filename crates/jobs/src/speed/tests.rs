//! Medians, the bytes of a step, and whole measurements of a small model.

use super::*;
use tapml_graph::Graph;

#[test]
fn a_rate_is_the_median_of_its_runs() {
    let rate = Rate::from_runs(&[3.0, 1.0, 2.0, 10.0]);
    assert_eq!((rate.median, rate.min, rate.max), (2.5, 1.0, 10.0));
    assert_eq!(Rate::from_runs(&[4.0, 2.0, 9.0]).median, 4.0);
    assert_eq!(Rate::from_runs(&[]).median, 0.0);
}

const TEXT: &str = "graph g
input ids: u32[n]
weight table: f16[100,8]
x: f32[n,8] = embedding(ids, table) {\"dtype\":\"f32\"}
state k: f32[p,8] -> kept
kept: f32[n+p,8] = append(k, x)
weight w: f16[6,8]
y: f32[n,6] = linear(x, w)
logits: f32[n,100] = linear(x, table)
output logits = logits
output y = y
";

#[test]
fn what_a_step_reads_is_every_weight_and_state_once() {
    let graph = Graph::parse(TEXT).unwrap();
    // The table is the head too, so that all of it is read.
    assert_eq!(traffic::of_step(&graph, &Symbols::np(1, 5)).unwrap(), 1600 + 96 + 5 * 32);
    let node = |name: &str| graph.nodes().iter().find(|n| n.name == name).unwrap();
    let of = |name: &str| traffic::of_node(&graph, node(name), &Symbols::np(2, 5)).unwrap();
    assert_eq!(of("x"), 2 * 4 + 2 * 16 + 2 * 32);
    assert_eq!(of("kept"), 2 * 2 * 32);
    assert_eq!(of("y"), 2 * 32 + 96 + 2 * 24);
}

#[test]
fn the_processors_memory_has_some_speed() {
    assert!(bandwidth::of_host() > 1e8);
}

#[cfg(feature = "emulator")]
#[test]
fn a_model_is_measured_on_the_emulator_kernel_by_kernel() {
    let model = tapml_import::Checkpoint::random(
        std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/llama_draft")),
        &tapml_import::ImportOptions { logits: tapml_import::LogitRows::Last, ..Default::default() },
        1,
    )
    .unwrap();
    let options =
        SpeedOptions { prompt_tokens: 2, tokens: 2, prefill_tokens: 5, depth: 0, runs: 2, profile: 2 };
    let mut told = Vec::new();
    for (word, depth) in [("emulator", 0), ("emulator", 7), ("emulator?kind=gpu", 0), ("cpu", 0)] {
        let options = SpeedOptions { depth, ..options.clone() };
        let spec = PlatformSpec::parse(word).unwrap();
        let mut tell = |text: &str| told.push(text.to_string());
        let report = measure(&[spec], Overrides::default(), model.model(), &options, &mut tell, &Stop::new());
        let report = report.unwrap();
        assert!(report.decode_tps > 0.0 && report.prefill_tps > 0.0 && report.runs.len() == 2);
        assert!(report.decode.min <= report.decode_tps && report.decode_tps <= report.decode.max);
        assert!(report.bandwidth > 0.0 && report.share_of_floor > 0.0 && report.share_of_floor.is_finite());
        assert_eq!([report.profile.is_empty(), report.prefill_profile.is_empty()], [word == "cpu"; 2]);
        let planned = report.planned.map(|m| m.peak());
        assert!(planned.is_none_or(|p| report.peak_bytes <= p + 65536), "{} {planned:?}", report.peak_bytes);
        assert_eq!(planned.is_none(), word == "cpu");
        let linear = report.profile.iter().find(|k| k.kernel.starts_with("linear/"));
        assert!(
            word == "cpu" || linear.is_some_and(|k| k.count > 1 && k.seconds > 0.0 && k.floor_seconds > 0.0)
        );
        let fused = report.profile.iter().find(|k| k.kernel.starts_with("norm_linear/"));
        assert_eq!(fused.is_some(), word.contains("gpu"), "{:?}", report.profile);
        assert!(fused.is_none_or(|k| k.floor_seconds > 0.0));
    }
    assert!(told.iter().any(|text| text == "decode"));
}
