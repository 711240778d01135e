//! Products of many rows of activations with blocks of packed rows: a group of weights is unpacked once, and stays in a core's
//! first cache while all rows pass.
//!
//! The sums are those of [`super::skinny`], term by term, so that a row's result does not depend on how many come with it.

use super::rows::{BLOCK, PackedRows};
use super::skinny::{Block, MAGIC, numbers, zero_with_magic};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Rows of activations whose sums are in registers together: as many as additions wait for each other.
const ROWS: usize = 8;

/// A product with many rows.
pub struct GroupedProduct<'a> {
    /// The weights.
    pub w: &'a PackedRows,
    /// What [`side_by_side`] makes of activations that are divided by the powers of two of their places in a word.
    pub x: &'a [f32],
    /// Rows of activations.
    pub n: usize,
    /// Blocks of rows that are multiplied.
    pub blocks: Range<usize>,
    /// `[n, blocks · 16]`, zeros.
    pub y: &'a mut [f32],
}

/// Rows of `k` elements as `[n / 8, k, 8]`, so that what is multiplied together lies together; zeros behind the last row.
pub fn side_by_side(x: &[f32], k: usize) -> Vec<f32> {
    let mut tiles = vec![0.0; (x.len() / k).next_multiple_of(ROWS) * k];
    for (tile, rows) in tiles.chunks_exact_mut(ROWS * k).zip(x.chunks(ROWS * k)) {
        for (r, row) in rows.chunks_exact(k).enumerate() {
            tile.iter_mut().skip(r).step_by(ROWS).zip(row).for_each(|(to, &from)| *to = from);
        }
    }
    tiles
}

impl WithSimd for GroupedProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let GroupedProduct { w, x, n, blocks, y } = self;
        let width = blocks.len() * BLOCK;
        let mut weights = vec![0.0; w.group * BLOCK];
        for (i, block) in blocks.map(|index| w.block(index)).enumerate() {
            for g in 0..w.k / w.group {
                match (w.bits, w.float) {
                    (4, _) => w.unpack_integers::<S, 8, 5, 4>(simd, block, g, &mut weights),
                    (_, false) => w.unpack_integers::<S, 4, 2, 8>(simd, block, g, &mut weights),
                    (_, true) => w.unpack_numbers(simd, block, g, &mut weights),
                }
                let scales = &block.scales[g * BLOCK..(g + 1) * BLOCK];
                let of = WeightGroup { weights: &weights, scales, width };
                let terms = g * w.group * ROWS..(g + 1) * w.group * ROWS;
                for (t, x) in x.chunks_exact(w.k * ROWS).enumerate() {
                    let rows = (n - t * ROWS).min(ROWS);
                    of.add(simd, &x[terms.clone()], rows, &mut y[t * ROWS * width + i * BLOCK..]);
                }
            }
        }
    }
}

/// A group of sixteen rows, unpacked.
struct WeightGroup<'a> {
    /// `[group, 16]`, each without its zero point, and times the power of two of its place in a word.
    weights: &'a [f32],
    /// `[16]`.
    scales: &'a [f32],
    /// Elements of a row of the result.
    width: usize,
}

impl WeightGroup<'_> {
    /// Adds the group's sums with eight rows, `x: [group, 8]`, to the first `rows` of them in `y`. Eight sums are in registers
    /// together, as many as additions wait for each other.
    #[inline(always)]
    fn add<S: Simd>(&self, simd: S, x: &[f32], rows: usize, y: &mut [f32]) {
        if S::as_simd_f32s(self.scales).0.len() == 2 {
            self.add_part::<S, 4, 2>(simd, x, 0..rows.min(4), y);
            if rows > 4 {
                self.add_part::<S, 4, 2>(simd, x, 4..rows, y);
            }
        } else {
            self.add_part::<S, ROWS, 1>(simd, x, 0..rows, y);
        }
    }

    /// As [`WeightGroup::add`] for `R` of the eight rows from the first of `rows` on; those of `rows` are stored. `V` vectors of the
    /// block's weights are multiplied together.
    #[inline(always)]
    fn add_part<S: Simd, const R: usize, const V: usize>(
        &self,
        simd: S,
        x: &[f32],
        rows: Range<usize>,
        y: &mut [f32],
    ) {
        let (scales, _) = S::as_simd_f32s(self.scales);
        let (weights, _) = S::as_simd_f32s(self.weights);
        let (vectors, half) = (scales.len() / V, rows.start / R);
        for v in 0..vectors {
            let mut sums = [[simd.splat_f32s(0.0); V]; R];
            let x = x.as_chunks::<R>().0.chunks_exact(ROWS / R);
            for (weights, x) in weights.as_chunks::<V>().0.chunks_exact(vectors).zip(x) {
                for (&x, sums) in x[half].iter().zip(&mut sums) {
                    let x = simd.splat_f32s(x);
                    for (&weight, sum) in weights[v].iter().zip(sums) {
                        *sum = simd.mul_add_e_f32s(weight, x, *sum);
                    }
                }
            }
            for (row, sums) in rows.clone().zip(&sums) {
                let at = row * self.width;
                let (totals, _) = S::as_mut_simd_f32s(&mut y[at..at + BLOCK]);
                for (i, &sum) in (v * V..).zip(sums) {
                    totals[i] = simd.mul_add_e_f32s(sum, scales[i], totals[i]);
                }
            }
        }
    }
}

impl PackedRows {
    /// Group `g` of a block, integers of `B` bits, of which `P` lie in a word and `J` can be taken before a shift.
    #[inline(always)]
    fn unpack_integers<S: Simd, const P: usize, const J: usize, const B: usize>(
        &self,
        simd: S,
        block: Block<'_>,
        g: usize,
        to: &mut [f32],
    ) {
        let (words, _) = S::as_simd_u32s(block.words);
        let (zeros, _) = S::as_simd_f32s(block.zeros);
        let (to, _) = S::as_mut_simd_f32s(to);
        let (vectors, group) = (words.len() * P / self.k, self.group / P);
        let magic = simd.splat_u32s(MAGIC);
        let beyond = simd.splat_u32s((J * B) as u32);
        let masks: [_; J] = std::array::from_fn(|j| simd.splat_u32s((u32::MAX >> (32 - B)) << (j * B)));
        for v in 0..vectors {
            let zero = zeros.get(g * vectors + v).copied().unwrap_or(simd.splat_f32s(self.middle));
            let less: [_; J] = std::array::from_fn(|j| zero_with_magic(simd, zero, j * B));
            for word in 0..group {
                let mut bits = words[(g * group + word) * vectors + v];
                for e in 0..P {
                    if e > 0 && e % J == 0 {
                        bits = simd.wrapping_dyn_shr_u32s(bits, beyond);
                    }
                    let lifted = simd.or_u32s(simd.and_u32s(bits, masks[e % J]), magic);
                    to[(word * P + e) * vectors + v] =
                        simd.sub_f32s(simd.transmute_f32s_u32s(lifted), less[e % J]);
                }
            }
        }
    }

    /// Group `g` of a block of numbers of 8 bits.
    #[inline(always)]
    fn unpack_numbers<S: Simd>(&self, simd: S, block: Block<'_>, g: usize, to: &mut [f32]) {
        let (words, _) = S::as_simd_u32s(block.words);
        let (to, _) = S::as_mut_simd_f32s(to);
        let (vectors, group) = (words.len() * 4 / self.k, self.group / 4);
        for word in 0..group * vectors {
            let (place, v) = (word / vectors, word % vectors);
            for (e, value) in numbers(simd, words[g * group * vectors + word]).into_iter().enumerate() {
                to[(place * 4 + e) * vectors + v] = value;
            }
        }
    }
}
