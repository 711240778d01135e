//! How ggml stores the elements of tensors: types by number, sizes of their blocks, and what reads them.
//!
//! One table says everything of a type. A type without a reader still has a size, so that files which hold
//! it can be listed.

use super::dequantize::{self as read, Dequantize};
use rayon::prelude::*;
use std::fmt;
use tapml_graph::{Bytes, DType, Error, ErrorKind, Result, Tensor};

/// Elements that one task dequantises: a multiple of every block.
const TASK: usize = 1 << 16;

/// How a type becomes numbers.
/// Types without a reader can be listed, not loaded.
#[derive(Clone, Copy)]
enum Reading {
    /// The elements are of this dtype.
    Direct(DType),
    /// Blocks are dequantised to f32.
    Blocks(Dequantize),
    /// Not at all.
    None,
}

/// Storage type of a tensor: `elements` of a row are packed into a block of `bytes`.
#[derive(Clone, Copy)]
pub struct TensorKind {
    /// The number in files: `enum ggml_type`.
    id: u32,
    name: &'static str,
    /// Of one block; 1 for plain numbers.
    elements: usize,
    bytes: usize,
    reading: Reading,
}

/// All types that have a number in the format, without those that were withdrawn. Sizes: `ggml-common.h`.
const KINDS: &[TensorKind] = &[
    row(0, "F32", 1, 4, Reading::Direct(DType::F32)),
    row(1, "F16", 1, 2, Reading::Direct(DType::F16)),
    row(2, "Q4_0", 32, 18, Reading::Blocks(read::q4_0)),
    row(3, "Q4_1", 32, 20, Reading::Blocks(read::q4_1)),
    row(6, "Q5_0", 32, 22, Reading::Blocks(read::q5_0)),
    row(7, "Q5_1", 32, 24, Reading::Blocks(read::q5_1)),
    row(8, "Q8_0", 32, 34, Reading::Blocks(read::q8_0)),
    row(9, "Q8_1", 32, 40, Reading::None),
    row(10, "Q2_K", 256, 84, Reading::Blocks(read::q2_k)),
    row(11, "Q3_K", 256, 110, Reading::Blocks(read::q3_k)),
    row(12, "Q4_K", 256, 144, Reading::Blocks(read::q4_k)),
    row(13, "Q5_K", 256, 176, Reading::Blocks(read::q5_k)),
    row(14, "Q6_K", 256, 210, Reading::Blocks(read::q6_k)),
    row(15, "Q8_K", 256, 292, Reading::None),
    row(16, "IQ2_XXS", 256, 66, Reading::None),
    row(17, "IQ2_XS", 256, 74, Reading::None),
    row(18, "IQ3_XXS", 256, 98, Reading::None),
    row(19, "IQ1_S", 256, 50, Reading::None),
    row(20, "IQ4_NL", 32, 18, Reading::Blocks(read::iq4_nl)),
    row(21, "IQ3_S", 256, 110, Reading::None),
    row(22, "IQ2_S", 256, 82, Reading::None),
    row(23, "IQ4_XS", 256, 136, Reading::Blocks(read::iq4_xs)),
    row(24, "I8", 1, 1, Reading::None),
    row(25, "I16", 1, 2, Reading::None),
    row(26, "I32", 1, 4, Reading::Direct(DType::I32)),
    row(27, "I64", 1, 8, Reading::None),
    row(28, "F64", 1, 8, Reading::Direct(DType::F64)),
    row(29, "IQ1_M", 256, 56, Reading::None),
    row(30, "BF16", 1, 2, Reading::Direct(DType::BF16)),
    row(34, "TQ1_0", 256, 54, Reading::None),
    row(35, "TQ2_0", 256, 66, Reading::None),
    row(39, "MXFP4", 32, 17, Reading::Blocks(read::mxfp4)),
    row(40, "NVFP4", 64, 36, Reading::None),
    row(41, "Q1_0", 128, 18, Reading::None),
];

/// A row of the table.
const fn row(id: u32, name: &'static str, elements: usize, bytes: usize, reading: Reading) -> TensorKind {
    TensorKind { id, name, elements, bytes, reading }
}

impl TensorKind {
    /// The type of this number.
    pub fn parse(id: u32) -> Option<TensorKind> {
        KINDS.iter().find(|kind| kind.id == id).copied()
    }

    /// The type of this name.
    pub fn from_name(name: &str) -> Option<TensorKind> {
        KINDS.iter().find(|kind| kind.name == name).copied()
    }

    /// Its name, such as `Q4_K`.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Elements of one block.
    pub fn block(self) -> usize {
        self.elements
    }

    /// Names of the types that weights may have, for messages.
    pub fn served_names() -> String {
        let weights = |kind: &&TensorKind| match kind.reading {
            Reading::Direct(dtype) => matches!(dtype, DType::F32 | DType::F16 | DType::BF16),
            Reading::Blocks(_) => true,
            Reading::None => false,
        };
        KINDS.iter().filter(weights).map(|kind| kind.name).collect::<Vec<_>>().join(", ")
    }

    /// The dtype that its elements are read as: quantised ones become f32, which holds them exactly as ggml computes
    /// them. `None` if they are not read.
    pub fn dtype(self) -> Option<DType> {
        match self.reading {
            Reading::Direct(dtype) => Some(dtype),
            Reading::Blocks(_) => Some(DType::F32),
            Reading::None => None,
        }
    }

    /// Elements of this type as a tensor of `shape`: shared if they are stored in a dtype, dequantised to f32 if they
    /// are stored in blocks. Fails if the type is not read or the bytes are not as many as the shape needs.
    ///
    /// # Errors
    /// Also if memory does not suffice: a quantised weight grows to 4 bytes per element.
    pub fn values(self, bytes: &Bytes, shape: Vec<usize>) -> Result<Tensor> {
        let read = match self.reading {
            Reading::Direct(dtype) => return Tensor::new(dtype, shape, bytes.clone()),
            Reading::Blocks(read) => read,
            Reading::None => {
                let text = format!("elements of type {self} are not read");
                let hint = format!("take a file with weights of the types {}", TensorKind::served_names());
                return Err(Error::unsupported(text).with_hint(hint));
            }
        };
        if self.byte_len(&shape) != Some(bytes.len()) {
            return Err(Error::invalid(format!("{} bytes hold no {self}{shape:?}", bytes.len())));
        }
        let count = shape.iter().product();
        let mut values: Vec<f32> = Vec::new();
        values.try_reserve_exact(count).map_err(|_| {
            Error::new(ErrorKind::OutOfMemory, format!("no memory for a weight {}{shape:?}", DType::F32))
                .with_hint("quantised weights are computed with in f32, which takes 4 bytes each")
        })?;
        values.resize(count, 0.0);
        // Chunks of values and of bytes begin at the same blocks.
        let blocks_of_task = TASK / self.elements;
        let tasks = values.par_chunks_mut(TASK).zip(bytes.par_chunks(blocks_of_task * self.bytes));
        tasks.for_each(|(values, blocks)| read(blocks, values));
        Tensor::from_f32(shape, values)
    }

    /// Bytes of a tensor of this shape. `None` on overflow or if its rows are no whole number of blocks.
    pub fn byte_len(self, shape: &[usize]) -> Option<usize> {
        let whole = shape.last().copied().unwrap_or(1).is_multiple_of(self.elements);
        let elements = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size))?;
        if whole { (elements / self.elements).checked_mul(self.bytes) } else { None }
    }
}

// By hand: functions within a row are not compared.
impl PartialEq for TensorKind {
    fn eq(&self, other: &TensorKind) -> bool {
        self.id == other.id
    }
}

impl Eq for TensorKind {}

impl fmt::Debug for TensorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for TensorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_whole_blocks() {
        let q4_k = TensorKind::parse(12).unwrap();
        assert_eq!(q4_k.byte_len(&[3, 512]), Some(3 * 2 * 144));
        assert_eq!(q4_k.byte_len(&[512, 3]), None);
        assert_eq!(q4_k.byte_len(&[]), None);
        assert_eq!(q4_k.byte_len(&[usize::MAX, 256]), None);
        let f32 = TensorKind::parse(0).unwrap();
        assert_eq!(
            (f32.byte_len(&[]), f32.byte_len(&[3, 5]), f32.byte_len(&[0])),
            (Some(4), Some(60), Some(0))
        );
        assert_eq!(TensorKind::parse(4), None, "Q4_2 was withdrawn");
    }
}
