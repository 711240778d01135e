//! Memory of one device that others read and write.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Memory of a device that devices of the same sort in this process can use; see [`crate::Device::export_buffer`]. It lives as
/// long as anybody has it. Clones are the same memory.
#[derive(Clone)]
pub struct PeerMemory {
    size: u64,
    owner: Arc<dyn Any + Send + Sync>,
}

impl PeerMemory {
    /// So many bytes that `owner` keeps alive, an object of the backend's own.
    pub fn new(size: u64, owner: Arc<dyn Any + Send + Sync>) -> PeerMemory {
        PeerMemory { size, owner }
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The object of the backend; `None` if it is another backend's.
    pub fn owner<T: Any>(&self) -> Option<&T> {
        self.owner.downcast_ref()
    }
}

impl PartialEq for PeerMemory {
    fn eq(&self, other: &PeerMemory) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner)
    }
}

impl Eq for PeerMemory {}

impl fmt::Debug for PeerMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerMemory({} bytes)", self.size)
    }
}
