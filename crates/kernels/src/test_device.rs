//! The device of this crate's unit tests.

use tapml_device::{AdapterKind, DeviceInfo, Features, Limits};

/// A device with these limits. Of the features it has f16 at most.
pub(crate) fn test_device(limits: Limits, f16: bool) -> DeviceInfo {
    let features = Features {
        f16,
        subgroups: None,
        cuda: None,
        matrices: false,
        device_barriers: false,
        processors: None,
    };
    let (platform, name, driver) = ("test".into(), "test device".into(), String::new());
    DeviceInfo { platform, name, driver, kind: AdapterKind::Other, limits, features }
}
