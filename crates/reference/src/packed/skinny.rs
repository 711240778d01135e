//! Products of few rows of activations with blocks of packed rows, unpacked in registers.
//!
//! An integer below 2²³ becomes a float without a conversion: its bits are put into the mantissa of 2²³, and 2²³ is subtracted.
//! A weight that lies higher in its word is too large by a power of two, by which the activations were divided.

use super::rows::{BLOCK, PackedRows};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// The bits of 2²³ as `f32`: a small integer in the low bits adds itself, exactly.
const MAGIC: u32 = 0x4b00_0000;

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
        let width = blocks.len() * BLOCK;
        let (words, groups) = (w.k / P * BLOCK, w.k / w.group * BLOCK);
        for (i, block) in blocks.enumerate() {
            let of = Block {
                words: &w.words[block * words..(block + 1) * words],
                scales: &w.scales[block * groups..(block + 1) * groups],
                zeros: if w.zeros.is_empty() { &[] } else { &w.zeros[block * groups..(block + 1) * groups] },
                middle: w.middle,
                group: w.group / P,
                k: w.k,
            };
            let mut row = 0;
            while row < n {
                let at = row * width + i * BLOCK;
                let from = &x[row * w.k..];
                // Four rows share each unpacked weight; one row has four sums, which do not wait for each other.
                if row + 4 <= n && F {
                    of.numbers::<S, 4, 1>(simd, from, &mut y[at..], width);
                    row += 4;
                } else if F {
                    of.numbers::<S, 1, 4>(simd, from, &mut y[at..], width);
                    row += 1;
                } else if row + 4 <= n {
                    of.times::<S, P, J, B, 4, 1>(simd, from, &mut y[at..], width);
                    row += 4;
                } else {
                    of.times::<S, P, J, B, 1, 4>(simd, from, &mut y[at..], width);
                    row += 1;
                }
            }
        }
    }
}

/// Sixteen rows.
pub struct Block<'a> {
    /// `[k / per word, 16]`.
    pub words: &'a [u32],
    /// `[k / group, 16]`.
    pub scales: &'a [f32],
    /// `[k / group, 16]`, or empty if `middle` serves all groups.
    pub zeros: &'a [f32],
    /// The zero of all groups, if `zeros` is empty.
    pub middle: f32,
    /// Words of a group.
    pub group: usize,
    /// Weights of a row.
    pub k: usize,
}

impl Block<'_> {
    /// `R` rows of activations with all of the block; row `r` of the result begins at `y[r · stride]`. Each sum is `C` sums
    /// that do not wait for each other.
    #[inline(always)]
    fn times<S: Simd, const P: usize, const J: usize, const B: usize, const R: usize, const C: usize>(
        &self,
        simd: S,
        x: &[f32],
        y: &mut [f32],
        stride: usize,
    ) {
        let (words, _) = S::as_simd_u32s(self.words);
        let (scales, _) = S::as_simd_f32s(self.scales);
        let (zeros, _) = S::as_simd_f32s(self.zeros);
        let vectors = words.len() * P / self.k;
        let magic = simd.splat_u32s(MAGIC);
        let beyond = simd.splat_u32s((J * B) as u32);
        // One mask for each place of a weight before the word is shifted.
        let mut masks = [magic; J];
        for (j, mask) in masks.iter_mut().enumerate() {
            *mask = simd.splat_u32s((u32::MAX >> (32 - B)) << (j * B));
        }
        for v in 0..vectors {
            let mut totals = [simd.splat_f32s(0.0); R];
            // A scale belongs to a group, so that each group has a sum of its own.
            for g in 0..self.k / P / self.group {
                let zero =
                    if zeros.is_empty() { simd.splat_f32s(self.middle) } else { zeros[g * vectors + v] };
                let mut less = [zero; J];
                for (j, less) in less.iter_mut().enumerate() {
                    let power = simd.splat_f32s((1u32 << (j * B)) as f32);
                    // One subtraction takes off both 2²³ and the zero point at its place in the word.
                    *less = simd.mul_add_e_f32s(zero, power, simd.splat_f32s(8_388_608.0));
                }
                let mut sums = [[simd.splat_f32s(0.0); C]; R];
                for word in g * self.group..(g + 1) * self.group {
                    let mut bits = words[word * vectors + v];
                    for e in 0..P {
                        // Higher weights would not fit below 2²³: the word is shifted to bring them down.
                        if e > 0 && e % J == 0 {
                            bits = simd.wrapping_dyn_shr_u32s(bits, beyond);
                        }
                        let lifted = simd.or_u32s(simd.and_u32s(bits, masks[e % J]), magic);
                        let value = simd.sub_f32s(simd.transmute_f32s_u32s(lifted), less[e % J]);
                        for (r, sum) in sums.iter_mut().enumerate() {
                            let factor = simd.splat_f32s(x[r * self.k + word * P + e]);
                            sum[e % C] = simd.mul_add_e_f32s(value, factor, sum[e % C]);
                        }
                    }
                }
                for r in 0..R {
                    let mut sum = sums[r][0];
                    for &part in &sums[r][1..] {
                        sum = simd.add_f32s(sum, part);
                    }
                    totals[r] = simd.mul_add_e_f32s(sum, scales[g * vectors + v], totals[r]);
                }
            }
            for (r, total) in totals.iter().enumerate() {
                let (to, _) = S::as_mut_simd_f32s(&mut y[r * stride..r * stride + BLOCK]);
                to[v] = *total;
            }
        }
    }
}
