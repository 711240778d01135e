//! The layout of AutoAWQ's version `gemm`: `qweight: i32[k, o/8]` and `qzeros: i32[k/group, o/8]` hold eight neighbouring
//! outputs in a word, in an order of their own; `scales: f16[k/group, o]`.
//!
//! A number is `scale·(code − zero)`. Source: `awq/utils/packing_utils.py` of AutoAWQ.

use super::parts::{Make, Matrix, Parts, turned_halves, words_of};
use crate::config::Section;
use crate::weights::Weights;
use half::f16;
use rayon::prelude::*;
use tapml_graph::{DType, Error, Packing, Result, Tensor};

/// Outputs of a word.
const PER_WORD: usize = 8;
/// Where in a word output `i` of eight is: the inverse of the order 0, 2, 4, 6, 1, 3, 5, 7 in which they are packed.
const PLACE: [u32; PER_WORD] = [0, 4, 1, 5, 2, 6, 3, 7];

/// What `quantization_config` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awq {
    /// `None`: a group for each output.
    group: Option<u32>,
}

impl Awq {
    /// Reads the keys; fails on what cannot be read.
    ///
    /// # Errors
    /// If bits, version or the lack of zero points are not those of the layout that is read.
    pub fn read(config: &Section) -> Result<Awq> {
        let bits = config.size("bits", 1..=32)?;
        if bits != 4 {
            return Err(config.unsupported("bits", &format!("{bits} bits")));
        }
        let version = config.text_or("version", "gemm")?;
        if !version.eq_ignore_ascii_case("gemm") {
            return Err(config.unsupported("version", &format!("layout `{}`", version.escape_debug())));
        }
        if !config.flag_or("zero_point", true)? {
            return Err(config.unsupported("zero_point", "weights without zero points"));
        }
        let group = match config.get("group_size").and_then(serde_json::Value::as_i64) {
            // AutoAWQ writes -1 for one group over all inputs.
            Some(-1) => None,
            _ => Some(config.size("group_size", 1..=1 << 20)?),
        };
        Ok(Awq { group })
    }

    /// How a weight `[outputs, k]`, or a stack of them, is packed, and what makes its parts.
    pub(super) fn weight(
        &self,
        weights: &Weights,
        bases: &[&str],
        outputs: usize,
        k: usize,
    ) -> Result<(Packing, Make)> {
        let group = self.group.map_or(k, |group| group as usize);
        let packing = Packing::integers(4, group as u32, true);
        packing.check()?;
        if !k.is_multiple_of(group) || !outputs.is_multiple_of(PER_WORD) {
            return Err(Error::unsupported(format!("a matrix [{outputs}, {k}] in groups of {group}")));
        }
        let (columns, groups) = (outputs / PER_WORD, k / group);
        let mut stored = Vec::new();
        for base in bases {
            let get =
                |name: &str, dtype, shape: &[usize]| weights.exact(&format!("{base}.{name}"), dtype, shape);
            stored.push([
                get("qweight", DType::I32, &[k, columns])?,
                get("scales", DType::F16, &[groups, outputs])?,
                get("qzeros", DType::I32, &[groups, columns])?,
            ]);
        }
        let matrix = Matrix { outputs, k, packing };
        let make = move || {
            let mut parts = Parts::default();
            stored.iter().for_each(|stored| unpack(stored, &matrix, &mut parts));
            Ok(parts)
        };
        Ok((packing, Box::new(make)))
    }
}

/// Output `index` of a word.
fn code(word: u32, index: usize) -> u32 {
    (word >> (4 * PLACE[index])) & 15
}

/// Words along the outputs become words along the inputs: each code moves.
fn unpack([words, scales, zeros]: &[Tensor; 3], matrix: &Matrix, parts: &mut Parts) {
    let (outputs, row, groups) = (matrix.outputs, matrix.words(), matrix.groups());
    let (words, columns) = (words_of(words), outputs / PER_WORD);
    let start = parts.words.len();
    parts.words.resize(start + outputs * row, 0);
    // Eight outputs at a time: they share the words that are read.
    parts.words[start..].par_chunks_mut((PER_WORD * row).max(1)).enumerate().for_each(|(column, into)| {
        for at in 0..row {
            let read: [u32; 8] = std::array::from_fn(|j| words[(8 * at + j) * columns + column]);
            for (output, into) in into.chunks_exact_mut(row).enumerate() {
                // Low bits first: the last of the eight is put in first.
                into[at] = read.iter().rev().fold(0, |packed, &word| (packed << 4) | code(word, output));
            }
        }
    });
    parts.scales.extend(turned_halves(scales, groups, outputs));
    let zeros = words_of(zeros);
    for output in 0..outputs {
        for group in 0..groups {
            let zero = code(zeros[group * columns + output / PER_WORD], output % PER_WORD);
            parts.zeros.extend(f16::from_f32(zero as f32).to_le_bytes());
        }
    }
}
