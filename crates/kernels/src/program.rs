//! A compiled graph as plain data: buffers, kernels, steps and named ports. It says nothing of where it runs.
//!
//! A program can be written to a file and loaded elsewhere. Weights are named, not contained; everything else that a
//! run needs is in it.

use crate::plan::Phase;
use serde::{Deserialize, Serialize};
use tapml_device::{Grid, KernelDesc};
use tapml_graph::{Error, Extent, Result, Symbol, Symbols, TensorType};

mod check;
pub(crate) use check::{bytes_at_capacity, largest};
mod hex;

/// The version of [`Program`]'s serialised form.
pub const SCHEMA: u32 = 2;

/// A compiled graph: what to allocate, what to compile, what to run.
///
/// Buffer `i` of the indices below is `buffers[i]`. A run writes the inputs' buffers and the buffer of the symbols,
/// performs the steps in order, and leaves the results in the outputs' buffers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The graph's name.
    pub name: String,
    /// The symbols whose values the uniform block holds, in its order.
    pub symbols: Vec<Symbol>,
    /// The largest value of each symbol.
    pub capacity: Symbols,
    /// The largest `n + p`, if that is less than the sum of both capacities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// Runs of at most so many rows take the steps of the decode phase.
    #[serde(default = "one_row", skip_serializing_if = "is_one_row")]
    pub decode_rows: u64,
    /// Device memory.
    pub buffers: Vec<BufferPlan>,
    /// Distinct kernels.
    pub kernels: Vec<KernelDesc>,
    /// What a run does, in order.
    pub steps: Vec<ProgramStep>,
    /// What a run is given.
    pub inputs: Vec<Port>,
    /// What a run results in.
    pub outputs: Vec<Port>,
    /// What lives from one run to the next.
    pub states: Vec<StatePort>,
}

fn one_row() -> u64 {
    1
}

fn is_one_row(rows: &u64) -> bool {
    *rows == 1
}

/// One buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferPlan {
    /// Label in errors and traces.
    pub name: String,
    /// Bytes; a multiple of 4, at least 4.
    pub size: u64,
    /// What it holds.
    pub content: Content,
}

/// What a buffer holds and who fills it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Content {
    /// The values of [`Program::symbols`] as `u32`, padded to 16 bytes. Written before each run.
    Symbols,
    /// Bytes `offset..offset+len` of a weight as the checkpoint stores it.
    Weight {
        /// The weight's name.
        name: String,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// These bytes (hexadecimal in the serialised form).
    #[serde(with = "hex")]
    Constant(Vec<u8>),
    /// Values of one run: inputs, results and what lies between.
    Activation,
    /// A state; zeroed when loaded if it does not grow, kept between runs.
    State,
}

/// A range of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// Index of the buffer.
    pub buffer: u32,
    /// First byte; a multiple of 256.
    pub offset: u64,
    /// Length in bytes; 0 means to the end.
    pub size: u64,
}

/// One step of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ProgramStep {
    /// Runs a kernel.
    Dispatch {
        /// The node of the lowered graph that this belongs to.
        node: String,
        /// The row of the kernel list that it is a launch of, or a user's kernel.
        row: String,
        /// Index of the kernel.
        kernel: u32,
        /// One range per binding of the kernel.
        bindings: Vec<Slice>,
        /// The number of workgroups.
        groups: Grid,
        /// The phase in which it runs; in both if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<Phase>,
    },
    /// Copies bytes between two buffers.
    Copy {
        /// Index of the source.
        src: u32,
        /// First byte read.
        src_offset: Extent,
        /// Index of the destination, another buffer.
        dst: u32,
        /// First byte written.
        dst_offset: Extent,
        /// Number of bytes.
        len: Extent,
        /// The phase in which it runs; in both if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<Phase>,
    },
    /// Fills a whole buffer with a word.
    Fill {
        /// Index of the buffer.
        buffer: u32,
        /// The word.
        word: u32,
        /// The phase in which it runs; in both if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<Phase>,
    },
}

impl ProgramStep {
    /// The phase in which the step runs; in both if there is none.
    pub fn phase(&self) -> Option<Phase> {
        match self {
            ProgramStep::Dispatch { phase, .. }
            | ProgramStep::Copy { phase, .. }
            | ProgramStep::Fill { phase, .. } => *phase,
        }
    }

    /// Whether the step runs in this phase.
    pub fn runs_in(&self, phase: Phase) -> bool {
        self.phase().is_none_or(|own| own == phase)
    }
}

/// A named input or output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// The name in the graph.
    pub name: String,
    /// Dtype and sizes.
    pub ty: TensorType,
    /// Index of the buffer that holds it from its first byte on.
    pub buffer: u32,
}

/// A named state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatePort {
    /// The name in the graph.
    pub name: String,
    /// Dtype and sizes before a run.
    pub ty: TensorType,
    /// Index of the buffer that holds it from its first byte on.
    pub buffer: u32,
    /// Whether a run adds `n` rows to it.
    pub grows: bool,
}

/// Bytes of device memory that a program takes, by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramMemory {
    /// Weights.
    pub weights: u64,
    /// States at capacity.
    pub states: u64,
    /// Inputs, results and intermediate values at capacity.
    pub activations: u64,
    /// Constants and symbols.
    pub constants: u64,
}

impl ProgramMemory {
    /// All of it: the most that a run needs at any time.
    /// All buffers exist from loading to unloading, so that the peak is their sum.
    pub fn peak(&self) -> u64 {
        self.weights + self.states + self.activations + self.constants
    }
}

impl std::iter::Sum for ProgramMemory {
    /// That of several programs on one device.
    fn sum<I: Iterator<Item = ProgramMemory>>(programs: I) -> ProgramMemory {
        programs.fold(ProgramMemory::default(), |all, one| ProgramMemory {
            weights: all.weights.saturating_add(one.weights),
            states: all.states.saturating_add(one.states),
            activations: all.activations.saturating_add(one.activations),
            constants: all.constants.saturating_add(one.constants),
        })
    }
}

impl Program {
    /// The serialised form: JSON in UTF-8. Equal programs give equal bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        // A program that `from_bytes` would refuse is not written.
        self.check()?;
        serde_json::to_vec(self)
            .map_err(|e| Error::bug(format!("program `{}` does not serialise: {e}", self.name)))
    }

    /// Reads what [`Program::to_bytes`] wrote. Every index, size and range is checked: bytes from anywhere are safe to
    /// give, and the result is safe to load.
    pub fn from_bytes(bytes: &[u8]) -> Result<Program> {
        let program: Program = serde_json::from_slice(bytes)
            .map_err(|e| Error::invalid(format!("these {} bytes are no program: {e}", bytes.len())))?;
        // Parsing checks the form alone; indices and ranges are checked here.
        program.check()?;
        Ok(program)
    }

    /// Device memory by use.
    /// Buffers at capacity count in full, whatever the sizes of a run are.
    pub fn memory(&self) -> ProgramMemory {
        let mut memory = ProgramMemory::default();
        for buffer in &self.buffers {
            let sum = match buffer.content {
                Content::Weight { .. } => &mut memory.weights,
                Content::State => &mut memory.states,
                Content::Activation => &mut memory.activations,
                Content::Symbols | Content::Constant(_) => &mut memory.constants,
            };
            // Sizes may come from a file; the check bounds each, not their number.
            *sum = sum.saturating_add(buffer.size);
        }
        memory
    }
}
