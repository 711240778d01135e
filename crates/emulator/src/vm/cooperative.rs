//! Products of matrices that subgroups of 32 lanes hold together, 8 elements in a lane.

use super::Vm;
use crate::code::{HELD, Reg};

/// Rows and columns.
const SIZE: usize = 16;

impl Vm<'_> {
    /// `d = a · b + c` in each subgroup that has an active lane. As on matrix units, the 16 products of a sum, which are
    /// exact, are added up with more bits than its result has.
    pub(super) fn multiply_add(&self, d: Reg, a: Reg, b: Reg, c: Reg) {
        let held = HELD as usize;
        let size = self.code.subgroup_size as usize;
        for first in (0..self.lanes).step_by(size).filter(|&first| self.active.is(first)) {
            let matrix = |reg: Reg| -> Vec<f32> {
                let element = |i: usize| self.view(reg.offset((i % held) as u32)).lane(first + i / held);
                (0..SIZE * SIZE).map(|i| f32::from_bits(element(i))).collect()
            };
            let (a, b, c) = (matrix(a), matrix(b), matrix(c));
            for (i, &start) in c.iter().enumerate() {
                let (row, column) = (i / SIZE, i % SIZE);
                let product = |k: usize| f64::from(a[row * SIZE + k]) * f64::from(b[k * SIZE + column]);
                let sum = f64::from(start) + (0..SIZE).map(product).sum::<f64>();
                self.view(d.offset((i % held) as u32)).set_lane(first + i / held, (sum as f32).to_bits());
            }
        }
    }
}
