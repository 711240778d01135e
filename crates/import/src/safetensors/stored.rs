//! Element types as the safetensors format names them, with those that TapML computes with marked.
//!
//! A file with a type that is not computed with can still be opened and listed; only loading such a tensor
//! fails.

use std::fmt;
use tapml_graph::DType;

/// Element type of a stored tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredType {
    name: &'static str,
    /// Of one element. Fewer than 8 where several share a byte.
    bits: usize,
    dtype: Option<DType>,
}

// The list of `Dtype` in the format's own library.
/// All types of the format: name in the header, bits of one element, the dtype if TapML has it.
const TYPES: &[StoredType] = &[
    row("F64", 64, Some(DType::F64)),
    row("F32", 32, Some(DType::F32)),
    row("F16", 16, Some(DType::F16)),
    row("BF16", 16, Some(DType::BF16)),
    row("I32", 32, Some(DType::I32)),
    row("U32", 32, Some(DType::U32)),
    row("U8", 8, Some(DType::U8)),
    row("I64", 64, Some(DType::I64)),
    row("U64", 64, Some(DType::U64)),
    row("C64", 64, None),
    row("I16", 16, Some(DType::I16)),
    row("U16", 16, Some(DType::U16)),
    row("I8", 8, Some(DType::I8)),
    row("BOOL", 8, Some(DType::Bool)),
    row("F8_E5M2", 8, None),
    // Bytes; their reader knows what they stand for.
    row("F8_E4M3", 8, Some(DType::U8)),
    row("F8_E8M0", 8, None),
    row("F8_E4M3FNUZ", 8, None),
    row("F8_E5M2FNUZ", 8, None),
    row("F6_E2M3", 6, None),
    row("F6_E3M2", 6, None),
    row("F4", 4, None),
];

/// A row of the table.
const fn row(name: &'static str, bits: usize, dtype: Option<DType>) -> StoredType {
    StoredType { name, bits, dtype }
}

impl StoredType {
    /// The type of this name in a header.
    pub fn parse(name: &str) -> Option<StoredType> {
        TYPES.iter().find(|t| t.name == name).copied()
    }

    /// The stored form of a dtype.
    ///
    /// The first row wins: `U8`, not `F8_E4M3`, is the stored form of bytes.
    pub fn from_dtype(dtype: DType) -> StoredType {
        let found = TYPES.iter().find(|t| t.dtype == Some(dtype));
        *found.expect("every dtype has a row, which a test checks")
    }

    /// Name in a header, such as `BF16`.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// The dtype, if TapML computes with it.
    pub fn dtype(self) -> Option<DType> {
        self.dtype
    }

    /// Bytes of a tensor of this shape. `None` on overflow or if they are no whole number.
    pub fn byte_len(self, shape: &[usize]) -> Option<usize> {
        let elements = shape.iter().try_fold(1usize, |acc, &size| acc.checked_mul(size))?;
        let bits = elements.checked_mul(self.bits)?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

impl fmt::Display for StoredType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_a_row_of_its_size() {
        for dtype in DType::ALL {
            let stored = StoredType::from_dtype(dtype);
            assert_eq!(stored.byte_len(&[3]), Some(3 * dtype.size()));
            assert_eq!(StoredType::parse(stored.name()), Some(stored));
        }
    }

    #[test]
    fn sizes_below_a_byte_and_overflow() {
        let f4 = StoredType::parse("F4").unwrap();
        assert_eq!(f4.byte_len(&[3, 2]), Some(3));
        assert_eq!(f4.byte_len(&[3]), None);
        assert_eq!(StoredType::from_dtype(DType::F32).byte_len(&[usize::MAX, 2]), None);
        assert_eq!(StoredType::from_dtype(DType::F32).byte_len(&[]), Some(4));
    }
}
