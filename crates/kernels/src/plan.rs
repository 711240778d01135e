//! What it takes to run one node on a device: kernels, launches, scratch and constants.

use crate::kernel::{KERNELS, Request};
use crate::overrides::Overrides;
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::{Context, DType, Dim, Error, Extent, Op, Result, Symbol, Symbols, TensorType};

/// The symbols in the order of the uniform block `struct Symbols { n: u32, p: u32, … }` that every kernel binds last.
pub const SYMBOLS: [Symbol; 2] = [Symbol::N, Symbol::P];

/// The uniform block's bytes for these values: each symbol of [`SYMBOLS`] as a little-endian `u32`, padded to 16 bytes.
/// A symbol that is not bound counts as 0.
pub fn symbol_bytes(symbols: &Symbols) -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    for (slot, symbol) in bytes.chunks_exact_mut(4).zip(SYMBOLS) {
        let value = symbols.get(symbol).unwrap_or(0);
        let word = u32::try_from(value)
            .map_err(|_| Error::invalid(format!("{symbol} = {value} is beyond 32 bits")))?;
        slot.copy_from_slice(&word.to_le_bytes());
    }
    Ok(bytes)
}

/// What one binding of a launch is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// An input of the operator, or bytes `offset..offset+len` of it; `len` 0 means all of it. Offsets are multiples of
    /// 256, so the range may be bound within a larger buffer or be a buffer of its own.
    Input {
        /// Which input.
        index: usize,
        /// First byte.
        offset: u64,
        /// Number of bytes; 0 means to the end.
        len: u64,
    },
    /// An output of the operator.
    Output(usize),
    /// A buffer of [`NodePlan::scratch`].
    Scratch(usize),
    /// Bytes of [`NodePlan::constants`].
    Constant(usize),
    /// The uniform block; see [`symbol_bytes`].
    Symbols,
}

/// One dispatch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The kernel.
    pub desc: KernelDesc,
    /// One per binding.
    pub args: Vec<Arg>,
    /// The number of workgroups.
    pub groups: Grid,
}

/// How the kernel adds up: what a verdict needs to know of its arithmetic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accumulate {
    /// The dtype of sums.
    pub dtype: DType,
    /// The longest serial chain of additions between steps of a tree; 0 if nothing is added up. A recurrence adds to its
    /// state once for each row, so that its chain grows with them.
    pub chain: Dim,
}

/// That an output may lie in the buffer of an input, which is then extended or advanced in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// Which input.
    pub input: usize,
    /// Which output.
    pub output: usize,
    /// When both share one buffer, launches before this one must be left out: they only copy the input.
    pub first_launch: usize,
}

/// How to run one node. With separate buffers for all inputs and outputs, perform all launches in order.
///
/// A buffer of zero bytes cannot be bound: give empty tensors at least 4 bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    /// Name for people: operator and variant, such as `linear/portable`, or operator and file of a user's kernel.
    pub kernel: String,
    /// BLAKE3 of sources, constants and geometry, in hexadecimal: equal hashes compute the same.
    pub hash: String,
    /// The dispatches in order; each may read what earlier ones wrote.
    pub launches: Vec<Launch>,
    /// Sizes in bytes of buffers that live during this node only.
    pub scratch: Vec<Extent>,
    /// Bytes of constant buffers; each a multiple of 4 long.
    pub constants: Vec<Vec<u8>>,
    /// How the kernel adds up.
    pub accumulate: Accumulate,
    /// Whether an output may lie in the buffer of an input.
    pub in_place: Option<InPlace>,
}

impl NodePlan {
    /// The hash of everything that decides what the launches compute; names and paths do not.
    fn hash_of(launches: &[Launch], constants: &[Vec<u8>]) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        let mut add = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        for Launch { desc, args, groups } in launches {
            let source = &desc.source;
            let facts =
                (&source.prelude, &source.text, &desc.entry, &desc.constants, &desc.bindings, desc.workgroup);
            let facts = serde_json::to_vec(&(facts, groups));
            add(&facts.map_err(|e| Error::bug(format!("kernel `{}`: {e}", desc.name)))?);
            add(format!("{args:?}").as_bytes());
        }
        constants.iter().for_each(|constant| add(constant));
        Ok(hasher.finalize().to_hex().to_string())
    }
}

/// Plans one node: chooses the kernel, specialises it and checks it against the device's limits and features.
///
/// `inputs` are types with symbolic sizes, as in the graph. Fails with [`tapml_graph::ErrorKind::Unsupported`] if the
/// device or the kernels cannot serve this operator at these types; the details name `op` and, where one is the reason,
/// `limit`, `asked` and `offered`.
pub fn plan_node(
    op: &Op,
    inputs: &[TensorType],
    info: &DeviceInfo,
    overrides: &Overrides,
) -> Result<NodePlan> {
    let outputs = op.infer(inputs)?;
    let row = KERNELS.iter().find(|row| row.op == op.name());
    let row = row.ok_or_else(|| {
        Error::unsupported(format!("no kernel for operator `{}`", op.name())).with_detail("op", op.name())
    })?;
    let request = Request { op, inputs, outputs: &outputs, info };
    let planned = (row.plan)(&request).and_then(|mut plan| {
        overrides.apply(op.name(), &mut plan)?;
        plan.launches.iter().try_for_each(|launch| launch.desc.check_limits(info))?;
        plan.hash = NodePlan::hash_of(&plan.launches, &plan.constants)?;
        Ok(plan)
    });
    planned.map_err(|e| e.with_detail("op", op.name())).context(|| op.name().to_string())
}
