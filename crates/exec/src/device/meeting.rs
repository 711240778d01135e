//! Memory of a device in which a rank meets the others, without the host.

use super::state::{SharedState, lock};
use tapml_device::{BufferId, Command, PeerMemory};
use tapml_graph::{ErrorKind, Result, Symbols};
use tapml_kernels::meeting::{LATE_CALL, LATE_RANK};

/// A rank's memory on its device; freed when nobody uses it any more.
pub struct RankMemory {
    shared: SharedState,
    buffer: BufferId,
    memory: PeerMemory,
}

/// A rank that was late at a meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateRank {
    /// Which.
    pub rank: u32,
    /// Meetings that had begun since the memory was cleared, that one included.
    pub call: u32,
}

impl RankMemory {
    pub(super) fn create(shared: &SharedState, words: u64) -> Result<RankMemory> {
        let device = &mut lock(shared).device;
        let buffer = device.create_buffer("the memory in which ranks meet", words.saturating_mul(4))?;
        match device.export_buffer(buffer) {
            Ok(memory) => Ok(RankMemory { shared: shared.clone(), buffer, memory }),
            Err(e) => device.destroy_buffer(buffer).and(Err(e)),
        }
    }

    /// The memory, for the devices of all ranks.
    pub fn memory(&self) -> PeerMemory {
        self.memory.clone()
    }

    /// Whether the device can use this memory of another one.
    ///
    /// # Errors
    /// If it should be able to, and something else is wrong.
    pub fn reaches(&self, memory: &PeerMemory) -> Result<bool> {
        let device = &mut lock(&self.shared).device;
        match device.import_buffer("the memory of another rank", memory) {
            Ok(buffer) => device.destroy_buffer(buffer).map(|()| true),
            Err(e) if e.kind() == ErrorKind::Unsupported => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Waits for the device's work.
    pub fn wait(&self) -> Result<()> {
        lock(&self.shared).device.wait()
    }

    /// Fills it with zeros. No rank may be at work.
    pub fn clear(&self) -> Result<()> {
        let device = &mut lock(&self.shared).device;
        let list = device.record(&[Command::Fill { buffer: self.buffer, word: 0 }])?;
        let cleared = device.replay(list, &Symbols::new()).and_then(|()| device.wait());
        device.destroy_list(list).and(cleared)
    }

    /// The rank that this one has waited for in vain, if any.
    pub fn late_rank(&self) -> Result<Option<LateRank>> {
        let word = |at: u32| -> Result<u32> {
            let mut bytes = [0; 4];
            lock(&self.shared).device.read(self.buffer, 4 * u64::from(at), &mut bytes)?;
            Ok(u32::from_le_bytes(bytes))
        };
        let (late, call) = (word(LATE_RANK)?, word(LATE_CALL)?);
        Ok(late.checked_sub(1).map(|rank| LateRank { rank, call }))
    }
}

impl Drop for RankMemory {
    fn drop(&mut self) {
        // A lost device has freed it already.
        drop(lock(&self.shared).device.destroy_buffer(self.buffer));
    }
}
