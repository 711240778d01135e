//! What it takes to run one node on a device in one phase: kernels, launches, scratch and constants.
//!
//! A plan is data: it names no device objects, and sizes that differ from run to run stay expressions of the symbols.
//! The compiler turns plans of all nodes into one program.

use crate::axis::Axis;
use serde::{Deserialize, Serialize};
use tapml_device::{Grid, KernelDesc};
use tapml_graph::{DType, Dim, Error, Extent, Result, Symbol, Symbols};

/// The symbols in the order of the uniform block `struct Symbols { n: u32, p: u32, s: u32, … }` that every kernel binds last.
/// The `symbols` prelude declares the same order.
pub const SYMBOLS: [Symbol; 3] = [Symbol::N, Symbol::P, Symbol::S];

/// The symbols of a program of this capacity: `n` and `p`, and `s` if it has a capacity.
pub fn program_symbols(capacity: &Symbols) -> Vec<Symbol> {
    SYMBOLS.into_iter().filter(|&symbol| symbol != Symbol::S || capacity.get(symbol).is_some()).collect()
}

/// The uniform block's bytes for these values: each symbol of [`SYMBOLS`] as a little-endian `u32`, padded to 16 bytes.
/// A symbol that is not bound counts as 0.
///
/// # Errors
/// `InvalidInput` if a value needs more than 32 bits.
pub fn symbol_bytes(symbols: &Symbols) -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    for (slot, symbol) in bytes.chunks_exact_mut(4).zip(SYMBOLS) {
        // A kernel may know symbols that a graph does not use.
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

impl Arg {
    /// All of an input.
    pub const fn whole_input(index: usize) -> Arg {
        Arg::Input { index, offset: 0, len: 0 }
    }
}

/// The two ways in which a language model runs. Each has a lowered graph and kernels of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// A run of one row, `n = 1`: a step of generation. Where rows are independent, one of up to
    /// [`DECODE_ROWS`](crate::DECODE_ROWS).
    Decode,
    /// A run of any other number of rows: a prompt.
    Prefill,
}

impl Phase {
    /// Both.
    pub const ALL: [Phase; 2] = [Phase::Decode, Phase::Prefill];

    /// The phase of a run with these symbols.
    pub fn of_run(symbols: &Symbols) -> Phase {
        if symbols.get(Symbol::N) == Some(1) { Phase::Decode } else { Phase::Prefill }
    }

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Decode => "decode",
            Phase::Prefill => "prefill",
        }
    }
}

/// One dispatch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The kernel.
    pub desc: KernelDesc,
    /// One per binding.
    /// `args[i]` belongs to `desc.bindings[i]`.
    pub args: Vec<Arg>,
    /// The number of workgroups.
    pub groups: Grid,
}

/// How the kernel adds up: what a verdict needs to know of its arithmetic.
///
/// Rounding errors of a sum grow with the longest chain of dependent additions, not with the number of terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accumulate {
    /// The dtype of sums.
    pub dtype: DType,
    /// The longest serial chain of additions between steps of a tree; 0 if nothing is added up. A recurrence adds to its
    /// state once for each row, so that its chain grows with them.
    pub chain: Dim,
    /// See [`crate::KernelRow::keeps_chain`]; a user's kernel makes no such promise.
    pub keeps_chain: bool,
}

impl Accumulate {
    /// Sums of this dtype in chains of this length, which nobody promises to keep.
    pub const fn new(dtype: DType, chain: Dim) -> Accumulate {
        Accumulate { dtype, chain, keeps_chain: false }
    }
}

/// That an output may lie in the buffer of an input, which is then extended or advanced in place.
///
/// The launches then read and write one buffer under the output's binding alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// Which input.
    pub input: usize,
    /// Which output.
    pub output: usize,
    /// The launch that copies the input to the output, which is left out when both share one buffer.
    pub copy: Option<usize>,
}

/// Memory that a node has for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scratch {
    /// So many bytes while the node runs, of any content.
    Temporary(Extent),
    /// So many bytes that are zero before the first run, and that only launches of the same kernel row use.
    Kept(u64),
}

impl Scratch {
    /// Its bytes.
    pub fn bytes(&self) -> Extent {
        match self {
            Scratch::Temporary(extent) => extent.clone(),
            Scratch::Kept(bytes) => Extent::from_dim(*bytes),
        }
    }
}

/// How to run one node. With separate buffers for all inputs and outputs, perform all launches in order.
///
/// A buffer of zero bytes cannot be bound: give empty tensors at least 4 bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    /// The row of the kernel list that made it, such as `linear/portable`, or operator and file of a user's kernel.
    pub kernel: String,
    /// BLAKE3 of sources, constants and geometry, in hexadecimal: equal hashes compute the same.
    /// Empty until the plan has been chosen.
    pub hash: String,
    /// The dispatches in order; each may read what earlier ones wrote.
    pub launches: Vec<Launch>,
    /// Memory beside inputs and outputs.
    pub scratch: Vec<Scratch>,
    /// Bytes of constant buffers; each a multiple of 4 long.
    pub constants: Vec<Vec<u8>>,
    /// How the kernel adds up.
    pub accumulate: Accumulate,
    /// Outputs that may lie in the buffer of an input.
    /// It is an offer: the compiler takes it up only where nobody needs the input afterwards.
    pub in_place: Vec<InPlace>,
    /// Sizes along which the kernels work in steps that the grids of the launches do not show, or in different ways.
    pub axes: Vec<Axis>,
}

impl NodePlan {
    /// The plan with further sizes along which its kernels work in steps or in different ways.
    pub(crate) fn with_axes(mut self, axes: impl IntoIterator<Item = Axis>) -> NodePlan {
        self.axes.extend(axes);
        self
    }

    /// Whether two plans perform the same launches, whatever they are called.
    ///
    /// Scratch, constants and the way of adding up are not compared.
    pub fn does_the_same(&self, other: &NodePlan) -> bool {
        let unnamed = |plan: &NodePlan| -> Vec<Launch> {
            let mut launches = plan.launches.clone();
            // Names differ with settings and rows that share a planner.
            launches.iter_mut().for_each(|launch| launch.desc.name.clear());
            launches
        };
        unnamed(self) == unnamed(other)
    }

    /// The hash of everything that decides what the launches compute, and in which memory; names and paths do not.
    pub(crate) fn compute_hash(&self) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        let mut add = |bytes: &[u8]| {
            // Lengths stand in front, so that no two lists of parts give the same stream of bytes.
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        for Launch { desc, args, groups } in &self.launches {
            let source = &desc.source;
            let facts =
                (&source.prelude, &source.text, &desc.entry, &desc.constants, &desc.bindings, desc.workgroup);
            // A launch of CUDA C++ is given its shared memory, and may overlap the one in front of it.
            let facts = serde_json::to_vec(&(facts, groups, desc.workgroup_memory, desc.dependent_launch));
            add(&facts.map_err(|e| Error::bug(format!("kernel `{}`: {e}", desc.name)))?);
            // The text of the arguments tells them apart as well as a serialised form would.
            add(format!("{args:?}").as_bytes());
        }
        self.constants.iter().for_each(|constant| add(constant));
        add(format!("{:?} {:?}", self.scratch, self.in_place).as_bytes());
        Ok(hasher.finalize().to_hex().to_string())
    }
}
