//! The parts of packed weights, and how the tensors of other programs become them.

use tapml_graph::{Packing, Result, Tensor};

/// The matrix of one packed tensor: its own shape, and how it is packed.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    /// Rows; with a stack, of one of its matrices.
    pub(super) outputs: usize,
    /// Inputs: elements of a row.
    pub(super) k: usize,
    pub(super) packing: Packing,
}

impl Matrix {
    /// Groups of a row.
    pub(super) fn groups(&self) -> usize {
        self.k / (self.packing.group as usize).max(1)
    }

    /// Words of a row.
    pub(super) fn words(&self) -> usize {
        self.k / self.packing.per_word() as usize
    }
}

/// Words, scales and zeros of matrices, one behind the other.
#[derive(Default)]
pub(super) struct Parts {
    /// `[o, k / per_word]`, row by row.
    pub(super) words: Vec<u32>,
    /// `[o, k / group]`, as the packing stores them.
    pub(super) scales: Vec<u8>,
    /// As `scales`, in f16; empty without zero points.
    pub(super) zeros: Vec<u8>,
}

/// Makes the parts of a weight when they are asked for.
pub(super) type Make = Box<dyn Fn() -> Result<Parts> + Send + Sync>;

/// The elements of an i32 tensor as they lie.
/// As `u32`: codes are bits, not numbers with a sign.
pub(super) fn words_of(tensor: &Tensor) -> Vec<u32> {
    tensor.bytes().as_chunks::<4>().0.iter().map(|&b| u32::from_le_bytes(b)).collect()
}

/// `[rows, columns]` two-byte elements with rows and columns exchanged.
pub(super) fn turned_halves(tensor: &Tensor, rows: usize, columns: usize) -> Vec<u8> {
    let halves = tensor.bytes().as_chunks::<2>().0;
    (0..columns).flat_map(|column| (0..rows).flat_map(move |row| halves[row * columns + column])).collect()
}
