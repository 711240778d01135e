//! Products of matrices that subgroups of 32 lanes hold together, 8 elements in a lane.
//!
//! Operands are `f16` or `f32` values, held as `f32`.

use super::Vm;
use crate::code::{HELD, Reg};

/// Rows and columns.
/// The only size that the emulator has.
const SIZE: usize = 16;
/// Bits that terms keep below the last one of the largest term's f32.
const GUARD: u64 = 1;

impl Vm<'_> {
    /// `d = a · b + c` in each subgroup that has an active lane, each element as [`add_up`] says.
    /// Element `i` of a matrix is in register `i % 8` of lane `i / 8` of the subgroup.
    pub(super) fn multiply_add(&self, d: Reg, a: Reg, b: Reg, c: Reg) {
        let held = HELD as usize;
        let size = self.code.subgroup_size as usize;
        for first in (0..self.lanes).step_by(size).filter(|&first| self.active.is(first)) {
            let matrix = |reg: Reg| -> Vec<f32> {
                let element = |i: usize| self.view(reg.offset((i % held) as u32)).lane(first + i / held);
                (0..SIZE * SIZE).map(|i| f32::from_bits(element(i))).collect()
            };
            // Read before anything is written: `d` may be `c`.
            let (a, b, c) = (matrix(a), matrix(b), matrix(c));
            for (i, &start) in c.iter().enumerate() {
                let (row, column) = (i / SIZE, i % SIZE);
                // Exact: two factors of at most 24 bits have a product of at most 48.
                let product = |k: usize| f64::from(a[row * SIZE + k]) * f64::from(b[k * SIZE + column]);
                let mut terms = [f64::from(start); SIZE + 1];
                terms.iter_mut().enumerate().take(SIZE).for_each(|(k, term)| *term = product(k));
                let sum = add_up(&terms);
                self.view(d.offset((i % held) as u32)).set_lane(first + i / held, sum.to_bits());
            }
        }
    }
}

/// The sum as matrix units form it (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021):
/// products are exact; all terms are cut, towards zero, [`GUARD`] bits behind the last bit that the largest one has as f32; their
/// sum is exact, and is cut to f32.
fn add_up(terms: &[f64]) -> f32 {
    let largest = terms.iter().fold(0.0f64, |most, term| most.max(term.abs()));
    let sum = terms.iter().sum::<f64>();
    // NaN and infinity go through; zeros have no exponent to cut at.
    if largest == 0.0 || !sum.is_finite() {
        return sum as f32;
    }
    // Products of numbers of f16, and f32: all exponents are far within those of f64.
    // The exponent's bits alone, lowered: a power of two.
    let step = f64::from_bits(((largest.to_bits() >> 52) - 23 - GUARD) << 52);
    // Multiples of a power of two within 53 bits add exactly.
    let sum = step * terms.iter().map(|term| (term / step).trunc()).sum::<f64>();
    towards_zero(sum)
}

/// The nearest f32 that is no larger.
/// For both signs: one less in the bits is a smaller magnitude.
fn towards_zero(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near).abs() > x.abs() { f32::from_bits(near.to_bits() - 1) } else { near }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_cut() {
        let ulp = f64::from(f32::EPSILON);
        // A quarter of the last bit is gone before anything is added, half of it afterwards.
        assert_eq!(add_up(&[1.0, ulp / 4.0, ulp / 4.0]), 1.0);
        assert_eq!(add_up(&[1.0, ulp / 2.0]), 1.0);
        assert_eq!(add_up(&[1.0, ulp / 2.0, ulp / 2.0]), 1.0 + f32::EPSILON);
        assert_eq!(add_up(&[-1.0, -0.75 * ulp, 1.0]), (-ulp / 2.0) as f32);
        assert_eq!(add_up(&[-1.0, -0.75 * ulp]), -1.0);
        assert_eq!(add_up(&[0.0, -0.0]), 0.0);
        assert_eq!(add_up(&[f64::INFINITY, 1.0]), f32::INFINITY);
    }
}
