//! `attention/split`: the keys of few queries are shared out over workgroups, each for a block of heads that read the same
//! keys; a second launch brings their results together. Workgroup `(i, y)` of the first stands for block `i / PARTS` and,
//! of few rows, part `i % PARTS` of the keys; of many, for row `y · PARTS + i % PARTS` and all its keys. The grids do not
//! depend on how much is cached.
//!
//! A part leaves its results, its largest score and its sum of exponentials in scratch memory, as Flash-Decoding
//! does. With many rows nothing is left to bring together: the first launch writes the output, and the second ends at
//! once.

use super::super::Request;
use super::super::body::FusedBody;
use super::super::compose::{FixedComposition, joined};
use super::super::settings::Setting;
use super::super::source::{
    KernelSource, plan as planned, plan_of, single_workgroup, unserved_error, wrong_op,
};
use super::{Appending, axes, bound, check, keys_of_run, masks, slopes, with_copies};
use crate::axis::Axis;
use crate::plan::{Arg, Launch, NodePlan, Scratch};
use tapml_device::BindingKind;
use tapml_graph::op::Attention;
use tapml_graph::{DType, Dim, Error, Extent, Op, Result, Symbol};

/// Invocations of a workgroup.
const LANES: u32 = 128;
/// Parts of the keys, unless a setting says otherwise, and at most.
const PARTS: u32 = 32;
/// The merging text has room for as many in workgroup memory.
const MAX_PARTS: u32 = 64;
/// Rows whose keys are shared out.
/// Scratch memory has room for as many rows.
const SKINNY_ROWS: u32 = 8;
/// Heads of a block.
const MAX_BLOCK: u32 = 8;
/// Elements of the queries of a block, and of their results.
/// Both lie in workgroup memory, as f32.
const MAX_ELEMENTS: u32 = 1024;
/// 16-byte pieces of keys that are treated at a time.
const PIECES: u32 = 512;
/// Keys at a time, at most.
const MAX_KEYS: u32 = 32;
/// Keys of a context of a thousand, for which the chain of a row's sums is declared.
const CONTEXT: u32 = 1024;

/// Keys and values come from the caches.
const APART: FixedComposition = joined!("attention/split.wgsl", "attention/split_apart.wgsl");
/// The new key is rotated, and appended with the new value, by the launch itself.
const WITH_APPENDING: FixedComposition = joined!("attention/split.wgsl", "attention/split_joined.wgsl");

/// Queries, pieces of keys, and the scores of a block with the keys at hand.
const KERNEL: KernelSource = KernelSource {
    name: "attention/split",
    file: APART.file,
    text: APART.text,
    weights: true,
    norm: false,
    formula: "",
    math: true,
    lanes: LANES,
    workgroup_memory: 4 * MAX_ELEMENTS + 16 * PIECES + 4 * MAX_BLOCK * MAX_KEYS,
};

/// As [`KERNEL`] with rotations and appending.
const FUSED: KernelSource = KernelSource {
    name: "rope_append_attention/split",
    file: WITH_APPENDING.file,
    text: WITH_APPENDING.text,
    ..KERNEL
};

/// Brings parts together; a workgroup for each head.
const MERGE: KernelSource = KernelSource {
    name: "attention/split_merge",
    file: "attention/split_merge.wgsl",
    text: include_str!("split_merge.wgsl"),
    weights: false,
    norm: false,
    formula: "",
    math: true,
    lanes: LANES,
    workgroup_memory: 4 * 2 * MAX_PARTS,
};

/// The plan of `attention/split`.
///
/// # Errors
/// `Unsupported` for heads that are too large or do not consist of whole pieces of 16 bytes.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Attention(op) = request.op else { return Err(wrong_op(request)) };
    check(op, request)?;
    let shape = SplitShape::from_op(op, request.inputs[0].dtype, request.setting)?;
    let rows = &request.inputs[0].shape[0];
    let (read, written) = (BindingKind::Read, BindingKind::ReadWrite);
    let first = bound(&KERNEL, op, request, |launch| launch.output(0).scratch(0, written))?;
    let first = shape.set(first).groups([
        shape.blocks(op),
        Extent::ceil_div(rows.clone(), shape.parts),
        single_workgroup(),
    ]);
    let act = request.inputs[0].dtype;
    // The second launch has a workgroup for each head, and goes over the few rows itself.
    let merge = MERGE.launch(act, act)?.scratch(0, read).output(0).rows(rows)?;
    let merge = merge.set("HEADS", op.heads).set("VALUE_DIM", op.value_size()).set("PARTS", shape.parts);
    let merge = merge.groups([Extent::from_dim(u64::from(op.heads)), single_workgroup(), single_workgroup()]);
    // Scratch memory is sized for the most rows that are shared out, not for the rows of a run.
    let floats =
        u64::from(SKINNY_ROWS * shape.parts) * u64::from(op.heads) * (u64::from(op.value_size()) + 2);
    let plan = NodePlan {
        constants: slopes(op),
        scratch: vec![Scratch::Temporary(Extent::from_dim(4 * floats))],
        ..planned(&KERNEL, vec![first, merge], shape.chain(op))
    };
    Ok(plan.with_axes(shape.axes(op, rows, &request.inputs[1].shape[0])))
}

/// The plan for one row with the rotations and the appending in front.
pub fn plan_with_appending(request: &Request) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let found = Appending::from_body(&body)?;
    let (op, act) = (found.op, found.q.dtype);
    let shape = SplitShape::from_op(op, act, request.setting)?;
    // A rotation joins the two halves of a head, each of whole pieces.
    if !is_plain(op) || !op.head_dim.is_multiple_of(2 * shape.piece) {
        return Err(unserved_error(request));
    }
    let mut launch = FUSED.launch(act, act)?;
    for arg in found.new {
        launch = launch.bind(false, arg);
    }
    for arg in found.grown.into_iter().chain([Arg::Scratch(0)]) {
        launch = launch.bind(true, arg);
    }
    let launch = masks(launch, op, [1, 1, 0], false).rows(&Dim::symbol(Symbol::N))?;
    let launch = shape.set(launch).groups([shape.blocks(op), single_workgroup(), single_workgroup()]);
    let (merge, scratch) = merge(op, act, shape.parts, found.y)?;
    let mut plan = plan_of(launch, shape.chain(op));
    plan.axes = shape.axes(op, &Dim::symbol(Symbol::N), &keys_of_run()?);
    plan.launches.push(merge);
    plan.scratch = vec![scratch];
    with_copies(plan, found.cache, found.pairs())
}

/// The launch that brings so many parts of the keys of `n` rows together as `y`, and the scratch memory that the parts are in.
pub fn merge(op: &Attention, act: DType, parts: u32, y: Arg) -> Result<(Launch, Scratch)> {
    let merge = MERGE.launch(act, act)?.scratch(0, BindingKind::Read).bind(true, y);
    let merge = merge.rows(&Dim::symbol(Symbol::N))?.set("HEADS", op.heads);
    let merge = merge.set("VALUE_DIM", op.value_size()).set("PARTS", parts);
    let floats = u64::from(SKINNY_ROWS * parts) * u64::from(op.heads) * (u64::from(op.value_size()) + 2);
    let merge = merge.groups([Extent::from_dim(u64::from(op.heads)), single_workgroup(), single_workgroup()]);
    Ok((merge, Scratch::Temporary(Extent::from_dim(4 * floats))))
}

/// Whether attention is such as rotations and appending can stand in front of.
/// Sinks are refused where the body is read.
pub fn is_plain(op: &Attention) -> bool {
    op.causal && op.alibi.is_none() && op.value_size() == op.head_dim
}

/// How a workgroup treats its heads and keys.
struct SplitShape {
    /// Heads of a block.
    block: u32,
    /// Elements of 16 bytes.
    piece: u32,
    /// Keys at a time.
    keys: u32,
    /// Lanes among which the keys of a column of values are shared out.
    teams: u32,
    /// Parts of the keys of few rows.
    parts: u32,
}

impl SplitShape {
    /// Fails if heads do not consist of whole pieces, or are too large.
    fn from_op(op: &Attention, act: DType, setting: Setting) -> Result<SplitShape> {
        let piece = if act == DType::F16 { 8 } else { 4 };
        let (head, value) = (op.head_dim, op.value_size());
        if !head.is_multiple_of(piece) || !value.is_multiple_of(piece) || head == 0 || value == 0 {
            return Err(Error::unsupported(format!(
                "heads of {head} and {value} elements in pieces of {piece}"
            )));
        }
        let group = op.heads / op.kv_heads.max(1);
        let fits = |block: &u32| group.is_multiple_of(*block) && block * head.max(value) <= MAX_ELEMENTS;
        // The largest block that divides the heads of a key/value head and fits workgroup memory.
        let block = (1..=setting.size("block", MAX_BLOCK)).rev().find(fits);
        // Each 16-byte column of values has a lane of its own, and at least four keys are treated at a time.
        let block = block.filter(|_| value / piece <= LANES && head / piece <= PIECES / 4);
        let block = block.ok_or_else(|| {
            Error::unsupported(format!("heads of {head} and {value} elements are too large"))
        })?;
        // As many keys as fit the pool, whole ones.
        let keys = (PIECES / (head / piece)).min(MAX_KEYS);
        let parts = setting.size("parts", PARTS);
        Ok(SplitShape { block, piece, keys, teams: LANES / (value / piece), parts })
    }

    /// Sets the constants of the shape.
    fn set(&self, launch: super::LaunchBuilder) -> super::LaunchBuilder {
        launch
            .set("BLOCK", self.block)
            .set("PIECE", self.piece)
            .set("KEYS", self.keys)
            .set("TEAMS", self.teams)
            .set("PARTS", self.parts)
    }

    /// What changes along rows and keys: few rows share their keys out, so many at a time in each part.
    fn axes(&self, op: &Attention, rows: &Dim, keys: &Dim) -> Vec<Axis> {
        let mut axes = axes(op, keys, self.keys);
        axes.push(Axis::limit("rows", rows.clone(), u64::from(SKINNY_ROWS)));
        axes.push(Axis::limit("keys", keys.clone(), u64::from(self.parts)));
        axes.push(Axis::limit("keys", keys.clone(), u64::from(self.parts * self.keys)));
        axes
    }

    /// Workgroups for the blocks and parts of a row.
    fn blocks(&self, op: &Attention) -> Extent {
        Extent::from_dim(u64::from(op.heads / self.block * self.parts))
    }

    /// The longest chain of additions, of many rows in a context of [`CONTEXT`].
    fn chain(&self, op: &Attention) -> u32 {
        let values = CONTEXT.div_ceil(self.teams) + self.teams.min(MAX_KEYS);
        (op.head_dim.div_ceil(4) + 3).max(values).max(self.parts + self.keys)
    }
}
