//! What all ways of scaling read of a configuration, and the angles that they make.

use crate::config::Section;
use tapml_graph::Result;
use tapml_graph::op::RopeAngles;

/// `rope_scaling`, else `rope_parameters`, where Transformers 5 also keeps what stood beside it; none if both are empty.
pub fn scaling<'a>(config: &Section<'a>) -> Result<Option<Section<'a>>> {
    let filled = |s: &Section| s.keys().next().is_some();
    // Both sections may be there; an empty object counts as none.
    match config.section("rope_scaling")?.filter(filled) {
        Some(older) => Ok(Some(older)),
        None => Ok(config.section("rope_parameters")?.filter(filled)),
    }
}

/// The method under its present name: LongRoPE was `su` in the first configurations of Phi-3, and `yarn` by mistake.
pub(super) fn method<'a>(scaling: &Section<'a>, key: &str) -> Result<&'a str> {
    match scaling.text_or(key, "default")? {
        "su" => Ok("longrope"),
        "yarn" if scaling.get("long_factor").is_some() => Ok("longrope"),
        other => Ok(other),
    }
}

/// The length of the texts before scaling: `original_max_position_embeddings` beside the scaling, else within it.
pub(super) fn original_context(config: &Section, scaling: &Section, context: u32) -> Result<u32> {
    let (key, bounds) = ("original_max_position_embeddings", 2..=1 << 26);
    match config.get(key) {
        Some(_) => config.size(key, bounds),
        None => scaling.size_or(key, context, bounds),
    }
}

/// `factor`, else by how much `context` is longer than the texts before scaling.
///
/// A configuration of a lengthened model may give both lengths instead of a factor.
pub(super) fn growth(scaling: &Section, original: u32, context: u32) -> Result<f64> {
    scaling.number_or("factor", f64::from(context) / f64::from(original), 1e-3..=1e6)
}

/// The node's constants: frequencies and the factor on cosines and sines, in f32.
pub(super) fn spread(frequencies: impl Iterator<Item = f64>, scale: f64) -> RopeAngles {
    RopeAngles::new(frequencies.map(|f| f as f32).collect(), scale as f32)
}
