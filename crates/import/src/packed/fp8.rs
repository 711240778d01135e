//! The layout of checkpoints in fp8: `weight: e4m3[o, k]`, and beside it a scale for all, for each row, or for each block of
//! rows and columns. `weight_scale_inv: [⌈o/rows⌉, ⌈k/columns⌉]` of the blocks is DeepSeek's and Qwen's, `weight_scale` of the
//! whole tensor, `[]`, or of its rows, `[o, 1]`, is that of others. All of them are multiplied by.
//!
//! The numbers stay what they are, to the bit. Their scales become f16 of 256 times their size, which goes with
//! [`tapml_graph::packing::float8`]: exact for bf16 and f16, rounded for f32 that f16 does not hold.

use super::parts::{Make, Parts};
use crate::config::Section;
use crate::weights::Weights;
use half::f16;
use rayon::prelude::*;
use tapml_graph::{DType, Error, Packing, Result, Tensor};

/// How safetensors call the numbers.
const STORED: &str = "F8_E4M3";
/// Names of scales, of blocks first.
const SCALES: [&str; 2] = ["weight_scale_inv", "weight_scale"];
/// What scales may lose of their size: beyond it they are below the normal numbers of f16.
/// 2⁻¹¹ is half a step of f16's normal numbers: rounding one of them never loses more.
const MOST_LOST: f64 = 1.0 / 2048.0;
/// Elements that one task looks at.
const CHUNK: usize = 1 << 18;

/// What `quantization_config` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fp8 {
    /// Rows and columns of a block.
    block: Option<[usize; 2]>,
}

/// A weight that is read, as [`super::gptq::Gptq::weight`] gives it.
pub(super) struct Fp8Weight {
    pub(super) packing: Packing,
    pub(super) make: Make,
    /// What its scales lose of their size at most.
    pub(super) lost: f64,
}

impl Fp8 {
    /// Reads the keys; fails on what cannot be read. How activations are to be quantised does not matter here: they are not.
    ///
    /// # Errors
    /// If the format is not e4m3 or the sizes of blocks are no whole numbers.
    pub fn read(config: &Section) -> Result<Fp8> {
        let format = config.text_or("fmt", "e4m3")?;
        if format != "e4m3" {
            return Err(config.unsupported("fmt", &format!("numbers of `{}`", format.escape_debug())));
        }
        if config.is_null("weight_block_size") || config.get("weight_block_size").is_none() {
            return Ok(Fp8 { block: None });
        }
        let sizes = config.numbers("weight_block_size", 2, 1.0..=1_048_576.0)?;
        if sizes.iter().any(|size| size.fract() != 0.0) {
            return Err(config.expected_error("weight_block_size", "whole numbers of rows and columns"));
        }
        Ok(Fp8 { block: Some([sizes[0] as usize, sizes[1] as usize]) })
    }

    /// Whether a tensor holds such numbers.
    pub(super) fn holds(weights: &Weights, tensor: &str) -> bool {
        weights.format(tensor) == Some(STORED)
    }

    /// The tensors of a weight beside itself.
    pub(super) fn other_tensors(base: &str) -> impl Iterator<Item = String> {
        SCALES.into_iter().chain(["input_scale"]).map(move |part| format!("{base}.{part}"))
    }

    /// How a weight `[outputs, k]`, or a stack of them, is packed, and what makes its parts. Fails on NaN if asked to look for
    /// it now; what makes the parts fails on it in any case.
    pub(super) fn weight(
        &self,
        weights: &Weights,
        bases: &[&str],
        [outputs, k]: [usize; 2],
        check_finite: bool,
    ) -> Result<Fp8Weight> {
        // Blocks that cut a row unevenly are split into groups that divide both, with repeated scales.
        let columns = self.block.map_or(k, |[_, columns]| common(columns, k));
        let packing = Packing::floats(columns as u32);
        packing.check().map_err(|_| {
            Error::unsupported(format!("a matrix [{outputs}, {k}] with scales for {columns} columns each"))
        })?;
        let (mut stored, mut lost) = (Vec::new(), 0.0f64);
        for base in bases {
            let numbers = weights.exact(&format!("{base}.weight"), DType::U8, &[outputs, k])?;
            if check_finite {
                expect_numbers(&numbers)?;
            }
            let (scales, own) = halves(&self.scales(weights, base, [outputs, k / columns], k)?)
                .map_err(|e| e.context(format!("scales of `{base}.weight`")))?;
            lost = lost.max(own);
            stored.push((numbers, scales));
        }
        let make = move || {
            let mut parts = Parts::default();
            for (numbers, scales) in &stored {
                expect_numbers(numbers)?;
                // Words hold the first number in their low bits.
                let words = numbers.bytes().as_chunks::<4>().0;
                parts.words.extend(words.iter().map(|&word| u32::from_le_bytes(word)));
                parts.scales.extend_from_slice(scales);
            }
            Ok(parts)
        };
        Ok(Fp8Weight { packing, make: Box::new(make), lost })
    }

    /// The scales of the groups `[outputs, groups]` of a weight with rows of `k` elements.
    fn scales(
        &self,
        weights: &Weights,
        base: &str,
        [outputs, groups]: [usize; 2],
        k: usize,
    ) -> Result<Vec<f64>> {
        let name = SCALES.map(|part| format!("{base}.{part}"));
        let name = name.into_iter().find(|name| weights.shape(name).is_some()).ok_or_else(|| {
            Error::invalid(format!("there is neither `{base}.{}` nor `{base}.{}`", SCALES[0], SCALES[1]))
        })?;
        let tensor = weights.any_tensor(&name)?;
        let found = || format!("`{name}` is {}{:?}", tensor.dtype(), tensor.shape());
        if !tensor.dtype().is_float() {
            return Err(Error::invalid(format!("{}: scales are floats", found())));
        }
        let scales = tensor.to_f64();
        if let Some(wrong) = scales.iter().find(|scale| !(scale.is_finite() && **scale >= 0.0)) {
            return Err(Error::invalid(format!(
                "`{name}` holds {wrong}: scales are finite and not negative"
            )));
        }
        let [rows, columns] = self.block.unwrap_or([outputs, k]);
        let blocks = [outputs.div_ceil(rows), k.div_ceil(columns)];
        let group = k / groups.max(1);
        let at: Box<dyn Fn(usize, usize) -> usize> = match tensor.shape() {
            [] | [1] => Box::new(|_, _| 0),
            [own] | [own, 1] if self.block.is_none() && *own == outputs => Box::new(|output, _| output),
            shape if self.block.is_some() && shape == blocks => {
                Box::new(move |output, place| output / rows * blocks[1] + place * group / columns)
            }
            _ => {
                let text = match self.block {
                    Some(_) => format!("{blocks:?} for a matrix [{outputs}, {k}]"),
                    None => format!("one, or one for each of {outputs} rows"),
                };
                return Err(Error::invalid(format!("{}: expected scales {text}", found())));
            }
        };
        // One scale for each group of each row, as packed weights have them.
        Ok((0..outputs)
            .flat_map(|output| (0..groups).map(|place| scales[at(output, place)]).collect::<Vec<_>>())
            .collect())
    }
}

/// 256 times these scales as f16, and what that loses of one at most. Fails if it is much, or if f16 does not reach so far.
/// 256 is the factor between a number of e4m3 and what the packing stands for.
fn halves(scales: &[f64]) -> Result<(Vec<u8>, f64)> {
    let mut lost = 0.0f64;
    let mut bytes = Vec::with_capacity(2 * scales.len());
    for &scale in scales {
        let half = f16::from_f64(256.0 * scale);
        let error = (half.to_f64() / (256.0 * scale) - 1.0).abs();
        if scale > 0.0 && error > MOST_LOST {
            return Err(Error::unsupported(format!("{scale:e}: 256 times that is beyond f16"))
                .with_hint("take the checkpoint with bf16 weights and quantise it: `--quantize fp8`"));
        }
        lost = lost.max(if scale > 0.0 { error } else { 0.0 });
        bytes.extend(half.to_le_bytes());
    }
    Ok((bytes, lost))
}

/// Fails if one of the numbers is NaN, of which e4m3 has two codes.
fn expect_numbers(numbers: &Tensor) -> Result<()> {
    let is_nan = |code: &u8| code & 0x7f == 0x7f;
    let tasks = numbers.bytes().par_chunks(CHUNK).enumerate();
    let found = tasks.find_map_first(|(task, codes)| Some(task * CHUNK + codes.iter().position(is_nan)?));
    match (found, numbers.shape()) {
        (Some(index), [.., k]) => Err(Error::invalid(format!(
            "element [{}, {}] is NaN: the checkpoint is damaged, or its numbers are not e4m3fn",
            index / k,
            index % k
        ))),
        _ => Ok(()),
    }
}

/// The largest number that divides both.
/// Euclid's algorithm.
fn common(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common(b, a % b) }
}
