//! Products of many rows with the matrices of chosen experts: `moe_permute.cu`, which brings the rows of each expert together, and
//! `grouped_gemm.cu`.

use super::{COPIES, bindings, desc};
use crate::kernel::Request;
use crate::kernel::gemm_problem::{GemmProblem, StackedExperts};
use crate::kernel::source::{affine, plan_of, single_workgroup, unserved_error};
use crate::plan::{Arg, Launch, NodePlan, Scratch};
use crate::regime::Axis;
use tapml_device::{DeviceInfo, KernelDesc};
use tapml_graph::{DType, Dim, Extent, Packing, Result, TensorType};

const GATHER: &str = include_str!("moe_permute.cu");
const TEXT: &str = include_str!("grouped_gemm.cu");
/// Places of a tile at most.
const PLACES: u32 = 64;
/// Threads of a block, and rows of weights of a tile; half as many outputs with a gate.
const THREADS: u32 = 256;
const GATHERING: u32 = 1024;
/// Elements that share a scale.
const GROUP: u32 = 32;
/// Bytes of a row of weights in a stage.
const LINE: u32 = 64;
/// Words that describe a tile.
const WORDS: u64 = 4;

/// The plan of a product of many rows with the matrices of chosen experts.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let found = launches(request).filter(|_| request.binds_whole());
    let ([permute, product], scratch, chain) = found.ok_or_else(|| unserved_error(request))?;
    let mut plan = plan_of(product, chain);
    plan.launches.insert(0, permute);
    plan.scratch = scratch.map(Scratch::Temporary).into();
    Ok(plan.with_axes(chosen_steps(request)))
}

/// What changes along the places that rows have with their experts: tiles of them.
fn chosen_steps(request: &Request) -> Option<Axis> {
    let stack = GemmProblem::of_stack(request.op, request.inputs)?.stack?;
    let places = request.inputs.first()?.shape.first()?.checked_mul(u64::from(stack.slots))?;
    Some(Axis::steps("chosen experts", places, u64::from(PLACES)))
}

/// The launches, their scratch memory, and the longest chain of additions.
fn launches(request: &Request) -> Option<([Launch; 2], [Extent; 2], u32)> {
    let asked = GemmProblem::of_stack(request.op, request.inputs)?;
    let arrays = arrays(asked.weight)?;
    let places = asked.places()?;
    let (stack, chosen, rows) = (asked.stack?, asked.expert_ids_input()?, asked.x.shape.first()?);
    let halves = asked.x.dtype == DType::F16 && request.outputs[0].dtype == DType::F16;
    let many = rows.as_const() != Some(1) && stack.count > 0 && asked.outputs > 0;
    let step = if asked.packing().is_some() { 2 * LINE } else { LINE / 2 };
    let fits = asked.k > 0 && asked.k.is_multiple_of(step) && places.bias.is_none();
    if !halves || !many || !fits || request.info.features.cuda < Some(COPIES) {
        return None;
    }
    let all = rows.checked_mul(u64::from(stack.slots))?;
    // Every expert can have a tile that is not full, and so can those that do not exist.
    let partial = (u64::from(stack.count) + 1) * u64::from(PLACES);
    let tiles = Extent::ceil_div(all.checked_add(&Dim::from(partial))?, PLACES);
    let bytes = all.checked_mul(4)?;
    let described =
        bytes.checked_mul(WORDS)?.checked_add(&Dim::from(4 * WORDS * (partial + u64::from(PLACES))))?;
    let scratch =
        [Extent::from_dim(bytes.checked_add(&Dim::from(4u64))?), Extent::ceil_div(described, PLACES)];
    let [order, list] = [0, 1].map(Arg::Scratch);
    let gather = Launch {
        desc: gather(request.info, stack, affine(rows).ok()?)?,
        args: vec![Arg::whole_input(chosen), order, list, Arg::Symbols],
        groups: [single_workgroup(), single_workgroup(), single_workgroup()],
    };
    let desc = product(request.info, &asked, stack, arrays)?;
    let outputs = if asked.gated { THREADS / 2 } else { THREADS };
    let columns = Extent::from_dim(u64::from(asked.outputs.div_ceil(outputs)));
    let weights = request.args(&places.weights).ok()?;
    let args = [Arg::whole_input(0)].into_iter().chain(weights);
    let args = args.chain([order, list, Arg::Output(0), Arg::Symbols]).collect();
    let product = Launch { desc, args, groups: [columns, tiles, single_workgroup()] };
    // Two products of 16, then the sums of every 32, one by one.
    Some(([gather, product], scratch, asked.k / GROUP + 18))
}

/// How many arrays a weight of this type is stored in, if the kernel reads such.
fn arrays(weight: &TensorType) -> Option<usize> {
    match weight.dtype {
        DType::F16 => Some(1),
        DType::Packed(p) => (p == Packing::integers(4, GROUP, false)).then_some(2),
        _ => None,
    }
}

fn gather(info: &DeviceInfo, stack: StackedExperts, [n, p, constant]: [u32; 3]) -> Option<KernelDesc> {
    let mut desc = desc(info, "moe_permute/cuda", "cuda/moe_permute.cu", GATHER, GATHERING, 0);
    desc.bindings = bindings(1, 2);
    desc.constants = constants([
        ("EXPERTS", stack.count),
        ("SLOTS", stack.slots),
        ("TILE", PLACES),
        ("ROWS_N", n),
        ("ROWS_P", p),
        ("ROWS_C", constant),
    ]);
    desc.check_limits(info).ok().map(|()| desc)
}

fn product(
    info: &DeviceInfo,
    asked: &GemmProblem,
    stack: StackedExperts,
    arrays: usize,
) -> Option<KernelDesc> {
    let packed = asked.packing().is_some();
    // Bytes of a stage: weights, scales, rows of x. Two blocks fit a multiprocessor of a Hopper chip.
    let (stage, depth) = if packed {
        (THREADS * (LINE + 8) + PLACES * LINE * 4, 3)
    } else {
        (THREADS * LINE + PLACES * LINE, 4)
    };
    let mut desc = desc(info, "grouped_gemm/cuda", "cuda/grouped_gemm.cu", TEXT, THREADS, stage * depth);
    let weights = if asked.gated { 2 } else { 1 };
    desc.bindings = bindings(1 + weights * arrays + 2, 1);
    desc.constants = constants([
        ("K", asked.k),
        ("O", asked.outputs),
        ("EXPERTS", stack.count),
        ("SLOTS", stack.slots),
        ("SHARED", u32::from(stack.shared)),
        ("FORMAT", if packed { 4 } else { 1 }),
        ("GATED", u32::from(asked.gated)),
        ("DEPTH", depth),
    ]);
    desc.check_limits(info).ok().map(|()| desc)
}

fn constants<const N: usize>(named: [(&str, u32); N]) -> Vec<(String, f64)> {
    named.map(|(name, value)| (name.to_string(), f64::from(value))).to_vec()
}
