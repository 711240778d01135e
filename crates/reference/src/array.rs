//! Arrays of one number type, which share their elements, and the values that they make up.
//!
//! A weight stays in the bytes of its file where it can: as it is if the dtype is that of the run, else converted part by part.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use tapml_graph::{Bytes, DType, Error, Result, Tensor};

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

    /// A vector of these values.
    pub(crate) fn vector(values: Vec<T>) -> Array<T> {
        Array { shape: vec![values.len()], data: Data::Owned(Arc::new(values)) }
    }

    /// A tensor's values, which `widen` converts as they are read.
    pub(crate) fn from_narrow(tensor: Tensor, widen: fn(&Tensor, Range<usize>, &mut [T])) -> Array<T> {
        let shape = tensor.shape().to_vec();
        Array { shape, data: Data::Narrow(Arc::new(Narrow { tensor, widen, whole: OnceLock::new() })) }
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
    pub(crate) fn from_stored(tensor: &Tensor, dtype: DType) -> Option<Array<T>> {
        // Bytes of a mapped file may be unaligned: then they are copied.
        let fits = tensor.dtype() == dtype && bytemuck::try_cast_slice::<u8, T>(tensor.bytes()).is_ok();
        fits.then(|| Array { shape: tensor.shape().to_vec(), data: Data::Stored(tensor.bytes().clone()) })
    }

    /// The elements as a tensor of `T`'s dtype, without a copy.
    pub(crate) fn share(&self, dtype: DType) -> Result<Tensor> {
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

/// The elements of a shape; `None` if they cannot be addressed.
fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size))
}

/// What flows between operators: numbers in `T`, whatever the storage dtype, or indices.
#[derive(Clone, Debug)]
pub enum Value<T> {
    /// Numbers.
    Float(Array<T>),
    /// Indices: ids of tokens, of experts.
    Uint(Array<u32>),
}

/// A matrix of weights within an array: what begins at this element.
#[derive(Clone, Copy)]
pub(crate) struct WeightMatrix<'a, T> {
    /// The array.
    pub array: &'a Array<T>,
    /// The first element of the matrix in it.
    pub first: usize,
}
