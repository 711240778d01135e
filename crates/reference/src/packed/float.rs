//! Products of few rows with numbers of 8 bits, the floats E4M3 of one sign bit, four exponent bits and three mantissa bits.
//!
//! A number is widened by shifts and one exact product, so that no table is read.

use super::rows::BLOCK;
use super::skinny::Block;
use pulp::Simd;

impl Block<'_> {
    /// As [`Block::times`] for words of four numbers, as [`tapml_graph::packing::float8`] reads them.
    #[inline(always)]
    pub(super) fn numbers<S: Simd, const R: usize, const C: usize>(
        &self,
        simd: S,
        x: &[f32],
        y: &mut [f32],
        stride: usize,
    ) {
        let (words, _) = S::as_simd_u32s(self.words);
        let (scales, _) = S::as_simd_f32s(self.scales);
        let vectors = words.len() * 4 / self.k;
        // A number's sign is the first bit of f32; its other bits end where exponent and mantissa of f32 meet, three later. What
        // that makes is 2^112 times too small, subnormals among them.
        let sign = simd.splat_u32s(0x8000_0000);
        let size = simd.splat_u32s(0x07f0_0000);
        let (four, eight) = (simd.splat_u32s(4), simd.splat_u32s(8));
        let power = simd.splat_f32s(f32::from_bits((127 + 112) << 23));
        for v in 0..vectors {
            let mut totals = [simd.splat_f32s(0.0); R];
            // A scale belongs to a group, so that each group has a sum of its own.
            for g in 0..self.k / 4 / self.group {
                let mut sums = [[simd.splat_f32s(0.0); C]; R];
                for word in g * self.group..(g + 1) * self.group {
                    let mut bits = words[word * vectors + v];
                    // The last number of a word has the first bits.
                    for e in (0..4).rev() {
                        let low = simd.and_u32s(simd.wrapping_dyn_shr_u32s(bits, four), size);
                        let number = simd.or_u32s(simd.and_u32s(bits, sign), low);
                        let value = simd.mul_f32s(simd.transmute_f32s_u32s(number), power);
                        for (r, sum) in sums.iter_mut().enumerate() {
                            let factor = simd.splat_f32s(x[r * self.k + word * 4 + e]);
                            sum[e % C] = simd.mul_add_e_f32s(value, factor, sum[e % C]);
                        }
                        bits = simd.wrapping_dyn_shl_u32s(bits, eight);
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
