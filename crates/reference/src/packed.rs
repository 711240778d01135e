//! Rows of quantised weights in the order in which the processor's vectors want them, and their product with activations:
//! the numbers are unpacked in registers, so that memory moves the packed bytes alone.
//!
//! Sums run along a group and then along the groups: a scale applies to a whole sum, and not to each weight. The order is the
//! same for any number of rows, so that a row's result does not depend on the rows beside it.

mod grouped;
mod rows;
mod skinny;

use crate::lanes::dispatch;
use crate::split::is_split;
use crate::value::zeros;
use grouped::GroupedProduct;
use rayon::prelude::*;
use rows::BLOCK;
pub use rows::{PackedRows, Quantized};
use skinny::SkinnyProduct;
use std::ops::Range;
use tapml_graph::{Error, Result};

/// Activation rows from which a group of weights is unpacked once for all of them.
const GROUPED_FROM: usize = 8;
/// Blocks that are multiplied together then.
const GROUPED_BLOCKS: usize = 4;
/// Weights below which one thread is faster than two.
const PARALLEL_FROM: usize = 1 << 17;
/// Parts of a product of few rows that each thread gets, so that a slow one does not hold up the others.
const PARTS: usize = 8;

impl PackedRows {
    /// `y[i, o] = Σ_e x[i, e] · w[o, e]` for `x: [n, k]`: `[n, rows]`. Sums run along a group, then along the groups.
    pub fn times(&self, x: &[f32], n: usize) -> Result<Vec<f32>> {
        let x = self.activations(x, n)?;
        self.in_parts(n, |blocks| self.part(&x, n, blocks))
    }

    /// `silu(x · gateᵀ) · (x · upᵀ)`, element by element, each product as [`PackedRows::times`] gives it. The threads meet
    /// once. Fails if the weights differ in their sizes.
    pub fn gated_product(gate: &PackedRows, up: &PackedRows, x: &[f32], n: usize) -> Result<Vec<f32>> {
        let sizes = |w: &PackedRows| (w.rows, w.k, w.bits, w.float);
        if sizes(gate) != sizes(up) {
            let text = format!("a gate of {} rows of {}, {} of {}", gate.rows, gate.k, up.rows, up.k);
            return Err(Error::invalid(text));
        }
        let x = gate.activations(x, n)?;
        gate.in_parts(n, |blocks| {
            let mut gated = gate.part(&x, n, blocks.clone());
            let passed = up.part(&x, n, blocks);
            gated.iter_mut().zip(&passed).for_each(|(g, u)| *g = *g / (1.0 + (-*g).exp()) * u);
            gated
        })
    }

    /// What products with `n` rows read, in the order in which they read it. Fails on another number of activations.
    fn activations(&self, x: &[f32], n: usize) -> Result<Vec<f32>> {
        if x.len() != n * self.k {
            return Err(Error::invalid(format!("{} activations for {n} rows of {}", x.len(), self.k)));
        }
        let scaled = self.scale_activations(x);
        Ok(if n < GROUPED_FROM { scaled } else { grouped::side_by_side(&scaled, self.k) })
    }

    /// Products with some blocks of `n` rows of scaled activations: `[n, blocks · 16]`.
    fn part(&self, x: &[f32], n: usize, blocks: Range<usize>) -> Vec<f32> {
        let mut y = vec![0.0; n * blocks.len() * BLOCK];
        if n < GROUPED_FROM {
            dispatch(SkinnyProduct { w: self, x, n, blocks, y: &mut y });
        } else {
            dispatch(GroupedProduct { w: self, x, n, blocks, y: &mut y });
        }
        y
    }

    /// `[n, rows]` of what `part` gives for some blocks each time, as [`PackedRows::part`] does.
    ///
    /// # Errors
    /// If memory does not suffice.
    fn in_parts(&self, n: usize, part: impl Fn(Range<usize>) -> Vec<f32> + Sync) -> Result<Vec<f32>> {
        let mut y = zeros(n, self.rows)?;
        if y.is_empty() {
            return Ok(y);
        }
        let blocks = self.rows.div_ceil(BLOCK);
        // Each part is worth a task of its own.
        let least = (PARALLEL_FROM / 4 / (BLOCK * self.k)).max(1);
        let each = if n < GROUPED_FROM {
            least.max(blocks / (PARTS * rayon::current_num_threads())).min(64)
        } else {
            GROUPED_BLOCKS
        };
        // The last part may have fewer blocks.
        let part = |first: usize| part(first..(first + each).min(blocks));
        let parts: Vec<Vec<f32>> = if is_split(self.rows * self.k, PARALLEL_FROM) {
            (0..blocks.div_ceil(each)).into_par_iter().map(|i| part(i * each)).collect()
        } else {
            (0..blocks).step_by(each).map(part).collect()
        };
        for (i, part) in parts.iter().enumerate() {
            let first = i * each * BLOCK;
            let width = part.len() / n;
            // The last block may reach beyond the last row.
            let here = width.min(self.rows - first);
            for (from, to) in part.chunks_exact(width).zip(y.chunks_exact_mut(self.rows)) {
                to[first..first + here].copy_from_slice(&from[..here]);
            }
        }
        Ok(y)
    }

    /// Activations divided by the power of two with which their weight leaves the word; exact. Numbers leave it as they are.
    fn scale_activations(&self, x: &[f32]) -> Vec<f32> {
        if self.float {
            return x.to_vec();
        }
        let factors: Vec<f32> = (0..32 / self.bits)
            .map(|e| 1.0 / (1u32 << (e % per_shift(self.bits) * self.bits)) as f32)
            .collect();
        x.iter().zip(factors.iter().cycle()).map(|(x, factor)| x * factor).collect()
    }
}

/// How many weights of a word can be taken from it before it must be shifted: as many as fit below 2²³.
const fn per_shift(bits: usize) -> usize {
    match bits {
        4 => 5,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::Packing;
    use tapml_graph::packing::{Code, float8};

    /// Numbers that look random: a multiplicative generator's high bits.
    fn words(count: usize) -> Vec<u32> {
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    fn unit(word: u32) -> f32 {
        word as f32 / u32::MAX as f32 - 0.5
    }

    fn expect_close(rows: usize, k: usize, bits: usize, group: usize, shifted: bool, n: usize) {
        let packing = Packing::integers(bits as u32, group as u32, shifted);
        expect_close_as(rows, k, packing, n);
    }

    fn expect_close_as(rows: usize, k: usize, packing: Packing, n: usize) {
        let (shifted, float) = (packing.zeros, packing.code == Code::E4m3);
        let (bits, group) = (packing.bits() as usize, packing.group as usize);
        let q = words(rows * k * bits / 32);
        let scale: Vec<f32> = words(rows * k / group).iter().map(|&w| unit(w)).collect();
        let middle = packing.middle() as f32;
        let zero: Vec<f32> = words(scale.len()).iter().map(|w| (w >> 28) as f32).collect();
        let zero = shifted.then_some(&zero[..]);
        let x: Vec<f32> = words(n * k).iter().map(|&w| unit(w)).collect();
        let packed =
            PackedRows::new(Quantized { q: &q, scale: &scale, zero, k, bits, group, float }).unwrap();
        let y = packed.times(&x, n).unwrap();
        for i in 0..n {
            for o in 0..rows {
                let (mut sum, mut size) = (0.0f64, 0.0f64);
                for e in 0..k {
                    let word = q[(o * k + e) * bits / 32];
                    let value = word >> (e * bits % 32) & (u32::MAX >> (32 - bits));
                    let at = o * (k / group) + e / group;
                    let value =
                        f64::from((packing.code.info().element)(value) - zero.map_or(middle, |z| z[at]));
                    let term = value * f64::from(scale[at]) * f64::from(x[i * k + e]);
                    (sum, size) = (sum + term, size + term.abs());
                }
                let got = f64::from(y[i * rows + o]);
                assert!((got - sum).abs() <= 1e-6 * size, "[{i}, {o}]: {got}, expected {sum}");
            }
        }
    }

    #[test]
    fn products_are_those_of_the_unpacked_rows() {
        for (rows, k, bits, group) in [(40, 128, 4, 32), (33, 256, 4, 128), (5, 96, 8, 32), (1, 32, 4, 32)] {
            for n in [1, 3, 4, 6, 17] {
                expect_close(rows, k, bits, group, false, n);
                expect_close(rows, k, bits, group, true, n);
            }
        }
    }

    #[test]
    fn products_are_those_of_unpacked_numbers() {
        for (rows, k, group) in [(40, 128, 32), (33, 256, 256), (5, 96, 4), (700, 512, 64)] {
            for n in [1, 3, 4, 6, 17] {
                expect_close_as(rows, k, Packing::floats(group), n);
            }
        }
    }

    #[test]
    fn a_row_is_the_same_alone_and_among_others() {
        let (rows, k, n) = (700, 256, 21);
        let packings = [
            Packing::integers(4, 32, false),
            Packing::integers(4, 128, true),
            Packing::integers(8, 64, true),
            Packing::floats(32),
        ];
        for packing in packings {
            let (bits, group) = (packing.bits() as usize, packing.group as usize);
            let q = words(rows * k * bits / 32);
            let scale: Vec<f32> = words(rows * k / group).iter().map(|&w| unit(w)).collect();
            let zero: Vec<f32> = words(scale.len()).iter().map(|w| (w >> 28) as f32).collect();
            let (zero, float) = (packing.zeros.then_some(&zero[..]), packing.code == Code::E4m3);
            let w = PackedRows::new(Quantized { q: &q, scale: &scale, zero, k, bits, group, float }).unwrap();
            let x: Vec<f32> = words(n * k).iter().map(|&w| unit(w)).collect();
            let among = w.times(&x, n).unwrap();
            for few in [1, 3, 4, 7, 8, 20] {
                assert_eq!(w.times(&x[..few * k], few).unwrap(), among[..few * rows], "{packing:?}, {few}");
            }
            assert_eq!(w.times(&x[20 * k..], 1).unwrap(), among[20 * rows..], "{packing:?}, the last");
        }
    }

    #[test]
    fn every_number_comes_out_as_it_is() {
        // Row `code` has the number `code` at one place after the other.
        let q: Vec<u32> = (0..256u32).flat_map(|code| (0..4).map(move |e| code << (8 * e))).collect();
        let scale = [1.0; 256];
        let of = Quantized { q: &q, scale: &scale, zero: None, k: 16, bits: 8, group: 16, float: true };
        let rows = PackedRows::new(of).unwrap();
        for e in 0..4 {
            let mut x = [0.0; 16];
            x[5 * e] = 1.0;
            let (y, mut unpacked) = (rows.times(&x, 1).unwrap(), [0.0; 16]);
            for code in 0..256 {
                assert_eq!(y[code as usize], float8(code), "{code:#x} at {e}");
                rows.unpack(code as usize, &mut unpacked);
                assert_eq!(unpacked[5 * e].to_bits(), float8(code).to_bits(), "{code:#x} at {e}");
            }
        }
    }

    #[test]
    fn a_gate_lets_pass_what_both_products_say() {
        for (rows, n) in [(40, 1), (700, 3), (33, 17)] {
            let (k, bits, group) = (256, 4, 32);
            let weight = |shift: usize| {
                let q = words(rows * k * bits / 32 + shift).split_off(shift);
                let scale: Vec<f32> =
                    words(rows * k / group + shift).iter().map(|&w| 0.1 * unit(w)).collect();
                let scale = &scale[shift..];
                PackedRows::new(Quantized { q: &q, scale, zero: None, k, bits, group, float: false }).unwrap()
            };
            let (gate, up) = (weight(0), weight(5));
            let x: Vec<f32> = words(n * k).iter().map(|&w| unit(w)).collect();
            let found = PackedRows::gated_product(&gate, &up, &x, n).unwrap();
            let (g, u) = (gate.times(&x, n).unwrap(), up.times(&x, n).unwrap());
            let expected: Vec<f32> = g.iter().zip(&u).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            assert_eq!(found, expected);
            assert!(PackedRows::gated_product(&gate, &weight(0), &x[1..], n).is_err());
        }
    }

    #[test]
    fn many_rows_are_split_between_threads() {
        expect_close(700, 512, 4, 32, false, 2);
    }

    #[test]
    fn sizes_must_agree() {
        let given = |k, bits, group| {
            let (q, scale): (&[u32], &[f32]) = (&[0; 8], &[1.0; 2]);
            Quantized { q, scale, zero: None, k, bits, group, float: false }
        };
        assert!(PackedRows::new(given(64, 4, 32)).is_ok());
        assert!(PackedRows::new(given(64, 3, 32)).is_err());
        assert!(PackedRows::new(given(48, 4, 32)).is_err());
        assert!(PackedRows::new(given(128, 4, 32)).is_err());
        let short = Quantized { zero: Some(&[0.0]), ..given(64, 4, 32) };
        assert!(PackedRows::new(short).is_err());
    }
}
