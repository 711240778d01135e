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
    /// Whether elements are numbers of 8 bits as [`float8`] reads them, instead of integers.
    pub float: bool,
}

impl Packing {
    /// Integers of so many bits.
    pub const fn integers(bits: u32, group: u32, zeros: bool) -> Packing {
        Packing { bits, group, zeros, float: false }
    }

    /// Numbers of 8 bits.
    pub const fn floats(group: u32) -> Packing {
        Packing { bits: 8, group, zeros: false, float: true }
    }

    /// Elements of one word.
    pub fn per_word(&self) -> u32 {
        32 / self.bits.clamp(1, 32)
    }

    /// The zero point of a weight whose groups have none of their own: the middle of the range of integers, 0 of numbers.
    pub fn middle(&self) -> u32 {
        if self.float { 0 } else { 1 << (self.bits.clamp(1, 32) - 1) }
    }

    /// What a stored element stands for, less its zero point and without its scale. Exact.
    pub fn element(&self, stored: u32) -> f32 {
        if self.float { float8(stored) } else { stored as f32 }
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
        if self.float && (self.bits != 8 || self.zeros) {
            let text =
                format!("`float` needs `bits` 8 and no `zeros`, found {} and {}", self.bits, self.zeros);
            return Err(Error::invalid(text));
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

/// The number of a byte with a sign, 4 bits of exponent and 3 of mantissa: what `e4m3fn` (OCP 8-bit Floating Point
/// Specification, revision 1.0) says, over 256, so that scales of f16 reach far enough down. The codes 127 and 255, which
/// are NaN there, are the numbers that their bits say: every word has a meaning. Higher bits of `code` do not count.
pub fn float8(code: u32) -> f32 {
    let magnitude = code & 0x7f;
    let size = match magnitude {
        0..8 => magnitude as f32 / 131_072.0,
        // The exponent's bias is 7, that of f32 127; 8 less is the 256th part.
        _ => f32::from_bits((magnitude << 20) + ((127 - 7 - 8) << 23)),
    };
    if code & 0x80 == 0 { size } else { -size }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_codes_are_numbers_of_e4m3() {
        for code in 0..256u32 {
            let (exponent, mantissa) = ((code >> 3 & 15) as i32, f64::from(code & 7));
            let size = match exponent {
                0 => mantissa / 8.0 * 2f64.powi(-6),
                _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
            };
            let number = if code < 128 { size } else { -size };
            assert_eq!(f64::from(float8(code)) * 256.0, number, "{code:#x}");
            assert_eq!(float8(code).is_sign_negative(), code >= 128, "{code:#x}");
            assert_eq!(Packing::floats(32).element(code), float8(code));
        }
        // Of the specification's table 1: largest, smallest normal, largest and smallest subnormal, one.
        for (code, number) in
            [(0x7e, 448.0), (0x08, 1.0 / 64.0), (0x07, 7.0 / 512.0), (0x01, 1.0 / 512.0), (0x38, 1.0)]
        {
            assert_eq!(float8(code) * 256.0, number, "{code:#x}");
        }
    }

    #[test]
    fn numbers_have_8_bits_and_no_zero_points() {
        assert!(Packing::floats(32).check().is_ok());
        assert!(Packing { bits: 4, ..Packing::floats(32) }.check().is_err());
        assert!(Packing { zeros: true, ..Packing::floats(32) }.check().is_err());
    }
}
