//! Transfers between a program's memory and the device, by way of pinned memory: a write returns as soon as its bytes were
//! copied aside, and large transfers copy one part while the device moves another.
//!
//! A part is free again when its event has passed. So a write waits only if all parts are under way.

use crate::driver::{CudaMemory, Driver, Event, Pinned};
use crate::error::CudaResult;
use std::sync::Arc;

/// Bytes of one part. Two of them reach a bus's full speed, and small writes fill one before any has to wait.
const PART: usize = 4 << 20;
// More than two, so that small writes go on while a large part is on the bus.
const PARTS: usize = 4;

/// Pinned memory in parts, used in turn.
pub(crate) struct Staging {
    driver: Arc<Driver>,
    /// All parts in one piece.
    pinned: Pinned,
    /// Behind the last use of each part.
    free: Vec<Event>,
    /// The current part.
    part: usize,
    /// Bytes of the current part that are in use.
    used: usize,
}

impl Staging {
    /// 16 MiB of pinned memory for each device.
    pub(crate) fn new(driver: &Arc<Driver>) -> CudaResult<Staging> {
        let free = (0..PARTS).map(|_| driver.event()).collect::<CudaResult<_>>()?;
        let pinned = driver.allocate_pinned(PART * PARTS)?;
        Ok(Staging { driver: Arc::clone(driver), pinned, free, part: 0, used: 0 })
    }

    /// Writes bytes that fit behind `offset`.
    pub(crate) fn write(&mut self, memory: &CudaMemory, offset: u64, data: &[u8]) -> CudaResult {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            if self.used == PART {
                self.next_part()?;
            }
            let (now, later) = rest.split_at(rest.len().min(PART - self.used));
            let place = self.part * PART + self.used;
            self.pinned.put(place, now);
            self.driver.upload(memory, at, &self.pinned, place, now.len())?;
            // Multiples of 16: copies from aligned memory are the fastest.
            self.used = (self.used + now.len()).next_multiple_of(16).min(PART);
            (at, rest) = (at + now.len() as u64, later);
        }
        Ok(())
    }

    /// Waits for all work so far and reads bytes that lie behind `offset`.
    pub(crate) fn read(&mut self, memory: &CudaMemory, offset: u64, out: &mut [u8]) -> CudaResult {
        let mut pending: Option<(usize, &mut [u8])> = None;
        let mut at = offset;
        for piece in out.chunks_mut(PART) {
            self.next_part()?;
            let place = self.part * PART;
            self.driver.download(memory, at, &self.pinned, place, piece.len())?;
            self.free[self.part].record()?;
            // A part that was read into is not written to before it is free again.
            self.used = PART;
            at += piece.len() as u64;
            // One part is copied out while the device fills the next.
            if let Some((part, piece)) = pending.replace((self.part, piece)) {
                self.collect(part, piece)?;
            }
        }
        pending.map_or(Ok(()), |(part, piece)| self.collect(part, piece))
    }

    /// Waits for a part and copies it out.
    fn collect(&self, part: usize, piece: &mut [u8]) -> CudaResult {
        self.free[part].wait()?;
        self.pinned.take(part * PART, piece);
        Ok(())
    }

    /// Goes on with the next part once the device is done with it.
    fn next_part(&mut self) -> CudaResult {
        self.free[self.part].record()?;
        self.part = (self.part + 1) % PARTS;
        self.used = 0;
        self.free[self.part].wait()
    }
}
