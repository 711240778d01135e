//! The layout of AutoGPTQ: `qweight: i32[k·bits/32, o]` holds the elements of a column low bits first, `scales: f16[k/group,
//! o]`, `qzeros: i32[k/group, o·bits/32]` the zero points of a row of groups likewise, less one in the first format;
//! `g_idx: i32[k]` names the group of each input.
//!
//! A number is `scale·(code − zero)`. Source: `auto_gptq/nn_modules/qlinear` of AutoGPTQ.

use super::parts::{Make, Matrix, Parts, turned_halves, words_of};
use crate::config::Section;
use crate::weights::Weights;
use half::f16;
use rayon::prelude::*;
use tapml_graph::{DType, Error, Packing, Result, Tensor};

/// Outputs that one task turns.
const OUTPUTS: usize = 16;

/// What `quantization_config` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gptq {
    bits: u32,
    /// `None`: a group for each output.
    group: Option<u32>,
    /// What is added to a stored zero point.
    offset: u32,
}

impl Gptq {
    /// Reads the keys; fails on what cannot be read.
    ///
    /// # Errors
    /// If bits or format are not read.
    pub fn read(config: &Section) -> Result<Gptq> {
        let bits = config.size("bits", 1..=32)?;
        if !matches!(bits, 4 | 8) {
            return Err(config.unsupported("bits", &format!("{bits} bits")));
        }
        let group = match config.get("group_size").and_then(serde_json::Value::as_i64) {
            Some(-1) => None,
            _ => Some(config.size("group_size", 1..=1 << 20)?),
        };
        let offset = match config.text_or("checkpoint_format", "gptq")? {
            // The first format stores zero points less one; `gptq_v2` stores them as they are.
            "gptq" => 1,
            "gptq_v2" => 0,
            other => {
                return Err(config.unsupported("checkpoint_format", &format!("`{}`", other.escape_debug())));
            }
        };
        Ok(Gptq { bits, group, offset })
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
        let mut packing = Packing::integers(self.bits, group as u32, true);
        packing.check()?;
        let (per_word, groups) = (packing.per_word() as usize, k / group.max(1));
        if !k.is_multiple_of(group) || !outputs.is_multiple_of(per_word) {
            return Err(Error::unsupported(format!("a matrix [{outputs}, {k}] in groups of {group}")));
        }
        let mut stored = Vec::new();
        for base in bases {
            let get =
                |name: &str, dtype, shape: &[usize]| weights.exact(&format!("{base}.{name}"), dtype, shape);
            stored.push([
                get("qweight", DType::I32, &[k / per_word, outputs])?,
                get("scales", DType::F16, &[groups, outputs])?,
                get("qzeros", DType::I32, &[groups, outputs / per_word])?,
            ]);
            if weights.shape(&format!("{base}.g_idx")).is_some() {
                in_order(&get("g_idx", DType::I32, &[k])?, group)?;
            }
        }
        // Zero points that all are the middle of the range need not be stored.
        let own = *self;
        let middle = packing.middle();
        packing.zeros = stored.iter().any(|[.., zeros]| {
            words_of(zeros).iter().any(|&word| (0..per_word).any(|i| own.zero(word, i) != middle))
        });
        let matrix = Matrix { outputs, k, packing };
        let make = move || {
            let mut parts = Parts::default();
            stored.iter().for_each(|stored| own.unpack(stored, &matrix, &mut parts));
            Ok(parts)
        };
        Ok((packing, Box::new(make)))
    }

    /// Zero point `index` of a word.
    fn zero(&self, word: u32, index: usize) -> u32 {
        ((word >> (index as u32 * self.bits)) & (u32::MAX >> (32 - self.bits))) + self.offset
    }

    /// Words stay whole: only rows and columns are exchanged.
    fn unpack(&self, [words, scales, zeros]: &[Tensor; 3], matrix: &Matrix, parts: &mut Parts) {
        let (outputs, columns, groups) = (matrix.outputs, matrix.words(), matrix.groups());
        let words = words_of(words);
        let start = parts.words.len();
        parts.words.resize(start + outputs * columns, 0);
        let turned = parts.words[start..].par_chunks_mut((OUTPUTS * columns).max(1)).enumerate();
        turned.for_each(|(task, into)| {
            for column in 0..columns {
                for (row, into) in into.chunks_exact_mut(columns).enumerate() {
                    into[column] = words[column * outputs + task * OUTPUTS + row];
                }
            }
        });
        parts.scales.extend(turned_halves(scales, groups, outputs));
        if matrix.packing.zeros {
            let (zeros, per_word) = (words_of(zeros), matrix.packing.per_word() as usize);
            for output in 0..outputs {
                for group in 0..groups {
                    let word = zeros[group * (outputs / per_word) + output / per_word];
                    let zero = f16::from_f32(self.zero(word, output % per_word) as f32);
                    parts.zeros.extend(zero.to_le_bytes());
                }
            }
        }
    }
}

/// Fails unless each input is in the group of its place.
///
/// Without reordering `g_idx` is `i / group`, which says nothing new.
fn in_order(index: &Tensor, group: usize) -> Result<()> {
    let wrong = words_of(index).iter().enumerate().position(|(i, &g)| g as usize != i / group);
    match wrong {
        None => Ok(()),
        Some(at) => Err(Error::unsupported(format!(
            "`g_idx` puts input {at} in another group than its place: columns reordered by `desc_act` are not supported"
        ))
        .with_hint("take a checkpoint quantised with `desc_act: false`")),
    }
}
