//! How quantised weights are packed, and what operators on them share: their meaning is [`Dequantize`] and a plain
//! operator behind it.

use super::{Dequantize, Op};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, TensorType};
use std::ops::Range;

/// Bits that a quantised weight may take.
pub const PACKED_BITS: [u32; 2] = [4, 8];

/// The attributes of a quantised weight; see [`Dequantize`] for what they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packing {
    /// Bits of one element: 4 or 8.
    pub bits: u32,
    /// Neighbouring elements of a row that share a scale: a multiple of [`Packing::per_word`].
    pub group: u32,
    /// Whether each group has a zero point of its own.
    pub zeros: bool,
}

impl Packing {
    /// Elements of one word.
    pub fn per_word(&self) -> u32 {
        32 / self.bits.clamp(1, 32)
    }

    /// The zero point of a weight whose groups have none of their own: the middle of the range.
    pub fn middle(&self) -> u32 {
        1 << (self.bits.clamp(1, 32) - 1)
    }

    /// Inputs that make up one weight.
    pub fn parts(&self) -> usize {
        2 + usize::from(self.zeros)
    }

    /// Fails unless the numbers of the attributes go together.
    pub fn check(&self) -> Result<()> {
        if !PACKED_BITS.contains(&self.bits) {
            return Err(Error::invalid(format!("`bits` must be 4 or 8, found {}", self.bits)));
        }
        let word = self.per_word();
        if self.group == 0 || !self.group.is_multiple_of(word) {
            return Err(Error::invalid(format!(
                "`group` must be a multiple of the {word} elements of a word, found {}",
                self.group
            )));
        }
        Ok(())
    }

    /// The type of the weight that words, scales and zeros of these types make up. Fails if they do not go together.
    pub fn weight(&self, name: &str, parts: &[TensorType]) -> Result<TensorType> {
        self.check()?;
        let [words, scales, zeros @ ..] = parts else {
            return Err(Error::invalid(format!("`{name}` needs words and scales")));
        };
        let wrong = |part: &str, expected: &str, found: &TensorType| {
            Error::invalid(format!("the {part} of `{name}` must be {expected}, found {found}"))
        };
        let columns = match words.shape.as_slice() {
            [_, columns] | [_, _, columns] if words.dtype == DType::U32 => columns.as_const(),
            _ => None,
        };
        let columns = columns.ok_or_else(|| wrong("words", "u32 rows of a constant length", words))?;
        let k = columns
            .checked_mul(u64::from(self.per_word()))
            .filter(|k| k.is_multiple_of(u64::from(self.group)));
        let k = k.ok_or_else(|| {
            wrong("words", &format!("rows of whole groups of {} elements", self.group), words)
        })?;
        let row = |last: u64| -> Vec<Dim> {
            let rows = words.shape.split_last().map_or(&[][..], |(_, rows)| rows);
            rows.iter().cloned().chain([Dim::from(last)]).collect()
        };
        let groups = row(k / u64::from(self.group));
        for (part, ty) in [("scales", Some(scales)), ("zeros", zeros.first())] {
            if let Some(ty) = ty.filter(|ty| !ty.dtype.is_float() || ty.shape != groups) {
                let expected = TensorType::new(DType::F16, groups);
                return Err(wrong(part, &expected.to_string(), ty));
            }
        }
        Ok(TensorType::new(DType::F32, row(k)))
    }
}

/// An operator on quantised weights: a plain one whose inputs `weights` are each replaced by their parts.
pub(super) struct Packed {
    /// How the weights are packed.
    pub packing: Packing,
    /// The plain operator.
    pub plain: Op,
    /// Its inputs that are quantised.
    pub weights: Range<usize>,
}

impl Packed {
    /// See [`super::Operator::infer`].
    pub fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        self.plain.infer(&self.plain_inputs(inputs)?)
    }

    /// See [`super::Operator::definition`].
    pub fn definition(&self, name: &str, inputs: &[TensorType]) -> Result<Graph> {
        let plain = self.plain_inputs(inputs)?;
        let mut b = Builder::new(name);
        let given = inputs.iter().enumerate().map(|(i, ty)| b.input(format!("in{i}"), ty.clone()));
        let given = given.collect::<Result<Vec<_>>>()?;
        let mut rest = given.as_slice();
        let mut wired = Vec::with_capacity(plain.len());
        for index in 0..plain.len() {
            let is_weight = self.weights.contains(&index);
            let count = if is_weight { self.packing.parts() } else { 1 };
            let (parts, after) = rest.split_at_checked(count).ok_or_else(|| self.count(inputs))?;
            rest = after;
            match (is_weight, parts) {
                (true, parts) => {
                    wired.push(b.node(format!("w{index}"), Dequantize::of(self.packing), parts)?)
                }
                (false, parts) => wired.extend(parts),
            }
        }
        let y = b.node("y", self.plain.clone(), &wired)?;
        b.output("y", y);
        b.finish()
    }

    /// What the plain operator would be given.
    fn plain_inputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        let before = inputs.get(..self.weights.start).ok_or_else(|| self.count(inputs))?;
        let mut plain = before.to_vec();
        let mut rest = &inputs[self.weights.start..];
        for index in self.weights.clone() {
            let split = rest.split_at_checked(self.packing.parts());
            let (parts, after) = split.ok_or_else(|| self.count(inputs))?;
            plain.push(self.packing.weight(&format!("w{index}"), parts)?);
            rest = after;
        }
        plain.extend_from_slice(rest);
        Ok(plain)
    }

    fn count(&self, inputs: &[TensorType]) -> Error {
        let least = self.weights.end + self.weights.len() * (self.packing.parts() - 1);
        Error::invalid(format!("expected at least {least} inputs, found {}", inputs.len()))
    }
}
