//! Inputs that are pools of parts, of which a call names few: pages of keys and values, slots of states.
//!
//! A call on the parts alone that it names, numbered anew, means what the call on the whole pools means. So it is recorded and
//! repeated without the parts of others.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use crate::tensor::Tensor;
use std::ops::Range;

/// Which inputs and outputs of an operator are pools, and which input names their parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pools {
    /// Numbers of the inputs that are pools, in rising order. All have as many parts.
    pub inputs: Vec<usize>,
    /// Numbers of the outputs that are such a pool after the call, in which the call changes named parts alone.
    pub outputs: Vec<usize>,
    /// Rows of a part; at least 1.
    pub part: usize,
    /// Number of the input of dtype u32 that names parts. A number beyond the last part names none.
    pub table: usize,
}

/// The parts that a call names.
#[derive(Clone, Debug)]
pub struct NamedParts {
    /// Their numbers in the pools, in rising order; the first part where none is named, since no pool is empty.
    numbers: Vec<u32>,
    /// Rows of a part.
    part: usize,
    /// What names them in pools that hold them alone, in this order.
    table: Tensor,
}

impl Pools {
    /// The parts that this table names in pools of so many rows. Several texts may name the same part.
    ///
    /// # Errors
    /// If the table holds no indices.
    pub fn find_parts(&self, table: &Tensor, rows: usize) -> Result<NamedParts> {
        if table.dtype() != DType::U32 {
            return Err(Error::invalid(format!("a table of parts is u32, found {}", table.dtype())));
        }
        let entries = table.to_u32()?;
        let count = rows / self.part.max(1);
        let mut numbers: Vec<u32> =
            entries.iter().copied().filter(|&number| (number as usize) < count).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.is_empty() {
            numbers.push(0);
        }
        let renumber = |entry: &u32| match numbers.binary_search(entry) {
            Ok(at) if (*entry as usize) < count => at as u32,
            _ => u32::MAX,
        };
        let table = Tensor::from_u32(table.shape().to_vec(), entries.iter().map(renumber).collect())?;
        Ok(NamedParts { numbers, part: self.part, table })
    }

    /// The types of inputs whose pools hold so many parts.
    pub fn narrow_types(&self, inputs: &mut [TensorType], parts: usize) {
        for &pool in &self.inputs {
            if let Some(rows) = inputs.get_mut(pool).and_then(|ty| ty.shape.first_mut()) {
                *rows = parts.saturating_mul(self.part).into();
            }
        }
    }
}

impl NamedParts {
    /// How many there are; at least 1.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// The table for pools that hold these parts alone.
    pub fn table(&self) -> &Tensor {
        &self.table
    }

    /// Their rows in a whole pool, in rising order; parts that follow each other are one range.
    pub fn row_ranges(&self) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for &number in &self.numbers {
            let start = number as usize * self.part;
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end += self.part,
                _ => ranges.push(start..start + self.part),
            }
        }
        ranges
    }

    /// A pool that holds them alone, with bytes of its own.
    ///
    /// # Errors
    /// If the whole pool has fewer parts.
    pub fn take_from(&self, pool: &Tensor) -> Result<Tensor> {
        let ranges = self.row_ranges();
        let rows = ranges.iter().map(|range| {
            let rows = pool.rows(range.start, range.len());
            rows.ok_or_else(|| Error::invalid(format!("rows {range:?} of a pool {:?}", pool.shape())))
        });
        Tensor::concat_rows(&rows.collect::<Result<Vec<_>>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(part: usize) -> Pools {
        Pools { inputs: vec![0], outputs: vec![], part, table: 1 }
    }

    fn table(shape: [usize; 2], entries: &[u32]) -> Tensor {
        Tensor::from_u32(shape.to_vec(), entries.to_vec()).unwrap()
    }

    #[test]
    fn parts_that_several_texts_name_are_taken_once() {
        // Two texts share page 7 as their first, as those of a common prompt do.
        let parts = pools(2).find_parts(&table([2, 3], &[7, 2, 0, 7, 3, 0]), 20).unwrap();
        assert_eq!((parts.count(), parts.row_ranges()), (4, vec![0..2, 4..8, 14..16]));
        assert_eq!(parts.table().to_u32().unwrap(), [3, 1, 0, 3, 2, 0]);
        let pool = Tensor::from_f32(vec![20, 1], (0..20).map(|row| row as f32).collect()).unwrap();
        assert_eq!(*parts.take_from(&pool).unwrap().to_f32(), [0., 1., 4., 5., 6., 7., 14., 15.]);
    }

    #[test]
    fn what_names_no_part_names_none_of_the_fewer_parts() {
        let parts = pools(3).find_parts(&table([2, 2], &[4, 5, u32::MAX, 4]), 15).unwrap();
        assert_eq!(parts.table().to_u32().unwrap(), [0, u32::MAX, u32::MAX, 0]);
        let none = pools(3).find_parts(&table([1, 1], &[9]), 15).unwrap();
        assert_eq!(none.row_ranges(), [Range { start: 0, end: 3 }]);
        assert_eq!(none.table().to_u32().unwrap(), [u32::MAX]);
        assert!(none.take_from(&Tensor::from_f32(vec![2, 1], vec![0.0; 2]).unwrap()).is_err());
    }
}
