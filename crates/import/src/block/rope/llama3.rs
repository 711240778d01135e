//! The scaling of Llama 3.1.
//!
//! Three ranges by wavelength: kept, blended, slowed down. The bounds are counted in turns over the
//! original context.

use super::scaling::original_context;
use crate::config::Section;
use std::f64::consts::TAU;
use tapml_graph::Result;

/// Long wavelengths are stretched by `factor`, short ones kept, those between blended.
///
/// "The Llama 3 Herd of Models", 2024, section 3.4.2, and `rope_type: llama3` of Transformers.
pub struct Llama3 {
    factor: f64,
    /// Pairs that turn at most this often are slowed down by `factor`.
    low: f64,
    /// Pairs that turn at least this often are kept.
    high: f64,
    original_context: f64,
}

impl Llama3 {
    /// Reads the keys of the section `scaling`.
    pub fn read(config: &Section, scaling: &Section, context: u32) -> Result<Llama3> {
        let method = Llama3 {
            factor: scaling.number("factor", 1.0..=1e6)?,
            low: scaling.number("low_freq_factor", 1e-6..=1e6)?,
            high: scaling.number("high_freq_factor", 1e-6..=1e6)?,
            original_context: f64::from(original_context(config, scaling, context)?),
        };
        if method.high < method.low {
            let least = format!("at least `low_freq_factor`, which is {}", method.low);
            return Err(scaling.expected_error("high_freq_factor", &least));
        }
        Ok(method)
    }

    /// The scaled frequency of a pair.
    ///
    /// Smooth between the two bounds; radians per position in and out.
    pub fn scale(&self, frequency: f64) -> f64 {
        // How often the pair turns over the original context.
        let turns = self.original_context * frequency / TAU;
        // Llama-4 Scout has equal factors: nothing lies between them.
        let kept = match turns {
            _ if turns >= self.high => 1.0,
            _ if turns <= self.low => 0.0,
            _ => (turns - self.low) / (self.high - self.low),
        };
        kept * frequency + (1.0 - kept) * frequency / self.factor
    }
}
