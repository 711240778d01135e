//! Kernels in CUDA C++: for a single row, where a model's speed is that of reading its weights, and for many, where it is
//! that of the tensor cores. They stand beside the portable ones, or in their place.

pub mod argmax;
pub mod attend;
pub mod attention;
pub mod choose;
pub mod experts;
pub mod few;
pub mod linear;
pub mod matmul;
pub mod mix;
pub mod normalise;
pub mod rms_norm;

use crate::plan::{Launch, NodePlan, When};
use tapml_device::{BindingKind, DeviceInfo, KernelDesc, Language, Source};
use tapml_graph::{Dim, Symbol};

/// The compute capability, times ten, of asynchronous copies and of the products on tensor cores that the kernels use.
const COPIES: u32 = 80;
/// That of kernels which start before the one in front has ended, and of clusters of blocks.
const OVERLAP: u32 = 90;

/// That of the chips whose tensor cores take products of 64 rows (`wgmma`). No other has these instructions.
const HOPPER: u32 = 90;

const PRELUDE: &str = include_str!("prelude.cu");

/// A kernel without constants and bindings.
fn desc(info: &DeviceInfo, name: &str, file: &str, text: &str, threads: u32, memory: u32) -> KernelDesc {
    KernelDesc {
        name: name.into(),
        source: Source {
            language: Language::Cuda,
            file: file.into(),
            prelude: PRELUDE.into(),
            text: text.into(),
        },
        entry: file.rsplit('/').next().and_then(|f| f.split('.').next()).unwrap_or(file).into(),
        constants: Vec::new(),
        bindings: Vec::new(),
        workgroup: [threads, 1, 1],
        workgroup_memory: memory,
        needs_f16: true,
        needs_subgroups: false,
        overlaps: info.features.cuda >= Some(OVERLAP),
    }
}

/// The bindings of so many buffers that are read, then of so many that are written, then of the symbols.
fn bindings(read: usize, written: usize) -> Vec<BindingKind> {
    let buffers = std::iter::repeat_n(BindingKind::Read, read);
    let buffers = buffers.chain(std::iter::repeat_n(BindingKind::ReadWrite, written));
    buffers.chain([BindingKind::Uniform]).collect()
}

/// Whether these rows are one in a run with `n = 1`: exactly `n`, or always one.
pub fn may_be_one(rows: &Dim) -> bool {
    rows.as_const() == Some(1) || *rows == Dim::symbol(Symbol::N)
}

/// The plan with this launch for one row beside the launches for many; in their place if there is never more than one.
pub fn beside(mut plan: NodePlan, launch: Launch, rows: &Dim, chain: u32) -> NodePlan {
    if rows.as_const() == Some(1) {
        plan.launches.clear();
    }
    plan.launches.iter_mut().for_each(|many| many.when = When::ManyRows);
    let when = if plan.launches.is_empty() { When::Always } else { When::OneRow };
    plan.launches.push(Launch { when, ..launch });
    declare(&mut plan, chain);
    plan
}

/// Declares a chain of additions, if it is longer than the one that is declared.
pub fn declare(plan: &mut NodePlan, chain: u32) {
    let declared = plan.accumulate.chain.as_const().unwrap_or(0);
    plan.accumulate.chain = Dim::from(declared.max(u64::from(chain)));
}
