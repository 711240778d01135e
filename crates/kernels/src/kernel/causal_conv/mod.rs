//! `causal_conv`: launch planner. First a copy of the state, which is left out when the state after lies in the buffer
//! of the state before, then the convolution, then the state after, one invocation per column. Without a bias, four
//! zero bytes are bound in its place.

use super::Request;
use super::source::{KernelSource, constant, elements, plan as planned, stand_in, wrong_op};
use super::state::copy;
use crate::axis::Axis;
use crate::plan::{InPlace, NodePlan};
use tapml_graph::{Dim, Op, Result};

/// The convolution: binds rows, weight, the state before and the bias, then the output.
const KERNEL: KernelSource = KernelSource {
    weights: true,
    ..KernelSource::flat("causal_conv/portable", "causal_conv/portable.wgsl", include_str!("portable.wgsl"))
};
/// Writes the state after: the last rows, as many as the taps look back.
const STATE_WRITE: KernelSource =
    KernelSource::flat("causal_conv/keep", "causal_conv/keep.wgsl", include_str!("keep.wgsl"));

/// The plan of `causal_conv`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::CausalConv(_) = request.op else { return Err(wrong_op(request)) };
    let (x, w, bias) = (&request.inputs[0], &request.inputs[1], request.inputs.get(3));
    let (rows, width) = (&x.shape[0], constant("the row length", &x.shape[1])?);
    let taps = constant("the taps", &w.shape[2])?;
    let launch = KERNEL.launch(x.dtype, x.dtype)?.input(0).input(1).input(2).optional(3, bias).output(0);
    let launch = launch.rows(rows)?.weight_dtype(w.dtype)?.with_presence(["HAS_BIAS", "B_DTYPE"], bias)?;
    let launch = launch.set("K", width).set("TAPS", taps);
    let keep = STATE_WRITE.launch(x.dtype, x.dtype)?.input(0).output(1).rows(rows)?;
    let keep = keep.set("K", width).set("TAPS", taps).flat(Dim::from(u64::from(width)));
    // The convolution reads the state before, so that the state after is written behind it.
    let launches = vec![copy(request, 2)?, launch.flat(elements(rows, width)?), keep];
    let in_place = vec![InPlace { input: 2, output: 1, copy: Some(0) }];
    // With fewer rows than the taps look back, a part of the state stays.
    let axes = [Axis::cached_axis(), Axis::limit("rows", rows.clone(), u64::from(taps.saturating_sub(1)))];
    let plan = planned(&KERNEL, launches, taps).with_axes(axes);
    Ok(NodePlan { constants: stand_in(&[bias]), in_place, ..plan })
}
