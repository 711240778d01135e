//! Weights of matrix products and tables as kernels bind them: one array of numbers, or words with their scales
//! and zero points; and their split beyond a device's limits.
//!
//! A packed weight is one input that lies in sections: the words of the elements, their scales, and zero points if it
//! has any. Kernels bind each section as an array of its own. A weight that is larger than a binding can be is cut by
//! rows, and each part is a launch.

use super::request::Request;
use super::source::{LaunchBuilder, constant, stand_in, too_large, unserved_error};
use crate::plan::Arg;
use tapml_device::DeviceInfo;
use tapml_graph::packing::Section;
use tapml_graph::{Dim, Error, Packing, Result, Symbols, TensorType, byte_len};

/// Weight rows, which are outputs, that a workgroup of a matrix product treats at least.
///
/// The bound is the smallest of all kernels, so that one split suits all of them; see [`BoundWeight::split`].
pub const PART_ROWS: u32 = 4;

/// A weight of an operator as kernels bind it: one array, or the sections that it is packed in.
///
/// Sizes are constant: weights do not change from run to run.
pub struct BoundWeight<'a> {
    /// Which input of the operator it is.
    index: usize,
    /// Its type.
    pub ty: &'a TensorType,
    /// Those of a packed weight.
    /// Empty for a plain weight.
    sections: Vec<Section>,
}

impl<'a> BoundWeight<'a> {
    /// Input `index` of the operator. Fails if the shape of a packed one is not constant.
    pub fn from_input(request: &Request<'a>, index: usize) -> Result<BoundWeight<'a>> {
        BoundWeight::new(index, request.inputs.get(index).ok_or_else(|| unserved_error(request))?)
    }

    /// The weight of this type that is input `index`.
    fn new(index: usize, ty: &'a TensorType) -> Result<BoundWeight<'a>> {
        let sections = match ty.dtype.packing() {
            Some(packing) => packing.sections(&ty.sizes(&Symbols::new())?)?,
            None => Vec::new(),
        };
        Ok(BoundWeight { index, ty, sections })
    }

    /// Input `index` of the operator. Fails with [`tapml_graph::ErrorKind::Unsupported`] unless it is packed.
    pub fn from_packed_input(request: &Request<'a>, index: usize) -> Result<BoundWeight<'a>> {
        BoundWeight::from_input(request, index)
            .and_then(|w| if w.is_packed() { Ok(w) } else { Err(unserved_error(request)) })
    }

    /// How it is packed, if it is.
    pub fn packing(&self) -> Option<Packing> {
        self.ty.dtype.packing()
    }

    /// Whether it is packed.
    pub fn is_packed(&self) -> bool {
        !self.sections.is_empty()
    }

    /// The arguments that bind the whole of it: one, or one for each section.
    pub fn args(&self) -> Vec<Arg> {
        if !self.is_packed() {
            return vec![Arg::whole_input(self.index)];
        }
        self.sections.iter().map(|section| section_arg(self.index, section, 0, section.len)).collect()
    }

    /// All of it, as one part.
    pub fn whole(&self) -> WeightPart {
        WeightPart { first: 0, rows: 0, of: None }
    }

    /// Whether a kernel that has a place for zeros finds none.
    /// A plain weight has no such place, and lacks nothing.
    fn lacks_zeros(&self) -> bool {
        self.packing().is_some_and(|packing| !packing.zeros)
    }

    /// The constants of a plan that binds the weight, and this bias, if the operator can have one.
    /// Outer `None`: the operator has no bias at all. Inner `None`: it could have one, but this node has none.
    pub fn stand_in(&self, bias: Option<Option<&TensorType>>) -> Vec<Vec<u8>> {
        stand_in(&[bias.unwrap_or(Some(self.ty)), (!self.lacks_zeros()).then_some(self.ty)])
    }

    /// Splits a matrix by rows so that each part fits one binding, and one dispatch if a workgroup treats at least
    /// [`PART_ROWS`] of them. Parts begin at multiples of 256 bytes. All operators split alike, so that tied weights are
    /// stored once.
    ///
    /// # Errors
    /// `Unsupported` unless the weight is a matrix, and if not even the smallest part that begins at an aligned byte
    /// fits.
    pub fn split(&self, info: &DeviceInfo) -> Result<Vec<WeightPart>> {
        let rows = match self.ty.shape.as_slice() {
            [rows, _] => constant("the rows of a weight", rows)?,
            _ => return Err(Error::unsupported(format!("a weight {}: kernels take matrices", self.ty))),
        };
        let most = u64::from(PART_ROWS) * u64::from(info.limits.max_groups_per_dim);
        self.cut(rows, most, info, "rows")
    }

    /// Splits a stack of matrices between matrices so that each part fits one binding. Parts begin at multiples of 256
    /// bytes.
    pub fn split_stack(&self, info: &DeviceInfo) -> Result<Vec<WeightPart>> {
        let [count, _, _] = self.ty.shape.as_slice() else {
            return Err(Error::unsupported(format!("a weight {}: kernels take stacks of matrices", self.ty)));
        };
        self.cut(constant("the matrices of a weight", count)?, u64::MAX, info, "matrices")
    }

    /// Parts of at most `most` of the `rows`, which are called `what`.
    ///
    /// Parts are as large as possible, all but the last of equal length, in order and without a gap.
    fn cut(&self, rows: u32, most: u64, info: &DeviceInfo, what: &str) -> Result<Vec<WeightPart>> {
        // Elements of one row, whatever the rank: of a stack, those of one matrix.
        let of_row = |sizes: &[Dim]| -> Result<u64> {
            let sizes = sizes.iter().map(|size| constant("the row length of a weight", size));
            sizes
                .map(|size| size.map(u64::from))
                .try_fold(1u64, |product, size| Ok(product.saturating_mul(size?)))
        };
        let elements = of_row(self.ty.shape.get(1..).unwrap_or_default())?;
        // Bytes of a row in each array.
        let arrays: Vec<u64> = if self.is_packed() {
            self.sections.iter().map(|s| s.len as u64 / u64::from(rows.max(1))).collect()
        } else {
            vec![elements.saturating_mul(self.ty.dtype.size() as u64)]
        };
        // A part may become a buffer of its own, so that both limits hold.
        let limit = info.limits.max_binding_size.min(info.limits.max_buffer_size);
        let largest = arrays.iter().copied().max().unwrap_or(0);
        // An element's index is 32 bits wide.
        let indexed = u64::from(u32::MAX) / elements.max(1);
        let fit = (limit / largest.max(1)).min(indexed).min(most);
        if u64::from(rows) <= fit {
            return Ok(vec![WeightPart { rows, ..self.whole() }]);
        }
        // The alignment of bound offsets that WebGPU promises is 256 bytes; it must hold in every section at the same
        // row.
        let step = arrays.iter().copied().map(aligned_rows).max().unwrap_or(1);
        let most = fit / step * step;
        if most == 0 {
            let text = format!("{step} of the {what} of a weight {}", self.ty);
            return Err(too_large(&text, step.saturating_mul(largest), limit));
        }
        let starts = (0..u64::from(rows)).step_by(most as usize);
        let left = |first| most.min(u64::from(rows) - first) as u32;
        let part = |first: u64| WeightPart { first: first as u32, rows: left(first), of: Some(rows) };
        Ok(starts.map(part).collect())
    }
}

/// Rows of a weight that are bound together; of a stack, its matrices.
///
/// `first` counts rows of the whole weight, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightPart {
    /// First row.
    pub first: u32,
    /// Number of rows.
    pub rows: u32,
    /// Rows of the whole weight; `None` if these are all.
    /// `rows` is not looked at then.
    of: Option<u32>,
}

impl LaunchBuilder {
    /// Binds a part of a weight and says how it is stored. A packed weight has a place for zeros: the first constant
    /// stands in it if there are none.
    /// Arguments come section by section: words, scales, zeros.
    pub fn weight(self, weight: &BoundWeight, part: &WeightPart) -> Result<LaunchBuilder> {
        let lacks_zeros = weight.lacks_zeros();
        let launch = self.weight_without_zeros(weight, part)?;
        Ok(if lacks_zeros { launch.read(Arg::Constant(0)) } else { launch })
    }

    /// As [`LaunchBuilder::weight`] where the kernel has no place for zeros.
    pub fn weight_without_zeros(mut self, weight: &BoundWeight, part: &WeightPart) -> Result<LaunchBuilder> {
        for arg in weight.args_of(part) {
            self = self.read(arg);
        }
        match weight.packing() {
            Some(packing) => Ok(self.with_packing(packing)),
            None => self.weight_dtype(weight.ty.dtype),
        }
    }
}

impl BoundWeight<'_> {
    /// The arguments that bind a part of it.
    fn args_of(&self, part: &WeightPart) -> Vec<Arg> {
        let Some(of) = part.of else { return self.args() };
        let (first, rows) = (part.first as usize, part.rows as usize);
        if !self.is_packed() {
            let elements: u64 = self.ty.shape.iter().skip(1).filter_map(Dim::as_const).product();
            let row = elements * self.ty.dtype.size() as u64;
            return vec![Arg::Input {
                index: self.index,
                offset: first as u64 * row,
                len: rows as u64 * row,
            }];
        }
        let arg = |section: &Section| {
            let row = section.len / of.max(1) as usize;
            section_arg(self.index, section, first * row, rows * row)
        };
        self.sections.iter().map(arg).collect()
    }
}

/// Binds `len` bytes of a section of input `index`, in whole words: a section is followed by room for them.
/// The length is rounded up because storage buffers are arrays of `u32`: half a word could not be read.
fn section_arg(index: usize, section: &Section, start: usize, len: usize) -> Arg {
    let (offset, len) = ((section.offset + start) as u64, len.next_multiple_of(4) as u64);
    Arg::Input { index, offset, len }
}

impl Request<'_> {
    /// The arguments that bind these inputs as a whole: one each, or one for each section of a packed weight.
    pub(crate) fn args(&self, indices: &[usize]) -> Result<Vec<Arg>> {
        let mut args = Vec::with_capacity(indices.len());
        for &index in indices {
            args.extend(BoundWeight::new(index, &self.inputs[index])?.args());
        }
        Ok(args)
    }

    /// Whether a binding of the device holds every input of constant sizes as a whole, so that kernels which take weights
    /// as a whole and those that take them in parts do not both store them.
    pub fn binds_whole(&self) -> bool {
        // A whole weight is one buffer and one binding, so that both limits count.
        let limit = self.info.limits.max_binding_size.min(self.info.limits.max_buffer_size);
        let most_rows = u64::from(PART_ROWS) * u64::from(self.info.limits.max_groups_per_dim);
        self.inputs.iter().all(|ty| {
            let sizes = ty.sizes(&Symbols::new());
            // Values of symbolic sizes are activations, which are never cut.
            let Ok(sizes) = sizes else { return true };
            // Sections of a packed weight are bound one by one.
            let bytes = match ty.dtype.packing().map(|packing| packing.sections(&sizes)) {
                Some(sections) => sections.ok().and_then(|all| all.iter().map(|section| section.len).max()),
                None => byte_len(ty.dtype, &sizes),
            };
            // Only matrices are cut by rows.
            let rows = ty.shape.first().filter(|_| ty.shape.len() == 2).and_then(Dim::as_const);
            bytes.is_some_and(|bytes| bytes as u64 <= limit) && rows.unwrap_or(0) <= most_rows
        })
    }
}

/// The arguments that bind the whole of a weight, which is input `index` of an operator and of this type.
pub fn args(index: usize, ty: &TensorType) -> Result<Vec<Arg>> {
    Ok(BoundWeight::new(index, ty)?.args())
}

/// The least number of rows whose bytes are a multiple of 256.
/// It is a power of two from 1 to 256, found from how often 2 divides the bytes of a row.
fn aligned_rows(row_bytes: u64) -> u64 {
    256 >> row_bytes.trailing_zeros().min(8)
}
