//! Products of any number of rows with weights of few outputs, routers and gates: `skinny_gemm.cu`.
//!
//! Such products are too narrow for tiles of tensor cores. Sums are made in f32.

use super::{COPIES, bindings, desc};
use crate::kernel::Request;
use crate::kernel::gemm_problem::{GemmProblem, InputPlaces};
use crate::kernel::source::{factors, plan_of, single_workgroup, unserved_error, weight_code};
use crate::plan::{Arg, Launch, NodePlan};
use tapml_graph::{DType, Extent, Result};

/// The text, whose headers are put in front of it.
const TEXT: &str = include_str!("skinny_gemm.cu");
/// Threads of a block: eight warps, with four outputs each.
const THREADS: u32 = 256;
/// Rows and outputs of a block.
const ROWS: u32 = 4;
/// Outputs of a block.
const OUTPUTS: u32 = 32;
/// Outputs at most; more are worth tensor cores.
const MOST: u32 = 256;

/// The plan of a product whose weight has few outputs.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let found = launch(request).filter(|_| request.binds_whole());
    let (launch, chain) = found.ok_or_else(|| unserved_error(request))?;
    Ok(plan_of(launch, chain))
}

/// The launch, and its longest chain of additions.
fn launch(request: &Request) -> Option<(Launch, u32)> {
    let asked = GemmProblem::from_op(request.op, request.inputs)?;
    let (x, out) = (asked.x, request.outputs[0].dtype);
    let InputPlaces { bias, .. } = asked.places()?;
    let plain = asked.packing().is_none() && !asked.gated;
    let typed = x.dtype == DType::F16 && matches!(out, DType::F16 | DType::F32);
    let sized = (1..=MOST).contains(&asked.outputs) && asked.k > 0 && asked.k.is_multiple_of(8);
    if !plain || !typed || !sized || request.info.features.cuda < Some(COPIES) {
        return None;
    }
    let rows = x.shape.first()?;
    let [n, p, s, c] = factors(rows).ok()?;
    // The rows of a block lie in shared memory as f32.
    let memory = asked.k.checked_mul(4 * ROWS)?;
    let mut desc = desc(request.info, "skinny_gemm/cuda", "cuda/skinny_gemm.cu", TEXT, THREADS, memory);
    desc.bindings = bindings(2 + usize::from(bias.is_some()), 1);
    desc.constants = [
        ("K", asked.k),
        ("O", asked.outputs),
        ("W_DTYPE", weight_code(asked.weight.dtype).ok()?),
        ("BIAS", u32::from(bias.is_some())),
        ("B_DTYPE", bias.map_or(Some(0), |(_, dtype)| weight_code(dtype).ok())?),
        ("OUT_F32", u32::from(out == DType::F32)),
        ("ROWS_N", n),
        ("ROWS_P", p),
        ("ROWS_S", s),
        ("ROWS_C", c),
    ]
    .map(|(name, value)| (name.to_string(), f64::from(value)))
    .to_vec();
    desc.check_limits(request.info).ok()?;
    let inputs = [0, 1].into_iter().chain(bias.map(|(at, _)| at));
    let args = inputs.map(|index| Arg::Input { index, offset: 0, len: 0 });
    let args = args.chain([Arg::Output(0), Arg::Symbols]).collect();
    let columns = Extent::from_dim(u64::from(asked.outputs.div_ceil(OUTPUTS)));
    let groups = [Extent::ceil_div(rows.clone(), ROWS), columns, single_workgroup()];
    // Eight products at a time in each lane, then a tree.
    Some((Launch { desc, args, groups }, asked.k.div_ceil(256) * 8 + 5))
}
