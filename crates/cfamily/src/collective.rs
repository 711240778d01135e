//! What all ways of writing subgroup operations share: the bits of a value, and what an operation begins with.
//!
//! Values go between invocations as words of 32 bits, whatever their kind.

use crate::types::{Kind, Spelt};
use naga::SubgroupOperation as S;

/// What an operation begins with.
/// `None` if the operation is not defined for the kind.
pub fn identity(op: S, kind: Kind) -> Option<&'static str> {
    Some(match (op, kind) {
        (S::Add | S::Or | S::Xor | S::Any, Kind::I32 | Kind::U32) => "0",
        (S::Add, Kind::F32) => "0.0f",
        (S::Add, Kind::F16) => "0",
        (S::Mul, Kind::I32 | Kind::U32) => "1",
        (S::Mul, Kind::F32) => "1.0f",
        (S::Mul, Kind::F16) => "0x3c00",
        (S::And | S::All, Kind::U32) => "0xffffffffu",
        (S::And, Kind::I32) => "-1",
        // Infinities have no literal in C.
        (S::Min, Kind::F32) => "AS_F32(0x7f800000u)",
        (S::Min, Kind::F16) => "0x7c00",
        (S::Min, Kind::I32) => "2147483647",
        (S::Min, Kind::U32) => "0xffffffffu",
        (S::Max, Kind::F32) => "AS_F32(0xff800000u)",
        (S::Max, Kind::F16) => "0xfc00",
        (S::Max, Kind::I32) => "(-2147483647 - 1)",
        (S::Max, Kind::U32) => "0u",
        _ => return None,
    })
}

/// The text of a value's bits as `u32`.
pub fn to_bits(kind: Kind, text: &str) -> String {
    match kind {
        Kind::F32 => format!("AS_U32({text})"),
        Kind::Bool => format!("({text} ? 1u : 0u)"),
        _ => format!("(u32){text}"),
    }
}

/// The text of a value from its bits.
pub fn from_bits(kind: Kind, text: &str) -> String {
    match kind {
        Kind::F32 => format!("AS_F32({text})"),
        Kind::Bool => format!("({text} != 0u)"),
        Kind::U32 => text.to_string(),
        _ => format!("(({}){text})", kind.name()),
    }
}
