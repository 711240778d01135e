//! `MatMulNBits` of ONNX Runtime: a product with weights of 2, 4 or 8 bits in blocks, read as they are stored:
//! <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits>.
//!
//! A column of the weight is cut into blocks along K, each with a scale and a zero point. Blocks are stored one after
//! the other, low bits first; the last one of a column is padded.

use super::{OnnxNode, count, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::{KernelSource, single_workgroup};
use crate::plan::{Arg, NodePlan};
use tapml_graph::{DType, Error, Extent, Result};

/// For few rows: 32 lanes share a column.
const ROWS: KernelSource = KernelSource {
    workgroup_memory: 4096,
    ..KernelSource::flat(
        "onnx/nbits_rows",
        "onnx/nbits.wgsl+onnx/nbits_rows.wgsl",
        concat!(include_str!("nbits.wgsl"), include_str!("nbits_rows.wgsl")),
    )
};
/// For many rows: tiles of 64 by 64.
const TILE: KernelSource = KernelSource {
    workgroup_memory: 8192,
    ..KernelSource::flat(
        "onnx/nbits_tile",
        "onnx/nbits.wgsl+onnx/nbits_tile.wgsl",
        concat!(include_str!("nbits.wgsl"), include_str!("nbits_tile.wgsl")),
    )
};

/// Rows up to which each column is read for a few of them at a time.
const SKINNY_ROWS: u32 = 8;

/// A size that an attribute gives.
fn size(node: &OnnxNode, name: &str, default: i64) -> Result<u32> {
    let value = node.int(name, default)?;
    let size = u32::try_from(value).ok().filter(|&size| size > 0);
    size.ok_or_else(|| Error::invalid(format!("attribute `{name}` is {value}, expected a positive size")))
}

/// What `ZEROS` means in the kernel, and the input.
///
/// Packed zero points begin a byte with each column.
fn zero_points(node: &OnnxNode, n: u32, blocks: u32, bits: u32) -> Result<(u32, Arg)> {
    let Some(zeros) = node.optional(3) else { return Ok((0, Arg::Constant(0))) };
    let dtype = node.float_dtype()?;
    let (kind, expected) = match zeros.dtype() {
        DType::U8 => (1, blocks.saturating_mul(bits).div_ceil(8)),
        found if found == dtype => (if dtype == DType::F16 { 3 } else { 2 }, blocks),
        _ => return Err(node.unserved_error(&format!("zero points of {}", zeros.ty))),
    };
    if zeros.count()? == count(&[n, expected])? {
        Ok((kind, whole(zeros)))
    } else {
        Err(Error::invalid(format!("zero points of {} for {n} times {blocks} blocks", zeros.ty)))
    }
}

/// The plan of the operator.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["K", "N", "bits", "block_size", "accuracy_level", "weight_prepacked"])?;
    let (dtype, a) = (node.float_dtype()?, node.input(0)?);
    let (k, n) = (size(&node, "K", 0)?, size(&node, "N", 0)?);
    let (bits, block) = (size(&node, "bits", 4)?, size(&node, "block_size", 0)?);
    // `g_idx` gives the group of each element, which the text takes from its place.
    if ![2, 4, 8].contains(&bits) || node.optional(4).is_some() || node.int("weight_prepacked", 0)? != 0 {
        return Err(node.unserved_error("such bits, `g_idx`, or weights packed for one device"));
    }
    // The operator's own limits.
    if block < 16 || !block.is_power_of_two() {
        return Err(Error::invalid(format!("`block_size` is {block}, expected a power of two from 16")));
    }
    let blocks = k.div_ceil(block);
    let bytes = count(&[n, blocks, block / 8, bits])?;
    let (b, scales) = (node.input(1)?, node.input(2)?);
    let fits = b.dtype() == DType::U8 && b.count()? == bytes && scales.dtype() == dtype;
    if !fits || scales.count()? != count(&[n, blocks])? {
        return Err(Error::invalid(format!("weights of {} and {} for {n} columns of {k}", b.ty, scales.ty)));
    }
    let (zeros, zero_points) = zero_points(&node, n, blocks, bits)?;
    let bias = node.may_take(5, dtype, &[n])?;
    let mut sizes = a.sizes()?;
    if sizes.pop() != Some(k) || a.count()? == 0 {
        return Err(node.unserved_error(&format!("{} for sums of {k}", a.ty)));
    }
    let m = count(&sizes)?;
    sizes.push(n);
    let y = node.gives(0, dtype, &sizes)?;
    let kernel = if m > SKINNY_ROWS { &TILE } else { &ROWS };
    let launch = kernel.launch(dtype, dtype)?.read(whole(a)).read(whole(b)).read(whole(scales));
    let launch = launch.read(zero_points).read(bias.map_or(Arg::Constant(0), whole)).output(y.index);
    let launch = launch.set("M", m).set("N", n).set("K", k).set("BITS", bits).set("BLOCK", block);
    let launch = launch.set("BLOCKS", blocks).set("ZEROS", zeros);
    let launch = launch.set("HAS_BIAS", u32::from(bias.is_some()));
    let groups = |size: u32, each: u32| Extent::from_dim(u64::from(size.div_ceil(each)));
    let (launch, chain) = if m > SKINNY_ROWS {
        // A lane of a tile adds all terms; of a few rows, every 32nd.
        (launch.groups([groups(n, 64), groups(m, 64), single_workgroup()]), k)
    } else {
        let launch = launch.set("ROWS", if m == 1 { 1u32 } else { 4 });
        (launch.groups([groups(n, 8), groups(m, 4), single_workgroup()]), k.div_ceil(32))
    };
    Ok(plan_with(kernel, vec![launch], vec![vec![0; 4]], chain.saturating_add(1)))
}
