//! Loads and stores: clamped addresses, with fast paths for neighbouring lanes on neighbouring words.
//!
//! No address leaves its range: indices are clamped to the array, and what is still outside reads the last word or is not written.
//! Unsynchronised accesses of other threads are relaxed atomics, so a race in a kernel is no undefined behaviour here.

use super::active::Active;
use super::chunk::{Chunk, ChunkView, simd};
use super::env::{BufferView, Env};
use super::{Vm, half};
use crate::code::{Access, IndexBound, Inst, LANES, Mem, Reg};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Words of memory, however they are held.
///
/// The three kinds are read-only buffers, buffers that may be written, and workgroup memory.
pub trait Words: Copy {
    /// Number of words.
    fn len(self) -> usize;
    /// The word at `i`, which is less than `len`.
    fn get(self, i: usize) -> u32;
    /// The words from `i` on.
    /// There must be four of them.
    fn four(self, i: usize) -> [u32; 4];
}

/// Words that can be written.
///
/// These are shared slices too: lanes and threads write to one memory.
pub trait WordsMut: Words {
    /// Replaces a word.
    fn set(self, i: usize, value: u32);
    /// Replaces the bits of `mask` only.
    /// Another thread may change the other half of the word at the same time.
    fn set_bits(self, i: usize, value: u32, mask: u32);
}

impl Words for &[u32] {
    #[inline(always)]
    fn len(self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn get(self, i: usize) -> u32 {
        self[i]
    }

    #[inline(always)]
    fn four(self, i: usize) -> [u32; 4] {
        let run = &self[i..i + 4];
        [run[0], run[1], run[2], run[3]]
    }
}

impl Words for &[AtomicU32] {
    #[inline(always)]
    fn len(self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn get(self, i: usize) -> u32 {
        self[i].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn four(self, i: usize) -> [u32; 4] {
        let run = &self[i..i + 4];
        std::array::from_fn(|k| run[k].load(Ordering::Relaxed))
    }
}

// Relaxed: WGSL gives no order to plain accesses, and atomics have instructions of their own.
impl WordsMut for &[AtomicU32] {
    #[inline(always)]
    fn set(self, i: usize, value: u32) {
        self[i].store(value, Ordering::Relaxed);
    }

    fn set_bits(self, i: usize, value: u32, mask: u32) {
        let merge = |old: u32| Some((old & !mask) | (value & mask));
        // The closure never declines, so the update always succeeds.
        let _ = self[i].fetch_update(Ordering::Relaxed, Ordering::Relaxed, merge);
    }
}

impl Words for &[Cell<u32>] {
    #[inline(always)]
    fn len(self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn get(self, i: usize) -> u32 {
        self[i].get()
    }

    #[inline(always)]
    fn four(self, i: usize) -> [u32; 4] {
        let run = &self[i..i + 4];
        std::array::from_fn(|k| run[k].get())
    }
}

impl WordsMut for &[Cell<u32>] {
    #[inline(always)]
    fn set(self, i: usize, value: u32) {
        self[i].set(value);
    }

    fn set_bits(self, i: usize, value: u32, mask: u32) {
        self[i].set((self[i].get() & !mask) | (value & mask));
    }
}

/// An access with its bound looked up: addresses are `min(index, last) * scale + offset`.
///
/// Units are words, or halves of words if `half`.
#[derive(Clone, Copy)]
pub struct BoundAddress {
    /// The highest index.
    pub last: u32,
    pub scale: u32,
    pub offset: u32,
    pub half: bool,
}

impl BoundAddress {
    /// The address of an index. It wraps instead of overflowing; accesses check it against the memory's length.
    #[inline(always)]
    pub fn resolve(self, index: u32) -> u32 {
        index.min(self.last).wrapping_mul(self.scale).wrapping_add(self.offset)
    }

    /// The address of the `n`-th scalar of the same element.
    #[inline(always)]
    fn plus(self, n: u32) -> BoundAddress {
        BoundAddress { offset: self.offset + n, ..self }
    }
}

/// One scalar; past the end the last word is read.
#[inline(always)]
fn read<W: Words>(words: W, address: u32, is_half: bool) -> u32 {
    let last = words.len().saturating_sub(1);
    if is_half {
        half::from_bits(words.get((address as usize / 2).min(last)) >> (16 * (address & 1)) & 0xffff)
    } else {
        words.get((address as usize).min(last))
    }
}

/// Whether lane `i` asks for index `first + i * step`, none of them clamped.
/// `step` is at most 2.
#[inline(always)]
fn is_stepped(index: Chunk, step: u32, last: u32) -> bool {
    let first = index.0[0];
    let mut wrong = 0;
    for (i, x) in index.0.into_iter().enumerate() {
        wrong |= x ^ first.wrapping_add(i as u32 * step);
    }
    wrong == 0 && first <= last && last - first >= (LANES as u32 - 1) * step
}

/// Loads one scalar per lane. Equal indices and neighbours at distance 1 or 2, the common patterns, have loops of their own.
/// `low` and `high` are the chunks with an active lane.
#[inline(always)]
fn load<W: Words>(
    words: W,
    d: ChunkView<'_>,
    at: ChunkView<'_>,
    address: BoundAddress,
    low: usize,
    high: usize,
) {
    if !d.varying {
        d.set(0, Chunk::splat(read(words, address.resolve(at.get(0).0[0]), address.half)));
        return;
    }
    for c in low..high {
        let index = at.get(c);
        let first = address.resolve(index.0[0]) as usize;
        // Falling indices give a huge step and take the slow path.
        let step = index.0[1].wrapping_sub(index.0[0]);
        let mut out = [0; LANES];
        let plain = step <= 2 && is_stepped(index, step, address.last);
        if plain && step == 0 {
            d.set(c, Chunk::splat(read(words, first as u32, address.half)));
            continue;
        }
        // Two halves share a word, so addresses are no indices of words.
        let plain = plain && !address.half;
        // Words between the lanes' addresses.
        let stride = step.wrapping_mul(address.scale) as usize;
        if plain && stride == 1 && first + LANES <= words.len() {
            for (i, o) in out.iter_mut().enumerate() {
                *o = words.get(first + i);
            }
        } else if plain && stride == 2 && first + 2 * LANES <= words.len() {
            for (i, o) in out.iter_mut().enumerate() {
                *o = words.get(first + 2 * i);
            }
        } else {
            let places = index.map(|x| address.resolve(x));
            for (o, place) in out.iter_mut().zip(places.0) {
                *o = read(words, place, address.half);
            }
        }
        d.set(c, Chunk(out));
    }
}

/// Loads runs of up to four words, such as vectors: one address per lane.
/// Inactive lanes are loaded too: their index is clamped like any other, and nobody reads the value.
/// `d` has a view for each word of the run.
#[inline(always)]
fn load_run<W: Words>(
    words: W,
    d: [ChunkView<'_>; 4],
    count: usize,
    at: ChunkView<'_>,
    address: BoundAddress,
    low: usize,
    high: usize,
) {
    for c in low..high {
        let places = at.get(c).map(|x| address.resolve(x));
        let mut out = [[0; LANES]; 4];
        let highest = places.0.into_iter().fold(0, u32::max) as usize;
        if highest + 4 <= words.len() {
            // The fourth word is read even of a shorter run, which is cheaper than a loop of unknown length.
            for four in 0..LANES / 4 {
                let runs = std::array::from_fn(|i| words.four(places.0[4 * four + i] as usize));
                for (out, lanes) in out.iter_mut().zip(transpose(runs)) {
                    out[4 * four..4 * four + 4].copy_from_slice(&lanes);
                }
            }
        } else {
            for (i, first) in places.0.into_iter().enumerate() {
                (0..count).for_each(|k| out[k][i] = read(words, first.wrapping_add(k as u32), false));
            }
        }
        for k in 0..count {
            d[k].set(c, Chunk(out[k]));
        }
    }
}

/// Word `k` of each of four runs, for each `k`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(unsafe_code)]
fn transpose(runs: [[u32; 4]; 4]) -> [[u32; 4]; 4] {
    use std::arch::x86_64::{
        __m128i, _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi32, _mm_unpacklo_epi64,
    };
    let [a, b, c, d] = runs.map(bytemuck::cast::<[u32; 4], __m128i>);
    // SAFETY: every CPU of the architecture has these instructions.
    let columns = unsafe {
        let (low_ab, high_ab) = (_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
        let (low_cd, high_cd) = (_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
        [
            _mm_unpacklo_epi64(low_ab, low_cd),
            _mm_unpackhi_epi64(low_ab, low_cd),
            _mm_unpacklo_epi64(high_ab, high_cd),
            _mm_unpackhi_epi64(high_ab, high_cd),
        ]
    };
    columns.map(bytemuck::cast)
}

/// Word `k` of each of four runs, for each `k`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn transpose(runs: [[u32; 4]; 4]) -> [[u32; 4]; 4] {
    std::array::from_fn(|k| runs.map(|run| run[k]))
}

/// Where a load goes, and from which addresses.
///
/// Views beyond `count` repeat the last one and are not written.
#[derive(Clone, Copy)]
struct Target<'a> {
    d: [ChunkView<'a>; 4],
    count: usize,
    at: ChunkView<'a>,
    address: BoundAddress,
    low: usize,
    high: usize,
}

/// Vectors with an address per lane go as runs; the rest goes scalar by scalar.
#[inline(always)]
fn load_any<W: Words>(words: W, to: Target<'_>) {
    let Target { d, count, at, address, low, high } = to;
    if count > 1 && at.varying && !address.half {
        return load_run(words, d, count, at, address, low, high);
    }
    for (k, &d) in d[..count].iter().enumerate() {
        load(words, d, at, address.plus(k as u32), low, high);
    }
}

simd! { fn load_read<'a>(isa: Isa, words: &'a [u32], to: Target<'a>) { load_any(words, to) } }
simd! { fn load_atomic<'a>(isa: Isa, words: &'a [AtomicU32], to: Target<'a>) { load_any(words, to) } }
simd! { fn load_shared<'a>(isa: Isa, words: &'a [Cell<u32>], to: Target<'a>) { load_any(words, to) } }
simd! { fn index<'a>(isa: Isa, d: ChunkView<'a>, a: ChunkView<'a>, last: u32, low: usize, high: usize) {
    for c in low..high {
        d.set(c, a.get(c).map(|x| x.min(last)));
    }
} }

/// One scalar; past the end nothing is written.
#[inline(always)]
fn write<W: WordsMut>(words: W, address: u32, value: u32, is_half: bool) {
    if is_half {
        let i = address as usize / 2;
        if i < words.len() {
            let shift = 16 * (address & 1);
            words.set_bits(i, half::to_bits(value) << shift, 0xffff << shift);
        }
    } else if (address as usize) < words.len() {
        words.set(address as usize, value);
    }
}

/// Stores in active lanes, in order of the lanes, so that the last of several at one address stays.
/// Neighbours that store to neighbouring words take a loop without addresses.
#[inline(always)]
fn store<W: WordsMut>(words: W, s: ChunkView<'_>, at: ChunkView<'_>, address: BoundAddress, active: &Active) {
    if !at.varying && !s.varying {
        // All lanes write one value to one place.
        return write(words, address.resolve(at.get(0).0[0]), s.get(0).0[0], address.half);
    }
    for c in active.low..active.high {
        let (index, value, mask) = (at.get(c), s.get(c), active.chunk(c));
        let places = index.map(|x| address.resolve(x));
        let first = places.0[0] as usize;
        // A full chunk needs no look at single lanes.
        let all = mask.any_all().1 == !0;
        let plain = all && !address.half && address.scale == 1;
        if plain && first + LANES <= words.len() && is_stepped(index, 1, address.last) {
            for (i, x) in value.0.into_iter().enumerate() {
                words.set(first + i, x);
            }
        } else if all {
            for (place, x) in places.0.into_iter().zip(value.0) {
                write(words, place, x, address.half);
            }
        } else {
            for i in (0..LANES).filter(|&i| mask.0[i] != 0) {
                write(words, places.0[i], value.0[i], address.half);
            }
        }
    }
}

simd! {
    fn store_atomic<'a>(
        isa: Isa, words: &'a [AtomicU32], s: ChunkView<'a>, at: ChunkView<'a>, address: BoundAddress, active: &'a Active,
    ) {
        store(words, s, at, address, active);
    }
}
simd! {
    fn store_shared<'a>(
        isa: Isa, words: &'a [Cell<u32>], s: ChunkView<'a>, at: ChunkView<'a>, address: BoundAddress, active: &'a Active,
    ) {
        store(words, s, at, address, active);
    }
}

impl Vm<'_> {
    /// The bound of an index, less one.
    #[inline(always)]
    pub fn last(&self, env: &Env<'_>, bound: IndexBound) -> u32 {
        match bound {
            IndexBound::Static(n) => n.saturating_sub(1),
            IndexBound::Runtime(slot) => env.lengths[slot as usize].saturating_sub(1),
        }
    }

    /// An access with its bound looked up.
    #[inline(always)]
    pub fn address(&self, env: &Env<'_>, access: &Access) -> BoundAddress {
        let Access { scale, offset, half, bound, .. } = *access;
        BoundAddress { last: self.last(env, bound), scale, offset, half }
    }

    /// Loads, stores and index clamps.
    #[inline(always)]
    pub(super) fn access(&self, env: &Env<'_>, inst: &Inst) {
        match *inst {
            Inst::Load { d, at, access } => self.load(env, d, at, &self.code.accesses[access as usize]),
            Inst::Store { s, at, access } => self.store(env, s, at, &self.code.accesses[access as usize]),
            Inst::Index { d, a, bound } => {
                let (low, high) = self.range(d);
                index(self.isa, self.view(d), self.view(a), self.last(env, bound), low, high);
            }
            _ => {}
        }
    }

    /// Chooses the kind of memory outside the loops over lanes.
    fn load(&self, env: &Env<'_>, d: Reg, at: Reg, access: &Access) {
        let (low, high) = self.range(d);
        let count = access.count as usize;
        // Views beyond the count repeat the last register, so that none lies past the end.
        let target = |k: u32| self.view(d.offset(k.min(access.count - 1)));
        let d = [target(0), target(1), target(2), target(3)];
        let to = Target { d, count, at: self.view(at), address: self.address(env, access), low, high };
        match access.mem {
            Mem::Workgroup => load_shared(self.isa, &self.shared, to),
            Mem::Binding(b) => match env.buffers[b as usize] {
                BufferView::Read(words) => load_read(self.isa, words, to),
                BufferView::Write(words) => load_atomic(self.isa, words, to),
            },
        }
    }

    /// A store to a read-only buffer does nothing; valid kernels have none.
    fn store(&self, env: &Env<'_>, s: Reg, at: Reg, access: &Access) {
        if self.active.is_empty() {
            return;
        }
        let (s, at, address) = (self.view(s), self.view(at), self.address(env, access));
        match access.mem {
            Mem::Workgroup => store_shared(self.isa, &self.shared, s, at, address, &self.active),
            Mem::Binding(b) => {
                if let BufferView::Write(words) = env.buffers[b as usize] {
                    store_atomic(self.isa, words, s, at, address, &self.active);
                }
            }
        }
    }
}
