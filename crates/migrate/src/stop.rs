//! How the caller of long work stops it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tapml_graph::{Error, ErrorKind, Result};

/// A request to stop, shared with a signal handler.
#[derive(Clone, Debug, Default)]
pub struct Stop(pub Arc<AtomicBool>);

impl Stop {
    /// Nobody has asked to stop.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Asks to stop.
    pub fn request(&self) {
        // No other memory depends on the flag, so no order is needed. A signal handler may do this.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails with [`ErrorKind::Interrupted`] if someone has asked to stop.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            Err(Error::new(ErrorKind::Interrupted, "stopped on request")
                .with_hint("run the same command again; `migrate` goes on from its ledger"))
        } else {
            Ok(())
        }
    }
}
