//! Conversions by value and by bits, by the rules of WGSL's value constructors and `bitcast`.
//!
//! A float becomes an integer towards zero and saturates; `to_i` and `to_u` do it, as C leaves it undefined.

use crate::types::{Kind, Spelt};
use crate::writer::{WriteResult, Writer};
use naga::{Expression, Handle, Scalar, ScalarKind};

impl Writer<'_> {
    /// A conversion by value, or by bits where `convert` is `None`.
    pub fn convert(
        &mut self,
        expr: Handle<Expression>,
        kind: ScalarKind,
        convert: Option<u8>,
    ) -> WriteResult<String> {
        let a = self.operand(expr)?;
        let from = a.shape.kind();
        // A conversion by bits keeps the width.
        let width = convert.unwrap_or(from.width() as u8);
        let to = Kind::from_scalar(Scalar { kind, width });
        let to = self.need(to, "a conversion to a type that is not of 16 or 32 bits")?;
        // Neither kind of conversion changes anything.
        if from == to {
            return Ok(a.text);
        }
        let template = if convert.is_some() { by_value(from, to) } else { by_bits(from, to) };
        // Bits are converted between numbers of 32 bits alone.
        let template = self.need(template, "a conversion between these types")?;
        let name = format!("{}_{}", if convert.is_some() { "to" } else { "as" }, to.letter());
        self.apply(&name, template, &[a], to)
    }
}

/// The template of a conversion by value; `None` if there is none.
fn by_value(from: Kind, to: Kind) -> Option<&'static str> {
    Some(match (from, to) {
        (Kind::F32, Kind::F16) => "float_to_half($a)",
        (Kind::F16, Kind::F32) => "half_to_float($a)",
        (Kind::I32 | Kind::U32, Kind::F32) => "((f32)$a)",
        (Kind::I32 | Kind::U32, Kind::F16) => "float_to_half((f32)$a)",
        (Kind::Bool, Kind::F32) => "($a ? 1.0f : 0.0f)",
        // 0x3c00 is 1.
        (Kind::Bool, Kind::F16) => "((h16)($a ? 0x3c00u : 0u))",
        (Kind::F32, Kind::I32) => "to_i($a)",
        (Kind::F32, Kind::U32) => "to_u($a)",
        (Kind::F16, Kind::I32) => "to_i(half_to_float($a))",
        (Kind::F16, Kind::U32) => "to_u(half_to_float($a))",
        (Kind::Bool, Kind::I32) => "($a ? 1 : 0)",
        (Kind::Bool, Kind::U32) => "($a ? 1u : 0u)",
        (Kind::U32, Kind::I32) => "((i32)$a)",
        (Kind::I32, Kind::U32) => "((u32)$a)",
        (Kind::F32, Kind::Bool) => "($a != 0.0f)",
        // Both zeros are false: the sign is masked.
        (Kind::F16, Kind::Bool) => "(($a & 0x7fffu) != 0u)",
        (Kind::I32 | Kind::U32, Kind::Bool) => "($a != 0)",
        _ => return None,
    })
}

/// The template of a conversion by bits between kinds of 32 bits; `None` if there is none.
fn by_bits(from: Kind, to: Kind) -> Option<&'static str> {
    Some(match (from, to) {
        (Kind::F32, Kind::I32) => "AS_I32($a)",
        (Kind::F32, Kind::U32) => "AS_U32($a)",
        (Kind::I32 | Kind::U32, Kind::F32) => "AS_F32($a)",
        (Kind::U32, Kind::I32) => "((i32)$a)",
        (Kind::I32, Kind::U32) => "((u32)$a)",
        _ => return None,
    })
}
