//! Rotations and appending to pages in one launch: `rope_paged_append.cu`.

use super::{bindings, desc};
use crate::kernel::Request;
use crate::kernel::attention::rope_kv_write::Rotation;
use crate::kernel::source::{plan_of, single_workgroup, unserved_error};
use crate::plan::{Arg, Launch, NodePlan};
use tapml_graph::{DType, Extent, Result};

/// The text, whose headers are put in front of it.
const TEXT: &str = include_str!("rope_paged_append.cu");
/// Threads of a block.
const THREADS: u32 = 128;
/// Elements of a half of a head that a thread takes.
const ELEMENTS: u32 = 8;

/// The plan.
///
/// # Errors
/// `Unsupported` for anything but f16, and for heads whose halves are no multiples of 8 elements.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let asked = Rotation::of_request(request)?;
    let fits = asked.act == DType::F16 && asked.head_dim.is_multiple_of(2 * ELEMENTS);
    let slots = asked.slots.filter(|_| fits).ok_or_else(|| unserved_error(request))?;
    let file = "cuda/rope_paged_append.cu";
    let mut desc = desc(request.info, "rope_paged_append/rows_cuda", file, TEXT, THREADS, 0);
    desc.bindings = bindings(asked.read.len(), asked.written.len());
    let constants =
        [("HEADS", asked.heads), ("KV_HEADS", asked.kv_heads), ("D", asked.head_dim), ("SLOTS", slots)];
    desc.constants = constants.map(|(name, value)| (name.to_string(), f64::from(value))).to_vec();
    let items = asked.items(ELEMENTS).ok_or_else(|| unserved_error(request))?;
    let args = asked.read.iter().copied().chain(asked.written).chain([Arg::Symbols]).collect();
    let groups = [Extent::ceil_div(items, THREADS), single_workgroup(), single_workgroup()];
    // A rotation adds two products.
    asked.in_place(plan_of(Launch { desc, args, groups }, 1))
}
