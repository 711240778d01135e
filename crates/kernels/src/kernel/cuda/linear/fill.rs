//! How a chip is filled with a product of one row.
//!
//! A multiprocessor hides the latency of memory by how many bytes it has under way: warps, stages of their rings, and
//! blocks at once. More of each take more shared memory, which is also what the row lies in.

use super::{Dense, Format, MOST_MIXED, Product};

/// Bytes of shared memory, with what the driver keeps of it, of which two blocks fit a multiprocessor.
/// A multiprocessor of compute capability 9.0 offers 227 KiB.
const HALF_OF_SHARED: u32 = (227 << 10) / 2 - (3 << 10);

/// How a chip is filled, as measured on an H200. Any numbers are right.
#[derive(Clone, Copy, Debug)]
pub struct ChipFill {
    /// Warps of a team at most.
    pub warps: u32,
    /// Teams of a block: they share `x`.
    pub teams: u32,
    /// Blocks of a multiprocessor that run at once at most.
    pub blocks: u32,
    /// Bytes of shared memory that a block takes, if two stages of a ring fit.
    pub memory: u32,
    /// Stages of a warp's ring at most.
    pub depth: u32,
}

/// The room that a launch has.
pub struct LaunchRoom {
    pub fill: ChipFill,
    /// Stages of a ring.
    pub depth: u32,
    /// Bytes of shared memory.
    pub memory: u32,
}

/// Two blocks on each multiprocessor.
const TWO_BLOCKS: ChipFill = ChipFill { warps: 8, teams: 1, blocks: 2, memory: HALF_OF_SHARED, depth: 6 };
/// One block, which leaves room for one of the next launch.
const TWO_TEAMS: ChipFill = ChipFill { warps: 8, teams: 2, blocks: 1, memory: 100 << 10, depth: 6 };
/// One block. A product with few tiles leaves multiprocessors to the next launch.
const FOUR_TEAMS: ChipFill = ChipFill { warps: 4, teams: 4, blocks: 1, memory: 224 << 10, depth: 6 };

/// A stack beside a dense weight.
const SHARED_EXPERT: ChipFill = ChipFill { memory: 150 << 10, ..FOUR_TEAMS };
/// A mixed product: as many blocks as there are tiles, nearly.
const MIXED: ChipFill = ChipFill { warps: MOST_MIXED, teams: 1, blocks: 1, memory: 114 << 10, depth: 4 };

impl Product {
    /// How a chip is filled with this product, and how where that takes too much shared memory.
    pub fn fills(&self) -> [ChipFill; 2] {
        if let Some(Dense::Mixed(_)) = self.dense {
            return [MIXED, ChipFill { depth: 2, ..MIXED }];
        }
        let few = match self.format {
            Format::F16 | Format::BF16 => TWO_BLOCKS,
            Format::Four { .. } | Format::Eight | Format::Float => ChipFill { depth: 3, ..TWO_BLOCKS },
        };
        let first = match (self.format, self.tiles()) {
            (Format::F16 | Format::BF16, _) => few,
            _ if matches!(self.dense, Some(Dense::SharedExpert(_))) => SHARED_EXPERT,
            (_, 256..) if self.k >= 4096 => FOUR_TEAMS,
            (_, 128..) => TWO_TEAMS,
            _ => few,
        };
        [first, few]
    }

    /// The room of a launch; `None` if there is too little shared memory.
    pub fn room(&self, most: u32) -> Option<LaunchRoom> {
        self.fills().into_iter().find_map(|fill| {
            // All warps of a block have a ring.
            let stage = fill.teams * self.warps(fill) * self.format.stage().1;
            // Beside them, sums of tiles and of squares.
            let sums = 128 * fill.teams * self.warps(fill) * self.tiles_per_sum(fill)
                + self.k.div_ceil(256) * 4
                + 256;
            let rings = most.saturating_sub(sums).min(fill.memory).saturating_sub(self.shared_bytes());
            // A ring of one stage could not load and be used at the same time.
            let depth = (rings / stage).clamp(2, fill.depth);
            let memory = self.shared_bytes() + depth * stage;
            (memory + sums <= most).then_some(LaunchRoom { fill, depth, memory })
        })
    }

    /// Tiles of a block whose sums are joined at once, so that warps meet once in eight stages or more.
    pub fn tiles_per_sum(&self, fill: ChipFill) -> u32 {
        8u32.div_ceil(self.steps(fill)).min(4)
    }

    /// Warps of a team: of half as many as there may be or more, as many as wait least for the one with the most stages of
    /// a row.
    pub fn warps(&self, fill: ChipFill) -> u32 {
        if let Some(Dense::Mixed(_)) = self.dense {
            return self.rows() * self.split();
        }
        let stages = self.format.stages(self.k);
        let most = stages.min(fill.warps);
        // Stages that the slowest warp takes, times warps: what is beyond the row's stages is waiting.
        let taken = |warps: &u32| stages.div_ceil(*warps) * warps;
        (most.div_ceil(2)..=most).rev().min_by_key(taken).unwrap_or(1)
    }

    /// Stages of a row that a warp takes at most.
    pub fn steps(&self, fill: ChipFill) -> u32 {
        let stages = self.format.stages(self.k);
        let sharers = if let Some(Dense::Mixed(_)) = self.dense { self.split() } else { self.warps(fill) };
        stages.div_ceil(sharers).max(1)
    }

    /// Warps that share a slot of a mixed product, or a run of the dense weight's rows: two, if there are registers for them.
    pub fn split(&self) -> u32 {
        if self.rows() <= MOST_MIXED / 2 && self.format.stages(self.k) > 1 { 2 } else { 1 }
    }
}
