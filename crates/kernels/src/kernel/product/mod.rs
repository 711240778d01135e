//! Matrix products with weights read 16 bytes at a time and sums that meet in subgroups: planners of the variants
//! `subgroup` of the operators that have such products. Workgroup `(x, y)` stands for octet `x` of columns of all rows when
//! there are few, and for a tile of 64 rows by 8 octets when there are many, unless a setting says otherwise. With batches
//! there is a workgroup for each octet and each eight rows.
//!
//! An octet is what one workgroup computes of one row at a time: 8 columns, or 4 of each weight of a gated product.

pub mod matrix;
pub mod row;

use super::Request;
use super::source::{KernelSource, LaunchBuilder, constant, plan as planned, single_workgroup};
use super::weights::BoundWeight;
use crate::axis::Axis;
use crate::plan::{Launch, NodePlan};
use tapml_graph::{DType, Error, Extent, Result};

/// Invocations of a workgroup.
const LANES: u32 = 128;
/// Rows of a tile.
/// The setting `rows` takes another one.
const TILE: u32 = 64;
/// Elements along K of a tile at a time.
/// It is also the least accumulation block.
const DEPTH: u32 = 32;
/// Additions that join the sums of a row's lanes: those of one lane, then of the subgroups, of which there are few.
const LANE_ADDITIONS: u32 = 8;

/// What all these kernels share.
pub const KERNEL: KernelSource = KernelSource {
    name: "",
    file: "",
    text: "",
    weights: true,
    norm: false,
    formula: "",
    math: false,
    lanes: LANES,
    workgroup_memory: 1024 * 16,
};

/// How a weight lies in 16 bytes.
struct WeightLayout {
    /// Elements that are unpacked together.
    /// As many as a word of a packed weight holds.
    piece: u32,
    /// Elements of 16 bytes.
    /// One load of a lane is a `vec4<u32>`.
    load: u32,
    /// Among how many teams of lanes the columns are shared out.
    /// Two for short packed rows, of which not every lane would get a load otherwise.
    teams: u32,
}

impl WeightLayout {
    /// Fails if rows of this length, or groups, do not consist of whole loads.
    fn for_weight(w: &BoundWeight, k: u32) -> Result<WeightLayout> {
        let (piece, load) = match w.packing() {
            // Scales are read as f16.
            Some(packing) if packing.code.info().scale != DType::F16 => {
                return Err(Error::unsupported(format!(
                    "weights of {packing}: the kernel takes scales of f16"
                )));
            }
            Some(packing) => (packing.per_word(), 4 * packing.per_word()),
            None if w.ty.dtype == DType::F32 => (4, 4),
            None => (8, 8),
        };
        // A load may not reach over two groups, which have different scales.
        let unit = w.packing().map_or(k, |packing| packing.group);
        if k == 0 || !k.is_multiple_of(load) || !unit.is_multiple_of(load) {
            return Err(Error::unsupported(format!(
                "rows of {k} elements in groups of {unit}: the kernel reads {load} at a time"
            )));
        }
        // Half of the lanes would have no load of a short row.
        let short = w.packing().is_some() && k / load <= LANES / 2;
        Ok(WeightLayout { piece, load, teams: if short { 2 } else { 1 } })
    }

    /// The longest chain of additions, of any way.
    /// Few rows and batches are summed up by lanes, many rows by tiles; the declared chain covers all.
    fn chain(&self, k: u32) -> u32 {
        let loads = k.div_ceil(self.load * LANES / self.teams);
        let few = if self.piece == self.load { loads * (self.load / 4) } else { loads + self.load };
        let batch = k.div_ceil(self.piece * LANES) * self.piece;
        (few.max(batch) + LANE_ADDITIONS).max(run(k) + k.div_ceil(run(k)))
    }
}

/// As [`super::linear::run`] for deeper tiles.
/// A block of about the square root of K keeps both chains short: within a block, and of the blocks.
fn run(k: u32) -> u32 {
    k.isqrt().next_power_of_two().clamp(DEPTH, 256)
}

/// The plan of `linear` by this kernel.
///
/// There is one launch for each part of a weight that is beyond the device's limits.
pub fn linear(kernel: &KernelSource, request: &Request, w: &BoundWeight) -> Result<NodePlan> {
    let (x, out, bias) = (&request.inputs[0], &request.outputs[0], request.inputs.get(2));
    let product = Product::from_request(request, w, 8)?;
    let mut launches = Vec::new();
    for part in w.split(request.info)? {
        let launch = kernel.launch(x.dtype, out.dtype)?.input(0).weight(w, &part)?.optional(2, bias);
        let launch = launch.output(0).with_presence(["HAS_BIAS", "B_DTYPE"], bias)?;
        launches.push(product.finish(launch, part.rows, part.first)?);
    }
    let chain = product.layout.chain(product.k);
    let plan = planned(kernel, launches, chain).with_axes([Axis::skinny_rows(&x.shape[0])]);
    Ok(NodePlan { constants: w.stand_in(Some(bias)), ..plan })
}

/// The plan of `gated_linear` by this kernel.
///
/// Both weights have the same type, so that they are split alike.
pub fn plan_gated(
    kernel: &KernelSource,
    request: &Request,
    [gate, up]: [&BoundWeight; 2],
) -> Result<NodePlan> {
    let x = &request.inputs[0];
    let product = Product::from_request(request, gate, 4)?;
    let mut launches = Vec::new();
    for part in gate.split(request.info)? {
        let launch =
            kernel.launch(x.dtype, x.dtype)?.input(0).weight(gate, &part)?.weight(up, &part)?.output(0);
        launches.push(product.finish(launch, part.rows, part.first)?);
    }
    let chain = product.layout.chain(product.k);
    let plan = planned(kernel, launches, chain).with_axes([Axis::skinny_rows(&x.shape[0])]);
    Ok(NodePlan { constants: gate.stand_in(None), ..plan })
}

/// What all launches of a node share.
struct Product<'a> {
    request: &'a Request<'a>,
    layout: WeightLayout,
    /// Whether weights are packed; they all are, or none is.
    packed: bool,
    /// Row length of inputs and weights.
    k: u32,
    /// Rows of the whole weight, and columns of the result.
    width: u32,
    /// Outputs of an octet.
    outputs: u32,
}

impl<'a> Product<'a> {
    /// `outputs` is the number of results of an octet.
    fn from_request(request: &'a Request<'a>, w: &BoundWeight, outputs: u32) -> Result<Product<'a>> {
        let k = constant("the row length", &request.inputs[0].shape[1])?;
        let width = constant("the number of outputs", &w.ty.shape[0])?;
        Ok(Product {
            request,
            layout: WeightLayout::for_weight(w, k)?,
            packed: w.packing().is_some(),
            k,
            width,
            outputs,
        })
    }

    /// Sets constants and grid of the launch for these rows of the weights.
    fn finish(&self, launch: LaunchBuilder, rows: u32, first: u32) -> Result<Launch> {
        let (tokens, layout) = (&self.request.inputs[0].shape[0], &self.layout);
        let (octets, setting) = (rows.div_ceil(self.outputs), self.request.setting);
        let launch = launch.subgroups().rows(tokens)?.set("K", self.k).set("RUN", run(self.k)).set("O", rows);
        let launch = launch.set("FIRST", first).set("WIDTH", self.width).set("OCTETS", octets);
        let launch = launch.set("PIECE", layout.piece).with_setting_sizes(setting);
        let launch = if self.packed {
            launch.set("LOAD", layout.load).set("X_LOAD", layout.load / 4).set("TEAMS", layout.teams)
        } else {
            launch
        };
        let batch = setting.size("batch", 0);
        let rows = if batch > 0 { batch } else { setting.size("rows", TILE) };
        let tiles = Extent::ceil_div(tokens.clone(), rows);
        // With few rows there is a single tile. With many, workgroups behind the last tile of columns end at once.
        let few = octets.div_ceil(setting.size("each", 1));
        Ok(launch.groups([Extent::from_dim(u64::from(few)), tiles, single_workgroup()]))
    }
}
