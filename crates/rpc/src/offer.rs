//! What an agent offers: devices by name.

use tapml_device::{Device, DeviceInfo, Result};

/// A device that an agent offers, or why it cannot be used.
pub type Offered = (String, Result<DeviceInfo>);

/// The devices of a machine, by the names that clients ask for.
pub trait Offer: Send + Sync {
    /// All of them, in the order to show.
    fn list(&self) -> Vec<Offered>;

    /// Opens a device by its name and options, such as `emulator` and `check=all`. An unknown name is
    /// [`tapml_device::ErrorKind::Unavailable`].
    fn open(&self, name: &str, options: &str) -> Result<Box<dyn Device>>;
}
