//! Products of few rows of activations with blocks of packed rows, unpacked in registers.
//!
//! An integer below 2²³ becomes a float without a conversion: its bits are put into the mantissa of 2²³, and 2²³ is subtracted.
//! A weight that lies higher in its word is too large by a power of two, by which the activations were divided.

use super::rows::{BLOCK, PackedRows};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// The bits of 2²³ as `f32`: a small integer in the low bits adds itself, exactly.
pub(super) const MAGIC: u32 = 0x4b00_0000;

/// A product with few rows.
pub struct SkinnyProduct<'a> {
    /// The weights.
    pub w: &'a PackedRows,
    /// `[n, k]`, divided by the powers of two of their places in a word.
    pub x: &'a [f32],
    /// Rows of activations.
    pub n: usize,
    /// Blocks of rows that are multiplied.
    pub blocks: Range<usize>,
    /// `[n, blocks · 16]`.
    pub y: &'a mut [f32],
}

impl WithSimd for SkinnyProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match (self.w.bits, self.w.float) {
            (4, _) => self.run::<S, 8, 5, 4, false>(simd),
            (_, false) => self.run::<S, 4, 2, 8, false>(simd),
            (_, true) => self.run::<S, 4, 2, 8, true>(simd),
        }
    }
}

impl SkinnyProduct<'_> {
    /// `P` weights a word, `J` of them before a shift, `B` bits each; `F` if they are numbers.
    #[inline(always)]
    fn run<S: Simd, const P: usize, const J: usize, const B: usize, const F: bool>(self, simd: S) {
        let SkinnyProduct { w, x, n, blocks, y } = self;
        let (first, width) = (blocks.start, blocks.len() * BLOCK);
        let mut row = 0;
        while row + 4 <= n {
            for (i, block) in blocks.clone().enumerate() {
                let (x, y) = (&x[row * w.k..], &mut y[row * width + i * BLOCK..]);
                w.product::<S, P, J, B, F, 4, 1>(simd, [block], x, y, width);
            }
            row += 4;
        }
        for row in row..n {
            let (x, y) = (&x[row * w.k..], &mut y[row * width..]);
            let mut i = 0;
            // One row has sums in four blocks, which do not wait for each other.
            while i + 4 <= blocks.len() {
                let four = std::array::from_fn(|b| first + i + b);
                w.product::<S, P, J, B, F, 1, 4>(simd, four, x, &mut y[i * BLOCK..], width);
                i += 4;
            }
            for i in i..blocks.len() {
                w.product::<S, P, J, B, F, 1, 1>(simd, [first + i], x, &mut y[i * BLOCK..], width);
            }
        }
    }
}

/// Sixteen rows.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    /// `[k / per word, 16]`.
    pub words: &'a [u32],
    /// `[k / group, 16]`.
    pub scales: &'a [f32],
    /// `[k / group, 16]`, or empty if all groups share one zero.
    pub zeros: &'a [f32],
}

impl PackedRows {
    /// The sixteen rows of block `index`.
    #[inline(always)]
    pub(super) fn block(&self, index: usize) -> Block<'_> {
        let (words, groups) = (self.k * self.bits / 32 * BLOCK, self.k / self.group * BLOCK);
        let zeros = if self.zeros.is_empty() { 0 } else { groups };
        Block {
            words: &self.words[index * words..(index + 1) * words],
            scales: &self.scales[index * groups..(index + 1) * groups],
            zeros: &self.zeros[index * zeros..(index + 1) * zeros],
        }
    }

    /// `R` rows of activations with `N` blocks; row `r` of the result begins at `y[r · stride]`.
    #[inline(always)]
    fn product<
        S,
        const P: usize,
        const J: usize,
        const B: usize,
        const F: bool,
        const R: usize,
        const N: usize,
    >(
        &self,
        simd: S,
        blocks: [usize; N],
        x: &[f32],
        y: &mut [f32],
        stride: usize,
    ) where
        S: Simd,
    {
        let blocks = blocks.map(|index| self.block(index));
        if F {
            self.product_of_numbers::<S, R, N>(simd, blocks, x, y, stride);
        } else {
            self.product_of_integers::<S, P, J, B, R, N>(simd, blocks, x, y, stride);
        }
    }

    /// As [`PackedRows::product`] for integers of `B` bits.
    #[inline(always)]
    fn product_of_integers<
        S: Simd,
        const P: usize,
        const J: usize,
        const B: usize,
        const R: usize,
        const N: usize,
    >(
        &self,
        simd: S,
        blocks: [Block<'_>; N],
        x: &[f32],
        y: &mut [f32],
        stride: usize,
    ) {
        let words = blocks.map(|block| S::as_simd_u32s(block.words).0);
        let scales = blocks.map(|block| S::as_simd_f32s(block.scales).0);
        let zeros = blocks.map(|block| S::as_simd_f32s(block.zeros).0);
        let (vectors, group) = (words[0].len() * P / self.k, self.group / P);
        let magic = simd.splat_u32s(MAGIC);
        let beyond = simd.splat_u32s((J * B) as u32);
        let masks: [_; J] = std::array::from_fn(|j| simd.splat_u32s((u32::MAX >> (32 - B)) << (j * B)));
        for v in 0..vectors {
            let mut totals = [[simd.splat_f32s(0.0); N]; R];
            // A scale belongs to a group, so that each group has a sum of its own.
            for g in 0..self.k / self.group {
                let mut less = [[simd.splat_f32s(0.0); N]; J];
                for b in 0..N {
                    let at = g * vectors + v;
                    let zero = zeros[b].get(at).copied().unwrap_or(simd.splat_f32s(self.middle));
                    for (j, less) in less.iter_mut().enumerate() {
                        less[b] = zero_with_magic(simd, zero, j * B);
                    }
                }
                let mut sums = [[simd.splat_f32s(0.0); N]; R];
                for word in g * group..(g + 1) * group {
                    let mut bits: [_; N] = std::array::from_fn(|b| words[b][word * vectors + v]);
                    for e in 0..P {
                        for b in 0..N {
                            // Higher weights would not fit below 2²³: the word is shifted to bring them down.
                            if e > 0 && e % J == 0 {
                                bits[b] = simd.wrapping_dyn_shr_u32s(bits[b], beyond);
                            }
                            let lifted = simd.or_u32s(simd.and_u32s(bits[b], masks[e % J]), magic);
                            let value = simd.sub_f32s(simd.transmute_f32s_u32s(lifted), less[e % J][b]);
                            for (r, sums) in sums.iter_mut().enumerate() {
                                let factor = simd.splat_f32s(x[r * self.k + word * P + e]);
                                sums[b] = simd.mul_add_e_f32s(value, factor, sums[b]);
                            }
                        }
                    }
                }
                add_group(simd, &mut totals, &sums, scales.map(|scales| scales[g * vectors + v]));
            }
            store::<S, R, N>(v, &totals, y, stride);
        }
    }

    /// As [`PackedRows::product`] for numbers, as [`tapml_graph::packing::float8`] reads them.
    #[inline(always)]
    fn product_of_numbers<S: Simd, const R: usize, const N: usize>(
        &self,
        simd: S,
        blocks: [Block<'_>; N],
        x: &[f32],
        y: &mut [f32],
        stride: usize,
    ) {
        let words = blocks.map(|block| S::as_simd_u32s(block.words).0);
        let scales = blocks.map(|block| S::as_simd_f32s(block.scales).0);
        let (vectors, group) = (words[0].len() * 4 / self.k, self.group / 4);
        for v in 0..vectors {
            let mut totals = [[simd.splat_f32s(0.0); N]; R];
            for g in 0..self.k / self.group {
                let mut sums = [[simd.splat_f32s(0.0); N]; R];
                for word in g * group..(g + 1) * group {
                    for b in 0..N {
                        let values = numbers(simd, words[b][word * vectors + v]);
                        for (e, value) in values.into_iter().enumerate() {
                            for (r, sums) in sums.iter_mut().enumerate() {
                                let factor = simd.splat_f32s(x[r * self.k + word * 4 + e]);
                                sums[b] = simd.mul_add_e_f32s(value, factor, sums[b]);
                            }
                        }
                    }
                }
                add_group(simd, &mut totals, &sums, scales.map(|scales| scales[g * vectors + v]));
            }
            store::<S, R, N>(v, &totals, y, stride);
        }
    }
}

/// What one subtraction takes off a lifted integer at bit `place` of its word: 2²³, and the zero point at this place.
#[inline(always)]
pub(super) fn zero_with_magic<S: Simd>(simd: S, zero: S::f32s, place: usize) -> S::f32s {
    simd.mul_add_e_f32s(zero, simd.splat_f32s((1u32 << place) as f32), simd.splat_f32s(8_388_608.0))
}

/// The four numbers of each word, floats E4M3 of one sign bit, four exponent bits and three mantissa bits. They are widened by
/// shifts and one exact product, so that no table is read.
#[inline(always)]
pub(super) fn numbers<S: Simd>(simd: S, words: S::u32s) -> [S::f32s; 4] {
    // A number's sign is the first bit of f32; its other bits end where exponent and mantissa of f32 meet, three later. What
    // that makes is 2^112 times too small, subnormals among them.
    let sign = simd.splat_u32s(0x8000_0000);
    let size = simd.splat_u32s(0x07f0_0000);
    let four = simd.splat_u32s(4);
    let power = simd.splat_f32s(f32::from_bits((127 + 112) << 23));
    std::array::from_fn(|e| {
        // The last number of a word has the first bits.
        let bits = simd.wrapping_dyn_shl_u32s(words, simd.splat_u32s(8 * (3 - e as u32)));
        let low = simd.and_u32s(simd.wrapping_dyn_shr_u32s(bits, four), size);
        let number = simd.or_u32s(simd.and_u32s(bits, sign), low);
        simd.mul_f32s(simd.transmute_f32s_u32s(number), power)
    })
}

/// Adds the sums of a group, times its scales.
#[inline(always)]
fn add_group<S: Simd, const R: usize, const N: usize>(
    simd: S,
    totals: &mut [[S::f32s; N]; R],
    sums: &[[S::f32s; N]; R],
    scales: [S::f32s; N],
) {
    for (totals, sums) in totals.iter_mut().zip(sums) {
        for b in 0..N {
            totals[b] = simd.mul_add_e_f32s(sums[b], scales[b], totals[b]);
        }
    }
}

/// Stores vector `v` of the sixteen outputs of each block.
#[inline(always)]
fn store<S: Simd, const R: usize, const N: usize>(
    v: usize,
    totals: &[[S::f32s; N]; R],
    y: &mut [f32],
    stride: usize,
) {
    for (r, totals) in totals.iter().enumerate() {
        for (b, total) in totals.iter().enumerate() {
            let at = r * stride + b * BLOCK;
            S::as_mut_simd_f32s(&mut y[at..at + BLOCK]).0[v] = *total;
        }
    }
}
