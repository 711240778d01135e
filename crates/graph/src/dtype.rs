//! Element types of tensors and the rounding facts that verdicts need of them.

use crate::packing::Packing;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;

/// Element type of a tensor, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 binary64; of foreign operators and the oracle only.
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
    /// Unsigned byte.
    U8,
    /// Signed 64-bit integer; of foreign operators only, as are those that follow.
    I64,
    /// Signed 16-bit integer.
    I16,
    /// Signed byte.
    I8,
    /// Unsigned 64-bit integer.
    U64,
    /// Unsigned 16-bit integer.
    U16,
    /// Truth: one byte, 0 or 1.
    Bool,
    /// Numbers of a few bits with scales that groups of a row share; of weights only.
    Packed(Packing),
}

impl DType {
    /// Every dtype that is not packed.
    pub const ALL: [DType; 13] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I32,
        DType::U32,
        DType::U8,
        DType::I64,
        DType::I16,
        DType::I8,
        DType::U64,
        DType::U16,
        DType::Bool,
    ];

    /// Size of one element in bytes; 0 for packed elements, which have no bytes of their own: see [`crate::byte_len`].
    pub fn size(self) -> usize {
        match self {
            DType::Packed(_) => 0,
            DType::F64 | DType::I64 | DType::U64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::U8 | DType::I8 | DType::Bool => 1,
        }
    }

    /// Name in the text form: `f32`, `bf16`, `int4g32`, …
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::U8 => "u8",
            DType::I64 => "i64",
            DType::I16 => "i16",
            DType::I8 => "i8",
            DType::U64 => "u64",
            DType::U16 => "u16",
            DType::Bool => "bool",
            DType::Packed(packing) => return Cow::Owned(packing.to_string()),
        })
    }

    /// The dtype of this name.
    pub fn parse(name: &str) -> Option<DType> {
        // Names of packed dtypes hold their parameters, so that they are no list.
        let plain = DType::ALL.into_iter().find(|d| d.name() == name);
        plain.or_else(|| Packing::parse(name).map(DType::Packed))
    }

    /// How elements are packed, if they are.
    pub fn packing(self) -> Option<Packing> {
        match self {
            DType::Packed(packing) => Some(packing),
            _ => None,
        }
    }

    /// Whether each element is a floating point number of its own.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }

    /// Unit roundoff `u`: half the distance from 1 to the next larger number. 0 for integers and for
    /// packed elements, whose numbers are exact.
    pub fn unit_roundoff(self) -> f64 {
        match self {
            DType::F64 => (-53f64).exp2(),
            DType::F32 => (-24f64).exp2(),
            DType::F16 => (-11f64).exp2(),
            // Seven bits of the fraction are stored, and one is implied.
            DType::BF16 => (-8f64).exp2(),
            _ => 0.0,
        }
    }

    /// Smallest positive normal number. 0 for integers and packed elements.
    pub fn min_normal(self) -> f64 {
        match self {
            DType::F64 => f64::MIN_POSITIVE,
            // Both have eight bits of exponent.
            DType::F32 | DType::BF16 => f64::from(f32::MIN_POSITIVE),
            DType::F16 => (-14f64).exp2(),
            _ => 0.0,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DType, D::Error> {
        let name = Cow::<'de, str>::deserialize(deserializer)?;
        DType::parse(&name).ok_or_else(|| {
            // Only a part of a long name is shown.
            de::Error::custom(format!("unknown dtype `{}`", name.chars().take(40).collect::<String>()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn names_round_trip_in_text_and_json() {
        for dtype in DType::ALL.into_iter().chain([DType::Packed(Packing::MXFP4)]) {
            assert_eq!(DType::parse(&dtype.name()), Some(dtype));
            let json = serde_json::to_value(dtype).unwrap();
            assert_eq!(json, *dtype.name());
            assert_eq!(serde_json::from_value::<DType>(json).unwrap(), dtype);
        }
        assert!(serde_json::from_str::<DType>("\"f33\"").unwrap_err().to_string().contains("`f33`"));
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
