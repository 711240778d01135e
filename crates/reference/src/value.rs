//! Values of a run: from tensors and to them, in every number type.

pub use crate::array::{Array, Value};
use crate::real::Real;
use rayon::prelude::*;
use tapml_graph::{DType, Error, ErrorKind, Packing, Result, Tensor, TensorType};

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
                Ok(Value::Float(Array::from_narrow(tensor.clone(), T::widen_part)))
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
                Tensor::from_f64(dtype, array.shape().to_vec(), &wide)
            }
            Value::Float(array) if dtype == DType::F32 => {
                let narrow = array.values().iter().map(|v| v.to_f64() as f32).collect();
                Tensor::from_f32(array.shape().to_vec(), narrow)
            }
            Value::Float(array) if dtype.is_float() => {
                Tensor::from_f32_as(dtype, array.shape().to_vec(), T::to_f32_odd(array.values()))
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
        Value::Uint(Array::vector(ids))
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
                Value::float(array.shape().to_vec(), values)
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
    use tapml_graph::Bytes;

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
