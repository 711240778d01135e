//! Compiled kernels of one device, shared by everything that is loaded on it.
//!
//! The key is the hash of the whole description, constants included: two specialisations of one text are two kernels.
//! A device must not be exchanged for another one while its cache lives, because ids are those of the device.

use std::collections::HashMap;
use tapml_device::{Device, KernelDesc, KernelId};
use tapml_graph::{Context, Error, Result};

/// Compiled kernels by description, so that loading many small programs compiles each kernel once.
///
/// One cache belongs to one device. Its kernels live until [`KernelCache::clear`].
#[derive(Debug, Default)]
pub struct KernelCache {
    /// By the BLAKE3 hash of the description as JSON.
    kernels: HashMap<[u8; 32], KernelId>,
}

impl KernelCache {
    /// An empty cache.
    pub fn new() -> KernelCache {
        KernelCache::default()
    }

    /// The compiled kernel, compiling it at the first request.
    ///
    /// # Errors
    /// As [`Device::create_kernel`], with the kernel's name in front. Nothing is stored then, so that a retry
    /// compiles anew.
    pub fn get(&mut self, device: &mut dyn Device, desc: &KernelDesc) -> Result<KernelId> {
        let key = serde_json::to_vec(desc)
            .map_err(|e| Error::bug(format!("kernel `{}` does not serialise: {e}", desc.name)))?;
        let key = *blake3::hash(&key).as_bytes();
        if let Some(&id) = self.kernels.get(&key) {
            return Ok(id);
        }
        let id = device.create_kernel(desc).context(|| format!("kernel `{}`", desc.name))?;
        self.kernels.insert(key, id);
        Ok(id)
    }

    /// Number of kernels.
    pub fn len(&self) -> usize {
        self.kernels.len()
    }

    /// Whether nothing has been compiled.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// Frees all kernels. Programs loaded with them must be unloaded first.
    ///
    /// # Errors
    /// The first error of the device; kernels that come after it are not freed, and the cache is empty in any case.
    pub fn clear(&mut self, device: &mut dyn Device) -> Result<()> {
        self.kernels.drain().try_for_each(|(_, id)| device.destroy_kernel(id))
    }

    /// Hands over the kernels; whoever takes them frees them.
    pub(crate) fn into_ids(self) -> Vec<KernelId> {
        self.kernels.into_values().collect()
    }
}
