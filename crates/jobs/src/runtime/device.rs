//! A device that tensors and functions share.
//!
//! One lock guards the device; whoever holds it is the only user. Dropping must not wait for that lock, so
//! what is dropped is noted and freed by the next user. Lock order: `state`, then `dropped`.

use crate::platform::{self, PlatformSpec};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tapml_device::{BufferId, Device as Backend, DeviceInfo, ListId};
use tapml_graph::{Error, Result};
use tapml_kernels::KernelCache;

/// A device, here or elsewhere. Clones are the same device; it is closed when the last of them, and everything that was
/// made on it, is gone.
#[derive(Clone)]
pub struct Device(Arc<SharedDevice>);

struct SharedDevice {
    /// As given, options included.
    word: String,
    /// Read one time; asking does not take the lock.
    info: DeviceInfo,
    state: Mutex<ThreadState>,
    /// What was dropped since the device was used last.
    dropped: Mutex<Vec<Dropped>>,
}

/// Something on the device that nobody holds any more.
pub(super) enum Dropped {
    Buffer(BufferId),
    List(ListId),
}

/// What only one thread at a time may use.
pub(super) struct ThreadState {
    pub device: Box<dyn Backend>,
    pub kernels: KernelCache,
}

impl Device {
    /// Opens a device by the word of the command line: `emulator`, `vulkan:1`, `emulator?check=all`,
    /// `ws://host:port/NAME`. `cpu` is no device: it runs whole models without kernels.
    ///
    /// # Errors
    /// `Unsupported` for `cpu`; otherwise those of opening a device.
    pub fn open(word: &str) -> Result<Device> {
        let spec = PlatformSpec::parse(word)?;
        if spec.word == "cpu" {
            return Err(Error::unsupported(
                "`cpu` runs the reference, which has no kernels and no memory of its own",
            )
            .with_hint("`emulator` runs kernels without a GPU"));
        }
        Ok(Device::new(spec.to_string(), platform::open_device(&spec)?))
    }

    /// A device that is open already.
    pub fn new(word: impl Into<String>, device: Box<dyn Backend>) -> Device {
        let info = device.info().clone();
        let state = Mutex::new(ThreadState { device, kernels: KernelCache::new() });
        Device(Arc::new(SharedDevice { word: word.into(), info, state, dropped: Mutex::default() }))
    }

    /// The word it was opened by.
    pub fn word(&self) -> &str {
        &self.0.word
    }

    /// Name, driver, limits and features.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// Whether this is the same open device.
    pub fn is(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Waits for all work so far, and fails if some of it failed.
    pub fn wait(&self) -> Result<()> {
        self.lock().device.wait()
    }

    /// What a checking device has found since the last call, such as a data race in a kernel.
    pub fn take_findings(&self) -> Vec<tapml_device::Finding> {
        self.lock().device.take_findings()
    }

    /// Bytes of device memory in use, and the most that were in use at once.
    pub fn memory(&self) -> (u64, u64) {
        self.lock().device.memory()
    }

    /// The device, after everything that was dropped meanwhile has been freed.
    pub(super) fn lock(&self) -> MutexGuard<'_, ThreadState> {
        // A device that panicked within a call refuses further ones itself, so a poisoned lock adds nothing.
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = std::mem::take(&mut *self.0.dropped.lock().unwrap_or_else(PoisonError::into_inner));
        // A lost device has freed everything already.
        dropped.into_iter().for_each(|dropped| {
            drop(match dropped {
                Dropped::Buffer(buffer) => state.device.destroy_buffer(buffer),
                Dropped::List(list) => state.device.destroy_list(list),
            })
        });
        state
    }

    /// Frees these: now, or if the device is busy, at the next use.
    pub(super) fn give_back(&self, dropped: impl IntoIterator<Item = Dropped>) {
        self.0.dropped.lock().unwrap_or_else(PoisonError::into_inner).extend(dropped);
        if self.0.state.try_lock().is_ok() {
            drop(self.lock());
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}: {})", self.0.word, self.0.info.name)
    }
}

/// Writes bytes of any length into a buffer that is at least as long, rounded up to a multiple of 4.
pub(super) fn write(device: &mut dyn Backend, buffer: BufferId, bytes: &[u8]) -> Result<()> {
    let whole = bytes.len() / 4 * 4;
    if whole > 0 {
        device.write(buffer, 0, &bytes[..whole])?;
    }
    if whole < bytes.len() {
        let mut last = [0; 4];
        last[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
        device.write(buffer, whole as u64, &last)?;
    }
    Ok(())
}
