//! Products of many rows on matrix units: `matrix.wgsl`, beside the launch for one row. Activations are f16;
//! weights are f16, or packed ones that go by two planes of f16, so that nothing of them is lost.
//!
//! This is tiled multiplication with a multi-stage pipeline. A workgroup computes a tile of the result; each subgroup
//! of it has a part of the tile in registers. Rows and weights go through workgroup memory in steps along K, and the
//! loads of the steps ahead are issued before those at hand are multiplied.

mod text;

use crate::kernel::Request;
use crate::kernel::gemm_problem::GemmProblem;
use crate::kernel::source::{KernelSource, LaunchBuilder, plan_of, single_workgroup, unserved_error};
use crate::kernel::weights::BoundWeight;
use crate::plan::{Arg, Launch, NodePlan};
use tapml_graph::packing::Code;
use tapml_graph::{DType, Extent, Packing, Result, TensorType};

/// Name of the kernel in messages of a device.
const NAME: &str = "product/matrix";
/// Lanes of a subgroup.
/// The texts divide lanes by this number, which is the size on NVIDIA GPUs.
const SUBGROUP: u32 = 32;
/// Rows and columns of one product on matrix units, and its elements along K.
const UNIT: u32 = 16;
/// Elements along K at a time, at least.
const DEPTH: u32 = 32;
/// Columns from which on a prompt has enough large tiles for a large GPU.
const MANY_COLUMNS: u32 = 3072;

/// How a weight is stored.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    /// Elements of f16, as they are.
    Plain,
    /// Packed integers of 4 bits.
    Four,
    /// Packed integers of 8 bits.
    Eight,
}

/// What a workgroup computes, and each of its subgroups.
#[derive(Clone, Copy)]
struct Tile {
    /// Rows of the result.
    rows: u32,
    /// Columns of the result; of a gated product half of them belong to each weight.
    columns: u32,
    /// Rows of a subgroup's part.
    own_rows: u32,
    /// Columns of a subgroup's part.
    own_columns: u32,
    /// Elements along K at a time.
    depth: u32,
    /// How many of these steps are under way.
    ahead: u32,
}

impl Tile {
    /// For plain weights.
    const LARGE: Tile =
        Tile { rows: 128, columns: 128, own_rows: 64, own_columns: 32, depth: 2 * DEPTH, ahead: 2 };
    /// For two planes of a weight, or of two.
    const PLANES: Tile =
        Tile { rows: 128, columns: 128, own_rows: 64, own_columns: 32, depth: DEPTH, ahead: 4 };
    /// For products of one weight that would have too few large ones.
    const SMALL: Tile =
        Tile { rows: 64, columns: 64, own_rows: 32, own_columns: 32, depth: 2 * DEPTH, ahead: 2 };

    /// Of weights in this format, `gated` for two, that have `few` columns.
    fn from_format(format: Format, gated: bool, few: bool) -> Tile {
        match format {
            _ if few && !gated => Tile::SMALL,
            Format::Plain => Tile::LARGE,
            _ => Tile::PLANES,
        }
    }

    /// The tile for rows of so many elements: in shorter steps, if they do not consist of whole ones.
    fn with_row_length(self, k: u32) -> Tile {
        if k.is_multiple_of(self.depth * self.ahead) { self } else { Tile { depth: DEPTH, ahead: 1, ..self } }
    }

    /// Quads of four elements from a row in workgroup memory to the next, two more so that rows hit other banks.
    fn step(self) -> u32 {
        self.depth / 4 + 2
    }

    /// Invocations of a workgroup: a subgroup for each part.
    fn lanes(self) -> u32 {
        self.rows / self.own_rows * self.columns / self.own_columns * SUBGROUP
    }
}

/// What the text depends on.
#[derive(Clone, Copy)]
struct MatrixShape {
    format: Format,
    /// Whether there are two weights, gate and up, of one input.
    gated: bool,
    /// What a workgroup computes.
    tile: Tile,
}

impl MatrixShape {
    /// Every shape that [`MatrixShape`] takes in a plan, so that all texts are known without a graph.
    fn all() -> impl Iterator<Item = MatrixShape> {
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
    fn weights(self) -> &'static [&'static str] {
        if self.gated { &["gate", "up"] } else { &["w"] }
    }

    /// Tiles of the weights.
    /// A packed weight has two planes, for the upper and the lower part of its numbers.
    fn weight_tiles(self) -> u32 {
        if self.format == Format::Plain { 1 } else { 2 }
    }

    /// Quads in workgroup memory.
    fn vec4_count(self) -> u32 {
        (self.tile.rows + self.weight_tiles() * self.tile.columns) * self.tile.step()
    }

    /// Elements along K whose products matrix units add up: those of all steps under way, of two planes those of one step. They
    /// cut bits off where sums of f32 round, always towards zero, so that a long sum drifts (Fasi, Higham, Mikaitis and
    /// Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021): what a run gives is added as f32.
    fn run(self) -> u32 {
        if self.weight_tiles() == 1 { self.tile.depth * self.tile.ahead } else { self.tile.depth }
    }

    /// Results that wait in workgroup memory, a unit of each subgroup.
    fn waiting_results(self) -> u32 {
        UNIT * UNIT * self.tile.lanes() / SUBGROUP
    }

    /// Bytes of workgroup memory.
    fn memory(self) -> u32 {
        // Four f16 of a quad are 8 bytes; results are f32.
        8 * self.vec4_count() + 4 * self.waiting_results()
    }

    /// Starts the launch; the text is put in later. Activations are f16.
    fn launch(self, out: DType) -> Result<LaunchBuilder> {
        let lanes = self.tile.lanes();
        let mut kernel =
            KernelSource { weights: true, math: self.gated, lanes, ..KernelSource::flat(NAME, "", "") };
        kernel.workgroup_memory = self.memory();
        kernel.launch(DType::F16, out)
    }
}

/// Every text.
pub fn texts() -> impl Iterator<Item = String> {
    MatrixShape::all().map(|shape| text::compose_shape(shape).into_text())
}

/// The plan of a product of many rows.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let asked = GemmProblem::from_op(request.op, request.inputs).ok_or_else(|| unserved_error(request))?;
    let mut weights = vec![BoundWeight::from_input(request, 1)?];
    if asked.gated {
        weights.push(BoundWeight::from_input(request, 2)?);
    }
    let bias = if asked.gated { None } else { request.inputs.get(2) };
    let weights: Vec<&BoundWeight> = weights.iter().collect();
    let found = launch(request, &weights, bias).filter(|_| request.binds_whole());
    let (launch, chain) = found.ok_or_else(|| unserved_error(request))?;
    let lacks_bias = bias.is_none() && !asked.gated;
    let constants = if lacks_bias { vec![vec![0; 4]] } else { Vec::new() };
    Ok(NodePlan { constants, ..plan_of(launch, chain) })
}

/// The launch and the longest chain of additions; `None` if the kernel does not serve the node.
fn launch(request: &Request, weights: &[&BoundWeight], bias: Option<&TensorType>) -> Option<(Launch, u32)> {
    let (x, out) = (&request.inputs[0], request.outputs[0].dtype);
    let k = u32::try_from(x.shape[1].as_const()?).ok()?;
    let width = u32::try_from(weights[0].ty.shape[0].as_const()?).ok()?;
    let packing = weights[0].packing();
    let format = match packing {
        None if weights[0].ty.dtype == DType::F16 => Format::Plain,
        // Two planes of f16 do not hold what is left of the smallest numbers of 8 bits.
        Some(p) if p.zeros || !p.group.is_multiple_of(UNIT) => return None,
        Some(Packing { code: Code::Int4, .. }) => Format::Four,
        Some(Packing { code: Code::Int8, .. }) => Format::Eight,
        _ => return None,
    };
    // A constant number of rows is that of a graph without prompts, for which other kernels are taken.
    let many = x.shape[0].as_const().is_none();
    let fits = x.dtype == DType::F16 && k > 0 && k.is_multiple_of(DEPTH) && width > 0;
    if !request.info.features.matrices || !many || !fits {
        return None;
    }
    let gated = weights.len() > 1;
    let tile = Tile::from_format(format, gated, width < MANY_COLUMNS).with_row_length(k);
    let shape = MatrixShape { format, gated, tile };
    let mut launch = shape.launch(out).ok()?.input(0);
    launch = weights.iter().flat_map(|w| w.args()).fold(launch, LaunchBuilder::read);
    if !gated {
        launch = launch.optional(2, bias).with_presence(["HAS_BIAS", "B_DTYPE"], bias).ok()?;
    }
    launch = launch.bind(true, Arg::Output(0)).rows(&x.shape[0]).ok()?.set("K", k).set("O", width);
    if let Some(packing) = packing {
        launch = launch.with_packing(packing);
    }
    // A tile of a gated product gives half as many columns of the result as it multiplies.
    let columns = Extent::from_dim(u64::from(width.div_ceil(tile.columns / weights.len() as u32)));
    let groups = [Extent::ceil_div(x.shape[0].clone(), tile.rows), columns, single_workgroup()];
    let mut launch = launch.subgroups().groups(groups);
    text::compose_shape(shape).put_into(&mut launch.desc.source);
    launch.desc.check_limits(request.info).ok()?;
    // One addition in f32 for each accumulation block, those within a block, and those within one product.
    Some((launch, k / shape.run() + shape.run() / UNIT * shape.weight_tiles() + UNIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wgsl::parse_declarations;

    #[test]
    fn texts_are_valid() {
        for shape in MatrixShape::all() {
            let launch = shape.launch(DType::F16).unwrap();
            let launch = match shape.format {
                Format::Plain => launch,
                Format::Four => launch.with_packing(Packing::integers(4, 32, false)),
                Format::Eight => launch.with_packing(Packing::integers(8, 32, false)),
            };
            let mut launch = launch.groups([single_workgroup(), single_workgroup(), single_workgroup()]);
            text::compose_shape(shape).put_into(&mut launch.desc.source);
            let found = parse_declarations(&launch.desc.source, true).unwrap();
            assert_eq!(found.workgroup_memory, Some(shape.memory()));
        }
    }
}
