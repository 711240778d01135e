//! Work on a device elsewhere that is repeated when the way to the device was lost, such as by a machine that slept.
//!
//! Only `DeviceLost` is repeated; every other error is the work's own. A device that does not reopen fails
//! with the first loss.

use tapml_device::{Device, Error, ErrorKind, Result};

// One loss is an accident, three at the same place are a cause.
/// How often the same work may lose its device before it is taken for what ends the device.
const LOSSES: u32 = 3;

/// What can be opened again; see [`Device::reopen`].
pub trait Reopen {
    /// Opens it again after `lost`, or fails with that.
    fn reopen(&mut self, lost: Error) -> Result<()>;
}

impl Reopen for Box<dyn Device> {
    fn reopen(&mut self, lost: Error) -> Result<()> {
        self.as_mut().reopen(lost)
    }
}

/// Does work that leaves nothing behind when it fails, and does it again as often as its device is lost and opens again, but
/// not if it loses the device three times. What was on the device is gone each time.
pub fn repeat<D: Reopen, T>(device: &mut D, work: impl FnMut(&mut D) -> Result<T>) -> Result<T> {
    repeat_from(device, &|| 0, work)
}

/// As [`repeat`] for work that goes on from where it was: only losses at the same `progress` count together.
pub(crate) fn repeat_from<D: Reopen, T>(
    device: &mut D,
    progress: &dyn Fn() -> usize,
    mut work: impl FnMut(&mut D) -> Result<T>,
) -> Result<T> {
    let (mut losses, mut reached) = (0, 0);
    loop {
        match work(device) {
            Err(lost) if lost.kind() == ErrorKind::DeviceLost => {
                // What got further is no repetition of the same loss.
                if progress() > reached {
                    (losses, reached) = (0, progress());
                }
                losses += 1;
                if losses == LOSSES {
                    let text =
                        format!("the same work has lost its device {LOSSES} times: it may be what ends it");
                    return Err(lost.with_detail("repeated", text));
                }
                device.reopen(lost)?;
            }
            done => return done,
        }
    }
}
