//! Rotary positions: the angle per position of each pair, with the ways of scaling that configurations name.

use crate::config::Section;
use std::f64::consts::TAU;
use tapml_graph::Result;
use tapml_graph::op::RopeAngles;

/// Base of the frequencies where a configuration gives none.
const DEFAULT_THETA: f64 = 10_000.0;

/// Scaling methods that are served, as configurations name them.
const METHODS: &str = "`default`, `linear` and `llama3`";

/// The angles for heads of `head_dim` elements.
///
/// Reads `rope_scaling`, else `rope_parameters`, and `rope_theta` within or beside them; `context` is the length the
/// model was trained for where the scaling does not say. Fails on a method that is not served.
pub fn angles(config: &Section, head_dim: u32, context: u32) -> Result<RopeAngles> {
    for section in [Some(config.clone()), scaling(config)?].into_iter().flatten() {
        if section.number_or("partial_rotary_factor", 1.0, 0.0..=1.0)? != 1.0 {
            let text = "rotating only a part of each head is not supported for this architecture";
            return Err(section.unsupported("partial_rotary_factor", text));
        }
    }
    scaled(config, "rope_theta", head_dim, context)
}

/// The angles for this many rotated elements at the base `theta`, not scaled.
pub fn unscaled(theta: f64, rotary_dim: u32) -> RopeAngles {
    spread(frequencies(theta, rotary_dim))
}

/// Where a configuration says which part of each head is rotated.
pub struct Partial {
    /// Key of the base beside `rope_parameters`.
    pub theta: &'static str,
    /// Key of the rotated share of a head beside `rope_parameters`; within it is `partial_rotary_factor`.
    pub factor: &'static str,
    /// The share if neither is there.
    pub default: f64,
}

/// As [`angles`] for heads of which the first elements are rotated: twice as many as the angles.
pub fn partial_angles(config: &Section, keys: &Partial, head_dim: u32, context: u32) -> Result<RopeAngles> {
    let outer = config.number_or(keys.factor, keys.default, 0.0..=1.0)?;
    let factor = match scaling(config)? {
        Some(scaling) => scaling.number_or("partial_rotary_factor", outer, 0.0..=1.0)?,
        None => outer,
    };
    let rotary_dim = (f64::from(head_dim) * factor) as u32;
    if rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
        let share = format!("{factor} of heads of {head_dim} elements are {rotary_dim}");
        return Err(config
            .expected(keys.factor, &format!("a share that rotates an even number of elements ({share})")));
    }
    scaled(config, keys.theta, rotary_dim, context)
}

/// `rope_scaling`, else `rope_parameters`, unless empty.
fn scaling<'a>(config: &Section<'a>) -> Result<Option<Section<'a>>> {
    let filled = |s: &Section| s.keys().next().is_some();
    match config.section("rope_scaling")?.filter(filled) {
        Some(older) => Ok(Some(older)),
        None => Ok(config.section("rope_parameters")?.filter(filled)),
    }
}

/// The angles for this many rotated elements, scaled as the configuration says.
fn scaled(config: &Section, theta_key: &str, head_dim: u32, context: u32) -> Result<RopeAngles> {
    if !head_dim.is_multiple_of(2) {
        let key = config.pick(&["head_dim", "hidden_size"]);
        let text = format!("an even number of elements to rotate in pairs (here they are {head_dim})");
        return Err(config.expected(key, &text));
    }
    let outer_theta = config.number_or(theta_key, DEFAULT_THETA, 1.0..=1e12)?;
    let Some(scaling) = scaling(config)? else { return Ok(spread(frequencies(outer_theta, head_dim))) };

    let theta = scaling.number_or("rope_theta", outer_theta, 1.0..=1e12)?;
    let plain = frequencies(theta, head_dim);
    let key = if scaling.get("rope_type").is_some() { "rope_type" } else { "type" };
    match scaling.text_or(key, "default")? {
        "default" => Ok(spread(plain)),
        "linear" => {
            let factor = scaling.number("factor", 1.0..=1e6)?;
            Ok(spread(plain.map(|f| f / factor)))
        }
        "llama3" => {
            let method = Llama3::read(config, &scaling, context)?;
            Ok(spread(plain.map(|f| method.scale(f))))
        }
        other => Err(scaling
            .unsupported(key, &format!("scaling method `{other}` is not supported"))
            .with_hint(format!("supported are {METHODS}"))),
    }
}

/// `theta^(−2j/head_dim)` for each pair `j`. Su et al., "RoFormer", 2021, section 3.2.2.
fn frequencies(theta: f64, head_dim: u32) -> impl Iterator<Item = f64> {
    (0..head_dim / 2).map(move |j| theta.powf(-2.0 * f64::from(j) / f64::from(head_dim)))
}

fn spread(frequencies: impl Iterator<Item = f64>) -> RopeAngles {
    RopeAngles::new(frequencies.map(|f| f as f32).collect(), 1.0)
}

/// The scaling of Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended.
///
/// "The Llama 3 Herd of Models", 2024, section 3.4.2, and `rope_type: llama3` of Transformers.
struct Llama3 {
    factor: f64,
    low: f64,
    high: f64,
    original_context: f64,
}

impl Llama3 {
    fn read(config: &Section, scaling: &Section, context: u32) -> Result<Llama3> {
        let bounds = 1..=u32::MAX;
        let key = "original_max_position_embeddings";
        let outer = config.size_or(key, context, bounds.clone())?;
        let original = scaling.size_or(key, outer, bounds)?;
        let method = Llama3 {
            factor: scaling.number("factor", 1.0..=1e6)?,
            low: scaling.number("low_freq_factor", 1e-6..=1e6)?,
            high: scaling.number("high_freq_factor", 1e-6..=1e6)?,
            original_context: f64::from(original),
        };
        if method.high <= method.low {
            let low = method.low;
            return Err(
                scaling.expected("high_freq_factor", &format!("more than `low_freq_factor`, which is {low}"))
            );
        }
        Ok(method)
    }

    fn scale(&self, frequency: f64) -> f64 {
        // How often the pair turns over the original context.
        let turns = self.original_context * frequency / TAU;
        let kept = ((turns - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        kept * frequency + (1.0 - kept) * frequency / self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
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
        let older =
            read(r#"{"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 4.0}}"#).unwrap();
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
        let unknown = read(r#"{"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}"#).unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::Unsupported);
        assert!(unknown.to_string().contains("`rope_scaling.rope_type`"), "{unknown}");
        for bad in [
            r#"{"rope_scaling": {"type": "linear"}}"#,
            r#"{"rope_scaling": {"type": "linear", "factor": 0.5}}"#,
            r#"{"rope_scaling": 3}"#,
            r#"{"rope_theta": "big"}"#,
            r#"{"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}"#,
            r#"{"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1}}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
