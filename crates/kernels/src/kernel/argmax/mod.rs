//! `argmax`: launch planner. Workgroup `(x, y)` of the first launch looks at elements `1024·x` to `1024·x + 1023` of row `y`,
//! workgroup `x` of the second at what was found in new row `x`.
//!
//! Numbers are compared as integers of the same order, so that NaN has a defined place: a row that has one is marked
//! by the largest index.

use super::Request;
use super::source::{KernelSource, affine, constant, elements, plan as planned, single_workgroup, wrong_op};
use crate::plan::{InPlace, Launch, NodePlan, Scratch};
use tapml_device::BindingKind;
use tapml_graph::{DType, Dim, Error, Extent, Op, Result, Symbol};

/// Elements of a workgroup.
const SHARE: u32 = 1024;

/// The greatest of each share, with its index; a row has as many shares as workgroups.
const PARTS: KernelSource = KernelSource {
    name: "argmax/parts",
    file: "argmax/parts.wgsl",
    text: include_str!("parts.wgsl"),
    weights: false,
    norm: false,
    formula: "",
    math: false,
    lanes: 256,
    workgroup_memory: 8 * 256,
};

/// The greatest of the shares of a row.
const KERNEL: KernelSource = KernelSource {
    name: "argmax/portable",
    file: "argmax/portable.wgsl",
    text: include_str!("portable.wgsl"),
    ..PARTS
};

/// The copy of what was found before, for outputs that do not lie in its buffer.
const COPY: KernelSource = KernelSource::flat("argmax/copy", "argmax/copy.wgsl", include_str!("copy.wgsl"));

/// The plan of `argmax`. Indices are added behind those that were found before.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Argmax(_) = request.op else { return Err(wrong_op(request)) };
    let (found, x) = (&request.inputs[0].shape[0], &request.inputs[1]);
    let (rows, width) = (&x.shape[0], constant("the row length", &x.shape[1])?);
    let count = width.div_ceil(SHARE);
    let f32 = |kernel: &KernelSource| kernel.launch(DType::F32, DType::F32);
    // Logits are f32: there is no text for other dtypes.
    let parts = f32(&PARTS)?.input(1).scratch(0, BindingKind::ReadWrite).rows(rows)?;
    let parts = parts.set("WIDTH", width).set("SHARE", SHARE).set("COUNT", count);
    let parts = parts.groups([
        Extent::from_dim(u64::from(count)),
        Extent::from_dim(rows.clone()),
        single_workgroup(),
    ]);
    let [n, p, c] = affine(found)?;
    let last = f32(&KERNEL)?.scratch(0, BindingKind::Read).output(0).output(1).rows(rows)?;
    let last = last.set("COUNT", count).set("BEFORE_N", n).set("BEFORE_P", p).set("BEFORE_C", c);
    let last =
        // One workgroup for each new index.
        last.groups([Extent::from_dim(Dim::symbol(Symbol::N)), single_workgroup(), single_workgroup()]);
    // An order and an index of 4 bytes for each share.
    let width = count.checked_mul(8).ok_or_else(|| Error::unsupported("the row length overflows"))?;
    Ok(NodePlan {
        scratch: vec![Scratch::Temporary(Extent::from_dim(elements(rows, width)?))],
        in_place: vec![InPlace { input: 0, output: 0, copy: Some(0) }],
        ..planned(&KERNEL, vec![copy(found)?, parts, last], 0)
    })
}

/// The launch that copies so many indices from the first input to the first output.
pub fn copy(found: &Dim) -> Result<Launch> {
    let copy = COPY.launch(DType::F32, DType::F32)?.input(0).output(0).rows(found)?;
    Ok(copy.flat(found.clone()))
}
