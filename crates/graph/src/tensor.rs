//! Host tensors: a dtype, a shape and shared bytes in row-major order, little-endian, possibly from a memory map.
//!
//! A tensor always has as many bytes as its dtype and shape say. Bytes of a file may lie at any address, so that numbers are read
//! from arrays of bytes where they are not aligned.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::packing::Packing;
use half::{bf16, f16};
use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// A file as it was when it was opened: one that was written since is another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileState {
    /// Where it lies.
    pub path: PathBuf,
    /// Its length in bytes.
    pub len: u64,
    /// When it was last written, nanoseconds since 1970.
    pub modified: u128,
    /// Its number in the file system; 0 where there is none.
    pub inode: u64,
}

/// Shared read-only bytes: a whole buffer or a range of one, such as a tensor within a mapped file.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    file: Option<Arc<FileState>>,
    start: usize,
    len: usize,
}

impl Bytes {
    /// All bytes of `owner`.
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Bytes {
        Bytes::from_shared(Arc::new(owner))
    }

    /// All bytes of a shared owner.
    pub fn from_shared(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Bytes {
        let len = (*owner).as_ref().len();
        Bytes { owner, file: None, start: 0, len }
    }

    /// All bytes of a file, which `owner` maps.
    pub fn from_mapped(owner: impl AsRef<[u8]> + Send + Sync + 'static, file: FileState) -> Bytes {
        Bytes { file: Some(Arc::new(file)), ..Bytes::new(owner) }
    }

    /// The file that these bytes lie in, and how many lie before them in it; `None` if they were computed.
    pub fn file(&self) -> Option<(&FileState, usize)> {
        self.file.as_deref().map(|file| (file, self.start))
    }

    /// A range of these bytes, without a copy. `None` if it lies outside.
    pub fn slice(&self, start: usize, len: usize) -> Option<Bytes> {
        let end = start.checked_add(len)?;
        // `self.start + start` does not overflow: it lies within the owner.
        (end <= self.len).then(|| Bytes { start: self.start + start, len, ..self.clone() })
    }
}

/// A tensor that is there as long as somebody else holds it.
#[derive(Clone, Debug)]
pub struct WeakTensor {
    dtype: DType,
    shape: Vec<usize>,
    owner: Weak<dyn AsRef<[u8]> + Send + Sync>,
    file: Option<Arc<FileState>>,
    start: usize,
    len: usize,
}

impl WeakTensor {
    /// The tensor, if it is still held.
    pub fn upgrade(&self) -> Option<Tensor> {
        let (owner, file) = (self.owner.upgrade()?, self.file.clone());
        let data = Bytes { owner, file, start: self.start, len: self.len };
        Some(Tensor { dtype: self.dtype, shape: self.shape.clone(), data })
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.start..self.start + self.len]
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

/// A tensor on the host. Cloning is cheap: the bytes are shared.
#[derive(Clone, Debug)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    data: Bytes,
}

impl Tensor {
    /// A tensor over existing bytes. Fails unless their length is that of `shape` × `dtype`.
    pub fn new(dtype: DType, shape: Vec<usize>, data: Bytes) -> Result<Tensor> {
        // The one place where a tensor is made of bytes from outside.
        let need = byte_len(dtype, &shape).ok_or_else(|| {
            Error::invalid(format!("shape {shape:?} of {dtype} overflows the address space"))
        })?;
        if need != data.len() {
            let have = data.len();
            return Err(Error::invalid(format!("{dtype}{shape:?} needs {need} bytes, found {have}")));
        }
        Ok(Tensor { dtype, shape, data })
    }

    /// An `f32` tensor. Fails if the count of values is not that of the shape.
    pub fn from_f32(shape: Vec<usize>, values: Vec<f32>) -> Result<Tensor> {
        Tensor::new(DType::F32, shape, Bytes::new(Pod(values)))
    }

    /// A `u32` tensor, such as token ids. Fails if the count of values is not that of the shape.
    pub fn from_u32(shape: Vec<usize>, values: Vec<u32>) -> Result<Tensor> {
        Tensor::new(DType::U32, shape, Bytes::new(Pod(values)))
    }

    /// Rounds `values` to `dtype` (to nearest, ties to even; integers truncate and saturate).
    pub fn from_f64(dtype: DType, shape: Vec<usize>, values: &[f64]) -> Result<Tensor> {
        let bytes = match dtype {
            DType::F64 => Bytes::new(Pod(values.to_vec())),
            DType::F32 => Bytes::new(Pod(values.iter().map(|&v| v as f32).collect::<Vec<f32>>())),
            DType::F16 => Bytes::new(Pod(values.iter().map(|&v| f16::from_f64(v)).collect::<Vec<f16>>())),
            DType::BF16 => Bytes::new(Pod(values.iter().map(|&v| bf16::from_f64(v)).collect::<Vec<bf16>>())),
            // `as` truncates towards zero and saturates; a NaN becomes 0.
            DType::I32 => Bytes::new(Pod(values.iter().map(|&v| v as i32).collect::<Vec<i32>>())),
            DType::U32 => Bytes::new(Pod(values.iter().map(|&v| v as u32).collect::<Vec<u32>>())),
            DType::U8 => Bytes::new(values.iter().map(|&v| v as u8).collect::<Vec<u8>>()),
            DType::I64 => Bytes::new(Pod(values.iter().map(|&v| v as i64).collect::<Vec<i64>>())),
            DType::I16 => Bytes::new(Pod(values.iter().map(|&v| v as i16).collect::<Vec<i16>>())),
            DType::I8 => Bytes::new(Pod(values.iter().map(|&v| v as i8).collect::<Vec<i8>>())),
            DType::U64 => Bytes::new(Pod(values.iter().map(|&v| v as u64).collect::<Vec<u64>>())),
            DType::U16 => Bytes::new(Pod(values.iter().map(|&v| v as u16).collect::<Vec<u16>>())),
            DType::Bool => Bytes::new(values.iter().map(|&v| u8::from(v != 0.0)).collect::<Vec<u8>>()),
            DType::Packed(_) => return Err(Error::bug(format!("numbers are not rounded to {dtype}"))),
        };
        Tensor::new(dtype, shape, bytes)
    }

    /// A packed tensor of sections with these bytes; see [`Packing`]. Fails if the shape cannot be packed so, or if a section
    /// has another length.
    pub fn from_packed(packing: Packing, shape: Vec<usize>, parts: &[&[u8]]) -> Result<Tensor> {
        let bytes = packing.assemble(&shape, parts)?;
        Tensor::new(DType::Packed(packing), shape, Bytes::new(bytes))
    }

    /// The bytes of each section of a packed tensor, without a copy: words, scales and perhaps zero points. Fails on any other
    /// dtype.
    pub fn sections(&self) -> Result<Vec<Bytes>> {
        let DType::Packed(packing) = self.dtype else {
            return Err(Error::bug(format!("{} has no sections", self.dtype)));
        };
        let sections = packing.sections(&self.shape)?;
        let bytes = sections.iter().map(|section| self.data.slice(section.offset, section.len));
        bytes.map(|bytes| bytes.ok_or_else(|| Error::bug("a section lies outside its tensor"))).collect()
    }

    /// Rounds `f32` values to `dtype`; see [`Tensor::from_f64`].
    pub fn from_f32_as(dtype: DType, shape: Vec<usize>, values: Vec<f32>) -> Result<Tensor> {
        match dtype {
            DType::F32 => Tensor::from_f32(shape, values),
            DType::F16 => {
                let rounded: Vec<f16> = values.iter().map(|&v| f16::from_f32(v)).collect();
                Tensor::new(dtype, shape, Bytes::new(Pod(rounded)))
            }
            DType::BF16 => {
                let rounded: Vec<bf16> = values.iter().map(|&v| bf16::from_f32(v)).collect();
                Tensor::new(dtype, shape, Bytes::new(Pod(rounded)))
            }
            _ => Tensor::from_f64(dtype, shape, &values.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>()),
        }
    }

    /// The same tensor, without holding it.
    pub fn downgrade(&self) -> WeakTensor {
        let Tensor { dtype, shape, data: Bytes { owner, file, start, len } } = self;
        WeakTensor {
            dtype: *dtype,
            shape: shape.clone(),
            owner: Arc::downgrade(owner),
            file: file.clone(),
            start: *start,
            len: *len,
        }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self.dtype.size() {
            // A packed dtype has no bytes for one element.
            0 => self.shape.iter().product(),
            size => self.data.len() / size,
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.data
    }

    /// Elements of one row: the product of all sizes but the first.
    pub fn row_len(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// Rows `start..start+count` of the outermost dimension, without a copy. `None` if outside, and for packed rows, whose
    /// words and scales lie apart.
    pub fn rows(&self, start: usize, count: usize) -> Option<Tensor> {
        if self.dtype.packing().is_some() {
            return None;
        }
        let row = self.row_len() * self.dtype.size();
        let data = self.data.slice(start.checked_mul(row)?, count.checked_mul(row)?)?;
        let mut shape = self.shape.clone();
        *shape.first_mut()? = count;
        Some(Tensor { dtype: self.dtype, shape, data })
    }

    /// Joins tensors of equal dtype, which is not packed, and row shape along the outermost dimension.
    pub fn concat_rows(parts: &[Tensor]) -> Result<Tensor> {
        let first = parts.first().ok_or_else(|| Error::invalid("nothing to join"))?;
        let mut bytes = Vec::with_capacity(parts.iter().map(|p| p.data.len()).sum());
        let mut shape = first.shape.clone();
        let mut rows = 0;
        for part in parts {
            if part.dtype != first.dtype
                || part.shape.get(1..) != first.shape.get(1..)
                || part.shape.is_empty()
                || part.dtype.packing().is_some()
            {
                let text =
                    format!("cannot join {}{:?} to {}{:?}", part.dtype, part.shape, first.dtype, first.shape);
                return Err(Error::invalid(text));
            }
            rows += part.shape[0];
            bytes.extend_from_slice(&part.data);
        }
        shape[0] = rows;
        Tensor::new(first.dtype, shape, Bytes::new(bytes))
    }

    /// The values as `f32`: borrowed if stored so and aligned, else converted. `f64` values are rounded.
    pub fn to_f32(&self) -> Cow<'_, [f32]> {
        if self.dtype == DType::F32
            && let Ok(values) = bytemuck::try_cast_slice(&self.data)
        {
            return Cow::Borrowed(values);
        }
        Cow::Owned(match self.dtype {
            DType::F32 => self.map(f32::from_le_bytes),
            DType::F16 => self.map(|b| f16::from_le_bytes(b).to_f32()),
            DType::BF16 => self.map(|b| bf16::from_le_bytes(b).to_f32()),
            DType::F64 => self.map(|b| f64::from_le_bytes(b) as f32),
            DType::I32 => self.map(|b| i32::from_le_bytes(b) as f32),
            DType::U32 => self.map(|b| u32::from_le_bytes(b) as f32),
            DType::U8 => self.map(|[b]: [u8; 1]| f32::from(b)),
            DType::I64 => self.map(|b| i64::from_le_bytes(b) as f32),
            DType::I16 => self.map(|b| f32::from(i16::from_le_bytes(b))),
            DType::I8 => self.map(|b| f32::from(i8::from_le_bytes(b))),
            DType::U64 => self.map(|b| u64::from_le_bytes(b) as f32),
            DType::U16 => self.map(|b| f32::from(u16::from_le_bytes(b))),
            DType::Bool => self.map(|[b]: [u8; 1]| f32::from(u8::from(b != 0))),
            // A tensor has the bytes that its shape needs, so that this does not fail.
            DType::Packed(packing) => packing.numbers(&self.shape, &self.data).unwrap_or_default(),
        })
    }

    /// The values as `f64`, exactly; integers of 64 bits beyond 2⁵³ are rounded.
    pub fn to_f64(&self) -> Vec<f64> {
        match self.dtype {
            // All other dtypes but wide integers fit in `f32` exactly.
            DType::F64 => self.map(f64::from_le_bytes),
            DType::I32 => self.map(|b| f64::from(i32::from_le_bytes(b))),
            DType::U32 => self.map(|b| f64::from(u32::from_le_bytes(b))),
            DType::I64 => self.map(|b| i64::from_le_bytes(b) as f64),
            DType::U64 => self.map(|b| u64::from_le_bytes(b) as f64),
            _ => self.to_f32().iter().map(|&v| f64::from(v)).collect(),
        }
    }

    /// The values of a `u32` tensor. Fails on any other dtype.
    pub fn to_u32(&self) -> Result<Vec<u32>> {
        match self.dtype {
            DType::U32 => Ok(self.map(u32::from_le_bytes)),
            other => Err(Error::invalid(format!("expected u32 values, found {other}"))),
        }
    }

    /// The values of a tensor of integers or truths, each as `i64`; those of `u64` above its range saturate. Fails on any other
    /// dtype.
    pub fn to_i64(&self) -> Result<Vec<i64>> {
        Ok(match self.dtype {
            DType::I64 => self.map(i64::from_le_bytes),
            DType::I32 => self.map(|b| i64::from(i32::from_le_bytes(b))),
            DType::I16 => self.map(|b| i64::from(i16::from_le_bytes(b))),
            DType::I8 => self.map(|b| i64::from(i8::from_le_bytes(b))),
            DType::U64 => self.map(|b| i64::try_from(u64::from_le_bytes(b)).unwrap_or(i64::MAX)),
            DType::U32 => self.map(|b| i64::from(u32::from_le_bytes(b))),
            DType::U16 => self.map(|b| i64::from(u16::from_le_bytes(b))),
            DType::U8 => self.map(|[b]: [u8; 1]| i64::from(b)),
            DType::Bool => self.map(|[b]: [u8; 1]| i64::from(b != 0)),
            other => return Err(Error::invalid(format!("expected integers, found {other}"))),
        })
    }

    /// An integer tensor of these values, which saturate. Fails if the count is not that of the shape, or the dtype is none of
    /// integers or truths.
    pub fn from_i64(dtype: DType, shape: Vec<usize>, values: &[i64]) -> Result<Tensor> {
        fn cast<T: bytemuck::NoUninit + Send + Sync + TryFrom<i64>>(
            values: &[i64],
            least: T,
            most: T,
        ) -> Bytes {
            let one = |&v: &i64| T::try_from(v).unwrap_or(if v < 0 { least } else { most });
            Bytes::new(Pod(values.iter().map(one).collect::<Vec<T>>()))
        }
        let bytes = match dtype {
            DType::I64 => Bytes::new(Pod(values.to_vec())),
            DType::I32 => cast(values, i32::MIN, i32::MAX),
            DType::I16 => cast(values, i16::MIN, i16::MAX),
            DType::I8 => cast(values, i8::MIN, i8::MAX),
            DType::U64 => cast(values, u64::MIN, u64::MAX),
            DType::U32 => cast(values, u32::MIN, u32::MAX),
            DType::U16 => cast(values, u16::MIN, u16::MAX),
            DType::U8 => cast(values, u8::MIN, u8::MAX),
            DType::Bool => Bytes::new(values.iter().map(|&v| u8::from(v != 0)).collect::<Vec<u8>>()),
            other => return Err(Error::bug(format!("integers are not stored as {other}"))),
        };
        Tensor::new(dtype, shape, bytes)
    }

    fn map<const W: usize, T>(&self, f: impl Fn([u8; W]) -> T) -> Vec<T> {
        self.data.as_chunks::<W>().0.iter().map(|&b| f(b)).collect()
    }
}

/// Bytes of a tensor of this dtype and shape; `None` on overflow, and if the shape cannot be packed so.
///
/// A size of zero hides no overflow of the others: who computes with rows of a tensor multiplies them alone.
pub fn byte_len(dtype: DType, shape: &[usize]) -> Option<usize> {
    // A packed dtype has no bytes for one element.
    let all = shape.iter().filter(|&&d| d > 0).try_fold(dtype.size().max(1), |acc, &d| acc.checked_mul(d));
    let all = all.filter(|&n| n <= isize::MAX as usize)?;
    match dtype {
        DType::Packed(packing) => packing.byte_len(shape),
        _ if shape.contains(&0) => Some(0),
        _ => Some(all),
    }
}

/// Lets a typed vector serve as the owner of bytes, keeping its alignment.
struct Pod<T>(Vec<T>);

impl<T: bytemuck::NoUninit> AsRef<[u8]> for Pod<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_between_dtypes_with_ties_to_even() {
        let values = [1.0, 1.0 + 1.0 / 2048.0, 1.0 + 3.0 / 2048.0, 65504.0, 1e-8];
        let half = Tensor::from_f64(DType::F16, vec![5], &values).unwrap();
        assert_eq!(half.to_f64(), [1.0, 1.0, 1.0 + 4.0 / 2048.0, 65504.0, 0.0]);
        let brain = Tensor::from_f32_as(DType::BF16, vec![1, 2], vec![3.0, -0.5]).unwrap();
        assert_eq!(brain.to_f32().as_ref(), [3.0, -0.5]);
    }

    #[test]
    fn unaligned_bytes_convert_like_aligned_ones() {
        let mut bytes = vec![0u8];
        bytes.extend(1.5f32.to_le_bytes());
        let data = Bytes::new(bytes).slice(1, 4).unwrap();
        assert_eq!(Tensor::new(DType::F32, vec![1], data).unwrap().to_f32().as_ref(), [1.5]);
    }

    #[test]
    fn rows_and_concat_are_inverse_and_bounds_hold() {
        let t = Tensor::from_f32(vec![3, 2], (0..6).map(|i| i as f32).collect()).unwrap();
        let parts = [t.rows(0, 1).unwrap(), t.rows(1, 2).unwrap()];
        assert_eq!(Tensor::concat_rows(&parts).unwrap().to_f32(), t.to_f32());
        assert!(t.rows(2, 2).is_none());
        assert!(t.rows(usize::MAX, 2).is_none());
        assert!(Tensor::from_f32(vec![2, 2], vec![0.0; 3]).is_err());
        assert!(Tensor::new(DType::F32, vec![usize::MAX, 2], Bytes::new(vec![])).is_err());
    }

    #[test]
    fn a_size_of_zero_hides_no_overflow() {
        let empty = |shape: &[usize]| Tensor::new(DType::F32, shape.to_vec(), Bytes::new(vec![]));
        assert!(empty(&[0, 1 << 40, 1 << 40]).is_err());
        assert!(empty(&[1 << 40, 1 << 40, 0]).is_err());
        assert_eq!(empty(&[0, 1 << 20, 3]).unwrap().row_len(), 3 << 20);
    }
}
