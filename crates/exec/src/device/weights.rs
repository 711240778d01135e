//! Weights on the device for replay: each range uploaded once, the longest unused ones freed when room is short.
//!
//! The key is name and range: a kernel may bind a part of a weight. A weight that does not fit the budget
//! alone is uploaded all the same.

use std::collections::HashMap;
use tapml_device::{BufferId, Device};
use tapml_graph::{Error, Result, Tensor};

/// Bytes that weights may take before unused ones are freed.
pub(super) const BUDGET: u64 = 1 << 30;

/// Weights by name and range.
pub(super) struct WeightBuffers {
    /// Bytes.
    budget: u64,
    entries: HashMap<WeightRange, UploadedWeight>,
    /// Bytes of all entries.
    used: u64,
    /// Of the present batch.
    turn: u64,
}

/// Bytes of a weight; 0 of them mean to its end.
#[derive(Clone, PartialEq, Eq, Hash)]
struct WeightRange {
    name: String,
    offset: u64,
    len: u64,
}

struct UploadedWeight {
    buffer: BufferId,
    /// What was uploaded: another tensor under the same name is another checkpoint's weight. Holding it keeps its bytes
    /// where they are, so that no other tensor can be mistaken for it.
    tensor: Tensor,
    size: u64,
    /// The turn in which it was last used.
    turn: u64,
}

impl WeightBuffers {
    /// No weights yet; at most `budget` bytes, unless one turn needs more.
    pub fn new(budget: u64) -> WeightBuffers {
        WeightBuffers { budget, entries: HashMap::new(), used: 0, turn: 0 }
    }

    /// Starts a turn: buffers handed out from here on stay until the next.
    pub fn start(&mut self) {
        self.turn += 1;
    }

    /// A buffer with bytes `offset..offset+len` of a weight; `len` 0 means to its end.
    pub fn get(
        &mut self,
        device: &mut dyn Device,
        name: &str,
        tensor: &Tensor,
        range: (u64, u64),
    ) -> Result<BufferId> {
        let key = WeightRange { name: name.into(), offset: range.0, len: range.1 };
        if let Some(entry) = self.entries.get_mut(&key)
            && crate::same_bytes(&entry.tensor, tensor)
        {
            entry.turn = self.turn;
            return Ok(entry.buffer);
        }
        if let Some(old) = self.entries.remove(&key) {
            self.free(device, old)?;
        }
        let bytes = cut(name, tensor, range)?;
        let size = (bytes.len() as u64).next_multiple_of(4).max(4);
        self.make_room(device, size)?;
        let buffer = device.create_buffer(name, size)?;
        let mut padded;
        let data: &[u8] = if bytes.len().is_multiple_of(4) {
            &bytes
        } else {
            padded = bytes.to_vec();
            padded.resize(size as usize, 0);
            &padded
        };
        if let Err(e) = device.write(buffer, 0, data) {
            drop(device.destroy_buffer(buffer));
            return Err(e);
        }
        self.used += size;
        self.entries.insert(key, UploadedWeight { buffer, tensor: tensor.clone(), size, turn: self.turn });
        Ok(buffer)
    }

    /// Frees everything.
    pub fn clear(&mut self, device: &mut dyn Device) -> Result<()> {
        let entries: Vec<UploadedWeight> = self.entries.drain().map(|(_, entry)| entry).collect();
        entries.into_iter().try_for_each(|entry| self.free(device, entry))
    }

    /// Frees idle weights, the longest unused first.
    fn make_room(&mut self, device: &mut dyn Device, size: u64) -> Result<()> {
        while self.used + size > self.budget {
            let idle = self.entries.iter().filter(|(_, e)| e.turn < self.turn);
            // Nothing idle is left: the turn needs more than the budget.
            let Some(key) = idle.min_by_key(|(_, e)| e.turn).map(|(key, _)| key.clone()) else { break };
            if let Some(entry) = self.entries.remove(&key) {
                self.free(device, entry)?;
            }
        }
        Ok(())
    }

    /// Frees one, and counts it off.
    fn free(&mut self, device: &mut dyn Device, entry: UploadedWeight) -> Result<()> {
        self.used -= entry.size;
        device.destroy_buffer(entry.buffer)
    }
}

/// A range of a weight's bytes.
fn cut(name: &str, tensor: &Tensor, (offset, len): (u64, u64)) -> Result<tapml_graph::Bytes> {
    let have = tensor.bytes().len();
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let len = match len {
        0 => have.saturating_sub(start),
        len => usize::try_from(len).unwrap_or(usize::MAX),
    };
    let bytes = tensor.bytes().slice(start, len);
    bytes.ok_or_else(|| Error::bug(format!("weight `{name}`: {len} bytes at {offset} asked of {have}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_device::null::NullDevice;
    use tapml_device::{Features, Limits};

    fn bytes(count: usize) -> Tensor {
        Tensor::new(tapml_graph::DType::U8, vec![count], tapml_graph::Bytes::new(vec![7; count])).unwrap()
    }

    #[test]
    fn weights_are_uploaded_once_and_the_longest_unused_go_first() {
        let mut device = NullDevice::new(Limits::WEBGPU, Features::default());
        let (a, b, c) = (bytes(600), bytes(300), bytes(399));
        let mut weights = WeightBuffers::new(1200);
        let mut get = |weights: &mut WeightBuffers, name, tensor| {
            weights.start();
            weights.get(&mut device, name, tensor, (0, 0)).unwrap()
        };
        let (first, second) = (get(&mut weights, "a", &a), get(&mut weights, "b", &b));
        assert_eq!((get(&mut weights, "a", &a), get(&mut weights, "b", &b)), (first, second));
        get(&mut weights, "c", &c);
        assert_eq!(weights.used, 300 + 400, "`a` is the longest unused");
        assert_eq!(get(&mut weights, "b", &b), second);
        assert_ne!(get(&mut weights, "b", &bytes(300)), second, "another tensor of the same name");
        weights.clear(&mut device).unwrap();
        assert_eq!((weights.used, device.memory().0), (0, 0));
    }

    #[test]
    fn what_a_turn_uses_stays_and_ranges_are_buffers_of_their_own() {
        let mut device = NullDevice::new(Limits::WEBGPU, Features::default());
        let tensor = bytes(1000);
        let mut weights = WeightBuffers::new(600);
        weights.start();
        let low = weights.get(&mut device, "w", &tensor, (0, 512)).unwrap();
        let high = weights.get(&mut device, "w", &tensor, (512, 0)).unwrap();
        assert_ne!(low, high);
        assert_eq!((weights.used, weights.get(&mut device, "w", &tensor, (0, 512)).unwrap()), (1000, low));
        assert!(weights.get(&mut device, "w", &tensor, (512, 489)).is_err());
        assert!(weights.get(&mut device, "w", &tensor, (2000, 0)).is_err());
    }
}
