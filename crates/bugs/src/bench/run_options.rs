//! How the bench runs.

use super::ops::Sampling;
use std::time::Instant;
use tapml_device::Device;
use tapml_graph::Result;

/// Opens a device.
pub type Opener<'a> = &'a (dyn Fn() -> Result<Box<dyn Device>> + Sync);

/// How the bench runs.
pub struct RunOptions<'a> {
    /// Opens the device under test; each worker has its own, and another one where a fault has cost it that.
    pub open: Opener<'a>,
    /// Opens a device that checks while it runs.
    pub checker: Option<Opener<'a>>,
    /// How many mutants are tried at once.
    pub workers: usize,
    /// Which calls are replayed.
    pub sampling: Sampling,
    /// Whether other constants of the verdict are measured too.
    pub grid: bool,
    /// No new mutant is begun after this time.
    pub until: Option<Instant>,
}
