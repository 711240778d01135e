//! Compiled kernels of one device, shared by everything that is loaded on it.
//!
//! The key is the hash of the whole description, constants included: two specialisations of one text are two kernels.
//! A device must not be exchanged for another one while its cache lives, because ids are those of the device.

use std::collections::{HashMap, HashSet};
use tapml_device::{Device, KernelDesc, KernelId, Source};
use tapml_graph::{Context, Error, Result};

/// Compiled kernels by description, so that loading many small programs compiles each kernel once.
///
/// One cache belongs to one device. Its kernels live until [`KernelCache::clear`].
#[derive(Debug, Default)]
pub struct KernelCache {
    /// By the hash of the description.
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
        let key = key_of(desc)?;
        if let Some(&id) = self.kernels.get(&key) {
            return Ok(id);
        }
        let id = device.create_kernel(desc).context(|| format!("kernel `{}`", desc.name))?;
        self.kernels.insert(key, id);
        Ok(id)
    }

    /// Lets the device compile, several at a time, what it has not compiled of these kernels.
    pub fn prepare(&self, device: &mut dyn Device, descs: impl IntoIterator<Item = KernelDesc>) {
        let mut seen = HashSet::new();
        let missing = |desc: &KernelDesc| {
            key_of(desc).is_ok_and(|key| !self.kernels.contains_key(&key) && seen.insert(key))
        };
        let missing: Vec<KernelDesc> = descs.into_iter().filter(missing).collect();
        if !missing.is_empty() {
            device.prepare_kernels(&missing);
        }
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

/// The BLAKE3 hash of a whole description. Descriptions hold floats, which have no hash of their own.
pub(crate) fn key_of(desc: &KernelDesc) -> Result<[u8; 32]> {
    // Named one by one, so that none that is added is forgotten.
    let KernelDesc {
        name,
        source: Source { language, file, prelude, text },
        entry,
        constants,
        bindings,
        workgroup,
        workgroup_memory,
        needs_f16,
        needs_subgroups,
        dependent_launch,
    } = desc;
    let needs = (workgroup_memory, needs_f16, needs_subgroups, dependent_launch);
    let facts = serde_json::to_vec(&(name, language, file, entry, constants, bindings, workgroup, needs))
        .map_err(|e| Error::bug(format!("kernel `{name}` does not serialise: {e}")))?;
    let mut hasher = blake3::Hasher::new();
    // Texts are long: they are hashed as they are, behind their lengths, so that no two lists of parts give the same bytes.
    for part in [&facts[..], prelude.as_bytes(), text.as_bytes()] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Ok(*hasher.finalize().as_bytes())
}
