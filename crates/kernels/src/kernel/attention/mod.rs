//! `attention`: launch planner. Workgroup `(x, y)` treats head `x` of query row `y`. Four zero bytes are bound in the
//! place of sinks and slopes where there are none.

pub mod keep;
pub mod matrix;
pub mod row;
pub mod split;

use super::Request;
use super::cuda;
use super::source::{Kernel, LaunchBuilder, affine, one, plan as planned, wrong_op};
use crate::plan::{Arg, Launch, NodePlan, When};
use tapml_graph::op::Attention;
use tapml_graph::{DType, Dim, Error, Extent, Op, Result, Symbol};

/// Elements of a head that fit the kernel's workgroup memory.
const MAX_HEAD_DIM: u32 = 1024;
/// Invocations of a workgroup, and keys that it treats at a time.
const LANES: u32 = 64;
/// Additions to the running sums that are counted in the declared chain: one for every [`LANES`] keys, here of a
/// context of a thousand.
const RUNNING: u32 = 16;

const KERNEL: Kernel = Kernel {
    name: "attention/portable",
    file: "attention/portable.wgsl",
    text: include_str!("portable.wgsl"),
    weights: true,
    norm: false,
    formula: "",
    math: true,
    lanes: LANES,
    workgroup_memory: 4 * (2 * MAX_HEAD_DIM + 2 * LANES),
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Attention(op) = request.op else { return Err(wrong_op(request)) };
    check(op, request)?;
    let launch = bound(&KERNEL, op, request, |launch| launch.output(0))?;
    let groups = [Extent::of(u64::from(op.heads)), Extent::of(request.inputs[0].shape[0].clone()), one()];
    let chain = (op.head_dim.div_ceil(4) + 3).max(LANES / 4 + 2 + RUNNING);
    let plan = NodePlan { constants: slopes(op), ..planned(&KERNEL, vec![launch.groups(groups)], chain) };
    Ok(with_cuda(op, request, plan))
}

/// A launch of this kernel: queries, keys, values, sinks, results as `results` binds them, and slopes; with the constants
/// that say which keys a query sees and how scores are made.
fn bound(
    kernel: &Kernel,
    op: &Attention,
    request: &Request,
    results: impl FnOnce(LaunchBuilder) -> LaunchBuilder,
) -> Result<LaunchBuilder> {
    let (q, k, sinks) = (&request.inputs[0], &request.inputs[1], request.inputs.get(3));
    let launch = kernel.launch(q.dtype, q.dtype)?.input(0).input(1).input(2);
    let launch = match sinks {
        Some(sinks) => launch.input(3).weight_dtype(sinks.dtype)?,
        None => launch.read(Arg::Constant(0)),
    };
    let launch = results(launch).read(Arg::Constant(0)).rows(&q.shape[0])?;
    Ok(masks(launch, op, affine(&k.shape[0])?, sinks.is_some()))
}

/// Sets the constants that say which of `n * keys[0] + p * keys[1] + keys[2]` keys a query sees, and how scores are made.
fn masks(launch: LaunchBuilder, op: &Attention, keys: [u32; 3], sinks: bool) -> LaunchBuilder {
    let launch = launch.set("KEYS_N", keys[0]).set("KEYS_P", keys[1]).set("KEYS_C", keys[2]);
    let launch = launch.set("HEADS", op.heads).set("KV_HEADS", op.kv_heads).set("HEAD_DIM", op.head_dim);
    let launch = launch.set("VALUE_DIM", op.value_size()).set("SCALE", op.scale);
    let launch = launch.set("CAUSAL", u32::from(op.causal)).set("WINDOW", op.window.unwrap_or(0));
    let launch = launch.set("CHUNK", op.chunk.unwrap_or(u32::MAX)).set("SOFTCAP", op.softcap.unwrap_or(0.0));
    let launch = launch.set("HAS_SINKS", u32::from(sinks));
    launch.set("HAS_ALIBI", u32::from(op.alibi.is_some()))
}

/// The constants of a plan: slopes, or what is bound in their place.
fn slopes(op: &Attention) -> Vec<Vec<u8>> {
    let slopes = op.alibi.as_deref().unwrap_or(&[0.0]);
    vec![slopes.iter().flat_map(|s| s.to_le_bytes()).collect()]
}

/// The plan with kernels for many rows and for one in place of its own, where the device can run them.
fn with_cuda(op: &Attention, request: &Request, plan: NodePlan) -> NodePlan {
    let rows = &request.inputs[0].shape[0];
    let plain = request.inputs.len() == 3 && request.inputs.iter().all(|ty| ty.dtype == DType::F16);
    if !plain || *rows != Dim::symbol(Symbol::N) {
        return plan;
    }
    let inputs = (0..3).map(|index| Arg::Input { index, offset: 0, len: 0 });
    let args: Vec<Arg> = inputs.chain([Arg::Output(0), Arg::Symbols]).collect();
    let mut plan = plan;
    if let Some((desc, groups)) = cuda::attend::kernel(op, false, request.info) {
        let many = Launch { desc, args: args.clone(), groups, when: When::Always };
        plan = NodePlan { launches: vec![many], ..plan };
        cuda::declare(&mut plan, cuda::attend::chain(op));
    }
    let Some((desc, groups)) = cuda::attention::kernel(op, false, request.info) else { return plan };
    let launch = Launch { desc, args, groups, when: When::OneRow };
    cuda::beside(plan, launch, rows, cuda::attention::chain(op))
}

/// Fails on what the kernel does not take.
fn check(op: &Attention, request: &Request) -> Result<()> {
    let (q, k) = (&request.inputs[0], &request.inputs[1]);
    let asked = op.head_dim.max(op.value_size());
    if asked > MAX_HEAD_DIM {
        return Err(Error::unsupported(format!(
            "a head of {asked} elements: the kernel takes {MAX_HEAD_DIM}"
        ))
        .with_detail("limit", "head_dim")
        .with_detail("asked", asked.to_string())
        .with_detail("offered", MAX_HEAD_DIM.to_string()));
    }
    if k.dtype != q.dtype {
        return Err(Error::unsupported(format!("keys of {} for queries of {}", k.dtype, q.dtype)));
    }
    let rows = &q.shape[0];
    let seen = rows.checked_add(&Dim::symbol(Symbol::P));
    if op.causal && seen.as_ref() != Some(&k.shape[0]) {
        return Err(Error::unsupported(format!("{} keys for {rows} queries", k.shape[0])));
    }
    Ok(())
}
