//! What the texts of `product/matrix` differ by: how weights are stored, and what a workgroup computes.

use crate::kernel::source::{KernelSource, LaunchBuilder};
use tapml_graph::{DType, Result};

/// Name of the kernel in messages of a device.
pub const NAME: &str = "product/matrix";
/// Lanes of a subgroup.
/// The texts divide lanes by this number, which is the size on NVIDIA GPUs.
pub const SUBGROUP: u32 = 32;

/// Rows and columns of one product on matrix units, and its elements along K.
pub const UNIT: u32 = 16;

/// Elements along K at a time, at least.
pub const DEPTH: u32 = 32;

/// How a weight is stored.
#[derive(Clone, Copy, PartialEq)]
pub enum Format {
    /// Elements of f16, as they are.
    Plain,
    /// Packed integers of 4 bits.
    Four,
    /// Packed integers of 8 bits.
    Eight,
}

/// What a workgroup computes, and each of its subgroups.
#[derive(Clone, Copy)]
pub struct Tile {
    /// Rows of the result.
    pub rows: u32,
    /// Columns of the result; of a gated product half of them belong to each weight.
    pub columns: u32,
    /// Rows of a subgroup's part.
    pub own_rows: u32,
    /// Columns of a subgroup's part.
    pub own_columns: u32,
    /// Elements along K at a time.
    pub depth: u32,
    /// How many of these steps are under way.
    pub ahead: u32,
}

impl Tile {
    /// For plain weights.
    pub const LARGE: Tile =
        Tile { rows: 128, columns: 128, own_rows: 64, own_columns: 32, depth: 2 * DEPTH, ahead: 2 };
    /// For two planes of a weight, or of two.
    pub const PLANES: Tile =
        Tile { rows: 128, columns: 128, own_rows: 64, own_columns: 32, depth: DEPTH, ahead: 4 };
    /// For products of one weight that would have too few large ones.
    pub const SMALL: Tile =
        Tile { rows: 64, columns: 64, own_rows: 32, own_columns: 32, depth: 2 * DEPTH, ahead: 2 };

    /// Of weights in this format, `gated` for two, that have `few` columns.
    pub fn from_format(format: Format, gated: bool, few: bool) -> Tile {
        match format {
            _ if few && !gated => Tile::SMALL,
            Format::Plain => Tile::LARGE,
            _ => Tile::PLANES,
        }
    }

    /// The tile for rows of so many elements: in shorter steps, if they do not consist of whole ones.
    pub fn with_row_length(self, k: u32) -> Tile {
        if k.is_multiple_of(self.depth * self.ahead) { self } else { Tile { depth: DEPTH, ahead: 1, ..self } }
    }

    /// Quads of four elements from a row in workgroup memory to the next, two more so that rows hit other banks.
    pub fn step(self) -> u32 {
        self.depth / 4 + 2
    }

    /// Invocations of a workgroup: a subgroup for each part.
    pub fn lanes(self) -> u32 {
        self.rows / self.own_rows * self.columns / self.own_columns * SUBGROUP
    }
}

/// What the text depends on.
#[derive(Clone, Copy)]
pub struct MatrixShape {
    pub format: Format,
    /// Whether there are two weights, gate and up, of one input.
    pub gated: bool,
    /// What a workgroup computes.
    pub tile: Tile,
}

impl MatrixShape {
    /// Every shape that [`MatrixShape`] takes in a plan, so that all texts are known without a graph.
    pub fn all() -> impl Iterator<Item = MatrixShape> {
        let formats = [Format::Plain, Format::Four, Format::Eight].into_iter();
        let kinds = [(false, true), (false, false), (true, false)];
        let shapes = formats.flat_map(move |format| {
            kinds.map(|(gated, few)| MatrixShape {
                format,
                gated,
                tile: Tile::from_format(format, gated, few),
            })
        });
        shapes.flat_map(|shape| {
            // Lengths 0 and DEPTH stand for rows of whole long steps, and for all others.
            [0, DEPTH].map(|k| MatrixShape { tile: shape.tile.with_row_length(k), ..shape })
        })
    }

    /// Weights by their names.
    pub fn weights(self) -> &'static [&'static str] {
        if self.gated { &["gate", "up"] } else { &["w"] }
    }

    /// Tiles of the weights.
    /// A packed weight has two planes, for the upper and the lower part of its numbers.
    pub fn weight_tiles(self) -> u32 {
        if self.format == Format::Plain { 1 } else { 2 }
    }

    /// Quads in workgroup memory.
    pub fn vec4_count(self) -> u32 {
        (self.tile.rows + self.weight_tiles() * self.tile.columns) * self.tile.step()
    }

    /// Elements along K whose products matrix units add up: those of all steps under way, of two planes those of one step. They
    /// cut bits off where sums of f32 round, always towards zero, so that a long sum drifts (Fasi, Higham, Mikaitis and
    /// Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021): what a run gives is added as f32.
    pub fn run(self) -> u32 {
        if self.weight_tiles() == 1 { self.tile.depth * self.tile.ahead } else { self.tile.depth }
    }

    /// Results that wait in workgroup memory, a unit of each subgroup.
    pub fn waiting_results(self) -> u32 {
        UNIT * UNIT * self.tile.lanes() / SUBGROUP
    }

    /// Bytes of workgroup memory.
    pub fn memory(self) -> u32 {
        // Four f16 of a quad are 8 bytes; results are f32.
        8 * self.vec4_count() + 4 * self.waiting_results()
    }

    /// Starts the launch; the text is put in later. Activations are f16.
    pub fn launch(self, out: DType) -> Result<LaunchBuilder> {
        let lanes = self.tile.lanes();
        let mut kernel =
            KernelSource { weights: true, math: self.gated, lanes, ..KernelSource::flat(NAME, "", "") };
        kernel.workgroup_memory = self.memory();
        kernel.launch(DType::F16, out)
    }
}
