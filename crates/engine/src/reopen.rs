//! A device that was lost is opened again, with what was loaded on it.

use std::thread::sleep;
use std::time::Duration;
use tapml_exec::REOPENED;
use tapml_graph::{Error, ErrorKind, Result};

/// Pauses before each attempt to open a lost device again: drivers take a moment to come back.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(0), Duration::from_millis(250), Duration::from_millis(1000)];

/// Opens the platform anew and loads the same model for the same sizes on it.
type OpenAgain<T> = Box<dyn FnMut() -> Result<T> + Send>;

/// What opens a lost device again, if anything does, and how often it did.
pub(crate) struct Reopener<T> {
    open: Option<OpenAgain<T>>,
    count: u64,
}

impl<T> Default for Reopener<T> {
    fn default() -> Reopener<T> {
        Reopener { open: None, count: 0 }
    }
}

impl<T> Reopener<T> {
    /// One that opens in this way.
    pub fn new(open: impl FnMut() -> Result<T> + Send + 'static) -> Reopener<T> {
        Reopener { open: Some(Box::new(open)), count: 0 }
    }

    /// How often a device was opened again.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Counts a device elsewhere that opened again by itself, if the error tells of one.
    pub fn note(&mut self, error: &Error) {
        self.count += u64::from(error.detail(REOPENED).is_some());
    }

    /// Opens the device that was lost again, in a bounded number of attempts.
    pub fn reopen(&mut self, lost: Error) -> Result<T> {
        let Some(open) = &mut self.open else { return Err(lost) };
        let mut last = lost;
        for pause in PAUSES {
            sleep(pause);
            match open() {
                Ok(fresh) => {
                    self.count += 1;
                    return Ok(fresh);
                }
                Err(error) => last = error,
            }
        }
        let attempts = PAUSES.len();
        let text = format!("the device was lost and did not open again in {attempts} attempts: {last}");
        Err(Error::new(ErrorKind::DeviceLost, text).with_hint("`tapml doctor` tells which devices there are"))
    }
}

/// The error of work on a device that is gone.
pub(crate) fn lost_error() -> Error {
    Error::new(ErrorKind::DeviceLost, "the device was lost")
}

/// The error of a model that was loaded again and is another one.
pub(crate) fn sizes_error<L: std::fmt::Debug>(expected: L, found: L) -> Error {
    Error::bug(format!("the model was loaded again with other sizes: expected {expected:?}, found {found:?}"))
}
