//! Angles by the keys of configurations, against the numbers of Transformers and by hand.

use super::*;
use crate::config::Config;
use serde_json::Value;
use tapml_graph::ErrorKind;

fn config(json: &str) -> Config {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.json");
    std::fs::write(&path, json).unwrap();
    Config::read(&path).unwrap()
}

fn read(json: &str) -> Result<RopeAngles> {
    angles(&config(json).root(), 8, 64)
}

fn read_partial(json: &str) -> Result<RopeAngles> {
    let keys = Partial { theta: "base", factor: "share", default: 0.25 };
    partial_angles(&config(json).root(), &keys, 16, 64)
}

#[test]
fn a_share_of_each_head_by_older_keys_newer_keys_and_default() {
    let older = read_partial(r#"{"base": 100.0, "share": 0.5}"#).unwrap();
    assert_eq!(older.inv_freq.len(), 4);
    assert!((older.inv_freq[2] - 0.1).abs() < 1e-7, "{older:?}");
    let newer = r#"{"base": 7.0, "share": 1.0, "rope_parameters":
        {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}}"#;
    assert_eq!(read_partial(newer).unwrap(), older);
    assert_eq!(read_partial("{}").unwrap().inv_freq.len(), 2);
    for bad in [r#"{"share": 0.0}"#, r#"{"share": 0.2}"#, r#"{"share": 1.5}"#, r#"{"base": 0.5}"#] {
        assert!(read_partial(bad).is_err(), "{bad}");
    }
}

#[test]
fn older_and_newer_keys_agree() {
    let older = read(r#"{"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 4.0}}"#).unwrap();
    let newer =
        read(r#"{"rope_parameters": {"rope_theta": 500, "rope_type": "linear", "factor": 4}}"#).unwrap();
    assert_eq!(older, newer);
    assert_eq!(older.inv_freq[0], 0.25);
    let plain = read("{}").unwrap();
    assert_eq!(plain, read(r#"{"rope_theta": 10000.0, "rope_scaling": null}"#).unwrap());
    let expected = [1.0, 0.1, 0.01, 0.001];
    assert!(plain.inv_freq.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-7));
}

#[test]
fn llama3_with_equal_factors_blends_nothing() {
    let json = r#"{"rope_parameters": {"rope_theta": 100.0, "rope_type": "llama3", "factor": 16.0,
        "low_freq_factor": 1.0, "high_freq_factor": 1.0, "original_max_position_embeddings": 64}}"#;
    let f = read(json).unwrap().inv_freq;
    let plain: Vec<f32> = (0..4).map(|j| 100f32.powf(-j as f32 / 4.0)).collect();
    assert_eq!(f, [plain[0], plain[1], plain[2], plain[3] / 16.0]);
}

#[test]
fn llama3_keeps_short_waves_stretches_long_ones_and_blends_between() {
    let json = r#"{"rope_parameters": {"rope_theta": 100.0, "rope_type": "llama3", "factor": 8.0,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}"#;
    let f = read(json).unwrap().inv_freq;
    let plain: Vec<f32> = (0..4).map(|j| 100f32.powf(-j as f32 / 4.0)).collect();
    assert_eq!(f[0], plain[0]);
    assert!(f[1] < plain[1] && f[1] > plain[1] / 8.0, "{f:?}");
    assert!(f[2] < plain[2] && f[2] > plain[2] / 8.0, "{f:?}");
    assert_eq!(f[3], plain[3] / 8.0);
}

#[test]
fn refuses_what_it_cannot_serve() {
    let unknown = read(r#"{"rope_scaling": {"rope_type": "ntk", "factor": 4.0}}"#).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Unsupported);
    assert!(unknown.to_string().contains("`rope_scaling.rope_type`"), "{unknown}");
    for bad in [
        r#"{"rope_scaling": {"type": "linear"}}"#,
        r#"{"rope_scaling": {"type": "linear", "factor": 0.5}}"#,
        r#"{"rope_scaling": 3}"#,
        r#"{"rope_theta": "big"}"#,
        r#"{"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.4}}"#,
        r#"{"rope_scaling": {"type": "yarn", "rope_theta": 1, "factor": 4.0}}"#,
        r#"{"rope_scaling": {"type": "yarn", "factor": 0}}"#,
        r#"{"rope_scaling": {"type": "dynamic"}}"#,
        r#"{"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1]}}"#,
        r#"{"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1], "long_factor": [1, 1, 1, 1]}}"#,
        r#"{"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 0], "long_factor": [1, 1, 1, 1]}}"#,
        r#"{"rope_scaling": {"type": "longrope", "short_factor": 2, "long_factor": [1, 1, 1, 1]}}"#,
        r#"{"original_max_position_embeddings": 0, "rope_scaling": {"type": "yarn", "factor": 2}}"#,
        r#"{"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1}}"#,
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

#[test]
fn angles_are_those_of_transformers() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("golden.json")).unwrap();
    assert!(cases.len() > 20);
    for case in cases {
        let config = config(&case["config"].to_string());
        let found = angles(&config.root(), 16, 256).unwrap();
        let length = case["length"].as_u64().unwrap();
        let (mut frequencies, mut scale) = (found.inv_freq.clone(), found.scale);
        if let Some(long) = found.long.filter(|long| length > u64::from(long.after)) {
            (frequencies, scale) = (long.inv_freq, long.scale);
        }
        let pairs = frequencies.len();
        let expected = case["inv_freq"].as_array().unwrap();
        assert_eq!(pairs, expected.len(), "{case}");
        for (j, (&f, expected)) in frequencies.iter().zip(expected).enumerate() {
            let slowed = found.dynamic.map_or(1.0, |dynamic| dynamic.frequency_factor(j, pairs, length));
            let ratio = f64::from(f) * slowed / expected.as_f64().unwrap();
            // Transformers takes powers and products in f32.
            assert!((ratio - 1.0).abs() < 1.5e-6, "pair {j}: {ratio} of the expected angle, {case}");
        }
        let ratio = f64::from(scale) / case["scale"].as_f64().unwrap();
        assert!((ratio - 1.0).abs() < 1e-7, "factor {scale}, {case}");
    }
}

#[test]
fn older_names_of_longrope_are_known() {
    let with = |kind: &str| {
        let factors = r#""short_factor": [1, 2, 3, 4], "long_factor": [5, 6, 7, 8]"#;
        read(&format!(
            r#"{{"original_max_position_embeddings": 16, "rope_scaling": {{"type": "{kind}", {factors}}}}}"#
        ))
    };
    let expected = with("longrope").unwrap();
    assert_eq!(expected.long.as_ref().map(|long| long.after), Some(16));
    assert_eq!(with("su").unwrap(), expected);
    assert_eq!(with("yarn").unwrap(), expected);
}

#[test]
fn each_kind_of_layer_may_have_its_angles() {
    let json = config(
        r#"{"rope_theta": 7.0, "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0,
            "rope_theta": 100.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}"#,
    );
    let of = |kind| layer_angles(&json.root(), kind, 8, 64);
    assert_eq!(of("sliding_attention").unwrap(), Some(unscaled_angles(100.0, 8)));
    assert_eq!(of("full_attention").unwrap().unwrap().inv_freq[0], 0.125);
    assert!(of("chunked_attention").unwrap_err().to_string().contains("`rope_parameters.chunked_attention`"));
    assert_eq!(angles(&json.root(), 8, 64).unwrap_err().kind(), ErrorKind::Unsupported);
    let one = config(r#"{"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}"#);
    assert_eq!(layer_angles(&one.root(), "full_attention", 8, 64).unwrap(), None);
}

#[test]
fn the_factor_on_scores_is_that_of_all_elements() {
    let factor = |json: &str| score_factor(&config(json).root(), 64).unwrap();
    let all = |weight: &str| {
        factor(&format!(
            r#"{{"rope_scaling": {{"type": "yarn", "factor": 40, "mscale_all_dim": {weight}}}}}"#
        ))
    };
    assert_eq!(factor("{}"), 1.0);
    assert_eq!(all("0"), 1.0);
    assert!((all("0.707") - (0.1 * 0.707 * 40f64.ln() + 1.0).powi(2)).abs() < 1e-12);
    assert_eq!(
        factor(r#"{"rope_parameters": {"rope_type": "default", "mscale_all_dim": 1, "factor": 4}}"#),
        1.0
    );
}
