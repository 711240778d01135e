//! `attention/split`: the keys of few queries are shared out over workgroups, each for a block of heads that read the same
//! keys; a second launch brings their results together. Workgroup `(i, y)` of the first stands for block `i / PARTS` and,
//! of few rows, part `i % PARTS` of the keys; of many, for row `y · PARTS + i % PARTS` and all its keys. The grids do not
//! depend on how much is cached.

use super::super::Request;
use super::super::cuda::declare;
use super::super::settings::Setting;
use super::super::source::{Kernel, one, plan as planned, wrong_op};
use super::{bound, check, masks, matrix, slopes};
use crate::plan::{Arg, Launch, NodePlan, When};
use tapml_device::{BindingKind, DeviceInfo, Grid, KernelDesc};
use tapml_graph::op::Attention;
use tapml_graph::{DType, Dim, Error, Extent, Op, Result, Symbol};

/// Invocations of a workgroup.
const LANES: u32 = 128;
/// Parts of the keys, unless a setting says otherwise, and at most.
const PARTS: u32 = 32;
const MAX_PARTS: u32 = 64;
/// Rows whose keys are shared out.
const FEW: u32 = 8;
/// Heads of a block.
const MAX_BLOCK: u32 = 8;
/// Elements of the queries of a block, and of their results.
const MAX_ELEMENTS: u32 = 1024;
/// 16-byte pieces of keys that are treated at a time.
const PIECES: u32 = 512;
/// Keys at a time, at most.
const MAX_KEYS: u32 = 32;
/// Keys of a context of a thousand, for which the chain of a row's sums is declared.
const CONTEXT: u32 = 1024;

/// The variant.
pub const NAME: &str = "attention/split";

const KERNEL: Kernel = Kernel {
    name: NAME,
    file: "attention/split.wgsl+attention/split_apart.wgsl",
    text: concat!(include_str!("split.wgsl"), include_str!("split_apart.wgsl")),
    weights: true,
    norm: false,
    formula: "",
    math: true,
    lanes: LANES,
    workgroup_memory: 4 * MAX_ELEMENTS + 16 * PIECES + 4 * MAX_BLOCK * MAX_KEYS,
};

const JOINED: Kernel = Kernel {
    name: "attention/split-joined",
    file: "attention/split.wgsl+attention/split_joined.wgsl",
    text: concat!(include_str!("split.wgsl"), include_str!("split_joined.wgsl")),
    ..KERNEL
};

const MERGE: Kernel = Kernel {
    name: "attention/split-merge",
    file: "attention/split_merge.wgsl",
    text: include_str!("split_merge.wgsl"),
    weights: false,
    norm: false,
    formula: "",
    math: true,
    lanes: LANES,
    workgroup_memory: 4 * 2 * MAX_PARTS,
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Attention(op) = request.op else { return Err(wrong_op(request)) };
    check(op, request)?;
    let shape = Shape::of(op, request.inputs[0].dtype, request.setting)?;
    let rows = &request.inputs[0].shape[0];
    let (read, written) = (BindingKind::Read, BindingKind::ReadWrite);
    let first = bound(&KERNEL, op, request, |launch| launch.output(0).scratch(0, written))?;
    let first =
        shape.set(first).groups([shape.blocks(op), Extent::ceil_div(rows.clone(), shape.parts), one()]);
    let act = request.inputs[0].dtype;
    let merge = MERGE.launch(act, act)?.scratch(0, read).output(0).rows(rows)?;
    let merge = merge.set("HEADS", op.heads).set("VALUE_DIM", op.value_size()).set("PARTS", shape.parts);
    let merge = merge.groups([Extent::of(u64::from(op.heads)), one(), one()]);
    let floats = u64::from(FEW * shape.parts) * u64::from(op.heads) * (u64::from(op.value_size()) + 2);
    let plan = NodePlan {
        constants: slopes(op),
        scratch: vec![Extent::of(4 * floats)],
        ..planned(&KERNEL, vec![first, merge], shape.chain(op))
    };
    Ok(with_matrix(op, request, plan))
}

/// The plan with one launch for many rows in place of its own, where the device has matrix units that serve it.
fn with_matrix(op: &Attention, request: &Request, mut plan: NodePlan) -> NodePlan {
    let plain = request.inputs.len() == 3 && request.inputs.iter().all(|ty| ty.dtype == DType::F16);
    let found = matrix::kernel(op, request.info).filter(|_| plain && !request.alone);
    let rows = &request.inputs[0].shape[0];
    let Some((desc, groups)) = found.filter(|_| *rows == Dim::symbol(Symbol::N)) else { return plan };
    let inputs = (0..3).map(|index| Arg::Input { index, offset: 0, len: 0 });
    let args = inputs.chain([Arg::Output(0), Arg::Symbols]).collect();
    plan.launches.iter_mut().for_each(|few| few.when = When::OneRow);
    plan.launches.push(Launch { desc, args, groups, when: When::ManyRows });
    declare(&mut plan, matrix::chain());
    plan
}

/// The text of [`joined`].
pub const JOINED_TEXT: &str = JOINED.text;

/// The first launch of a plan of this kernel with a setting for one row, with the rotations and the appending in front: it
/// binds the queries, keys and values as the projections leave them, the angles, and, written, the caches and the parts.
/// `None` if it does not serve such attention.
pub fn joined(op: &Attention, act: DType, setting: Setting, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
    let shape = Shape::of(op, act, setting).ok()?;
    if !is_plain(op) || !op.head_dim.is_multiple_of(2 * shape.piece) {
        return None;
    }
    let mut launch = JOINED.launch(act, act).ok()?;
    for written in [false, false, false, false, true, true, true] {
        launch = launch.bind(written, Arg::Symbols);
    }
    let launch = masks(launch, op, [1, 1, 0], false).rows(&Dim::symbol(Symbol::N)).ok()?;
    let launch = shape.set(launch).groups([shape.blocks(op), one(), one()]);
    launch.desc.check_limits(info).ok()?;
    Some((launch.desc, launch.groups))
}

/// Whether attention is such as rotations and appending can stand in front of.
pub fn is_plain(op: &Attention) -> bool {
    op.causal && op.alibi.is_none() && op.value_size() == op.head_dim
}

/// How a workgroup treats its heads and keys.
struct Shape {
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

impl Shape {
    /// Fails if heads do not consist of whole pieces, or are too large.
    fn of(op: &Attention, act: DType, setting: Setting) -> Result<Shape> {
        let piece = if act == DType::F16 { 8 } else { 4 };
        let (head, value) = (op.head_dim, op.value_size());
        if !head.is_multiple_of(piece) || !value.is_multiple_of(piece) || head == 0 || value == 0 {
            return Err(Error::unsupported(format!(
                "heads of {head} and {value} elements in pieces of {piece}"
            )));
        }
        let group = op.heads / op.kv_heads.max(1);
        let fits = |block: &u32| group.is_multiple_of(*block) && block * head.max(value) <= MAX_ELEMENTS;
        let block = (1..=setting.size("block", MAX_BLOCK)).rev().find(fits);
        let block = block.filter(|_| value / piece <= LANES && head / piece <= PIECES / 4);
        let block = block.ok_or_else(|| {
            Error::unsupported(format!("heads of {head} and {value} elements are too large"))
        })?;
        let keys = (PIECES / (head / piece)).min(MAX_KEYS);
        let parts = setting.size("parts", PARTS);
        Ok(Shape { block, piece, keys, teams: LANES / (value / piece), parts })
    }

    fn set(&self, launch: super::LaunchBuilder) -> super::LaunchBuilder {
        launch
            .set("BLOCK", self.block)
            .set("PIECE", self.piece)
            .set("KEYS", self.keys)
            .set("TEAMS", self.teams)
            .set("PARTS", self.parts)
    }

    /// Workgroups for the blocks and parts of a row.
    fn blocks(&self, op: &Attention) -> Extent {
        Extent::of(u64::from(op.heads / self.block * self.parts))
    }

    /// The longest chain of additions, of many rows in a context of [`CONTEXT`].
    fn chain(&self, op: &Attention) -> u32 {
        let values = CONTEXT.div_ceil(self.teams) + self.teams.min(MAX_KEYS);
        (op.head_dim.div_ceil(4) + 3).max(values).max(self.parts + self.keys)
    }
}
