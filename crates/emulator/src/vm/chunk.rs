//! Chunks of lanes, register views, and the dispatch of hot loops to the CPU's vector width.
//!
//! Loops over the 16 lanes of a chunk have a fixed length, which is what makes the compiler turn them into vector instructions.

use crate::code::LANES;
use std::cell::Cell;

/// The values of 16 neighbouring invocations.
///
/// It is aligned to a cache line of 64 bytes, so that a chunk is read by one aligned vector load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct Chunk(pub [u32; LANES]);

impl Chunk {
    /// All lanes 0, which is an empty mask too.
    pub const ZERO: Chunk = Chunk([0; LANES]);

    /// The same value in all lanes.
    #[inline(always)]
    pub fn splat(value: u32) -> Chunk {
        Chunk([value; LANES])
    }

    /// Applies `f` to each lane.
    #[inline(always)]
    pub fn map(self, f: impl Fn(u32) -> u32) -> Chunk {
        let mut out = [0; LANES];
        for (o, x) in out.iter_mut().zip(self.0) {
            *o = f(x);
        }
        Chunk(out)
    }

    /// Applies `f` to the lanes of two chunks.
    #[inline(always)]
    pub fn zip(self, other: Chunk, f: impl Fn(u32, u32) -> u32) -> Chunk {
        let mut out = [0; LANES];
        for (o, (x, y)) in out.iter_mut().zip(self.0.into_iter().zip(other.0)) {
            *o = f(x, y);
        }
        Chunk(out)
    }

    /// Applies `f` to the lanes of three chunks.
    #[inline(always)]
    pub fn zip3(self, b: Chunk, c: Chunk, f: impl Fn(u32, u32, u32) -> u32) -> Chunk {
        let mut out = [0; LANES];
        for (o, (x, (y, z))) in out.iter_mut().zip(self.0.into_iter().zip(b.0.into_iter().zip(c.0))) {
            *o = f(x, y, z);
        }
        Chunk(out)
    }

    /// `self` where `mask` is set, `other` elsewhere.
    #[inline(always)]
    pub fn blend(self, other: Chunk, mask: Chunk) -> Chunk {
        self.zip3(other, mask, |x, y, m| (x & m) | (y & !m))
    }

    /// All lanes or-ed, and all lanes and-ed.
    /// For a mask: nonzero if any lane is set, and all ones if every lane is.
    #[inline(always)]
    pub fn any_all(&self) -> (u32, u32) {
        let (mut any, mut all) = (0, !0);
        for x in self.0 {
            any |= x;
            all &= x;
        }
        (any, all)
    }
}

/// The chunks of one register; a uniform register has one chunk that stands for all.
///
/// Lanes and chunks are numbered within the workgroup.
#[derive(Clone, Copy)]
pub struct ChunkView<'a> {
    /// One chunk if uniform, else all of the workgroup.
    pub chunks: &'a [Cell<Chunk>],
    /// Whether lanes have values of their own.
    pub varying: bool,
}

impl ChunkView<'_> {
    /// A chunk. Every chunk of a uniform register is the same one.
    #[inline(always)]
    pub fn get(&self, chunk: usize) -> Chunk {
        self.chunks[if self.varying { chunk } else { 0 }].get()
    }

    /// Replaces a chunk.
    #[inline(always)]
    pub fn set(&self, chunk: usize, value: Chunk) {
        self.chunks[if self.varying { chunk } else { 0 }].set(value);
    }

    /// The value of one invocation.
    #[inline(always)]
    pub fn lane(&self, lane: usize) -> u32 {
        self.get(lane / LANES).0[lane % LANES]
    }

    /// Replaces the value of one invocation of a varying register.
    #[inline(always)]
    pub fn set_lane(&self, lane: usize, value: u32) {
        let mut chunk = self.get(lane / LANES);
        chunk.0[lane % LANES] = value;
        self.set(lane / LANES, chunk);
    }
}

/// The first chunks of a register, whose number was checked once instead of at each chunk.
#[derive(Clone, Copy)]
pub struct RegisterChunks<'a> {
    chunks: &'a [Cell<Chunk>],
    /// All ones if varying; 0 leads to the one chunk of a uniform register.
    mask: usize,
    high: usize,
}

impl<'a> RegisterChunks<'a> {
    /// The chunks of a register below `high`.
    ///
    /// # Panics
    ///
    /// If the register has fewer: every varying register has all chunks of the workgroup.
    #[inline(always)]
    pub fn new(view: ChunkView<'a>, high: usize) -> RegisterChunks<'a> {
        let need = if view.varying { high } else { high.min(1) };
        assert!(need <= view.chunks.len(), "a register has the chunks of its workgroup");
        RegisterChunks { chunks: view.chunks, mask: if view.varying { usize::MAX } else { 0 }, high }
    }

    /// The chunk at a number below `high`.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn cell(&self, chunk: usize) -> &'a Cell<Chunk> {
        assert!(chunk < self.high);
        // SAFETY: `chunk` is below `high`, so that a varying register has it, and a uniform one has its first.
        unsafe { self.chunks.get_unchecked(chunk & self.mask) }
    }

    /// A chunk. Every chunk of a uniform register is the same one.
    #[inline(always)]
    pub fn get(&self, chunk: usize) -> Chunk {
        self.cell(chunk).get()
    }

    /// Replaces a chunk.
    #[inline(always)]
    pub fn set(&self, chunk: usize, value: Chunk) {
        self.cell(chunk).set(value);
    }
}

/// Vector instruction sets that hot loops are compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isa {
    /// What every CPU of the target has.
    Baseline,
    /// 256-bit vectors, with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512-bit vectors: two halves of a chunk's operation become one.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The widest set that this CPU has.
    pub fn detect() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            // Without `fma` a fused operation would be a call of the library.
            let avx2 = std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma");
            if avx2
                && std::is_x86_feature_detected!("avx512f")
                && std::is_x86_feature_detected!("avx512vl")
                && std::is_x86_feature_detected!("avx512dq")
                && std::is_x86_feature_detected!("avx512bw")
            {
                return Isa::Avx512;
            }
            if avx2 {
                return Isa::Avx2;
            }
        }
        Isa::Baseline
    }
}

/// Defines a function whose body is compiled once per instruction set and chosen by its first argument.
/// Floating-point results do not depend on the choice: no set contracts or reorders operations.
macro_rules! simd {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$($lt:lifetime),*>)? (isa: Isa $(, $arg:ident: $ty:ty)* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(unsafe_code, clippy::too_many_arguments)]
        $vis fn $name $(<$($lt),*>)? (isa: $crate::vm::chunk::Isa $(, $arg: $ty)*) $(-> $ret)? {
            #[inline(always)]
            fn body $(<$($lt),*>)? ($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            // `body` is inlined here, so it is compiled for the features of this function.
            #[target_feature(enable = "avx2,fma")]
            fn avx2 $(<$($lt),*>)? ($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
            fn avx512 $(<$($lt),*>)? ($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
            match isa {
                $crate::vm::chunk::Isa::Baseline => body($($arg),*),
                // SAFETY: the value exists only where `Isa::detect` found the features on this CPU.
                #[cfg(target_arch = "x86_64")]
                $crate::vm::chunk::Isa::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::vm::chunk::Isa::Avx512 => unsafe { avx512($($arg),*) },
            }
        }
    };
}
pub(crate) use simd;
