//! What a platform of a device and everything loaded on it use together.

use super::plans::Plans;
use super::weights::{self, WeightBuffers};
use crate::again::Reopen;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tapml_device::{Device, Finding};
use tapml_graph::{Error, Result};
use tapml_kernels::KernelCache;

/// What the platform and everything loaded on it use together.
pub(super) struct PlatformState {
    pub(super) device: Box<dyn Device>,
    /// Compiled kernels, by description.
    pub(super) kernels: KernelCache,
    /// Plans of single nodes, for replay.
    pub(super) plans: Plans,
    /// Weights of replayed calls.
    pub(super) weights: WeightBuffers,
    /// What a device that may be lost has found in calls whose results are known.
    pub(super) findings: Vec<Finding>,
    /// How often the device was opened again: what was loaded before is gone.
    pub(super) generation: u64,
}

impl Reopen for PlatformState {
    fn reopen(&mut self, lost: Error) -> Result<()> {
        self.device.reopen(lost)?;
        self.kernels = KernelCache::new();
        self.plans = Plans::default();
        self.weights = WeightBuffers::new(weights::BUDGET);
        // Tells loaded graphs that their buffers are gone.
        self.generation += 1;
        Ok(())
    }
}

impl PlatformState {
    /// What has been found so far, as far as it can be lost with the device.
    pub(super) fn keep_findings(&mut self) -> Result<()> {
        if self.device.reopens() {
            let found = self.device.take_findings();
            // A device that cannot tell them says so in the next call.
            self.device.wait()?;
            self.findings.extend(found);
        }
        Ok(())
    }
}

pub(super) type SharedState = Arc<Mutex<PlatformState>>;

/// A device that panicked within a call refuses further ones itself, so a poisoned lock adds nothing.
pub(super) fn lock(shared: &SharedState) -> MutexGuard<'_, PlatformState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
