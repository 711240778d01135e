//! LongRoPE.
//!
//! The factors were found by search and are listed in the configuration, one for each pair.

use super::scaling::{growth, original_context, spread};
use crate::config::Section;
use tapml_graph::Result;
use tapml_graph::op::{LongRope, RopeAngles};

/// Each pair is slowed down by a factor of its own, one for texts up to the original length and one for longer texts.
///
/// Ding et al., "LongRoPE", 2024, section 3.3, and `rope_type: longrope` of Transformers.
pub fn angles(config: &Section, scaling: &Section, unscaled: &[f64], context: u32) -> Result<RopeAngles> {
    let original = original_context(config, scaling, context)?;
    let factor = growth(scaling, original, context)?;
    // What Transformers computes where `attention_factor` is absent.
    let default = if factor > 1.0 { (1.0 + factor.ln() / f64::from(original).ln()).sqrt() } else { 1.0 };
    let scale = scaling.number_or("attention_factor", default, 1e-6..=1e6)?;
    let slowed = |key| -> Result<RopeAngles> {
        let factors = scaling.numbers(key, unscaled.len(), 0.5..=1e6)?;
        Ok(spread(unscaled.iter().zip(factors).map(|(f, factor)| f / factor), scale))
    };
    // The graph holds both lists; which one a run uses depends on its length.
    let RopeAngles { inv_freq, scale, .. } = slowed("long_factor")?;
    let long = Some(LongRope { after: original, inv_freq, scale });
    Ok(RopeAngles { long, ..slowed("short_factor")? })
}
