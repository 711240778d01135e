//! `paged_append`: launch planner. First a copy of the cache, which is left out when the output lies in the cache's buffer,
//! then the new rows. One invocation per element; workgroup `x` treats elements `1024·x` to `1024·x + 1023`.

use super::Request;
use super::append::COPY;
use super::source::{KernelSource, constant, elements, plan as planned, rows_and_width, wrong_op};
use crate::plan::{InPlace, NodePlan};
use tapml_graph::{Op, Result};

/// Binds the new rows, their slots, then the cache after.
const KERNEL: KernelSource =
    KernelSource::flat("paged_append/portable", "paged_append/portable.wgsl", include_str!("portable.wgsl"));

/// The plan of `paged_append`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::PagedAppend(_) = request.op else { return Err(wrong_op(request)) };
    let dtype = request.inputs[0].dtype;
    let (cached, (added, width)) = (&request.inputs[0].shape[0], rows_and_width(&request.inputs[1])?);
    let copy = COPY.launch(dtype, dtype)?.input(0).output(0).rows(cached)?.set("K", width);
    let write = KERNEL.launch(dtype, dtype)?.input(1).input(2).output(0).rows(&added)?.set("K", width);
    let write = write.set("SLOTS", constant("the rows of the cache", cached)?);
    let launches = vec![copy.flat(elements(cached, width)?), write.flat(elements(&added, width)?)];
    let in_place = vec![InPlace { input: 0, output: 0, copy: Some(0) }];
    Ok(NodePlan { in_place, ..planned(&KERNEL, launches, 0) })
}
