//! Products of many rows with the matrices of chosen experts: `moe_permute.cu`, which brings the rows of each expert together, and
//! `grouped_gemm.cu`.
//!
//! The first launch sorts the places by expert and cuts them into tiles, of which it writes a list. The second has a
//! block for each tile that there can be; those beyond the list's length end at once. Its grid is therefore known
//! before the choice.

use super::{COPIES, bindings, desc};
use crate::axis::Axis;
use crate::kernel::Request;
use crate::kernel::gemm_problem::{GemmProblem, StackedExperts};
use crate::kernel::source::{affine, plan_of, single_workgroup, unserved_error};
use crate::plan::{Arg, Launch, NodePlan, Scratch};
use tapml_device::{DeviceInfo, KernelDesc};
use tapml_graph::{DType, Dim, Extent, Packing, Result, TensorType};

/// The text that sorts places.
const GATHER: &str = include_str!("moe_permute.cu");
/// The text of the product.
const TEXT: &str = include_str!("grouped_gemm.cu");
/// Places of a tile at most.
const PLACES: u32 = 64;
/// Threads of a block, and rows of weights of a tile; half as many outputs with a gate.
const THREADS: u32 = 256;
/// Threads of the one block that sorts.
const GATHERING: u32 = 1024;
/// Elements that share a scale.
/// Packed weights with other groups are refused.
const GROUP: u32 = 32;
/// Bytes of a row of weights in a stage.
const LINE: u32 = 64;
/// Words that describe a tile.
/// Expert, first place, count, and 0.
const WORDS: u64 = 4;

/// The plan of a product of many rows with the matrices of chosen experts.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let found = launches(request).filter(|_| request.binds_whole());
    let found = found.ok_or_else(|| unserved_error(request))?;
    let (permute, product) = (found.gather, found.product);
    let mut plan = plan_of(product, found.chain);
    plan.launches.insert(0, permute);
    plan.scratch = found.scratch.map(Scratch::Temporary).into();
    Ok(plan.with_axes(chosen_steps(request)))
}

/// What changes along the places that rows have with their experts: tiles of them.
fn chosen_steps(request: &Request) -> Option<Axis> {
    let stack = GemmProblem::of_stack(request.op, request.inputs)?.stack?;
    let places = request.inputs.first()?.shape.first()?.checked_mul(u64::from(stack.slots))?;
    Some(Axis::steps("chosen experts", places, u64::from(PLACES)))
}

/// The launches of a product.
struct ExpertLaunches {
    /// Sorts places by their experts.
    gather: Launch,
    product: Launch,
    scratch: [Extent; 2],
    /// The longest chain of additions.
    chain: u32,
}

fn launches(request: &Request) -> Option<ExpertLaunches> {
    let asked = GemmProblem::of_stack(request.op, request.inputs)?;
    let arrays = arrays(asked.weight)?;
    let places = asked.places()?;
    let (stack, chosen, rows) = (asked.stack?, asked.expert_ids_input()?, asked.x.shape.first()?);
    let halves = asked.x.dtype == DType::F16 && request.outputs[0].dtype == DType::F16;
    let many = rows.as_const() != Some(1) && stack.count > 0 && asked.outputs > 0;
    // Elements of a line: rows have to consist of whole ones.
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
    // The order has a word for each place, and one more; the list has four for each tile, and four for its length.
    let scratch =
        [Extent::from_dim(bytes.checked_add(&Dim::from(4u64))?), Extent::ceil_div(described, PLACES)];
    let [order, list] = [0, 1].map(Arg::Scratch);
    let gather = Launch {
        desc: gather(request.info, stack, affine(rows).ok()?)?,
        args: vec![Arg::whole_input(chosen), order, list, Arg::Symbols],
        groups: [single_workgroup(), single_workgroup(), single_workgroup()],
    };
    let desc = product(request.info, &asked, stack, arrays)?;
    // Half of a tile's rows belong to each of two weights.
    let outputs = if asked.gated { THREADS / 2 } else { THREADS };
    let columns = Extent::from_dim(u64::from(asked.outputs.div_ceil(outputs)));
    let weights = request.args(&places.weights).ok()?;
    let args = [Arg::whole_input(0)].into_iter().chain(weights);
    let args = args.chain([order, list, Arg::Output(0), Arg::Symbols]).collect();
    let product = Launch { desc, args, groups: [columns, tiles, single_workgroup()] };
    // Two products of 16, then the sums of every 32, one by one.
    Some(ExpertLaunches { gather, product, scratch, chain: asked.k / GROUP + 18 })
}

/// How many arrays a weight of this type is stored in, if the kernel reads such.
fn arrays(weight: &TensorType) -> Option<usize> {
    match weight.dtype {
        DType::F16 => Some(1),
        DType::Packed(p) => (p == Packing::integers(4, GROUP, false)).then_some(2),
        _ => None,
    }
}

/// The kernel that sorts places; `n`, `p` and a constant give the number of rows.
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

/// The kernel of the product; `arrays` is how many buffers each weight is bound as.
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

/// Constants as a description has them.
fn constants<const N: usize>(named: [(&str, u32); N]) -> Vec<(String, f64)> {
    named.map(|(name, value)| (name.to_string(), f64::from(value))).to_vec()
}
