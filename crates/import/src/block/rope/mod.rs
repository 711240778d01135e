//! Rotary positions: the angle per position of each pair, with the ways of scaling that configurations name.
//!
//! All numbers are computed in f64 and rounded to f32 once, in `spread`. Frequencies are constants of the
//! graph; the angles follow from positions in the node `RopeAngles`.

mod llama3;
mod longrope;
mod scaling;
mod yarn;

#[cfg(test)]
mod tests;

pub use scaling::scaling;
pub use yarn::score_factor;

use crate::config::Section;
use scaling::{method, spread};
use tapml_graph::Result;
use tapml_graph::op::{DynamicNtk, RopeAngles};

/// Base of the frequencies where a configuration gives none.
/// That of Su et al., "RoFormer", 2021.
const DEFAULT_THETA: f64 = 10_000.0;

/// Scaling methods that are served, as configurations name them.
/// For messages. `divided` is left out, because no `config.json` names it.
const METHODS: &str = "`default`, `linear`, `dynamic`, `yarn`, `longrope` and `llama3`";

/// The angles for heads of `head_dim` elements, of which `partial_rotary_factor` may say that only a part is rotated:
/// the first elements, twice as many as the angles.
///
/// Reads `rope_scaling`, else `rope_parameters`, and `rope_theta` and `partial_rotary_factor` within or beside them;
/// `context` is the length the model was made for. Fails on a method that is not served.
///
/// # Errors
/// If a key is out of its bounds, or the rotated part is no even number of elements.
pub fn angles(config: &Section, head_dim: u32, context: u32) -> Result<RopeAngles> {
    partial_angles(config, &Partial::WHOLE, head_dim, context)
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

impl Partial {
    /// The usual keys; whole heads unless they say otherwise.
    const WHOLE: Partial = Partial::share(1.0);

    /// The usual keys with this default.
    pub const fn share(default: f64) -> Partial {
        Partial { theta: "rope_theta", factor: "partial_rotary_factor", default }
    }
}

/// As [`angles`] with other keys or defaults.
pub fn partial_angles(config: &Section, keys: &Partial, head_dim: u32, context: u32) -> Result<RopeAngles> {
    let scaling = scaling(config)?;
    if let Some(nested) = scaling.as_ref().and_then(nested_key) {
        let text = "angles that differ between kinds of layers are not supported for this architecture";
        return Err(config.unsupported(&format!("rope_parameters.{nested}"), text));
    }
    scaled_angles(config, scaling, keys, head_dim, context)
}

/// The angles of the layers of this kind, such as `full_attention`, if `rope_parameters` has an object for each kind.
pub fn layer_angles(config: &Section, kind: &str, head_dim: u32, context: u32) -> Result<Option<RopeAngles>> {
    let Some(kinds) = scaling(config)?.filter(|s| nested_key(s).is_some()) else { return Ok(None) };
    let own = kinds
        .section(kind)?
        .ok_or_else(|| kinds.expected_error(kind, "an object like those of other layers"))?;
    scaled_angles(config, Some(own), &Partial::WHOLE, head_dim, context).map(Some)
}

/// The angles for this many rotated elements at the base `theta`, not scaled.
pub fn unscaled_angles(theta: f64, rotary_dim: u32) -> RopeAngles {
    spread(frequencies(theta, rotary_dim), 1.0)
}

/// A key that holds an object, as each does if there is one for each kind of layer.
fn nested_key<'a>(scaling: &Section<'a>) -> Option<&'a str> {
    scaling.keys().find(|key| scaling.get(key).is_some_and(|value| value.is_object()))
}

/// The number of rotated elements of a head.
fn rotary_dim(config: &Section, scaling: Option<&Section>, keys: &Partial, head_dim: u32) -> Result<u32> {
    let outer = config.number_or(keys.factor, keys.default, 0.0..=1.0)?;
    // The share within the section wins: newer configurations keep it there.
    let inner = scaling.filter(|s| s.get("partial_rotary_factor").is_some());
    let (section, key, factor) = match inner {
        Some(inner) => (inner, "partial_rotary_factor", inner.number("partial_rotary_factor", 0.0..=1.0)?),
        None if config.get(keys.factor).is_some() => (config, keys.factor, outer),
        None => (config, "head_dim", outer),
    };
    // Cut off, not rounded, as Transformers does (`int(head_dim * factor)`).
    let rotary_dim = (f64::from(head_dim) * factor) as u32;
    if rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
        let share = format!("{factor} of heads of {head_dim} elements are {rotary_dim}");
        let expected = format!("to rotate an even number of elements ({share})");
        return Err(section.expected_error(key, &expected));
    }
    Ok(rotary_dim)
}

/// The angles as the section `scaling` of the configuration has them.
fn scaled_angles(
    config: &Section,
    scaling: Option<Section>,
    keys: &Partial,
    head_dim: u32,
    context: u32,
) -> Result<RopeAngles> {
    let dim = rotary_dim(config, scaling.as_ref(), keys, head_dim)?;
    let outer_theta = config.number_or(keys.theta, DEFAULT_THETA, 1.0..=1e12)?;
    let Some(scaling) = scaling else { return Ok(unscaled_angles(outer_theta, dim)) };

    let theta = scaling.number_or("rope_theta", outer_theta, 1.0..=1e12)?;
    let plain = frequencies(theta, dim);
    // `type` is the older name of the key.
    let key = if scaling.get("rope_type").is_some() { "rope_type" } else { "type" };
    match method(&scaling, key)? {
        "default" => Ok(spread(plain, 1.0)),
        "linear" => {
            let factor = scaling.number("factor", 1.0..=1e6)?;
            Ok(spread(plain.map(|f| f / factor), 1.0))
        }
        // What GGUF files say instead of a method: what each frequency is divided by.
        "divided" => {
            let divisors = scaling.numbers("divisors", dim as usize / 2, 1e-6..=1e6)?;
            Ok(spread(plain.zip(divisors).map(|(f, divisor)| f / divisor), 1.0))
        }
        "dynamic" => {
            let factor = scaling.number("factor", 1.0..=1e6)? as f32;
            // The base depends on the length of the run, so the node computes it.
            let dynamic = Some(DynamicNtk { factor, original: context });
            Ok(RopeAngles { dynamic, ..spread(plain, 1.0) })
        }
        "llama3" => {
            let method = llama3::Llama3::read(config, &scaling, context)?;
            Ok(spread(plain.map(|f| method.scale(f)), 1.0))
        }
        "yarn" => {
            let method = yarn::Yarn::read(config, &scaling, theta, dim, context)?;
            let scaled = plain.enumerate().map(|(pair, f)| method.scale(pair, f));
            Ok(spread(scaled, method.attention_factor))
        }
        "longrope" => longrope::angles(config, &scaling, &plain.collect::<Vec<f64>>(), context),
        other => Err(scaling
            .unsupported(key, &format!("scaling method `{other}` is not supported"))
            .with_hint(format!("supported are {METHODS}"))),
    }
}

/// `theta^(−2j/rotary_dim)` for each pair `j`. Su et al., "RoFormer", 2021, section 3.2.2.
fn frequencies(theta: f64, rotary_dim: u32) -> impl Iterator<Item = f64> {
    (0..rotary_dim / 2).map(move |j| theta.powf(-2.0 * f64::from(j) / f64::from(rotary_dim)))
}
