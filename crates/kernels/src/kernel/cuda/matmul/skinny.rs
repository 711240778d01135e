//! Few rows of the products of `gemm_hopper.cu`: how many warps of a block multiply them, and with how many stages.

use super::{Format, MappedWeights, Matmul, ROWS, RUN, STEP, STEP_BYTES, THREADS, map};

/// Rows up to which warps multiply alone, each with [`WARP_ROWS`] rows of weights: see `gemm_skinny.cuh`. More rows of f16 weights are
/// faster in tiles, which read the input less often.
const SKINNY: u32 = 16;
/// The same of packed weights.
const SKINNY_PACKED: u32 = 32;
/// Rows of weights of such a warp.
const WARP_ROWS: u32 = 16;
/// Rows of a box of the input there.
const BOX_ROWS: u32 = 8;
/// Bytes that the place of such a box is a multiple of: it is swizzled by its place among them.
const BOX_ALIGNMENT: u32 = 1024;
/// Stages of the ring at most there: they hold as much as memory has on its way to a multiprocessor.
const SKINNY_DEPTH: u32 = 16;

/// How a block multiplies few rows.
struct SkinnyBlock {
    /// Warps that multiply.
    warps: u32,
    /// Stages of their ring.
    stages: u32,
}

impl Matmul {
    /// The constants of a block with the warps of `groups` groups and `room` bytes of shared memory, and of its tensor maps, which come
    /// behind those of tiles.
    pub(super) fn skinny_constants(
        &self,
        blocks: u32,
        groups: u32,
        room: u32,
        weights: &MappedWeights,
    ) -> Vec<(String, f64)> {
        let SkinnyBlock { warps, stages } = self.skinny(blocks, groups, room);
        let rows = self.skinny_rows();
        let sizes = [("SKINNY", rows), ("WARPS", warps), ("SKINNY_STAGES", stages)];
        let mut constants = sizes.map(|(name, value)| (name.to_string(), f64::from(value))).to_vec();
        if rows > 0 {
            let MappedWeights { count, arrays, box_row: [bytes, row, width] } = *weights;
            constants.extend(map(1 + count, 0, [2, self.k, STEP, BOX_ROWS]));
            let size = [bytes, row, width, warps * self.warp_outputs()];
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

    /// Outputs of a warp that multiplies alone.
    fn warp_outputs(&self) -> u32 {
        if self.gated { WARP_ROWS / 2 } else { WARP_ROWS }
    }

    /// How a block multiplies few rows, with the warps of `groups` groups and `room` bytes of shared memory: with as many warps as end
    /// soonest.
    ///
    /// What is read is the same for any number of warps. A round costs what its warps read, and a wait: of packed
    /// weights, which have few bytes, the wait is what counts.
    fn skinny(&self, blocks: u32, groups: u32, room: u32) -> SkinnyBlock {
        let packed = self.format.bits().is_some();
        let wait = if packed { 6 } else { 1 };
        let cost = |&warps: &u32| {
            let tiles: u32 = self.outputs.iter().map(|o| o.div_ceil(warps * self.warp_outputs())).sum();
            u64::from(tiles.div_ceil(blocks)) * u64::from(wait + warps)
        };
        let warps = (1..=groups * THREADS / 32).min_by_key(cost).unwrap_or(1);
        // Steps of a stage: two, if they come out even, of f16 those of two runs.
        let even = if packed { 2 } else { 2 * RUN / STEP };
        let span = if (self.k / STEP).is_multiple_of(even) { 2 } else { 1 };
        let step =
            self.skinny_rows().max(BOX_ROWS) * STEP_BYTES + warps * WARP_ROWS * self.format.step_bytes();
        let stage = (span * step).next_multiple_of(BOX_ALIGNMENT);
        SkinnyBlock { warps, stages: (room / stage).min(SKINNY_DEPTH) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::product;
    use super::*;

    #[test]
    fn few_rows_take_as_many_warps_as_end_soonest() {
        let skinny = |outputs: &[u32], bits, gated| {
            let product = Matmul { usual: 64, tile: 64, ..product(outputs, bits, gated) };
            let groups = product.groups(132);
            let block = product.skinny(132, groups, 200 << 10);
            assert!((2..=SKINNY_DEPTH).contains(&block.stages), "{} stages", block.stages);
            block.warps
        };
        for bits in [None, Some(4), Some(8)] {
            assert_eq!(skinny(&[4096], bits, false), 2, "a tile for each of 128 blocks");
            assert_eq!(skinny(&[4096, 1024, 1024], bits, false), 3, "a tile for each of 130 blocks");
            assert_eq!(skinny(&[14336], bits, true), 7, "two tiles for each of 128 blocks");
            assert_eq!(skinny(&[320], bits, false), 1, "a tile for each of 20 blocks");
        }
    }
}
