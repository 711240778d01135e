//! YaRN.
//!
//! Compared with `_compute_yarn_parameters` of Transformers: the ramp runs over pairs, its ends are rounded
//! outwards, and equal ends are kept apart.

use super::scaling::{growth, method, original_context, scaling};
use crate::config::Section;
use std::f64::consts::TAU;
use tapml_graph::Result;

/// Pairs that turn often over the original context keep their frequency, those that turn rarely are slowed down by
/// `factor`, those between are blended along a ramp over the pairs.
///
/// Peng et al., "YaRN", 2023, sections 3.2 and 3.4, and `rope_type: yarn` of Transformers.
pub struct Yarn {
    /// By how much texts are longer than those of the training.
    factor: f64,
    /// The ends of the ramp, in pairs.
    /// Below it pairs keep their frequency.
    low: f64,
    /// Above it pairs are slowed down in full.
    high: f64,
    /// Factor on cosines and sines.
    pub attention_factor: f64,
}

impl Yarn {
    /// Reads the keys of the section `scaling`, for pairs of the base `theta` that rotate `rotary_dim` elements.
    pub fn read(
        config: &Section,
        scaling: &Section,
        theta: f64,
        rotary_dim: u32,
        context: u32,
    ) -> Result<Yarn> {
        let original = original_context(config, scaling, context)?;
        let factor = growth(scaling, original, context)?;
        if theta <= 1.0 {
            return Err(
                scaling.expected_error("rope_theta", "more than 1, as wavelengths must grow with the pair")
            );
        }
        // Some configurations write 0 for a number that they leave to the default.
        let turns = |key, default: f64| {
            scaling.number_or(key, default, 0.0..=1e6).map(|turns| if turns == 0.0 { default } else { turns })
        };
        // The pair that turns this often over the original context; section 3.2, equation 17, solved for the pair.
        let pair_of = |turns: f64| {
            f64::from(rotary_dim) * (f64::from(original) / (turns * TAU)).ln() / (2.0 * theta.ln())
        };
        let (low, high) = (pair_of(turns("beta_fast", 32.0)?), pair_of(turns("beta_slow", 1.0)?));
        let (low, high) =
            if scaling.flag_or("truncate", true)? { (low.floor(), high.ceil()) } else { (low, high) };
        let (low, high) = (low.max(0.0), high.min(f64::from(rotary_dim) - 1.0));
        // Keeps the ramp from a division by 0; the number is that of Transformers.
        let high = if low == high { high + 0.001 } else { high };
        Ok(Yarn { factor, low, high, attention_factor: attention_factor(scaling, factor)? })
    }

    /// The scaled frequency of a pair.
    /// Linear in the pair between `low` and `high`.
    pub fn scale(&self, pair: usize, frequency: f64) -> f64 {
        let slowed = ((pair as f64 - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        slowed * frequency / self.factor + (1.0 - slowed) * frequency
    }
}

/// The factor on cosines and sines: `attention_factor`, else by section 3.4, equation 22. DeepSeek moves the part of
/// `mscale_all_dim` to the scores, where it holds for all elements of a head; see [`score_factor`].
fn attention_factor(scaling: &Section, factor: f64) -> Result<f64> {
    let scales = [weight(scaling, "mscale")?, weight(scaling, "mscale_all_dim")?];
    let default = match scales {
        [own, all] if own != 0.0 && all != 0.0 => magnitude(factor, own) / magnitude(factor, all),
        _ => magnitude(factor, 1.0),
    };
    scaling.number_or("attention_factor", default, 1e-6..=1e6)
}

/// `mscale` and `mscale_all_dim`; 0 means that the key is not used.
fn weight(scaling: &Section, key: &str) -> Result<f64> {
    scaling.number_or(key, 0.0, 0.0..=1e3)
}

/// By how much the scores of texts that are longer by `factor` are raised; 1 where they are not longer.
fn magnitude(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}

/// The factor that `mscale_all_dim` puts on the scores of DeepSeek's attention; 1 if it is absent or 0, or nothing is
/// scaled.
///
/// DeepSeek-V2, 2024, section 3.1.4, and `yarn_apply_mscale` of Transformers.
pub fn score_factor(config: &Section, context: u32) -> Result<f64> {
    let Some(scaling) = scaling(config)? else { return Ok(1.0) };
    let key = if scaling.get("rope_type").is_some() { "rope_type" } else { "type" };
    if method(&scaling, key)? == "default" {
        return Ok(1.0);
    }
    let all = weight(&scaling, "mscale_all_dim")?;
    if all == 0.0 {
        return Ok(1.0);
    }
    let factor = growth(&scaling, original_context(config, &scaling, context)?, context)?;
    // Squared: the factor belongs to queries and keys, and scores are their products.
    Ok(magnitude(factor, all).powi(2))
}
