//! `paged_attention`: launch planner. Workgroup `(x, y)` treats head `x` of query row `y`, by the text of `attention` with
//! other bindings. Each row adds in an order of its own, whatever rows are beside it.

pub mod teams;

use super::Request;
use super::attention::{chain, check_heads, portable, scores, slopes};
use super::compose::{FixedComposition, joined};
use super::source::{KernelSource, LaunchBuilder, constant, plan as planned, single_workgroup, wrong_op};
use crate::plan::{Arg, NodePlan};
use tapml_graph::op::{Attention, PagedAttention};
use tapml_graph::{Error, Extent, Op, Result};

/// Keys that lie in pages.
const TEXT: FixedComposition = joined!("attention/portable.wgsl", "paged_attention/bindings.wgsl");
/// Binds queries, keys, values, positions, texts, pages, sinks or slopes, then the output.
const KERNEL: KernelSource = portable("paged_attention/portable", &TEXT, 4 * 64);

/// The plan of `paged_attention`.
///
/// # Errors
/// `Unsupported` if heads are too large, dtypes differ, or there are both sinks and slopes.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::PagedAttention(PagedAttention { attention: op, page }) = request.op else {
        return Err(wrong_op(request));
    };
    check_heads(op, request)?;
    let sinks = request.inputs.len() > PagedAttention::SINKS;
    let launch = scores(bind(&KERNEL, op, *page, request)?, op, sinks);
    let rows = Extent::from_dim(request.inputs[0].shape[0].clone());
    let groups = [Extent::from_dim(u64::from(op.heads)), rows, single_workgroup()];
    Ok(NodePlan { constants: slopes(op), ..planned(&KERNEL, vec![launch.groups(groups)], chain(op)) })
}

/// A launch of a kernel with everything bound, and with the constants of rows and pages set.
///
/// # Errors
/// `Unsupported` if there are both sinks and slopes.
fn bind(kernel: &KernelSource, op: &Attention, page: u32, request: &Request) -> Result<LaunchBuilder> {
    let (q, pages) = (&request.inputs[0], &request.inputs[5]);
    let launch = kernel.launch(q.dtype, q.dtype)?;
    let launch = (0..6).fold(launch, |launch, index| launch.input(index));
    let launch = match (request.inputs.get(PagedAttention::SINKS), &op.alibi) {
        // WebGPU has eight storage buffers for a kernel.
        (Some(_), Some(_)) => return Err(Error::unsupported("a paged attention with both sinks and slopes")),
        (Some(sinks), None) => launch.input(PagedAttention::SINKS).weight_dtype(sinks.dtype)?,
        (None, _) => launch.read(Arg::Constant(0)),
    };
    let launch = launch.output(0).rows(&q.shape[0])?.set("PAGE", page);
    let launch = launch.set("TEXTS", constant("the texts of a step", &pages.shape[0])?);
    Ok(launch.set("BLOCKS", constant("the pages of a text", &pages.shape[1])?))
}
