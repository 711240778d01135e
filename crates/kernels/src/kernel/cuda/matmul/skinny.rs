//! Few rows of the products of `gemm_hopper.cu`: how the warps of a block share them.

use super::{Format, MappedWeights, Matmul, ROWS, RUN, STEP, STEP_BYTES, THREADS, map};

/// Rows up to which warps multiply alone, each with [`STRIP`] rows of weights: see `gemm_skinny.cuh`. More rows of f16 weights are
/// faster in tiles, which read the input less often.
const SKINNY: u32 = 16;
/// The same of packed weights.
const SKINNY_PACKED: u32 = 32;
/// Rows of weights of a strip.
const STRIP: u32 = 16;
/// Rows of a box of the input there.
const BOX_ROWS: u32 = 8;
/// Bytes that the place of such a box is a multiple of: it is swizzled by its place among them.
const BOX_ALIGNMENT: u32 = 1024;
/// Bytes of a row of a box of weights, at most.
const BOX_BYTES: u32 = 128;
/// Threads that fill the ring, each its own stages.
const FILLERS: u32 = 4;
/// Groups of four warps that have registers enough.
const GROUPS: u32 = 2;
/// Bytes of the sums of a slice of a strip and eight rows, which warps give each other.
const SUM_BYTES: u32 = 512;

/// How a block multiplies few rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SkinnyBlock {
    /// Rows up to which it does; 0 for none.
    rows: u32,
    /// Strips of a tile.
    strips: u32,
    /// Warps that share a strip: each takes as many slices of K as the others.
    shares: u32,
    /// Steps along K of a stage of packed weights.
    wide: u32,
}

impl SkinnyBlock {
    /// Warps that multiply.
    pub(super) fn warps(&self) -> u32 {
        self.strips * self.shares
    }
}

impl Matmul {
    /// The constants of a block, and of its tensor maps, which come behind those of tiles.
    pub(super) fn skinny_constants(
        &self,
        block: &SkinnyBlock,
        weights: &MappedWeights,
    ) -> Vec<(String, f64)> {
        let SkinnyBlock { rows, strips, shares, wide } = *block;
        let sizes = [("SKINNY", rows), ("STRIPS", strips), ("SHARES", shares), ("WIDE", wide)];
        let mut constants = sizes.map(|(name, value)| (name.to_string(), f64::from(value))).to_vec();
        if rows > 0 {
            let MappedWeights { count, arrays, box_row: [bytes, row, width] } = *weights;
            constants.extend(map(1 + count, 0, [2, self.k, STEP, BOX_ROWS]));
            let size = [bytes, row, width * wide, strips * self.strip_outputs()];
            constants.extend((0..count).flat_map(|i| map(2 + count + i, 1 + i * arrays, size)));
        }
        constants
    }

    /// Rows up to which warps multiply alone, in tiles for few rows; 0 for none.
    fn skinny_rows(&self) -> u32 {
        match self.format {
            _ if self.tile >= ROWS => 0,
            Format::F16 => SKINNY,
            Format::Packed(_) => SKINNY_PACKED,
        }
    }

    /// Outputs of a strip.
    fn strip_outputs(&self) -> u32 {
        if self.gated { STRIP / 2 } else { STRIP }
    }

    /// How a block multiplies few rows, with the warps of `groups` groups, or of [`GROUPS`], and `room` bytes of shared memory: so that
    /// it ends soonest.
    ///
    /// What is read is the same for any number of strips. A round of f16 weights costs what its warps read, and a wait. Packed weights
    /// have few bytes: what counts is what a warp does, two of which a scheduler runs at once.
    pub(super) fn skinny(&self, blocks: u32, groups: u32, room: u32) -> SkinnyBlock {
        let none = SkinnyBlock { rows: 0, strips: 1, shares: 1, wide: 1 };
        if self.skinny_rows() == 0 {
            return none;
        }
        let packed = self.format.bits().is_some();
        let most = THREADS / 32 * if packed { groups.max(GROUPS) } else { groups };
        let steps = self.k / STEP;
        let cost = |block: &SkinnyBlock| {
            let SkinnyBlock { strips, shares, .. } = *block;
            let tiles: u32 = self.outputs.iter().map(|o| o.div_ceil(strips * self.strip_outputs())).sum();
            let round = if packed {
                let meeting = if shares > 1 { 4 } else { 0 };
                steps.div_ceil(2 * shares) * block.warps().div_ceil(THREADS / 32).max(2) + meeting + 2
            } else {
                strips + 1
            };
            u64::from(tiles.div_ceil(blocks)) * u64::from(round)
        };
        let shares = if packed { self.slices() } else { 1 };
        let all = (1..=most).flat_map(|strips| (1..=shares).map(move |shares| (strips, shares)));
        all.filter(|(strips, shares)| strips * shares <= most)
            .filter_map(|(strips, shares)| self.skinny_block(strips, shares, room))
            .min_by_key(cost)
            .unwrap_or(none)
    }

    /// A block of so many strips and shares, with stages as wide as there is room for; `None` if there is none for the fewest of them.
    fn skinny_block(&self, strips: u32, shares: u32, room: u32) -> Option<SkinnyBlock> {
        let rows = self.skinny_rows();
        let fits = |&wide: &u32| {
            // Sums that the warps of a strip give each other, twice.
            let given = if shares > 1 { 2 * strips * shares * rows / BOX_ROWS * SUM_BYTES } else { 0 };
            let step = rows.max(BOX_ROWS) * STEP_BYTES + strips * STRIP * self.format.step_bytes();
            let stages = room.saturating_sub(given)
                / (self.steps_of_stage(wide) * step).next_multiple_of(BOX_ALIGNMENT);
            stages / FILLERS * FILLERS >= FILLERS.max(3 * shares)
        };
        let wide = [4, 2, 1].into_iter().filter(|&wide| self.divides_slice(wide)).find(fits)?;
        Some(SkinnyBlock { rows, strips, shares, wide })
    }

    /// Steps along K of a stage: of f16 two, of two runs, if they come out even.
    fn steps_of_stage(&self, wide: u32) -> u32 {
        match self.format.bits() {
            Some(_) => wide,
            None if (self.k / STEP).is_multiple_of(2 * RUN / STEP) => 2,
            None => 1,
        }
    }

    /// Whether a slice is whole stages of so many steps, whose rows are no longer than those of a box. Of f16 they have one step.
    fn divides_slice(&self, wide: u32) -> bool {
        let slice = self.k / STEP / self.slices();
        match self.format.bits() {
            // A warp takes two steps at a time, if it can.
            Some(bits) => {
                let odd = !(self.k / STEP).is_multiple_of(2);
                wide * STEP * bits / 8 <= BOX_BYTES && slice.is_multiple_of(wide) && (wide > 1 || odd)
            }
            None => wide == 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::product;
    use super::*;

    #[test]
    fn few_rows_take_as_many_strips_as_end_soonest() {
        let skinny = |k: u32, outputs: &[u32], bits, gated| {
            let product = Matmul { k, usual: 64, tile: 64, slices: 2, ..product(outputs, bits, gated) };
            let block = product.skinny(132, product.groups(132), 176 << 10);
            (block.strips, block.shares, block.wide)
        };
        for (bits, wide) in [(None, 1), (Some(4), 4), (Some(8), 2)] {
            let shares = if bits.is_some() { 2 } else { 1 };
            assert_eq!(
                skinny(4096, &[4096], bits, false),
                (2, shares, wide),
                "a tile for each of 128 blocks"
            );
            assert_eq!(skinny(4096, &[4096, 1024, 1024], bits, false).0, 3, "a tile for each of 130 blocks");
            assert_eq!(skinny(4096, &[14336], bits, true).0, 7, "two tiles for each of 128 blocks");
            assert_eq!(skinny(4096, &[320], bits, false).0, 1, "a tile for each of 20 blocks");
        }
        assert_eq!(skinny(320, &[320], Some(4), false), (1, 1, 1), "an odd number of steps");
        assert_eq!(skinny(896, &[896], Some(4), false), (1, 1, 2), "no whole stages of four steps");
    }
}
