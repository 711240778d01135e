//! `linear`: launch planner. Workgroup `(x, y)` stands for outputs `4·x` to `4·x + 3` of all rows when there are few,
//! and for a tile of 32 outputs and 32 rows when there are many, unless a setting says otherwise. A weight beyond one
//! binding is split by rows, which are outputs, with one launch for each part. Without a bias, four zero bytes are
//! bound in its place.
//!
//! With few rows each lane of a workgroup takes every 64th pair of elements, and the sums meet in workgroup memory.
//! With many, tiles of both operands go through workgroup memory in steps along K.

pub mod subgroup;

use super::Request;
use super::compose::{FixedComposition, joined};
use super::settings::Setting;
use super::source::{KernelSource, constant, plan as planned, single_workgroup, wrong_op};
use super::weights::{BoundWeight, PART_ROWS};
use crate::axis::Axis;
use crate::plan::NodePlan;
use tapml_device::Grid;
use tapml_graph::{Dim, Extent, Op, Result};

/// Rows and outputs of a tile.
const TILE: u32 = 32;
/// Outputs of a workgroup when there are few rows.
const OUTPUTS: u32 = PART_ROWS;
/// Invocations of a workgroup.
const LANES: u32 = 64;
/// Elements along K of a tile at a time.
const DEPTH: u32 = 16;

/// For plain weights.
const TEXT: FixedComposition =
    joined!("linear/portable.wgsl", "linear/reads.wgsl", "linear/bindings.wgsl", "weights/one.wgsl");
/// Two tiles of [`TILE`] by [`DEPTH`] numbers of f32 lie in workgroup memory.
const KERNEL: KernelSource = KernelSource {
    name: "linear/portable",
    file: TEXT.file,
    text: TEXT.text,
    weights: true,
    norm: false,
    formula: "",
    math: false,
    lanes: LANES,
    workgroup_memory: 2 * TILE * DEPTH * 4,
};
/// For packed weights: the same kernel, with other bindings and other reads.
const PACKED_TEXT: FixedComposition = joined!(
    "linear/portable.wgsl",
    "linear/reads.wgsl",
    "linear/packed_bindings.wgsl",
    "weights/one_packed.wgsl"
);
/// A name of its own, so that reports tell both apart.
const PACKED: KernelSource =
    KernelSource { name: "linear/packed", file: PACKED_TEXT.file, text: PACKED_TEXT.text, ..KERNEL };

/// A packed weight is unpacked as it is read, by the text that binds its sections.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let w = BoundWeight::from_input(request, 1)?;
    plan_with(if w.is_packed() { &PACKED } else { &KERNEL }, request, &w)
}

/// The plan by one of both kernels. Each part of the weight is a launch that writes its own columns of the result.
fn plan_with(kernel: &KernelSource, request: &Request, w: &BoundWeight) -> Result<NodePlan> {
    let Op::Linear(_) = request.op else { return Err(wrong_op(request)) };
    let (x, out) = (&request.inputs[0], &request.outputs[0]);
    let (rows, k) = (&x.shape[0], constant("the row length", &x.shape[1])?);
    let width = constant("the number of outputs", &w.ty.shape[0])?;
    let (bias, setting) = (request.inputs.get(2), request.setting);
    let mut launches = Vec::new();
    // The bias is bound as a whole in each launch; `FIRST` says where the part's outputs begin.
    for part in w.split(request.info)? {
        let launch = kernel.launch(x.dtype, out.dtype)?.input(0).weight(w, &part)?.optional(2, bias);
        let launch = launch.output(0).rows(rows)?.set("K", k).set("RUN", run(k));
        let launch = launch.set("O", part.rows).set("FIRST", part.first).set("WIDTH", width);
        let launch = launch.with_presence(["HAS_BIAS", "B_DTYPE"], bias)?.with_setting_sizes(setting);
        launches.push(launch.groups(grid(part.rows, rows, setting)));
    }
    // Few rows and many go different ways within the text.
    let plan = planned(kernel, launches, chain(k)).with_axes([Axis::skinny_rows(rows)]);
    Ok(NodePlan { constants: w.stand_in(Some(bias)), ..plan })
}

/// Workgroups for so many outputs, and tiles along the rows.
///
/// Both ways share a grid, because the number of rows is not known when a list is recorded. In a launch with few rows
/// there is one tile of them; in one with many, workgroups that have no tile end at once.
pub fn grid(outputs: u32, rows: &Dim, setting: Setting) -> Grid {
    let few = outputs.div_ceil(setting.size("outputs", OUTPUTS));
    [
        Extent::from_dim(u64::from(few)),
        Extent::ceil_div(rows.clone(), setting.size("rows", TILE)),
        single_workgroup(),
    ]
}

/// How many products are added up one by one before the sum joins the others: near the root of `k`, where the longer of
/// both chains is shortest, as a power of two.
/// It is at least the depth of a tile.
pub fn run(k: u32) -> u32 {
    k.isqrt().next_power_of_two().clamp(DEPTH, 256)
}

/// The longest chain of additions: a run and then the runs, or every 64th pair.
pub fn chain(k: u32) -> u32 {
    (run(k) + k.div_ceil(run(k))).max(k.div_ceil(2 * LANES) + 2)
}
