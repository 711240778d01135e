//! `attention`: launch planner. Workgroup `(x, y)` treats head `x` of query row `y`.

use super::Request;
use super::source::{Kernel, one, plan as planned, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::op::Attention;
use tapml_graph::{Dim, Error, Extent, Op, Result, Symbol};

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
    weights: false,
    norm: false,
    formula: "",
    math: true,
    lanes: LANES,
    workgroup_memory: 4 * (2 * MAX_HEAD_DIM + 2 * LANES),
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Attention(op) = request.op else { return Err(wrong_op(request)) };
    let (q, k) = (&request.inputs[0], &request.inputs[1]);
    if op.head_dim > MAX_HEAD_DIM {
        return Err(Error::unsupported(format!(
            "a head of {} elements: the kernel takes {MAX_HEAD_DIM}",
            op.head_dim
        ))
        .with_detail("limit", "head_dim")
        .with_detail("asked", op.head_dim.to_string())
        .with_detail("offered", MAX_HEAD_DIM.to_string()));
    }
    if *op
        != (Attention {
            window: op.window,
            softcap: op.softcap,
            ..Attention::causal(op.heads, op.kv_heads, op.head_dim, op.scale)
        })
        || request.inputs.len() > 3
    {
        return Err(Error::unsupported(
            "other values, masks, biases and sinks than those of plain causal attention",
        ));
    }
    if k.dtype != q.dtype {
        return Err(Error::unsupported(format!("keys of {} for queries of {}", k.dtype, q.dtype)));
    }
    let rows = &q.shape[0];
    let seen = rows.checked_add(&Dim::symbol(Symbol::P));
    if seen.as_ref() != Some(&k.shape[0]) {
        return Err(Error::unsupported(format!("{} keys for {rows} queries", k.shape[0])));
    }
    let launch = KERNEL.launch(q.dtype, q.dtype)?.input(0).input(1).input(2).output(0).rows(rows)?;
    let launch = launch.set("HEADS", op.heads).set("KV_HEADS", op.kv_heads).set("HEAD_DIM", op.head_dim);
    // A window of the whole context is no window, and 0 stands for none in the kernel.
    let launch = launch.set("SCALE", op.scale).set("WINDOW", op.window.unwrap_or(0));
    let launch = launch.set("SOFTCAP", op.softcap.unwrap_or(0.0));
    let groups = [Extent::of(u64::from(op.heads)), Extent::of(rows.clone()), one()];
    let chain = (op.head_dim.div_ceil(4) + 3).max(LANES / 4 + 2 + RUNNING);
    Ok(planned(&KERNEL, vec![launch.groups(groups)], chain))
}
