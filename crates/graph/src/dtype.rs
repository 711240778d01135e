//! Element types of tensors and the rounding facts that verdicts need of them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Element type of a tensor, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 binary64; used by the oracle only.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer; token ids.
    U32,
    /// Unsigned byte; packed quantised data.
    U8,
}

impl DType {
    /// Every dtype.
    pub const ALL: [DType; 7] =
        [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I32, DType::U32, DType::U8];

    /// Size of one element in bytes.
    pub fn size(self) -> usize {
        match self {
            DType::F64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::U8 => 1,
        }
    }

    /// Name in the text form: `f32`, `bf16`, …
    pub fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::U8 => "u8",
        }
    }

    /// The dtype of this name.
    pub fn parse(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Whether elements are floating point.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }

    /// Unit roundoff `u`: half the distance from 1 to the next larger number. 0 for integers.
    pub fn unit_roundoff(self) -> f64 {
        match self {
            DType::F64 => (-53f64).exp2(),
            DType::F32 => (-24f64).exp2(),
            DType::F16 => (-11f64).exp2(),
            DType::BF16 => (-8f64).exp2(),
            DType::I32 | DType::U32 | DType::U8 => 0.0,
        }
    }

    /// Smallest positive normal number. 0 for integers.
    pub fn min_normal(self) -> f64 {
        match self {
            DType::F64 => f64::MIN_POSITIVE,
            DType::F32 | DType::BF16 => f64::from(f32::MIN_POSITIVE),
            DType::F16 => (-14f64).exp2(),
            DType::I32 | DType::U32 | DType::U8 => 0.0,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn names_round_trip_in_text_and_json() {
        for dtype in DType::ALL {
            assert_eq!(DType::parse(dtype.name()), Some(dtype));
            assert_eq!(serde_json::to_value(dtype).unwrap(), dtype.name());
        }
        assert_eq!(DType::parse("F32"), None);
    }

    #[test]
    fn rounding_facts_agree_with_the_types_themselves() {
        let epsilon = |dtype: DType| 2.0 * dtype.unit_roundoff();
        assert_eq!(epsilon(DType::F64), f64::EPSILON);
        assert_eq!(epsilon(DType::F32), f64::from(f32::EPSILON));
        assert_eq!(epsilon(DType::F16), f16::EPSILON.to_f64());
        assert_eq!(epsilon(DType::BF16), bf16::EPSILON.to_f64());
        assert_eq!(DType::F16.min_normal(), f16::MIN_POSITIVE.to_f64());
        assert_eq!(DType::BF16.min_normal(), bf16::MIN_POSITIVE.to_f64());
        for dtype in DType::ALL {
            assert_eq!(dtype.is_float(), dtype.unit_roundoff() > 0.0, "{dtype}");
            assert_eq!(dtype.is_float(), dtype.min_normal() > 0.0, "{dtype}");
        }
    }
}
