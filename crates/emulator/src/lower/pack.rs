//! Packing and unpacking of small numbers in words, and bit fields.
//!
//! Component 0 is in the lowest bits of a word, as the WGSL sections on data packing and unpacking define it.

use super::types::Kind;
use super::{Lower, LowerResult};
use crate::code::{Bin, Reg, Tri, Un};
use naga::MathFunction as M;

impl Lower<'_> {
    /// Packing functions; `None` for any other function, and `abs` of unsigned, which is a copy.
    pub(super) fn packing(&mut self, fun: M, a: &[Reg]) -> LowerResult<Option<Vec<Reg>>> {
        let packed = match fun {
            M::Pack4x8snorm => self.pack(a, 8, |l, r| l.un(Un::Snorm8, r))?,
            M::Pack4x8unorm => self.pack(a, 8, |l, r| l.un(Un::Unorm8, r))?,
            M::Pack2x16snorm => self.pack(a, 16, |l, r| l.un(Un::Snorm16, r))?,
            M::Pack2x16unorm => self.pack(a, 16, |l, r| l.un(Un::Unorm16, r))?,
            // Rounding comes first, because `HalfBits` takes only values that `f16` has.
            M::Pack2x16float => self.pack(a, 16, |l, r| {
                let r = l.un(Un::RoundHalf, r)?;
                l.un(Un::HalfBits, r)
            })?,
            M::Pack4xI8 | M::Pack4xU8 => self.pack(a, 8, Self::low_byte)?,
            M::Pack4xI8Clamp => self.pack(a, 8, |l, r| {
                let r = l.clamp_int(r, [Bin::MaxI, Bin::MinI], -128, 127)?;
                l.low_byte(r)
            })?,
            // A clamped value has no bits above its byte.
            M::Pack4xU8Clamp => self.pack(a, 8, |l, r| l.clamp_int(r, [Bin::MaxU, Bin::MinU], 0, 255))?,
            M::Unpack4x8snorm => return self.unpack(a[0], 8, Tri::ExtractI, Some(Un::FromSnorm8)).map(Some),
            M::Unpack4x8unorm => return self.unpack(a[0], 8, Tri::ExtractU, Some(Un::FromUnorm8)).map(Some),
            M::Unpack2x16snorm => {
                return self.unpack(a[0], 16, Tri::ExtractI, Some(Un::FromSnorm16)).map(Some);
            }
            M::Unpack2x16unorm => {
                return self.unpack(a[0], 16, Tri::ExtractU, Some(Un::FromUnorm16)).map(Some);
            }
            M::Unpack2x16float => {
                return self.unpack(a[0], 16, Tri::ExtractU, Some(Un::HalfFromBits)).map(Some);
            }
            M::Unpack4xI8 => return self.unpack(a[0], 8, Tri::ExtractI, None).map(Some),
            M::Unpack4xU8 => return self.unpack(a[0], 8, Tri::ExtractU, None).map(Some),
            // Signed `abs` and float `abs` are taken before packing is asked.
            M::Abs => return a.iter().map(|&r| self.copy(r)).collect::<LowerResult<Vec<_>>>().map(Some),
            _ => return Ok(None),
        };
        Ok(Some(vec![packed]))
    }

    /// The lowest 8 bits.
    fn low_byte(&mut self, r: Reg) -> LowerResult<Reg> {
        let mask = self.constant(0xff);
        self.bin(Bin::And, r, mask)
    }

    /// Clamps to `low ..= high` with the given maximum and minimum, signed or unsigned.
    fn clamp_int(&mut self, r: Reg, [max, min]: [Bin; 2], low: i32, high: i32) -> LowerResult<Reg> {
        let (low, high) = (self.constant(low as u32), self.constant(high as u32));
        let r = self.bin(max, r, low)?;
        self.bin(min, r, high)
    }

    /// Packs parts of `bits` bits into a word. `convert` must leave no bit above them.
    /// All parts have the same width, 8 or 16 bits.
    fn pack(
        &mut self,
        a: &[Reg],
        bits: u32,
        mut convert: impl FnMut(&mut Self, Reg) -> LowerResult<Reg>,
    ) -> LowerResult<Reg> {
        let mut word = self.constant(0);
        for (i, &r) in a.iter().enumerate() {
            let part = convert(self, r)?;
            let shift = self.constant(i as u32 * bits);
            // The lowest part needs neither a shift nor an or.
            let part = if i == 0 { part } else { self.bin(Bin::Shl, part, shift)? };
            word = if i == 0 { part } else { self.bin(Bin::Or, word, part)? };
        }
        Ok(word)
    }

    /// Splits a word into parts of `bits` bits, and converts each if there is something to convert to.
    fn unpack(&mut self, word: Reg, bits: u32, extract: Tri, convert: Option<Un>) -> LowerResult<Vec<Reg>> {
        let count = self.constant(bits);
        (0..32 / bits)
            .map(|i| {
                let offset = self.constant(i * bits);
                let part = self.tri(extract, word, offset, count)?;
                match convert {
                    Some(op) => self.un(op, part),
                    None => Ok(part),
                }
            })
            .collect()
    }

    /// `extractBits(e, offset, count)` and `insertBits(e, new, offset, count)`.
    /// Offset and count are clipped to the word, as WGSL says.
    pub(super) fn bit_field(
        &mut self,
        fun: M,
        kind: Kind,
        a: &[Reg],
        more: [&[Reg]; 3],
    ) -> LowerResult<Vec<Reg>> {
        let [b, c, d] = more;
        if fun == M::ExtractBits {
            let op = if kind == Kind::I32 { Tri::ExtractI } else { Tri::ExtractU };
            return self.zip3(a, b, c, |l, x, offset, count| l.tri(op, x, offset, count));
        }
        // Both are scalars, also where the operands are vectors.
        let (Some(&offset), Some(&count)) = (c.first(), d.first()) else {
            return self.fail("insertBits without offset and count");
        };
        // The third operand is not used; an instruction with three has one.
        let mask = self.tri(Tri::FieldMask, offset, count, offset)?;
        self.zip2(a, b, |l, old, new| {
            let shifted = l.bin(Bin::Shl, new, offset)?;
            l.tri(Tri::Select, old, shifted, mask)
        })
    }
}
