//! The tensor index: one fixed record per unique tensor, little-endian, so that it costs 48 bytes a tensor.

use crate::hash::Hash;
use tapml_graph::{Error, Result, Symbols, TensorType, byte_len};

/// Bytes of one record: hash (32), offset (8), type (4), zero (4).
pub const RECORD: usize = 48;
/// Every tensor starts at a multiple of this many bytes.
pub const ALIGN: u64 = 16;

/// Where a unique tensor is and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorRecord {
    /// [`Hash::of_tensor`].
    pub hash: Hash,
    /// First byte within the file of tensors.
    pub offset: u64,
    /// Position in the manifest's list of types.
    pub ty: u32,
}

impl TensorRecord {
    /// The record's bytes.
    pub fn encode(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..32].copy_from_slice(&self.hash.0);
        bytes[32..40].copy_from_slice(&self.offset.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.ty.to_le_bytes());
        bytes
    }

    /// The zero bytes at the end are not looked at.
    fn decode(bytes: &[u8; RECORD]) -> TensorRecord {
        let (mut hash, mut offset, mut ty) = ([0; 32], [0; 8], [0; 4]);
        hash.copy_from_slice(&bytes[..32]);
        offset.copy_from_slice(&bytes[32..40]);
        ty.copy_from_slice(&bytes[40..44]);
        TensorRecord { hash: Hash(hash), offset: u64::from_le_bytes(offset), ty: u32::from_le_bytes(ty) }
    }
}

/// The records in `bytes`. Fails unless each names a type of `types` and lies within a file of `file_len` bytes.
pub fn decode(bytes: &[u8], types: &[TensorType], file_len: u64) -> Result<Vec<TensorRecord>> {
    let (records, rest) = bytes.as_chunks::<RECORD>();
    if !rest.is_empty() {
        return Err(Error::invalid(format!(
            "{} bytes are no whole number of {RECORD}-byte records",
            bytes.len()
        )));
    }
    // Of all types first: a type that is not constant fails even if no record names it.
    let lengths: Vec<u64> = types.iter().map(type_bytes).collect::<Result<_>>()?;
    let mut out = Vec::with_capacity(records.len());
    for (i, bytes) in records.iter().enumerate() {
        let record = TensorRecord::decode(bytes);
        let len = lengths.get(record.ty as usize).ok_or_else(|| {
            Error::invalid(format!("tensor {i} has type {}, the manifest lists {}", record.ty, types.len()))
        })?;
        // Offsets come from a file and may be any number.
        let end = record.offset.checked_add(*len).filter(|&e| e <= file_len);
        if end.is_none() || !record.offset.is_multiple_of(ALIGN) {
            let offset = record.offset;
            return Err(Error::invalid(format!(
                "tensor {i}: {len} bytes at offset {offset} do not fit a file of {file_len} bytes in steps of {ALIGN}"
            )));
        }
        out.push(record);
    }
    Ok(out)
}

/// Bytes of a tensor of a constant type. Fails if a size is symbolic or the length overflows.
pub fn type_bytes(ty: &TensorType) -> Result<u64> {
    let sizes = ty.sizes(&Symbols::new())?;
    let len = byte_len(ty.dtype, &sizes);
    len.map(|l| l as u64)
        .ok_or_else(|| Error::invalid(format!("a tensor of type {ty} overflows the address space")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::DType;

    #[test]
    fn hostile_records_are_refused() {
        let types = [TensorType::new(DType::F32, [2u64, 4])];
        let good = TensorRecord { hash: Hash([7; 32]), offset: 16, ty: 0 };
        assert_eq!(decode(&good.encode(), &types, 48).unwrap(), [good]);
        let cases = [
            (TensorRecord { ty: 1, ..good }, "lists 1"),
            (TensorRecord { offset: 32, ..good }, "do not fit"),
            (TensorRecord { offset: u64::MAX - 15, ..good }, "do not fit"),
            (TensorRecord { offset: 8, ..good }, "steps of 16"),
        ];
        for (bad, text) in cases {
            let error = decode(&bad.encode(), &types, 48).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
        assert!(decode(&good.encode()[..47], &types, 48).is_err());
        let huge = [TensorType::new(DType::F32, [u64::MAX, u64::MAX])];
        assert!(decode(&good.encode(), &huge, 48).is_err());
        let symbolic = [TensorType { dtype: DType::F32, shape: vec!["n".parse().unwrap()] }];
        assert!(decode(&good.encode(), &symbolic, 48).is_err());
    }
}
