//! Memory of a device, which other devices of this process may use, too.

use super::Driver;
use crate::error::{CudaFailure, CudaResult, check};
use crate::sys::{self, CuAddress};
use std::ptr;
use std::sync::Arc;

impl Driver {
    /// Memory of so many bytes, which may be dirty.
    pub(crate) fn memory(self: &Arc<Driver>, size: u64) -> CudaResult<CudaMemory> {
        let mut address = 0;
        // Kernels may read whole vectors of 16 bytes.
        let room = usize::try_from(size.max(16).next_multiple_of(16))
            .map_err(|_| CudaFailure(sys::OUT_OF_MEMORY))?;
        // SAFETY: gives an address that is owned from here on.
        check(unsafe { (self.api.cuMemAlloc_v2)(&mut address, room) })?;
        Ok(CudaMemory { size, allocation: Arc::new(Allocation { driver: Arc::clone(self), address, room }) })
    }

    /// Makes sure that kernels of this device can use memory of another one.
    pub(crate) fn reach(&self, memory: &CudaMemory) -> CudaResult {
        let owner = &memory.allocation.driver;
        if memory.belongs_to(self) {
            return Ok(());
        }
        // SAFETY: both contexts are alive, and this one is current.
        match check(unsafe { (self.api.cuCtxEnablePeerAccess)(owner.context, 0) }) {
            Err(CudaFailure(sys::PEER_ACCESS_ALREADY_ENABLED)) => Ok(()),
            done => done,
        }
    }
}

/// Memory of the device, which other devices may have, too.
pub(crate) struct CudaMemory {
    size: u64,
    allocation: Arc<Allocation>,
}

struct Allocation {
    driver: Arc<Driver>,
    address: CuAddress,
    /// Bytes that there really are: a multiple of 16.
    room: usize,
}

impl CudaMemory {
    /// Bytes that were asked for.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that there really are.
    pub(super) fn room(&self) -> usize {
        self.allocation.room
    }

    pub(crate) fn address(&self) -> CuAddress {
        self.allocation.address
    }

    /// Whether it is memory of this driver's device.
    pub(crate) fn belongs_to(&self, driver: &Driver) -> bool {
        ptr::eq(driver, Arc::as_ptr(&self.allocation.driver))
    }

    /// The same memory once more: it is freed with the last of them.
    pub(crate) fn share(&self) -> CudaMemory {
        CudaMemory { size: self.size, allocation: Arc::clone(&self.allocation) }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let _current = self.driver.enter();
        // SAFETY: owned and freed once. The call waits until the work that uses it has run.
        unsafe { (self.driver.api.cuMemFree_v2)(self.address) };
    }
}
