//! `append`: launch planner. First a copy of the cache, which is left out when the output lies in the cache's buffer,
//! then the new rows. One invocation per element; workgroup `x` treats elements `1024·x` to `1024·x + 1023`.

use super::Request;
use super::source::{KernelSource, affine, elements, plan as planned, rows_and_width, wrong_op};
use crate::plan::{InPlace, NodePlan};
use tapml_graph::{Op, Result};

/// Writes new rows behind the cached ones: binds them, then the cache.
const KERNEL: KernelSource =
    KernelSource::flat("append/portable", "append/portable.wgsl", include_str!("portable.wgsl"));
/// The copy of a cache, for outputs that do not lie in its buffer.
pub const COPY: KernelSource =
    KernelSource::flat("append/copy", "append/copy.wgsl", include_str!("copy.wgsl"));

/// The plan of `append`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Append(_) = request.op else { return Err(wrong_op(request)) };
    let dtype = request.inputs[0].dtype;
    let (cached, (added, width)) = (&request.inputs[0].shape[0], rows_and_width(&request.inputs[1])?);
    let copy = COPY.launch(dtype, dtype)?.input(0).output(0).rows(cached)?.set("K", width);
    let [n, p, constant] = affine(cached)?;
    // Only the output is bound: the rows before it are in it already, copied or in place.
    let write = KERNEL.launch(dtype, dtype)?.input(1).output(0).rows(&added)?.set("K", width);
    let write = write.set("CACHE_N", n).set("CACHE_P", p).set("CACHE_C", constant);
    let launches = vec![copy.flat(elements(cached, width)?), write.flat(elements(&added, width)?)];
    let in_place = vec![InPlace { input: 0, output: 0, copy: Some(0) }];
    Ok(NodePlan { in_place, ..planned(&KERNEL, launches, 0) })
}
