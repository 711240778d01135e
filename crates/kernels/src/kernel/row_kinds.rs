//! The kinds of rows of the kernel list: what kernels of a kind ask of a device, and when they are preferred.

use super::RowCount::{Any, Many};
use super::cuda::HOPPER;
use super::settings::{BATCHES, EVEN, NARROW, Setting, TILES};
use super::{KernelRow, Needs, Request, RowCount, RowInvariance, on_gpu, onnx, serves_all};
use crate::plan::NodePlan;
use tapml_graph::Result;

/// A kernel that every device can take.
pub(super) const fn portable(name: &'static str, plan: fn(&Request) -> Result<NodePlan>) -> KernelRow {
    KernelRow {
        name,
        also: None,
        needs: Needs::NOTHING,
        rows: Any,
        plan,
        preferred: serves_all,
        text: None,
        keeps_chain: false,
        row_invariant: Some(RowInvariance::for_all(Setting::DEFAULT)),
    }
}

/// A convolution by tiles, where measurements say that they are faster.
pub(super) const fn tiled_row(name: &'static str, plan: fn(&Request) -> Result<NodePlan>) -> KernelRow {
    KernelRow { preferred: onnx::plans::gains_by_tiles, row_invariant: None, ..portable(name, plan) }
}

/// A kernel with subgroup operations.
pub(super) const fn subgroup(
    name: &'static str,
    rows: RowCount,
    plan: fn(&Request) -> Result<NodePlan>,
) -> KernelRow {
    KernelRow {
        needs: Needs::SUBGROUPS,
        rows,
        preferred: on_gpu,
        row_invariant: None,
        ..portable(name, plan)
    }
}

/// A kernel on tensor cores, in WGSL.
pub(super) const fn coop(
    name: &'static str,
    rows: RowCount,
    plan: fn(&Request) -> Result<NodePlan>,
) -> KernelRow {
    KernelRow { needs: Needs::COOPERATIVE_MATRICES, ..subgroup(name, rows, plan) }
}

/// A kernel in CUDA C++ for chips of at least this compute capability, times ten.
pub(super) const fn cuda(
    name: &'static str,
    least: u32,
    rows: RowCount,
    plan: fn(&Request) -> Result<NodePlan>,
) -> KernelRow {
    KernelRow { needs: Needs::cuda(least), rows, row_invariant: None, ..portable(name, plan) }
}

/// A kernel in CUDA C++ for Hopper chips.
pub(super) const fn hopper(
    name: &'static str,
    rows: RowCount,
    plan: fn(&Request) -> Result<NodePlan>,
) -> KernelRow {
    KernelRow { needs: Needs::cuda_exactly(HOPPER), rows, row_invariant: None, ..portable(name, plan) }
}

/// A product of many rows on a Hopper chip. Tiles decide which block computes a result and not how it is added up, so that runs of few
/// rows have others.
pub(super) const fn hopper_gemm(name: &'static str, plan: fn(&Request) -> Result<NodePlan>) -> KernelRow {
    let invariance = RowInvariance { decode: NARROW, prefill: EVEN };
    KernelRow { row_invariant: Some(invariance), ..hopper(name, Many, plan) }
}

/// A product with two ways for few rows and many: the second is taken where a row's results must not depend on the others.
pub(super) const fn tiles(row: KernelRow) -> KernelRow {
    KernelRow { row_invariant: Some(RowInvariance::for_all(TILES)), ..row }
}

/// A product that can treat any number of rows in batches.
pub(super) const fn batches(row: KernelRow) -> KernelRow {
    KernelRow { row_invariant: Some(RowInvariance::for_all(BATCHES)), ..row }
}

/// A kernel whose blocks have rows of their own, or add up each of theirs in one order.
pub(super) const fn independent(row: KernelRow) -> KernelRow {
    KernelRow { row_invariant: Some(RowInvariance::for_all(Setting::DEFAULT)), ..row }
}
