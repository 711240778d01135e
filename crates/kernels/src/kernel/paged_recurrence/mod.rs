//! `paged_recurrence`: launch planner. First a copy of all states, which is left out when the states after lie in the buffer of
//! those before. Then each text's rows go through the kernel of the recurrence, one text beside the other.
//!
//! The recurrences of heads take all eight buffers that WebGPU promises. So the slots and the texts of the rows are put behind
//! each other in scratch memory, with the elements of an input whose place it takes.

use super::source::{KernelSource, constant, elements, plan as planned, stand_in, wrong_op};
use super::state::{Index, Texts, copy};
use super::{Request, selective_scan, wkv, wkv7};
use crate::axis::Axis;
use crate::plan::{InPlace, NodePlan, Scratch};
use tapml_device::BindingKind;
use tapml_graph::op::Recurrence;
use tapml_graph::{DType, Dim, Error, Extent, Op, Result};

const NAME: &str = "paged_recurrence/portable";

/// Binds slots, texts and an input, then the index.
const INDEX: KernelSource = KernelSource {
    weights: true,
    ..KernelSource::flat("paged_recurrence/index", "paged_recurrence/index.wgsl", include_str!("index.wgsl"))
};
/// Binds rows, states, texts and slots, then the shifted rows.
const SHIFT: KernelSource =
    KernelSource::flat(NAME, "paged_recurrence/shift.wgsl", include_str!("shift.wgsl"));
/// Binds rows, texts and slots, then the states, of which it writes the last rows.
const SHIFT_WRITE: KernelSource = KernelSource::flat(
    "paged_recurrence/shift_keep",
    "paged_recurrence/shift_keep.wgsl",
    include_str!("shift_keep.wgsl"),
);
/// Binds rows, weight, states, bias, texts and slots, then the output.
const CONV: KernelSource = KernelSource {
    weights: true,
    ..KernelSource::flat(NAME, "paged_recurrence/conv.wgsl", include_str!("conv.wgsl"))
};
/// As [`SHIFT_WRITE`], as many rows as the taps look back.
const CONV_WRITE: KernelSource = KernelSource::flat(
    "paged_recurrence/conv_keep",
    "paged_recurrence/conv_keep.wgsl",
    include_str!("conv_keep.wgsl"),
);

/// The texts with an index that holds the elements of input `extra` too.
fn with_index(seen: Texts, request: &Request, extra: usize) -> Result<Texts> {
    let (ty, texts) = (&request.inputs[extra], request.inputs.len() - 2);
    let rows = &request.inputs[0].shape[0];
    // A matrix has elements for each row, a vector serves all rows.
    let [each, all] = match ty.shape.as_slice() {
        [all] => [0, constant("the length of a vector", all)?],
        [_, each] => [constant("the row length", each)?, 0],
        _ => return Err(Error::bug(format!("input {extra} of a recurrence is {ty}"))),
    };
    let fixed = Dim::from(2 * u64::from(seen.count) + u64::from(all));
    let count = elements(rows, each.saturating_add(1))?.checked_add(&fixed);
    let count = count.ok_or_else(|| Error::unsupported("the size of an index overflows"))?;
    let launch = INDEX.launch(DType::F32, DType::F32)?.input(texts + 1).input(texts).input(extra);
    let launch = launch.scratch(0, BindingKind::ReadWrite).rows(rows)?.weight_dtype(ty.dtype)?;
    let launch = launch.set("TEXTS", seen.count).set("EACH", each).set("ALL", all).flat(count.clone());
    let scratch = Scratch::Temporary(Extent::from_dim(elements(&count, 4)?));
    Ok(Texts { index: Some(Index { launch, scratch }), ..seen })
}

/// The plan of `paged_recurrence`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::PagedRecurrence(op) = request.op else { return Err(wrong_op(request)) };
    let table = request.inputs.last().ok_or_else(|| Error::bug("a recurrence without slots"))?;
    let texts = Texts { count: constant("the texts", &table.shape[0])?, slots: op.slots, index: None };
    match &op.recurrence {
        Recurrence::TokenShift(_) => plan_shift(request, &texts),
        Recurrence::CausalConv(_) => plan_conv(request, &texts),
        Recurrence::Wkv(op) => wkv::plan_texts(op, request, Some(&with_index(texts, request, 4)?)),
        Recurrence::Wkv7(op) => wkv7::plan_texts(op, request, Some(&with_index(texts, request, 5)?)),
        Recurrence::SelectiveScan(op) => {
            selective_scan::plan_texts(op, request, Some(&with_index(texts, request, 1)?))
        }
    }
}

/// The plan of a token shift.
fn plan_shift(request: &Request, texts: &Texts) -> Result<NodePlan> {
    let x = &request.inputs[0];
    let (rows, width) = (&x.shape[0], constant("the row length", &x.shape[1])?);
    let shift = SHIFT.launch(x.dtype, x.dtype)?.input(0).input(1).input(2).input(3).output(0);
    let shift = texts.set_counts(shift.rows(rows)?.set("K", width)).flat(elements(rows, width)?);
    let keep = SHIFT_WRITE.launch(x.dtype, x.dtype)?.input(0).input(2).input(3).output(1);
    let keep = texts.set_counts(keep.rows(rows)?.set("K", width));
    let keep = keep.flat(elements(&Dim::from(u64::from(texts.count)), width)?);
    // The states before are read in front of those after being written.
    Ok(in_place(planned(&SHIFT, vec![copy(request, 1)?, shift, keep], 0), 1))
}

/// The plan of a convolution.
fn plan_conv(request: &Request, texts: &Texts) -> Result<NodePlan> {
    let (x, w, given) = (&request.inputs[0], &request.inputs[1], request.inputs.len());
    let bias = if given > 5 { request.inputs.get(3) } else { None };
    let (rows, width) = (&x.shape[0], constant("the row length", &x.shape[1])?);
    let taps = constant("the taps", &w.shape[2])?;
    let launch = CONV.launch(x.dtype, x.dtype)?.input(0).input(1).input(2).optional(3, bias);
    let launch = launch.input(given - 2).input(given - 1).output(0).rows(rows)?;
    let launch = launch.weight_dtype(w.dtype)?.with_presence(["HAS_BIAS", "B_DTYPE"], bias)?;
    let launch = texts.set_counts(launch.set("K", width).set("TAPS", taps)).flat(elements(rows, width)?);
    let keep = CONV_WRITE.launch(x.dtype, x.dtype)?.input(0).input(given - 2).input(given - 1).output(1);
    let keep = texts.set_counts(keep.rows(rows)?.set("K", width).set("TAPS", taps));
    let keep = keep.flat(elements(&Dim::from(u64::from(texts.count)), width)?);
    let plan = in_place(planned(&CONV, vec![copy(request, 2)?, launch, keep], taps), 2);
    // With fewer rows than the taps look back, a part of the state stays.
    let axis = Axis::limit("rows", rows.clone(), u64::from(taps.saturating_sub(1)));
    Ok(NodePlan { constants: stand_in(&[bias]), ..plan.with_axes([axis]) })
}

/// The plan whose states after may lie in the buffer of input `before`; launch 0 is the copy.
fn in_place(plan: NodePlan, before: usize) -> NodePlan {
    NodePlan { in_place: vec![InPlace { input: before, output: 1, copy: Some(0) }], ..plan }
        .with_axes([Axis::cached_axis()])
}
