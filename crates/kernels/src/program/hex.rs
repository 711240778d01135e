//! Bytes as a hexadecimal string in serialised programs.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Writes two lower-case digits for each byte.
pub fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let text: String =
        bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|d| char::from(HEX[usize::from(d)])).collect();
    s.serialize_str(&text)
}

/// Reads what [`serialize`] wrote; fails on upper-case digits, other characters and an odd count.
pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(d)?;
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().as_chunks::<2>();
    let bytes =
        pairs.0.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect::<Option<Vec<u8>>>();
    bytes.filter(|_| pairs.1.is_empty()).ok_or_else(|| D::Error::custom("expected pairs of digits 0-9a-f"))
}
