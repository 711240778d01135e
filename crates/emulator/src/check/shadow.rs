//! Shadow memory: what is known about every word besides its value.
//!
//! Two non-atomic accesses race if at least one writes, nothing orders them, and different invocations make them. Barriers order
//! invocations of one workgroup; nothing orders workgroups within a dispatch.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Which 16-bit halves of a buffer's words were ever written.
///
/// Kernels set bits through a shared reference, from all threads; the host changes them between dispatches.
pub struct WrittenHalves {
    /// Two bits per word, low half first.
    bits: Vec<AtomicU32>,
    words: usize,
    /// Whether all are known to be written, so that nothing needs a look.
    full: bool,
}

/// Two bits per word in an entry of 32 bits.
const WORDS_PER_ENTRY: usize = 16;

impl WrittenHalves {
    /// Nothing written yet.
    pub fn new(words: usize) -> WrittenHalves {
        let entries = words.div_ceil(WORDS_PER_ENTRY);
        WrittenHalves { bits: (0..entries).map(|_| AtomicU32::new(0)).collect(), words, full: false }
    }

    /// Whether every half is written. Found out once per dispatch, since it is asked once per access.
    pub fn is_full(&mut self) -> bool {
        if !self.full {
            let whole = self.words / WORDS_PER_ENTRY;
            let rest = self.words % WORDS_PER_ENTRY;
            let entries_full = self.bits[..whole].iter_mut().all(|e| *e.get_mut() == u32::MAX);
            // `rest` is below 16, so the shift is below 32.
            let mask = (1_u32 << (2 * rest)) - 1;
            // The last entry may have bits beyond the buffer.
            self.full = entries_full && (rest == 0 || *self.bits[whole].get_mut() & mask == mask);
        }
        self.full
    }

    /// Whether [`WrittenHalves::is_full`] found that every half is written.
    pub fn known_full(&self) -> bool {
        self.full
    }

    /// The host writes these bytes.
    pub fn write_bytes(&mut self, bytes: Range<u64>) {
        let halves = (bytes.start / 2) as usize..bytes.end.div_ceil(2) as usize;
        self.set_halves(halves, true);
    }

    /// The content becomes meaningless (`false`), or a known value (`true`).
    pub fn set_all(&mut self, written: bool) {
        self.set_halves(0..self.words * 2, written);
    }

    /// Sets or clears a range of halves, entry by entry.
    fn set_halves(&mut self, halves: Range<usize>, written: bool) {
        self.full &= written;
        let mut at = halves.start;
        while at < halves.end {
            let end = halves.end.min((at / 32 + 1) * 32);
            // A shift by 32 would overflow.
            let ones = if end - at == 32 { u32::MAX } else { ((1_u32 << (end - at)) - 1) << (at % 32) };
            let entry = self.bits[at / 32].get_mut();
            *entry = if written { *entry | ones } else { *entry & !ones };
            at = end;
        }
    }

    /// Takes over the state of another buffer's words.
    pub fn copy_words(&mut self, to: usize, other: &WrittenHalves, from: usize, words: usize) {
        for i in 0..words {
            let bits = other.bits[(from + i) / WORDS_PER_ENTRY].load(Ordering::Relaxed)
                >> (2 * ((from + i) % 16))
                & 3;
            let shift = 2 * ((to + i) % WORDS_PER_ENTRY);
            let entry = self.bits[(to + i) / WORDS_PER_ENTRY].get_mut();
            *entry = (*entry & !(3 << shift)) | (bits << shift);
        }
        // It may be full all the same; the next look finds out.
        self.full = false;
    }

    /// A kernel writes `count` halves from `half` on; `count` is 1 or 2 and does not cross a word.
    pub fn set(&self, half: usize, count: u32) {
        let mask = ((1 << count) - 1) << (half % 32);
        let entry = &self.bits[half / 32];
        // Most writes repeat earlier ones; a load keeps the cache line shared.
        if entry.load(Ordering::Relaxed) & mask != mask {
            entry.fetch_or(mask, Ordering::Relaxed);
        }
    }

    /// Whether `count` halves from `half` on are written.
    pub fn is_set(&self, half: usize, count: u32) -> bool {
        let mask = ((1 << count) - 1) << (half % 32);
        self.bits[half / 32].load(Ordering::Relaxed) & mask == mask
    }
}

/// Who touches memory: a workgroup, the number of barriers it passed, and one of its invocations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    /// Linear index of the workgroup in the dispatch.
    pub group: u32,
    pub epoch: u16,
    pub lane: u16,
}

/// Stands for several invocations or several workgroups.
/// A workgroup has fewer lanes than this.
const MANY_LANES: u16 = u16::MAX;
const MANY_GROUPS: u32 = u32::MAX;

impl Who {
    /// One word, so that a record is replaced by one atomic instruction.
    fn pack(self) -> u64 {
        // Groups count from 1, so that 0 is nobody.
        (u64::from(self.group.wrapping_add(1).max(1)) << 32)
            | (u64::from(self.epoch) << 16)
            | u64::from(self.lane)
    }

    /// `None` for a place that nobody touched.
    fn unpack(bits: u64) -> Option<Who> {
        let group = (bits >> 32) as u32;
        (bits != 0).then_some(Who {
            group: group.wrapping_sub(1),
            epoch: (bits >> 16) as u16,
            lane: bits as u16,
        })
    }

    /// Whether an earlier access by `self` is unordered with one by `now`.
    fn conflicts(self, now: Who) -> Option<Conflict> {
        if self.group != now.group {
            return Some(Conflict::AcrossGroups(self));
        }
        (self.epoch == now.epoch && self.lane != now.lane).then_some(Conflict::WithinGroup(self))
    }

    /// One record for two readers.
    /// The merged record conflicts with whatever one of the two would conflict with, but names neither.
    fn and(self, other: Who) -> Who {
        if self.group != other.group {
            return Who { group: MANY_GROUPS - 1, ..other };
        }
        let same = self.epoch == other.epoch && self.lane != other.lane;
        Who { lane: if same { MANY_LANES } else { other.lane }, ..other }
    }

    /// The other party in words.
    pub fn describe(self) -> String {
        match (self.group, self.lane) {
            (g, _) if g == MANY_GROUPS - 1 => "several workgroups".into(),
            (_, MANY_LANES) => "several invocations".into(),
            (_, lane) => format!("invocation {lane}"),
        }
    }
}

/// Two unordered accesses, with the earlier party.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conflict {
    WithinGroup(Who),
    AcrossGroups(Who),
}

/// The last accesses to every half word of a buffer during one dispatch, for all workgroups.
///
/// Only the last writer is kept, and readers are merged, so some races are found at another access or not at all.
pub struct Accesses {
    /// By half of a word; 0 is nobody, else a packed [`Who`].
    writers: Vec<AtomicU64>,
    readers: Vec<AtomicU64>,
}

impl Accesses {
    /// No accesses yet.
    pub fn new(words: usize) -> Accesses {
        let zeros = || (0..words * 2).map(|_| AtomicU64::new(0)).collect();
        Accesses { writers: zeros(), readers: zeros() }
    }

    /// A non-atomic write. Each access is recorded before it looks for others, so of two that run at the same time at
    /// least one sees the other.
    pub fn write(&self, half: usize, now: Who) -> Option<Conflict> {
        let before = Who::unpack(self.writers[half].swap(now.pack(), Ordering::SeqCst));
        let reader = Who::unpack(self.readers[half].load(Ordering::SeqCst));
        let conflict = |who: Option<Who>| who.and_then(|w| w.conflicts(now));
        conflict(before).or_else(|| conflict(reader))
    }

    /// A non-atomic read.
    pub fn read(&self, half: usize, now: Who) -> Option<Conflict> {
        let seen = self.readers[half].load(Ordering::Relaxed);
        // Repeated reads by one invocation change nothing.
        if seen != now.pack() {
            let merge = |old: u64| Some(Who::unpack(old).map_or(now, |w| w.and(now)).pack());
            // The closure never declines, so the update always succeeds.
            let _ = self.readers[half].fetch_update(Ordering::SeqCst, Ordering::SeqCst, merge);
        }
        Who::unpack(self.writers[half].load(Ordering::SeqCst)).and_then(|w| w.conflicts(now))
    }
}

/// The state of one word of workgroup memory.
/// Records are packed [`Who`]s; 0 is nobody.
#[derive(Clone, Copy, Default)]
struct Word {
    written: bool,
    writer: u64,
    reader: u64,
}

/// Shadow of workgroup memory; one machine's own.
#[derive(Default)]
pub struct WorkgroupShadow {
    words: Vec<Word>,
}

impl WorkgroupShadow {
    /// A new workgroup: nothing written, nothing accessed.
    /// WGSL's zeros do not count as written: a read of them is what the check reports.
    pub fn reset(&mut self, words: usize) {
        self.words.clear();
        self.words.resize(words, Word::default());
    }

    /// A write; `None` for `who` is an atomic one, which races with nothing.
    pub fn write(&mut self, at: usize, who: Option<Who>) -> Option<Conflict> {
        let word = self.words.get_mut(at)?;
        // Also by atomics, which do give the word a value.
        word.written = true;
        let now = who?;
        let conflict = |bits: u64| Who::unpack(bits).and_then(|w| w.conflicts(now));
        let found = conflict(word.writer).or_else(|| conflict(word.reader));
        word.writer = now.pack();
        found
    }

    /// A non-atomic read.
    pub fn read(&mut self, at: usize, now: Who) -> Option<Conflict> {
        let word = self.words.get_mut(at)?;
        word.reader = Who::unpack(word.reader).map_or(now, |w| w.and(now)).pack();
        Who::unpack(word.writer).and_then(|w| w.conflicts(now))
    }

    /// Whether the word was written since the workgroup started.
    pub fn is_written(&self, at: usize) -> bool {
        self.words.get(at).is_none_or(|w| w.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_writes_cover_whole_and_half_words() {
        let mut written = WrittenHalves::new(40);
        written.write_bytes(2..70);
        assert!(
            !written.is_set(0, 1) && written.is_set(1, 1) && written.is_set(34, 1) && !written.is_set(35, 1)
        );
        assert!(!written.is_full());
        written.set_all(true);
        assert!(written.is_full());
        written.set_all(false);
        assert!(!written.is_full() && !written.is_set(7, 1));
        let mut other = WrittenHalves::new(40);
        other.write_bytes(0..8);
        written.copy_words(30, &other, 1, 4);
        assert!(written.is_set(60, 2) && !written.is_set(62, 2));
    }

    #[test]
    fn conflicts_need_one_epoch_or_two_groups() {
        let who = |group, epoch, lane| Who { group, epoch, lane };
        let map = Accesses::new(4);
        assert_eq!(map.write(0, who(0, 0, 3)), None);
        assert_eq!(map.read(0, who(0, 0, 3)), None);
        assert_eq!(map.read(0, who(0, 1, 4)), None);
        assert!(matches!(map.read(0, who(0, 0, 5)), Some(Conflict::WithinGroup(w)) if w.lane == 3));
        assert!(matches!(map.write(0, who(1, 0, 3)), Some(Conflict::AcrossGroups(_))));
        assert_eq!(map.read(2, who(7, 2, 0)), None);
        assert_eq!(map.read(2, who(7, 2, 1)), None);
        assert!(matches!(map.write(2, who(7, 2, 1)), Some(Conflict::WithinGroup(_))));
        assert_eq!(map.write(2, who(7, 3, 1)), None);
    }
}
