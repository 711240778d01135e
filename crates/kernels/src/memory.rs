//! Buffers by lifetime: whole buffers are reused, never ranges of one, because WebGPU forbids a dispatch that reads and
//! writes one buffer.
//!
//! Buffers are planned in the order in which nodes run. A buffer that is given back may serve the next node; the
//! device runs dispatches in order, so that its old content has been read by then.

use crate::program::{BufferPlan, Content};
use std::collections::HashMap;
use tapml_graph::{Error, Result};

/// The buffers of a program being compiled. Buffers of activations return to a free list when given back.
pub struct Buffers {
    /// All buffers, used or free, by index.
    plans: Vec<BufferPlan>,
    /// The buffer of each distinct constant.
    constants: HashMap<Vec<u8>, u32>,
    /// Activations whose lifetime has ended.
    free: Vec<u32>,
    /// Whether buffers return to `free`.
    reuse: bool,
    /// The largest size, in bytes, that the device can bind and allocate.
    limit: u64,
}

impl Buffers {
    /// No buffers. None may be larger than `limit`; activations share buffers if `reuse`.
    pub fn new(reuse: bool, limit: u64) -> Buffers {
        Buffers { plans: Vec::new(), constants: HashMap::new(), free: Vec::new(), reuse, limit }
    }

    /// A buffer of its own, of at least 4 bytes.
    /// It never becomes free. Returns its index.
    pub fn add(&mut self, name: &str, size: u64, content: Content) -> Result<u32> {
        let size = self.round_size(name, size)?;
        self.plans.push(BufferPlan { name: name.into(), size, content });
        Ok(self.plans.len() as u32 - 1)
    }

    /// The buffer that holds these constant bytes; equal bytes share one.
    pub fn constant(&mut self, bytes: &[u8]) -> Result<u32> {
        if let Some(&known) = self.constants.get(bytes) {
            return Ok(known);
        }
        let name = format!("constant.{}", self.constants.len());
        let index = self.add(&name, bytes.len() as u64, Content::Constant(bytes.to_vec()))?;
        self.constants.insert(bytes.to_vec(), index);
        Ok(index)
    }

    /// A buffer for an intermediate value: the free one that wastes least, or the largest free one made larger, or a new
    /// one. `name` is used in errors.
    ///
    /// This is best fit with growth: a buffer's final size is the largest that any of its values takes.
    ///
    /// # Errors
    /// `Unsupported` with the limit in its details if the size is beyond it.
    pub fn take(&mut self, name: &str, size: u64) -> Result<u32> {
        let size = self.round_size(name, size)?;
        let have = |&i: &u32| self.plans[i as usize].size;
        // Of equal sizes the first that became free is taken, so that equal graphs give equal programs.
        let fitting = self.free.iter().copied().filter(|i| have(i) >= size).min_by_key(have);
        let Some(index) = fitting.or_else(|| self.free.iter().copied().max_by_key(have)) else {
            let name = format!("activation.{}", self.plans.len());
            return self.add(&name, size, Content::Activation);
        };
        self.free.retain(|&i| i != index);
        let plan = &mut self.plans[index as usize];
        // Sizes only grow, so that values placed in it before still fit.
        plan.size = plan.size.max(size);
        Ok(index)
    }

    /// Ends the lifetime of what [`Buffers::take`] gave.
    /// The same index must not be given back twice.
    pub fn give(&mut self, index: u32) {
        if self.reuse {
            self.free.push(index);
        }
    }

    /// The size of a buffer so far.
    /// It may still grow while activations are placed.
    pub fn size(&self, index: u32) -> u64 {
        self.plans[index as usize].size
    }

    /// All buffers.
    pub fn finish(self) -> Vec<BufferPlan> {
        self.plans
    }

    /// At least one word, in whole words: a buffer of zero bytes cannot be bound.
    fn round_size(&self, name: &str, size: u64) -> Result<u64> {
        if size > self.limit {
            let text = format!("`{name}` takes {size} bytes, the device binds at most {}", self.limit);
            return Err(Error::unsupported(text)
                .with_detail("tensor", name)
                .with_detail("limit", "max_binding_size")
                .with_detail("asked", size.to_string())
                .with_detail("offered", self.limit.to_string())
                .with_hint("compile for fewer tokens at a time"));
        }
        Ok(size.max(4).next_multiple_of(4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_fitting_free_buffer_is_taken() {
        let mut buffers = Buffers::new(true, 1000);
        let taken: Vec<u32> = [100, 400, 200].iter().map(|&s| buffers.take("a", s).unwrap()).collect();
        taken.iter().for_each(|&i| buffers.give(i));
        assert_eq!(buffers.take("b", 150).unwrap(), taken[2]);
        assert_eq!(buffers.take("b", 150).unwrap(), taken[1]);
        assert_eq!(buffers.take("b", 150).unwrap(), taken[0], "grown");
        assert_eq!(buffers.size(taken[0]), 152);
        assert_eq!(buffers.take("b", 7).unwrap(), 3);
    }

    #[test]
    fn without_reuse_every_value_has_its_buffer() {
        let mut buffers = Buffers::new(false, 1000);
        let first = buffers.take("a", 8).unwrap();
        buffers.give(first);
        assert_ne!(buffers.take("b", 8).unwrap(), first);
    }

    #[test]
    fn a_value_beyond_the_limit_is_unsupported() {
        let error = Buffers::new(true, 1000).take("logits", 1001).unwrap_err();
        assert_eq!(error.kind(), tapml_graph::ErrorKind::Unsupported);
        assert_eq!(error.detail("asked"), Some("1001"));
    }
}
