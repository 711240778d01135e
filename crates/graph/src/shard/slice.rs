//! Slices of weights: how they are named, and how they are read.
//!
//! `NAME@rows.0-160` are the rows 0 to 159 of the weight `NAME`, `NAME@columns.0-40.320-360` two ranges of its columns. Columns
//! are the last size, rows the one before it, or the only one.

use super::columns::ColumnSet;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use crate::tensor::{Bytes, Tensor};
use crate::{Dim, Packing};
use std::ops::Range;

/// The axis along which a weight is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceAxis {
    Rows,
    Columns,
}

/// A part of a weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightSlice {
    /// The weight.
    pub of: String,
    pub axis: SliceAxis,
    /// The places along the axis.
    pub places: ColumnSet,
}

impl WeightSlice {
    /// What a name says; `None` of a name of another form.
    pub fn parse(name: &str) -> Option<WeightSlice> {
        let (of, rest) = name.rsplit_once('@')?;
        let (axis, ranges) = rest.split_once('.')?;
        let axis = match axis {
            "rows" => SliceAxis::Rows,
            "columns" => SliceAxis::Columns,
            _ => return None,
        };
        let range = |text: &str| {
            let (start, end) = text.split_once('-')?;
            Some(start.parse().ok()?..end.parse().ok()?)
        };
        let ranges: Option<Vec<Range<u64>>> = ranges.split('.').map(range).collect();
        let slice = WeightSlice { of: of.into(), axis, places: ColumnSet::from_ranges(ranges?) };
        // One name for each slice: ascending, with gaps, nothing empty.
        (slice.name() == name).then_some(slice)
    }

    /// Its name.
    pub fn name(&self) -> String {
        let axis = match self.axis {
            SliceAxis::Rows => "rows",
            SliceAxis::Columns => "columns",
        };
        let ranges = self.places.ranges().iter().map(|range| format!(".{}-{}", range.start, range.end));
        format!("{}@{axis}{}", self.of, ranges.collect::<String>())
    }

    /// Which of so many sizes the axis is.
    fn index(&self, sizes: usize) -> Option<usize> {
        match self.axis {
            SliceAxis::Columns => sizes.checked_sub(1),
            SliceAxis::Rows => sizes.checked_sub(2).or((sizes == 1).then_some(0)),
        }
    }

    /// The type of the slice of a weight of this type.
    ///
    /// # Errors
    /// If the places lie outside, or cut a group of a packed weight.
    pub fn ty(&self, of: &TensorType) -> Result<TensorType> {
        let index = self.index(of.shape.len());
        let size = index.and_then(|index| of.shape[index].as_const());
        let inside = |size: u64| self.places.ranges().last().is_some_and(|last| last.end <= size);
        let (Some(index), Some(_)) = (index, size.filter(|&size| inside(size))) else {
            return Err(Error::invalid(format!("`{}` is no slice of {of}", self.name())));
        };
        let group = of.dtype.packing().map_or(1, |packing| u64::from(packing.group));
        if self.axis == SliceAxis::Columns && self.places.units(group).is_none() {
            return Err(Error::unsupported(format!(
                "`{}` cuts groups: {group} columns of {of} share a scale",
                self.name()
            )));
        }
        let mut shape = of.shape.clone();
        shape[index] = Dim::from(self.places.count());
        Ok(TensorType { dtype: of.dtype, shape })
    }

    /// The slice of a weight; rows of a matrix without a copy.
    ///
    /// # Errors
    /// As [`WeightSlice::ty`].
    pub fn tensor(&self, of: &Tensor) -> Result<Tensor> {
        let ty = self.ty(&TensorType::new(of.dtype(), of.shape().iter().map(|&size| size as u64)))?;
        let shape = ty.sizes(&crate::Symbols::new())?;
        let index = self.index(of.shape().len()).unwrap_or(0);
        if let Some(packing) = of.dtype().packing() {
            return self.slice_packed(of, packing, (index, shape));
        }
        if let (0, [range]) = (index, self.places.ranges())
            && let Some(rows) = of.rows(range.start as usize, (range.end - range.start) as usize)
        {
            return Ok(rows);
        }
        let stretch = of.shape()[index + 1..].iter().product::<usize>() * of.dtype().size();
        let bytes = cut(of.bytes(), of.shape()[index] * stretch, &self.places, |at| at as usize * stretch);
        Tensor::new(of.dtype(), shape, Bytes::new(bytes))
    }

    /// The slice of a packed weight, section by section; `index` is the axis and `shape` the new shape.
    fn slice_packed(
        &self,
        of: &Tensor,
        packing: Packing,
        (index, shape): (usize, Vec<usize>),
    ) -> Result<Tensor> {
        let last = of.shape().len() - 1;
        let columns = of.shape()[last];
        let sections = packing.sections(of.shape())?.into_iter().zip(of.sections()?);
        let parts: Vec<Vec<u8>> = sections
            .map(|(section, bytes)| {
                let row = section.columns * section.dtype.size();
                // Words and scales lie in the order of columns, of which each holds several.
                let stretch = |at: u64| match self.axis {
                    SliceAxis::Rows => at as usize * row,
                    SliceAxis::Columns => at as usize * section.columns / columns * section.dtype.size(),
                };
                let block = if index == last { row } else { of.shape()[index] * row };
                cut(&bytes, block, &self.places, stretch)
            })
            .collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        Tensor::from_packed(packing, shape, &parts)
    }
}

/// The bytes at these places of each block; `at` gives the first byte of a place.
fn cut(bytes: &[u8], block: usize, places: &ColumnSet, at: impl Fn(u64) -> usize) -> Vec<u8> {
    let mut cut = Vec::new();
    for block in bytes.chunks_exact(block.max(1)) {
        for range in places.ranges() {
            cut.extend_from_slice(&block[at(range.start)..at(range.end)]);
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn numbers(shape: Vec<usize>) -> Tensor {
        let count = shape.iter().product::<usize>();
        Tensor::from_f32(shape, (0..count).map(|i| i as f32).collect()).unwrap()
    }

    fn slice(name: &str, of: &Tensor) -> Tensor {
        WeightSlice::parse(name).unwrap().tensor(of).unwrap()
    }

    #[test]
    fn slices_hold_what_their_names_say() {
        let matrix = numbers(vec![4, 6]);
        assert_eq!(slice("w@rows.1-3", &matrix).to_f32()[..], matrix.to_f32()[6..18]);
        let columns = slice("w@columns.0-1.4-6", &matrix);
        assert_eq!(columns.shape(), [4, 3]);
        assert_eq!(columns.to_f32()[..6], [0.0, 4.0, 5.0, 6.0, 10.0, 11.0]);
        assert_eq!(slice("w@rows.0-1.3-4", &matrix).to_f32()[..7], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 18.0]);
        assert_eq!(slice("b@rows.2-4", &numbers(vec![5])).to_f32()[..], [2.0, 3.0]);
        let stack = numbers(vec![2, 3, 2]);
        assert_eq!(slice("w@rows.1-2", &stack).to_f32()[..], [2.0, 3.0, 8.0, 9.0]);
        assert_eq!(slice("w@columns.1-2", &stack).to_f32()[..], [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]);
    }

    #[test]
    fn packed_weights_are_cut_between_groups() {
        let packing = Packing::integers(4, 8, true);
        let bytes = |section: usize, count: usize| -> Vec<u8> {
            // Scales and zero points are finite numbers in f16.
            (0..count).map(|i| if section == 0 { i as u8 } else { 0x30 + (i % 7) as u8 }).collect()
        };
        let shape = vec![2, 3, 16];
        let parts: Vec<Vec<u8>> =
            packing.sections(&shape).unwrap().iter().zip(0..).map(|(s, i)| bytes(i, s.len)).collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let packed = Tensor::from_packed(packing, shape.clone(), &parts).unwrap();
        let plain =
            Tensor::from_f32(shape.clone(), packing.numbers(&shape, packed.bytes()).unwrap()).unwrap();
        for name in ["w@rows.1-2", "w@rows.0-1.2-3", "w@columns.8-16"] {
            let cut = slice(name, &packed);
            let numbers = packing.numbers(cut.shape(), cut.bytes()).unwrap();
            assert_eq!(numbers[..], slice(name, &plain).to_f32()[..], "{name}");
        }
        let error = WeightSlice::parse("w@columns.4-16").unwrap().tensor(&packed).unwrap_err().to_string();
        assert!(error.contains("cuts groups: 8 columns"), "{error}");
    }

    #[test]
    fn other_names_are_no_slices() {
        for name in [
            "w",
            "w@rows",
            "w@rows.",
            "w@rows.1-1",
            "w@rows.2-1",
            "w@rows.1-3.2-4",
            "w@rows.01-2",
            "w@side.0-1",
        ] {
            assert_eq!(WeightSlice::parse(name), None, "{name}");
        }
        assert_eq!(WeightSlice::parse("a@b@rows.0-1").unwrap().of, "a@b");
        let ty = TensorType::new(DType::F32, [2u64, 3]);
        assert!(WeightSlice::parse("w@rows.1-3").unwrap().ty(&ty).is_err());
        assert!(
            WeightSlice::parse("w@rows.0-1").unwrap().ty(&TensorType::new(DType::F32, [0u64; 0])).is_err()
        );
    }
}
