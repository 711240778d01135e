//! Opening a device of a fleet, and whether one that is lost may come back.

use super::record::Member;
use super::setup::Fleet;
use crate::platform::{self, Platform, PlatformSpec};
use tapml_graph::{Error, ErrorKind, Result};

/// Opens a device of the fleet with its kernels.
pub(super) fn open(fleet: &Fleet<'_>, member: &Member) -> Result<Box<dyn Platform>> {
    let mut spec = PlatformSpec::parse(&member.target)?;
    if spec.word.starts_with("hub/") && spec.option("wait").is_none() {
        // Others may finish the lane while the device is away.
        spec.options.push(("wait".into(), "2".into()));
    }
    if spec.is_remote() && spec.option("reconnect").is_none() {
        // The pieces of a device that is lost go to others at once.
        spec.options.push(("reconnect".into(), "0".into()));
    }
    platform::open(&spec, fleet.kernels.clone())
}

/// Whether a device may be fine when it is opened again.
pub(super) fn is_loss(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::DeviceLost | ErrorKind::Unavailable | ErrorKind::Io)
}
