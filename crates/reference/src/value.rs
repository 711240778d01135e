//! Values of a run: arrays of one number type that share their elements, and indices: ids of tokens, of experts.
//!
//! A weight stays in the bytes of its file where it can: as it is if the dtype is that of the run, else converted part by part.

use crate::real::Real;
use rayon::prelude::*;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use tapml_graph::{Bytes, DType, Error, ErrorKind, Packing, Result, Tensor, TensorType};

/// A row-major array of `T`. Cloning is cheap: the elements are shared.
#[derive(Clone)]
pub struct Array<T> {
    /// Sizes, outermost first.
    shape: Vec<usize>,
    /// Elements in row-major order.
    data: Data<T>,
}

/// Where the elements are.
#[derive(Clone)]
enum Data<T> {
    /// Computed or converted, and shared by clones.
    Owned(Arc<Vec<T>>),
    /// Bytes of a tensor, checked to be an aligned slice of `T`.
    Stored(Bytes),
    /// Numbers of another dtype, which are converted part by part as they are read.
    Narrow(Arc<Narrow<T>>),
}

/// A tensor of floats whose values are wanted in another type.
struct Narrow<T> {
    /// The tensor.
    tensor: Tensor,
    /// Writes the values of a range.
    widen: fn(&Tensor, Range<usize>, &mut [T]),
    /// All of them, once something asks for that.
    whole: OnceLock<Arc<Vec<T>>>,
}

impl<T: bytemuck::Pod> Narrow<T> {
    /// All values, which are converted the first time.
    fn whole(&self) -> &Arc<Vec<T>> {
        if let Some(values) = self.whole.get() {
            return values;
        }
        // Not within `get_or_init`, as in `WeightCache`.
        let mut values = vec![T::zeroed(); self.tensor.len()];
        (self.widen)(&self.tensor, 0..self.tensor.len(), &mut values);
        self.whole.get_or_init(|| Arc::new(values))
    }
}

impl<T: bytemuck::Pod + Send + Sync> Array<T> {
    /// An array of these values. Fails if their count is not that of the shape.
    pub fn new(shape: Vec<usize>, values: Vec<T>) -> Result<Array<T>> {
        match count(&shape) {
            Some(need) if need == values.len() => Ok(Array { shape, data: Data::Owned(Arc::new(values)) }),
            _ => Err(Error::invalid(format!("{} values cannot fill shape {shape:?}", values.len()))),
        }
    }

    /// Sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements in row-major order.
    pub fn values(&self) -> &[T] {
        match &self.data {
            Data::Owned(values) => values,
            Data::Stored(bytes) => bytemuck::cast_slice(bytes),
            Data::Narrow(narrow) => narrow.whole(),
        }
    }

    /// The elements of this range, which must lie within the array; `buffer`, at least as long, holds them if they have to
    /// be converted.
    pub(crate) fn part<'a>(&'a self, range: Range<usize>, buffer: &'a mut [T]) -> &'a [T] {
        match &self.data {
            Data::Narrow(narrow) if narrow.whole.get().is_none() => {
                // A caller that reads parts does not want all of them in memory.
                let buffer = &mut buffer[..range.len()];
                (narrow.widen)(&narrow.tensor, range, buffer);
                buffer
            }
            // Once all are converted, parts are borrowed.
            _ => &self.values()[range],
        }
    }

    /// Whether elements are converted as they are read.
    pub(crate) fn is_narrow(&self) -> bool {
        matches!(&self.data, Data::Narrow(narrow) if narrow.whole.get().is_none())
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match &self.data {
            Data::Narrow(narrow) => narrow.tensor.len(),
            _ => self.values().len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements of one row: the product of all sizes but the first.
    pub fn row_len(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// The tensor's own bytes as an array, if it stores `dtype`, which is `T`'s, and is aligned for it.
    fn from_stored(tensor: &Tensor, dtype: DType) -> Option<Array<T>> {
        // Bytes of a mapped file may be unaligned: then they are copied.
        let fits = tensor.dtype() == dtype && bytemuck::try_cast_slice::<u8, T>(tensor.bytes()).is_ok();
        fits.then(|| Array { shape: tensor.shape().to_vec(), data: Data::Stored(tensor.bytes().clone()) })
    }

    /// The elements as a tensor of `T`'s dtype, without a copy.
    fn share(&self, dtype: DType) -> Result<Tensor> {
        let bytes = match &self.data {
            Data::Owned(values) => Bytes::new(SharedElements(values.clone())),
            Data::Stored(bytes) => bytes.clone(),
            Data::Narrow(narrow) => Bytes::new(SharedElements(narrow.whole().clone())),
        };
        Tensor::new(dtype, self.shape.clone(), bytes)
    }
}

impl<T> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", std::any::type_name::<T>(), self.shape)
    }
}

/// Lets shared elements serve as the owner of a tensor's bytes.
struct SharedElements<T>(Arc<Vec<T>>);

impl<T: bytemuck::NoUninit> AsRef<[u8]> for SharedElements<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// What flows between operators: numbers in `T`, whatever the storage dtype, or indices.
#[derive(Clone, Debug)]
pub enum Value<T> {
    /// Numbers.
    Float(Array<T>),
    /// Indices: ids of tokens, of experts.
    Uint(Array<u32>),
}

impl<T: Real> Value<T> {
    /// Values of a tensor of floats (widened exactly; `f64` in `f32` is rounded), of a packed one, or of `u32`. Shares the tensor's
    /// bytes where they already have the right type. Fails on any other dtype.
    pub fn from_tensor(tensor: &Tensor) -> Result<Value<T>> {
        let shape = tensor.shape().to_vec();
        match tensor.dtype() {
            DType::U32 => match Array::from_stored(tensor, DType::U32) {
                Some(shared) => Ok(Value::Uint(shared)),
                None => Ok(Value::Uint(Array::new(shape, tensor.to_u32()?)?)),
            },
            DType::Packed(packing) => Ok(Value::Float(Array::new(shape, unpack(packing, tensor)?)?)),
            dtype if dtype.is_float() => match Array::from_stored(tensor, T::DTYPE) {
                Some(shared) => Ok(Value::Float(shared)),
                None => Ok(Value::Float(Array::new(shape, widen(tensor)?)?)),
            },
            other => {
                Err(Error::unsupported(format!("the reference computes with floats and u32, found {other}")))
            }
        }
    }

    /// As [`Value::from_tensor`], but numbers of another type are converted as they are read: products stream them, and a
    /// large weight takes no more memory than it has. What asks for all of them at once converts them once.
    pub fn from_streamed(tensor: &Tensor) -> Result<Value<T>> {
        match tensor.dtype() {
            DType::F16 | DType::BF16 | DType::F32 if tensor.dtype() != T::DTYPE => {
                let narrow = Narrow { tensor: tensor.clone(), widen: T::widen_part, whole: OnceLock::new() };
                let data = Data::Narrow(Arc::new(narrow));
                Ok(Value::Float(Array { shape: tensor.shape().to_vec(), data }))
            }
            _ => Value::from_tensor(tensor),
        }
    }

    /// The value rounded to `dtype`: to nearest, ties to even, once. Shares the elements where no rounding is needed.
    /// Indices become `u32` only, numbers any float dtype.
    pub fn to_tensor(&self, dtype: DType) -> Result<Tensor> {
        match self {
            Value::Uint(ids) if dtype == DType::U32 => ids.share(dtype),
            Value::Float(array) if dtype == T::DTYPE => array.share(dtype),
            Value::Float(array) if dtype == DType::F64 => {
                let wide: Vec<f64> = array.values().iter().map(|v| v.to_f64()).collect();
                Tensor::from_f64(dtype, array.shape.clone(), &wide)
            }
            Value::Float(array) if dtype == DType::F32 => {
                let narrow = array.values().iter().map(|v| v.to_f64() as f32).collect();
                Tensor::from_f32(array.shape.clone(), narrow)
            }
            Value::Float(array) if dtype.is_float() => {
                Tensor::from_f32_as(dtype, array.shape.clone(), T::to_f32_odd(array.values()))
            }
            Value::Uint(_) => Err(Error::invalid(format!("indices cannot be stored as {dtype}"))),
            Value::Float(_) => Err(Error::invalid(format!("numbers cannot be stored as {dtype}"))),
        }
    }

    /// Numbers of this shape. Fails if their count is not that of the shape.
    pub fn float(shape: Vec<usize>, values: Vec<T>) -> Result<Value<T>> {
        Ok(Value::Float(Array::new(shape, values)?))
    }

    /// A vector of token ids.
    pub fn ids(ids: Vec<u32>) -> Value<T> {
        Value::Uint(Array { shape: vec![ids.len()], data: Data::Owned(Arc::new(ids)) })
    }

    /// Indices of this shape. Fails if their count is not that of the shape.
    pub fn indices(shape: Vec<usize>, indices: Vec<u32>) -> Result<Value<T>> {
        Ok(Value::Uint(Array::new(shape, indices)?))
    }

    /// Sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        match self {
            Value::Float(array) => array.shape(),
            Value::Uint(ids) => ids.shape(),
        }
    }

    /// The numbers. Fails on indices.
    pub fn as_float(&self) -> Result<&Array<T>> {
        match self {
            Value::Float(array) => Ok(array),
            Value::Uint(_) => Err(Error::invalid("expected numbers, found indices")),
        }
    }

    /// The indices. Fails on numbers.
    pub fn as_ids(&self) -> Result<&[u32]> {
        match self {
            Value::Uint(ids) => Ok(ids.values()),
            Value::Float(_) => Err(Error::invalid("expected indices, found numbers")),
        }
    }

    /// The type that shape inference sees; numbers count as `f32` whatever they are computed in.
    pub(crate) fn ty(&self) -> TensorType {
        let dtype = match self {
            Value::Float(_) => DType::F32,
            Value::Uint(_) => DType::U32,
        };
        TensorType::new(dtype, self.shape().iter().copied())
    }

    /// The values in another number type: exact from `f32` to `f64`, rounded the other way.
    pub fn cast<U: Real>(&self) -> Result<Value<U>> {
        match self {
            Value::Uint(ids) => Ok(Value::Uint(ids.clone())),
            Value::Float(array) => {
                let values = array.values().iter().map(|v| U::from_f64(v.to_f64())).collect();
                Value::float(array.shape.clone(), values)
            }
        }
    }
}

/// Elements that one task converts.
const CONVERTED: usize = 1 << 16;

/// The values of a float tensor, converted by all threads if there are many.
/// Each thread takes pieces of [`CONVERTED`] elements.
fn widen<T: Real>(tensor: &Tensor) -> Result<Vec<T>> {
    if !matches!(tensor.dtype(), DType::F16 | DType::BF16 | DType::F32) {
        return Ok(T::widen(tensor));
    }
    let mut values = vec![T::ZERO; tensor.len()];
    let part = |(i, into): (usize, &mut [T])| {
        let first = i * CONVERTED;
        T::widen_part(tensor, first..first + into.len(), into);
    };
    if values.len() < 2 * CONVERTED {
        values.chunks_mut(CONVERTED).enumerate().for_each(part)
    } else {
        values.par_chunks_mut(CONVERTED).enumerate().for_each(part)
    }
    Ok(values)
}

/// The numbers that a packed tensor stands for, by all threads if there are many.
/// Pieces are whole groups, as a scale belongs to a group.
fn unpack<T: Real>(packing: Packing, tensor: &Tensor) -> Result<Vec<T>> {
    let group = (packing.group as usize).max(1);
    // At least one group, however large groups are.
    let each = (CONVERTED / group).max(1) * group;
    let mut values = vec![T::ZERO; tensor.len()];
    let part = |(i, into): (usize, &mut [T])| -> Result<()> {
        let mut numbers = vec![0.0f32; into.len()];
        packing.unpack(tensor.shape(), tensor.bytes(), i * each / group, &mut numbers)?;
        into.iter_mut().zip(&numbers).for_each(|(to, &x)| *to = T::from_f64(f64::from(x)));
        Ok(())
    };
    if values.len() < 2 * CONVERTED {
        values.chunks_mut(each).enumerate().try_for_each(part)?
    } else {
        values.par_chunks_mut(each).enumerate().try_for_each(part)?
    }
    Ok(values)
}

/// The elements of a shape; `None` if they cannot be addressed.
fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size))
}

/// `rows × columns` zeros. Fails if memory does not suffice, so that sizes from outside cannot abort the process.
pub(crate) fn zeros<T: Real>(rows: usize, columns: usize) -> Result<Vec<T>> {
    let mut values = reserve(rows, columns)?;
    values.resize(rows * columns, T::ZERO);
    Ok(values)
}

/// An empty vector with room for `rows × columns` values. Fails if memory does not suffice.
pub(crate) fn reserve<T>(rows: usize, columns: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    let room = rows.checked_mul(columns).and_then(|len| values.try_reserve_exact(len).ok());
    match room {
        Some(()) => Ok(values),
        None => Err(Error::new(
            ErrorKind::OutOfMemory,
            format!("no memory for {rows} rows of {columns} numbers of {} bytes", size_of::<T>()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_round_trip_and_share_bytes_of_the_same_dtype() {
        let tensor = Tensor::from_f32(vec![2, 2], vec![1.0, -2.5, 1e-40, f32::INFINITY]).unwrap();
        let value = Value::<f32>::from_tensor(&tensor).unwrap();
        let back = value.to_tensor(DType::F32).unwrap();
        assert_eq!(back.bytes().as_ptr(), tensor.bytes().as_ptr());
        assert_eq!(back.shape(), [2, 2]);
        let wide = Value::<f64>::from_tensor(&tensor).unwrap();
        assert_eq!(wide.to_tensor(DType::F32).unwrap().bytes()[..], tensor.bytes()[..]);
        let ids = Value::<f32>::from_tensor(&Tensor::from_u32(vec![3], vec![5, 0, 9]).unwrap()).unwrap();
        assert_eq!(ids.as_ids().unwrap(), [5, 0, 9]);
        assert!(ids.as_float().is_err() && value.as_ids().is_err());
        assert!(ids.to_tensor(DType::F32).is_err() && value.to_tensor(DType::U8).is_err());
    }

    #[test]
    fn narrow_dtypes_widen_exactly_and_unaligned_bytes_are_copied() {
        for dtype in [DType::F16, DType::BF16] {
            let tensor = Tensor::from_f32_as(dtype, vec![3], vec![0.1, -7.3, 6e-8]).unwrap();
            let value = Value::<f64>::from_tensor(&tensor).unwrap();
            assert_eq!(value.as_float().unwrap().values(), tensor.to_f64());
            assert_eq!(value.to_tensor(dtype).unwrap().bytes()[..], tensor.bytes()[..]);
        }
        let mut bytes = vec![0];
        bytes.extend(2.5f32.to_le_bytes());
        let tensor = Tensor::new(DType::F32, vec![1], Bytes::new(bytes).slice(1, 4).unwrap()).unwrap();
        assert_eq!(Value::<f32>::from_tensor(&tensor).unwrap().as_float().unwrap().values(), [2.5]);
        let bytes = Tensor::new(DType::U8, vec![1], Bytes::new(vec![1])).unwrap();
        assert_eq!(Value::<f32>::from_tensor(&bytes).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn large_tensors_convert_like_their_parts() {
        let values: Vec<f32> = (0..3 * CONVERTED + 5).map(|i| (i % 1013) as f32 - 500.0).collect();
        let tensor = Tensor::from_f32_as(DType::F16, vec![values.len()], values.clone()).unwrap();
        assert_eq!(Value::<f32>::from_tensor(&tensor).unwrap().as_float().unwrap().values(), values);
    }

    #[test]
    fn f64_rounds_to_half_precision_once() {
        // Just above the middle between 1 and the next f16: rounding to f32 first would land on the tie.
        let above = 1.0 + (-11f64).exp2() + (-40f64).exp2();
        let value = Value::<f64>::float(vec![2], vec![above, -above]).unwrap();
        let half = value.to_tensor(DType::F16).unwrap().to_f64();
        assert_eq!(half, [1.0 + (-10f64).exp2(), -1.0 - (-10f64).exp2()]);
    }

    #[test]
    fn sizes_that_do_not_fit_are_errors() {
        assert!(Array::new(vec![2, 3], vec![0f32; 5]).is_err());
        assert!(Array::new(vec![usize::MAX, 2], Vec::<f32>::new()).is_err());
        assert_eq!(zeros::<f64>(usize::MAX, 2).unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert_eq!(zeros::<f64>(1 << 50, 1).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
}
