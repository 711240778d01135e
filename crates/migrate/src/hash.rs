//! Hashes of bytes and of tensors.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use tapml_graph::{Tensor, TensorType};

/// A BLAKE3 hash, 64 hexadecimal digits in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The hash of these bytes; large ones are hashed by several threads.
    pub fn compute(bytes: &[u8]) -> Hash {
        // Below this, starting tasks costs more than it saves.
        const PARALLEL: usize = 1 << 18;
        let mut hasher = blake3::Hasher::new();
        if bytes.len() < PARALLEL {
            hasher.update(bytes)
        } else {
            hasher.update_rayon(bytes)
        };
        Hash(*hasher.finalize().as_bytes())
    }

    /// The hash of a tensor: dtype, shape and bytes, so that equal bytes of two shapes are two tensors.
    pub fn of_tensor(tensor: &Tensor) -> Hash {
        Hash::of_typed(&tensor_type(tensor), tensor.bytes())
    }

    /// See [`Hash::of_tensor`].
    pub fn of_typed(ty: &TensorType, bytes: &[u8]) -> Hash {
        const PARALLEL: usize = 1 << 18;
        let mut hasher = blake3::Hasher::new();
        hasher.update(ty.to_string().as_bytes()).update(b"\n");
        if bytes.len() < PARALLEL {
            hasher.update(bytes)
        } else {
            hasher.update_rayon(bytes)
        };
        Hash(*hasher.finalize().as_bytes())
    }

    /// The first twelve digits, for messages.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_string()
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Hash, D::Error> {
        let text = String::deserialize(d)?;
        let hash = blake3::Hash::from_hex(&text).map_err(|_| {
            serde::de::Error::custom(format!("expected 64 hexadecimal digits, found `{text}`"))
        })?;
        Ok(Hash(*hash.as_bytes()))
    }
}

/// The type of a tensor, every size constant.
pub fn tensor_type(tensor: &Tensor) -> TensorType {
    TensorType::new(tensor.dtype(), tensor.shape().iter().copied())
}
