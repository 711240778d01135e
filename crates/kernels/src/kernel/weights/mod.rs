//! Weights of matrix products and tables as kernels bind them: one array of numbers, or stored words with their scales
//! and zeros; and their split beyond a device's limits.

use super::Request;
use super::source::{LaunchBuilder, constant, stand_in, too_large};
use crate::plan::Arg;
use tapml_device::DeviceInfo;
use tapml_graph::op::Packing;
use tapml_graph::{Error, Result, TensorType};

/// Weight rows, which are outputs, that a workgroup of a matrix product treats at least.
pub const PART_ROWS: u32 = 4;

/// Arrays that a weight has at most.
const MOST_ARRAYS: usize = 3;

/// A weight of an operator: one input, or the inputs that it is packed in.
pub struct Weight<'a> {
    /// The first of its inputs.
    first: usize,
    /// Their types.
    parts: &'a [TensorType],
    packing: Option<Packing>,
    /// Its own type, as if it were not packed.
    pub ty: TensorType,
}

impl<'a> Weight<'a> {
    /// Input `index` of the operator.
    pub fn plain(request: &Request<'a>, index: usize) -> Weight<'a> {
        let parts = &request.inputs[index..=index];
        Weight { first: index, parts, packing: None, ty: parts[0].clone() }
    }

    /// The inputs from `index` on, packed like this. Fails if its scales are not f16.
    pub fn packed(request: &Request<'a>, index: usize, packing: Packing) -> Result<Weight<'a>> {
        let parts = &request.inputs[index..index + packing.parts()];
        let ty = packing.weight("w", parts)?;
        if let Some(other) = parts[1..].iter().find(|part| part.dtype != tapml_graph::DType::F16) {
            return Err(Error::unsupported(format!("scales {other}: kernels take f16")));
        }
        Ok(Weight { first: index, parts, packing: Some(packing), ty })
    }

    /// How it is packed, if it is.
    pub fn packing(&self) -> Option<Packing> {
        self.packing
    }

    /// Its inputs.
    pub fn inputs(&self) -> std::ops::Range<usize> {
        self.first..self.after()
    }

    /// The input behind those of the weight.
    pub fn after(&self) -> usize {
        self.first + self.parts.len()
    }

    /// Whether a kernel that has a place for zeros finds none.
    fn lacks_zeros(&self) -> bool {
        self.packing.is_some_and(|packing| !packing.zeros)
    }

    /// The constants of a plan that binds the weight, and this bias, if the operator can have one.
    pub fn stand_in(&self, bias: Option<Option<&TensorType>>) -> Vec<Vec<u8>> {
        stand_in(&[bias.unwrap_or(Some(&self.ty)), (!self.lacks_zeros()).then_some(&self.ty)])
    }

    /// Splits a matrix by rows so that each part fits one binding, and one dispatch if a workgroup treats at least
    /// [`PART_ROWS`] of them. Parts begin at multiples of 256 bytes. All operators split alike, so that tied weights are
    /// stored once.
    pub fn split(&self, info: &DeviceInfo) -> Result<Vec<Part>> {
        let rows = match self.ty.shape.as_slice() {
            [rows, _] => constant("the rows of a weight", rows)?,
            _ => return Err(Error::unsupported(format!("a weight {}: kernels take matrices", self.ty))),
        };
        let most = u64::from(PART_ROWS) * u64::from(info.limits.max_groups_per_dim);
        self.cut(rows, most, info, "rows")
    }

    /// Splits a stack of matrices between matrices so that each part fits one binding. Parts begin at multiples of 256
    /// bytes.
    pub fn split_stack(&self, info: &DeviceInfo) -> Result<Vec<Part>> {
        let [count, _, _] = self.ty.shape.as_slice() else {
            return Err(Error::unsupported(format!("a weight {}: kernels take stacks of matrices", self.ty)));
        };
        self.cut(constant("the matrices of a weight", count)?, u64::MAX, info, "matrices")
    }

    /// Parts of at most `most` of the `rows`, which are called `what`.
    fn cut(&self, rows: u32, most: u64, info: &DeviceInfo, what: &str) -> Result<Vec<Part>> {
        let of_row = |ty: &TensorType| -> Result<u64> {
            let rest = ty.shape.iter().skip(1).map(|size| constant("the row length of a weight", size));
            rest.map(|size| size.map(u64::from))
                .try_fold(1u64, |product, size| Ok(product.saturating_mul(size?)))
        };
        let mut bytes = [0; MOST_ARRAYS];
        for (bytes, part) in bytes.iter_mut().zip(self.parts) {
            *bytes = of_row(part)?.saturating_mul(part.dtype.size() as u64);
        }
        let arrays = &bytes[..self.parts.len()];
        let limit = info.limits.max_binding_size.min(info.limits.max_buffer_size);
        let largest = arrays.iter().copied().max().unwrap_or(0);
        // An element's index is 32 bits wide.
        let indexed = u64::from(u32::MAX) / of_row(&self.ty)?.max(1);
        let fit = (limit / largest.max(1)).min(indexed).min(most);
        let part = |first: u64, rows: u64, whole: bool| Part {
            first: first as u32,
            rows: rows as u32,
            ranges: bytes.map(|b| if whole { (0, 0) } else { (first * b, rows * b) }),
        };
        if u64::from(rows) <= fit {
            return Ok(vec![part(0, u64::from(rows), true)]);
        }
        let step = arrays.iter().copied().map(aligned_rows).max().unwrap_or(1);
        let most = fit / step * step;
        if most == 0 {
            let text = format!("{step} of the {what} of a weight {}", self.ty);
            return Err(too_large(&text, step.saturating_mul(largest), limit));
        }
        let starts = (0..u64::from(rows)).step_by(most as usize);
        Ok(starts.map(|first| part(first, most.min(u64::from(rows) - first), false)).collect())
    }
}

/// Rows of a weight that are bound together; of a stack, its matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First row.
    pub first: u32,
    /// Number of rows.
    pub rows: u32,
    /// First byte and bytes in each array of the weight; no bytes for all.
    ranges: [(u64, u64); MOST_ARRAYS],
}

impl Part {
    /// All of a weight.
    pub const WHOLE: Part = Part { first: 0, rows: 0, ranges: [(0, 0); MOST_ARRAYS] };
}

impl LaunchBuilder {
    /// Binds a part of a weight and says how it is stored. A packed weight has a place for zeros: the first constant
    /// stands in it if there are none.
    pub fn weight(self, weight: &Weight, part: &Part) -> Result<LaunchBuilder> {
        let lacks_zeros = weight.lacks_zeros();
        let launch = self.weight_without_zeros(weight, part)?;
        Ok(if lacks_zeros { launch.read(Arg::Constant(0)) } else { launch })
    }

    /// As [`LaunchBuilder::weight`] where the kernel has no place for zeros.
    pub fn weight_without_zeros(mut self, weight: &Weight, part: &Part) -> Result<LaunchBuilder> {
        for (array, &(offset, len)) in part.ranges.iter().enumerate().take(weight.parts.len()) {
            self = self.read(Arg::Input { index: weight.first + array, offset, len });
        }
        match weight.packing {
            Some(packing) => Ok(self.packed(packing)),
            None => self.weight_dtype(weight.ty.dtype),
        }
    }
}

/// The least number of rows whose bytes are a multiple of 256.
fn aligned_rows(row_bytes: u64) -> u64 {
    256 >> row_bytes.trailing_zeros().min(8)
}
