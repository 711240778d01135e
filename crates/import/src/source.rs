//! Where a weight of the graph comes from: a tensor of the checkpoint as it is, or made from some.
//!
//! [`Source::shape_of_part`] states what a checkpoint must hold, `weights` checks it, [`Source::make`]
//! computes. So `make` may rely on shapes; what it finds wrong is a bug, except dtypes that differ.

use rayon::prelude::*;
use tapml_graph::{Bytes, DType, Error, ErrorKind, Result, Tensor};

/// How a weight follows from tensors of the checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The tensor of this name, its elements in the same order under another shape. Not copied.
    Reshaped(String),
    /// The tensor of this name, its elements in the same order under another shape and in this dtype.
    Converted(String, DType),
    /// A table of positions, in this dtype, for each of `images` images one below the other, and what stands in the
    /// first row of each added to it.
    Positions {
        /// Names of the table and the vector.
        parts: [String; 2],
        /// Images.
        images: usize,
        /// Dtype of the weight.
        dtype: DType,
    },
    /// One row of a matrix, as a vector.
    RowOf {
        /// Name of the matrix.
        matrix: String,
        /// Its rows.
        count: usize,
        /// Which one.
        index: usize,
    },
    /// The matrix of this name with rows and columns exchanged: `[inputs, outputs]` becomes `[outputs, inputs]`.
    Transposed(String),
    /// Matrix `index` of a stack of `count` matrices, transposed.
    TransposedOf {
        /// Name of the stack.
        stack: String,
        /// Matrices in it.
        count: usize,
        /// Which one.
        index: usize,
    },
    /// Tensors of one shape, one after another along a new first axis: the experts of a layer.
    Stacked(Vec<String>),
    /// The stack of matrices of this name, each with rows and columns exchanged.
    EachTransposed(String),
    /// The matrix of this name, each row divided by its Euclidean length. In f32: the quotients need its digits.
    UnitRows(String),
}

impl Source {
    /// The same, made from tensors whose names stand behind `prefix`.
    pub fn with_prefix(mut self, prefix: &str) -> Source {
        let names = match &mut self {
            Source::Reshaped(name)
            | Source::Converted(name, _)
            | Source::RowOf { matrix: name, .. }
            | Source::Transposed(name)
            | Source::EachTransposed(name)
            | Source::TransposedOf { stack: name, .. }
            | Source::UnitRows(name) => std::slice::from_mut(name),
            Source::Positions { parts, .. } => parts,
            Source::Stacked(names) => names,
        };
        names.iter_mut().for_each(|name| name.insert_str(0, prefix));
        self
    }

    /// The tensors it is made from, in order.
    pub fn tensors(&self) -> &[String] {
        match self {
            Source::Reshaped(name)
            | Source::Converted(name, _)
            | Source::RowOf { matrix: name, .. }
            | Source::Transposed(name)
            | Source::EachTransposed(name)
            | Source::TransposedOf { stack: name, .. }
            | Source::UnitRows(name) => std::slice::from_ref(name),
            Source::Positions { parts, .. } => parts,
            Source::Stacked(names) => names,
        }
    }

    /// The dtype of the weight if its tensors have this one.
    pub fn dtype(&self, part: DType) -> DType {
        match self {
            Source::UnitRows(_) => DType::F32,
            Source::Converted(_, dtype) | Source::Positions { dtype, .. } => *dtype,
            _ => part,
        }
    }

    /// The shape that tensor `part` must have for the weight to have `shape`; `None` if any shape of as many elements
    /// will do.
    pub fn shape_of_part(&self, part: usize, shape: &[usize]) -> Option<Vec<usize>> {
        match (self, shape) {
            (Source::Reshaped(_) | Source::Converted(..), _) => None,
            (Source::Positions { images, .. }, [rows, columns]) => match part {
                0 => Some(vec![rows / images, *columns]),
                _ => Some(vec![*columns]),
            },
            (Source::RowOf { count, .. }, row) => Some([&[*count], row].concat()),
            (Source::Transposed(_), [rows, columns]) => Some(vec![*columns, *rows]),
            (Source::TransposedOf { count, .. }, [rows, columns]) => Some(vec![*count, *columns, *rows]),
            (Source::EachTransposed(_), [count, rows, columns]) => Some(vec![*count, *columns, *rows]),
            (Source::Stacked(_), [_, part @ ..]) => Some(part.to_vec()),
            _ => Some(shape.to_vec()),
        }
    }

    /// The weight, of `shape`, from its tensors, whose shapes have been checked.
    ///
    /// # Errors
    /// If the tensors have several dtypes, or memory does not suffice.
    pub fn make(&self, parts: Vec<Tensor>, shape: Vec<usize>) -> Result<Tensor> {
        let first = parts.first().ok_or_else(|| Error::bug("a weight is made from no tensor"))?;
        let dtype = first.dtype();
        if let Some(other) = parts.iter().find(|p| p.dtype() != dtype) {
            return Err(Error::unsupported(format!(
                "expected one dtype throughout, found {dtype} and {}",
                other.dtype()
            )));
        }
        match self {
            Source::Reshaped(_) => Tensor::new(dtype, shape, first.bytes().clone()),
            Source::Converted(_, wanted) if *wanted == dtype => {
                Tensor::new(dtype, shape, first.bytes().clone())
            }
            // By way of f64, which holds every float exactly: one rounding.
            Source::Converted(_, wanted) => Tensor::from_f64(*wanted, shape, &first.to_f64()),
            Source::Positions { images, dtype, .. } => positions(*dtype, shape, &parts, *images),
            Source::RowOf { index, .. } => {
                let row = first.rows(*index, 1);
                let row = row.ok_or_else(|| Error::bug("a matrix has fewer rows than it must"))?;
                Tensor::new(dtype, shape, row.bytes().clone())
            }
            Source::Transposed(_) | Source::EachTransposed(_) => {
                Tensor::new(dtype, shape, Bytes::new(transpose(first)?))
            }
            Source::TransposedOf { index, .. } => {
                let matrix = first.rows(*index, 1);
                let matrix = matrix.ok_or_else(|| Error::bug("a stack has fewer matrices than it must"))?;
                Tensor::new(dtype, shape, Bytes::new(transpose(&matrix)?))
            }
            Source::Stacked(_) => join_parts(dtype, shape, &parts),
            Source::UnitRows(_) => unit_rows(first, shape),
        }
    }
}

/// See [`Source::Positions`]. The sum is rounded once.
fn positions(dtype: DType, shape: Vec<usize>, parts: &[Tensor], images: usize) -> Result<Tensor> {
    let [table, first] = parts else {
        return Err(Error::bug("a table of positions is made from two tensors"));
    };
    let mut values = table.to_f64();
    values.iter_mut().zip(first.to_f64()).for_each(|(value, first)| *value += first);
    Tensor::from_f64(dtype, shape, &values.repeat(images))
}

/// Zeros for the bytes of a weight. Fails if memory does not suffice.
fn room(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| {
        let text = format!("no memory for {len} bytes of a weight that is put together from the checkpoint");
        Error::new(ErrorKind::OutOfMemory, text)
    })?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// The elements of the parts, one after another.
/// Copies in parallel: the experts of one layer can have gigabytes.
fn join_parts(dtype: DType, shape: Vec<usize>, parts: &[Tensor]) -> Result<Tensor> {
    let mut bytes = room(parts.iter().map(|p| p.bytes().len()).sum())?;
    let mut rest: &mut [u8] = &mut bytes;
    let mut slots = Vec::new();
    for part in parts {
        let (slot, after) = rest.split_at_mut(part.bytes().len());
        slots.push((slot, part));
        rest = after;
    }
    slots.into_par_iter().for_each(|(slot, part)| slot.copy_from_slice(part.bytes()));
    Tensor::new(dtype, shape, Bytes::new(bytes))
}

/// The elements of a matrix, or of each matrix of a stack, column by column.
/// Reads in strides and writes in one piece: each task owns one column of one matrix.
fn transpose(tensor: &Tensor) -> Result<Vec<u8>> {
    let size = tensor.dtype().size();
    let &[.., rows, columns] = tensor.shape() else { return Err(Error::bug("only matrices are transposed")) };
    let bytes: &[u8] = tensor.bytes();
    let mut out = room(bytes.len())?;
    // A size of 0 would make chunks of 0 bytes.
    if bytes.is_empty() {
        return Ok(out);
    }
    out.par_chunks_mut(rows * size).enumerate().for_each(|(index, to)| {
        let (matrix, column) = (index / columns, index % columns);
        for (row, to) in to.chunks_exact_mut(size).enumerate() {
            let from = ((matrix * rows + row) * columns + column) * size;
            to.copy_from_slice(&bytes[from..from + size]);
        }
    });
    Ok(out)
}

/// Each row divided by its length, computed in f64 and rounded once. A row of zeros stays one.
fn unit_rows(matrix: &Tensor, shape: Vec<usize>) -> Result<Tensor> {
    let mut values = matrix.to_f64();
    for row in values.chunks_mut(matrix.row_len().max(1)) {
        let length = row.iter().map(|v| v * v).sum::<f64>().sqrt();
        if length > 0.0 {
            row.iter_mut().for_each(|v| *v /= length);
        }
    }
    Tensor::from_f64(DType::F32, shape, &values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(values: [f32; 6]) -> Tensor {
        Tensor::from_f32(vec![2, 3], values.to_vec()).unwrap()
    }

    #[test]
    fn each_kind_of_source() {
        let (a, b) = (matrix([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), matrix([7.0, 8.0, 9.0, 10.0, 11.0, 12.0]));
        let name = || "w".to_string();
        let make = |source: Source, parts: &[&Tensor], shape: &[usize]| {
            source.make(parts.iter().map(|&p| p.clone()).collect(), shape.to_vec()).unwrap().to_f64()
        };
        assert_eq!(make(Source::Reshaped(name()), &[&a], &[6]), a.to_f64());
        let narrow = Source::Converted(name(), DType::F16);
        assert_eq!(narrow.dtype(DType::F32), DType::F16);
        assert_eq!(make(narrow, &[&a], &[3, 2]), a.to_f64());
        let row = Source::RowOf { matrix: name(), count: 2, index: 1 };
        assert_eq!(row.shape_of_part(0, &[3]), Some(vec![2, 3]));
        assert_eq!(make(row, &[&a], &[3]), [4.0, 5.0, 6.0]);
        let first = Tensor::from_f32(vec![3], vec![10.0, 20.0, 30.0]).unwrap();
        let table = Source::Positions { parts: [name(), name()], images: 2, dtype: DType::F32 };
        assert_eq!([0, 1].map(|part| table.shape_of_part(part, &[4, 3]).unwrap()), [vec![2, 3], vec![3]]);
        let whole = [11.0, 22.0, 33.0, 4.0, 5.0, 6.0];
        assert_eq!(make(table, &[&a, &first], &[4, 3]), whole.repeat(2));
        assert_eq!(make(Source::Transposed(name()), &[&a], &[3, 2]), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        let stacked = Source::Stacked(vec![name(), name()]);
        assert_eq!(stacked.shape_of_part(0, &[2, 2, 3]), Some(vec![2, 3]));
        assert_eq!(make(stacked, &[&a, &b], &[2, 2, 3])[5..7], [6.0, 7.0]);
        let both = Tensor::from_f64(DType::F32, vec![2, 2, 3], &[a.to_f64(), b.to_f64()].concat()).unwrap();
        let across = Source::EachTransposed(name());
        assert_eq!(across.shape_of_part(0, &[2, 3, 2]), Some(vec![2, 2, 3]));
        assert_eq!(make(across, &[&both], &[2, 3, 2])[5..8], [6.0, 7.0, 10.0]);
        let second = Source::TransposedOf { stack: name(), count: 2, index: 1 };
        assert_eq!(second.shape_of_part(0, &[3, 2]), Some(vec![2, 2, 3]));
        assert_eq!(make(second, &[&both], &[3, 2]), [7.0, 10.0, 8.0, 11.0, 9.0, 12.0]);
        let unit = make(Source::UnitRows(name()), &[&a], &[2, 3]);
        assert!((unit[0] - 1.0 / 14f64.sqrt()).abs() < 1e-7);
    }

    #[test]
    fn parts_of_different_dtypes_are_refused() {
        let narrow = Tensor::from_f64(DType::F16, vec![2, 3], &[0.0; 6]).unwrap();
        let source = Source::Stacked(vec!["a".into(), "b".into()]);
        let error = source.make(vec![matrix([0.0; 6]), narrow], vec![2, 2, 3]).unwrap_err();
        assert!(error.to_string().contains("f32 and f16"), "{error}");
    }
}
