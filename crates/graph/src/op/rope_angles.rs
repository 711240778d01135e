//! `rope_angles`: cosines and sines of the rotary embedding for the positions of this step.

use super::shape::{expect_dim, expect_indices, expect_inputs};
use super::{Fill, Operator, Sample};
use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[i, j] = scale·cos(t·f_j)` and `y[i, d+j] = scale·sin(t·f_j)` for `j < d`, `d = inv_freq.len()`, `f = inv_freq`, and
/// the position `t` of row `i`; output `f32[n, 2d]`. Without inputs `t = p+i`. The optional input `positions: u32[n]`
/// gives `t = positions[i]`; with `sections`, `positions: u32[axes, n]` gives `t = positions[a, i]` for the axis `a` in
/// whose section pair `j` lies. Behind `positions`, the optional input `lengths: u32[n]` gives for each row the length of
/// its text, tokens, which is `n+p` without.
///
/// Su et al., "RoFormer", 2021, section 3.2.2; Wang et al., "Qwen2-VL", 2024, section 2.1 (sections). Ways of scaling
/// that do not depend on the length of the text (linear, llama3, YaRN, …) are a choice of `inv_freq` and `scale`, made
/// when the model is imported; `long` and `dynamic` depend on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RopeAngles {
    /// Angle per position of each pair, radians.
    pub inv_freq: Vec<f32>,
    /// Factor on cosines and sines; 1 unless the scaling method asks for another.
    pub scale: f32,
    /// What holds instead in long texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongRope>,
    /// Slows the pairs down as the text grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic: Option<DynamicNtk>,
    /// How many pairs take their position from each axis of `positions`, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sections: Option<Vec<u32>>,
}

/// Frequencies and factor of rows of texts of more than `after` tokens.
///
/// Ding et al., "LongRoPE", 2024, section 3.3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongRope {
    /// The longest text of the ordinary frequencies, tokens.
    pub after: u32,
    /// As [`RopeAngles::inv_freq`]; as many.
    pub inv_freq: Vec<f32>,
    /// As [`RopeAngles::scale`].
    pub scale: f32,
}

/// Texts of `n+p > original` tokens take `f_j·r^(−j/(d−1))` for `f_j`, with
/// `r = factor·(n+p)/original − (factor − 1)`: the base `θ` of `f_j = θ^(−j/d)` becomes `θ·r^(d/(d−1))`.
///
/// Peng et al., "YaRN", 2023, section 3.3 and appendix A.1 (dynamic scaling), and `rope_type: dynamic` of Transformers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DynamicNtk {
    /// How much faster than the text the wavelengths grow; at least 1.
    pub factor: f32,
    /// The longest text of the ordinary frequencies, tokens; at least 1.
    pub original: u32,
}

impl DynamicNtk {
    /// The factor on the frequency of pair `j` of `pairs` in a text of `len` tokens; 1 up to `original` of them.
    pub fn frequency_factor(&self, j: usize, pairs: usize, len: u64) -> f64 {
        if len <= u64::from(self.original) {
            return 1.0;
        }
        let factor = f64::from(self.factor);
        let ratio = factor * (len as f64 / f64::from(self.original)) - (factor - 1.0);
        // Pair 0 keeps its frequency; the last one is slowed down by the whole ratio.
        ratio.powf(-(j as f64) / (pairs as f64 - 1.0))
    }
}

impl RopeAngles {
    /// The fastest frequency, radians per position, half a turn rounded down: faster, it could not be told from a slower
    /// one.
    pub const FASTEST: f32 = 3.141_592_5;

    /// Angles of positions `p+i` that do not depend on the length of the text.
    pub fn new(inv_freq: Vec<f32>, scale: f32) -> RopeAngles {
        RopeAngles { inv_freq, scale, long: None, dynamic: None, sections: None }
    }

    /// Fails if the attributes are out of range or contradict each other.
    fn check(&self) -> Result<()> {
        let pairs = self.inv_freq.len();
        // Both lists are checked alike; without `long` the first is checked twice.
        let long = self.long.as_ref().map_or(&self.inv_freq, |long| &long.inv_freq);
        let mut all = self.inv_freq.iter().chain(long);
        // NaN fails the comparison, too.
        if pairs == 0 || long.len() != pairs || !all.all(|f| f.abs() <= Self::FASTEST) {
            let text = "`inv_freq`, and that of `long` likewise, must hold finite values below half a turn";
            return Err(Error::invalid(format!("{text}, found {pairs} and {}", long.len())));
        }
        if let Some(DynamicNtk { factor, original }) = self.dynamic {
            if self.long.is_some() {
                return Err(Error::invalid("`long` and `dynamic` exclude each other"));
            }
            if !(1.0..=1e6).contains(&factor) || original == 0 || pairs < 2 {
                return Err(Error::invalid(format!(
                    "`dynamic` needs a factor of 1 to 1e6, found {factor}, an original length above 0, found \
                     {original}, and at least 2 pairs, found {pairs}"
                )));
            }
        }
        let sum = |sections: &Vec<u32>| sections.iter().map(|&s| u64::from(s)).sum::<u64>();
        match self.sections.as_ref().map(sum) {
            Some(sum) if sum != pairs as u64 => {
                Err(Error::invalid(format!("`sections` must add up to {pairs} pairs, found {sum}")))
            }
            _ => Ok(()),
        }
    }
}

impl Operator for RopeAngles {
    const NAME: &'static str = "rope_angles";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, if self.sections.is_some() { &[1, 2] } else { &[0, 1, 2] })?;
        self.check()?;
        let axes = self.sections.as_ref().map(|sections| Dim::from(sections.len()));
        let shape = inputs.first().map(|positions| (positions.dtype, positions.shape.as_slice()));
        let rows = match (shape, axes) {
            (None, _) => Dim::symbol(Symbol::N),
            (Some((DType::U32, [rows])), None) => rows.clone(),
            (Some((DType::U32, [found, rows])), Some(axes)) if *found == axes => rows.clone(),
            (Some(_), axes) => {
                let expected = axes.map_or("u32[n]".to_string(), |axes| format!("u32[{axes},n]"));
                return Err(Error::invalid(format!("`positions` must be {expected}, found {}", inputs[0])));
            }
        };
        if let Some(lengths) = inputs.get(1) {
            expect_dim("the length of `lengths`", expect_indices("lengths", lengths)?, &rows)?;
        }
        Ok(vec![TensorType::new(DType::F32, [rows, Dim::from(2 * self.inv_freq.len())])])
    }

    fn samples() -> Vec<Sample> {
        let spread = |d: usize, base: f32| (0..d).map(|j| base.powf(-(j as f32) / d as f32)).collect::<Vec<f32>>();
        let case = |name: &str, n, p, d, base, scale| {
            Sample::new(name, RopeAngles::new(spread(d, base), scale), n, p)
        };
        let long = |name: &str, n, p| {
            let long = LongRope { after: 64, inv_freq: spread(6, 3e6), scale: 1.5 };
            Sample::new(name, RopeAngles { long: Some(long), ..RopeAngles::new(spread(6, 1e4), 1.25) }, n, p)
        };
        let dynamic = |name: &str, n, p, d, factor| {
            let dynamic = Some(DynamicNtk { factor, original: 48 });
            Sample::new(name, RopeAngles { dynamic, ..RopeAngles::new(spread(d, 1e4), 1.0) }, n, p)
        };
        let given = |name: &str, sections: Option<Vec<u32>>, shape: &str| {
            let op = RopeAngles { sections, ..RopeAngles::new(spread(7, 1e6), 1.0) };
            Sample::new(name, op, 9, 4).input(DType::U32, shape, Fill::Below(5000))
        };
        let lengths = |sample: Sample| {
            sample.input(DType::U32, "n", Fill::Values("63,64,0,8,47"))
                .input(DType::U32, "n", Fill::Values("64,65,70000,9,48"))
        };
        vec![
            case("prefill", 9, 0, 20, 10000.0, 1.0),
            case("decode", 1, 500, 20, 10000.0, 1.0),
            case("far position", 2, 131_070, 16, 500_000.0, 1.0),
            case("attention factor, odd pairs", 3, 77, 5, 10000.0, 1.25),
            case("a single pair", 5, 40, 1, 10000.0, 1.0),
            Sample::new("fast and backward", RopeAngles::new(vec![1.5, -3.0, 0.0, Self::FASTEST], 1.0), 4, 90),
            long("long text not yet", 3, 61),
            long("long text", 3, 62),
            dynamic("dynamic not yet", 1, 47, 20, 8.0),
            dynamic("dynamic, one token over", 2, 47, 33, 8.0),
            dynamic("dynamic, far over", 1, 70_000, 20, 40.0),
            dynamic("dynamic, two pairs", 40, 200, 2, 1.0),
            given("given positions", None, "n"),
            lengths(long("long texts beside short ones", 5, 0)),
            lengths(dynamic("dynamic, of several lengths", 5, 3, 20, 8.0)),
            given("sections of three axes", Some(vec![2, 1, 4]), "3,n"),
        ]
    }
}
