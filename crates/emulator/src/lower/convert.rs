//! Conversions and bit casts, and float operations with the profile's rounding.
//!
//! Conversions follow the WGSL sections on value constructors and on floating point conversion. `f16` values are held as the equal `f32`.

use super::types::Kind;
use super::{Lower, LowerResult};
use crate::code::{Bin, Reg, Tri, Un};
use naga::{Expression, Handle, Scalar, ScalarKind};

impl Lower<'_> {
    /// What the profile does to every float result: rounds `f16`, flushes subnormals.
    ///
    /// `+`, `-`, `·`, `/` and `sqrt` rounded to `f32` and then to `f16` equal one rounding, because 24 bits are at least
    /// 2 · 11 + 2 (Figueroa, "When is double rounding innocuous?", 1995).
    fn settle(&mut self, kind: Kind, value: Reg) -> LowerResult<Reg> {
        match kind {
            Kind::F16 => self.un(Un::RoundHalf, value),
            // Flushing is for f32: subnormal halves are normal as f32, and rounding has settled them.
            Kind::F32 if self.choices.arithmetic.flush => self.un(Un::FlushF, value),
            _ => Ok(value),
        }
    }

    /// A float operation with one operand, settled.
    pub(super) fn float1(&mut self, kind: Kind, op: Un, a: Reg) -> LowerResult<Reg> {
        let value = self.un(op, a)?;
        self.settle(kind, value)
    }

    /// A float operation with two operands, settled.
    pub(super) fn float2(&mut self, kind: Kind, op: Bin, a: Reg, b: Reg) -> LowerResult<Reg> {
        let value = self.bin(op, a, b)?;
        self.settle(kind, value)
    }

    /// A float operation with three operands, settled.
    pub(super) fn float3(&mut self, kind: Kind, op: Tri, a: Reg, b: Reg, c: Reg) -> LowerResult<Reg> {
        let value = self.tri(op, a, b, c)?;
        self.settle(kind, value)
    }

    /// The value is not rounded to `f16`, whatever it is combined with.
    pub(super) fn float_constant(&mut self, value: f32) -> Reg {
        self.constant(value.to_bits())
    }

    /// `As`: a conversion by value, or by bits where `convert` is `None`.
    pub(super) fn convert(
        &mut self,
        expr: Handle<Expression>,
        kind: ScalarKind,
        convert: Option<u8>,
    ) -> LowerResult<Vec<Reg>> {
        let from = self.kind_of(expr)?;
        let regs = self.regs(expr)?;
        let Some(width) = convert else {
            // A bit cast keeps the width, so registers of 32-bit kinds need no change; f16 has one kind only.
            return Ok(regs);
        };
        let to = self.need(
            Kind::from_scalar(Scalar { kind, width }),
            "a conversion to a type that is not of 16 or 32 bits",
        )?;
        regs.into_iter().map(|r| self.convert_scalar(r, from, to)).collect()
    }

    /// Conversions that keep the bits need no instruction.
    fn convert_scalar(&mut self, value: Reg, from: Kind, to: Kind) -> LowerResult<Reg> {
        use Kind as K;
        let op = match (from, to) {
            (K::F32 | K::F16, K::F32) | (K::F16, K::F16) => return Ok(value),
            (K::F32, K::F16) => Un::RoundHalf,
            (K::I32, K::F32 | K::F16) => Un::IToFloat,
            (K::U32, K::F32 | K::F16) => Un::UToFloat,
            (K::Bool, K::F32 | K::F16) => Un::BoolToFloat,
            (K::F32 | K::F16, K::I32) => Un::FloatToI,
            (K::F32 | K::F16, K::U32) => Un::FloatToU,
            (K::Bool, K::I32 | K::U32) => Un::BoolToInt,
            (K::I32 | K::U32, K::I32 | K::U32) | (K::Bool, K::Bool) => return Ok(value),
            (K::F32 | K::F16, K::Bool) => Un::FloatToBool,
            (K::I32 | K::U32, K::Bool) => Un::IntToBool,
        };
        let value = self.un(op, value)?;
        // Integers beyond 2^24 round twice, but all of them are infinite as f16.
        let rounds = to == K::F16 && matches!(from, K::I32 | K::U32);
        if rounds { self.un(Un::RoundHalf, value) } else { Ok(value) }
    }
}
