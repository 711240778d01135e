//! Arrays in row-major order, their sizes, and walks over them with strides.
//!
//! Every size that a file or an input gives passes [`volume`] before memory is taken for it.

use crate::real::Element;
use std::cell::Cell;
use tapml_graph::{Error, Result, Tensor};

/// Most elements of a result.
pub const MAX_ELEMENTS: usize = 1 << 31;

thread_local! {
    /// Most elements of an input or a result on this thread.
    static MOST: Cell<usize> = const { Cell::new(MAX_ELEMENTS) };
}

/// Runs evaluations of which no input and no result may have more elements than this.
pub fn limit_elements<T>(most: usize, run: impl FnOnce() -> T) -> T {
    // A guard, so that the limit comes back if `run` panics.
    struct Restore(usize);
    impl Drop for Restore {
        fn drop(&mut self) {
            MOST.set(self.0);
        }
    }
    let _restore = Restore(MOST.replace(most.min(MAX_ELEMENTS)));
    run()
}

/// Elements of a shape.
///
/// # Errors
/// If there are more than [`MAX_ELEMENTS`], or than [`limit_elements`] allows.
pub fn volume(shape: &[usize]) -> Result<usize> {
    let most = MOST.get();
    let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
    // A size of zero hides the others from the product, but not from those who compute with the shape.
    // So the product of the sizes that are not zero is bounded, too.
    let largest =
        shape.iter().filter(|&&size| size > 0).try_fold(1usize, |count, &size| count.checked_mul(size));
    count.zip(largest).filter(|&(_, largest)| largest <= most).map(|(count, _)| count).ok_or_else(|| {
        let most = if most == MAX_ELEMENTS { "2^31".into() } else { most.to_string() };
        let error = Error::invalid(format!("a result of the shape {shape:?} has more than {most} elements"));
        error.with_hint("such tensors are not evaluated on the host: record the call with smaller sizes")
    })
}

/// Numbers with a shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Array<T> {
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// As many as the shape says, in row-major order.
    pub data: Vec<T>,
}

impl<T: Element> Array<T> {
    /// The numbers of a tensor; see [`Element::read`].
    pub fn read(tensor: &Tensor) -> Result<Array<T>> {
        Ok(Array { shape: tensor.shape().to_vec(), data: T::read(tensor)? })
    }

    /// An array of one number.
    ///
    /// # Errors
    /// If the shape has too many elements; see [`volume`].
    pub fn full(shape: Vec<usize>, value: T) -> Result<Array<T>> {
        let data = vec![value; volume(&shape)?];
        Ok(Array { shape, data })
    }

    /// An array of zeros; see [`Array::full`].
    pub fn zeros(shape: Vec<usize>) -> Result<Array<T>> {
        Array::full(shape, T::default())
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Each number mapped.
    pub fn map<U>(&self, f: impl Fn(T) -> U) -> Array<U> {
        Array { shape: self.shape.clone(), data: self.data.iter().map(|&v| f(v)).collect() }
    }

    /// The same numbers in another shape of as many elements.
    pub fn reshape(self, shape: Vec<usize>) -> Result<Array<T>> {
        if volume(&shape)? == self.data.len() {
            Ok(Array { shape, data: self.data })
        } else {
            Err(Error::bug(format!("{:?} is not {shape:?}", self.shape)))
        }
    }

    /// The axes in another order: axis `i` of the result is `order[i]` of this.
    pub fn transpose(&self, order: &[usize]) -> Array<T> {
        let strides = strides(&self.shape);
        let shape: Vec<usize> = order.iter().map(|&axis| self.shape[axis]).collect();
        let strides: Vec<usize> = order.iter().map(|&axis| strides[axis]).collect();
        let data = StridedWalk::new(&shape, &strides).map(|at| self.data[at]).collect();
        Array { shape, data }
    }

    /// The array repeated to a shape that it broadcasts to.
    pub fn broadcast(&self, shape: &[usize]) -> Result<Array<T>> {
        volume(shape)?;
        let strides = broadcast_strides(&self.shape, shape)?;
        Ok(Array {
            shape: shape.to_vec(),
            data: StridedWalk::new(shape, &strides).map(|at| self.data[at]).collect(),
        })
    }
}

/// Elements between neighbours along each axis.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// Strides with which an array of the shape `from` is read as one of the shape `to`: 0 along axes that are repeated.
///
/// # Errors
/// If `from` does not broadcast to `to`.
pub fn broadcast_strides(from: &[usize], to: &[usize]) -> Result<Vec<usize>> {
    let wrong = || Error::invalid(format!("the shape {from:?} does not broadcast to {to:?}"));
    // NumPy aligns shapes at their last axes; axes that are missing in front are repeated.
    let missing = to.len().checked_sub(from.len()).ok_or_else(wrong)?;
    let own = strides(from);
    let mut result = vec![0; missing];
    for (axis, (&size, &target)) in from.iter().zip(&to[missing..]).enumerate() {
        result.push(match size {
            size if size == target => own[axis],
            1 => 0,
            _ => return Err(wrong()),
        });
    }
    Ok(result)
}

/// The shape that all of these broadcast to, by the rules of NumPy.
///
/// # Errors
/// If there is none.
pub fn broadcast_shape<'a>(shapes: impl IntoIterator<Item = &'a [usize]>) -> Result<Vec<usize>> {
    let mut result: Vec<usize> = Vec::new();
    for shape in shapes {
        if shape.len() > result.len() {
            result.splice(0..0, vec![1; shape.len() - result.len()]);
        }
        let first = result.len() - shape.len();
        for (to, &size) in result[first..].iter_mut().zip(shape) {
            if *to == 1 {
                *to = size;
            } else if size != 1 && size != *to {
                return Err(Error::invalid(format!(
                    "the sizes {to} and {size} of one axis do not broadcast"
                )));
            }
        }
    }
    Ok(result)
}

/// Places of all elements of a shape, in row-major order, under strides of another array.
pub struct StridedWalk {
    /// Sizes of the walk, outermost first.
    shape: Vec<usize>,
    /// Elements of the other array between neighbours along each axis.
    strides: Vec<usize>,
    /// The index of the next element.
    index: Vec<usize>,
    /// Its place in the other array.
    at: usize,
    /// Elements that are still to come.
    left: usize,
}

impl StridedWalk {
    /// A walk over a shape of at most [`MAX_ELEMENTS`].
    pub fn new(shape: &[usize], strides: &[usize]) -> StridedWalk {
        let left = shape.iter().product();
        StridedWalk {
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            index: vec![0; shape.len()],
            at: 0,
            left,
        }
    }
}

impl Iterator for StridedWalk {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        for axis in (0..self.shape.len()).rev() {
            self.index[axis] += 1;
            self.at += self.strides[axis];
            if self.index[axis] < self.shape[axis] {
                break;
            }
            // Back to the first element along this axis, before the next outer one moves on.
            self.at -= self.index[axis] * self.strides[axis];
            self.index[axis] = 0;
        }
        Some(at)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// An axis, counted from the end if it is negative.
///
/// # Errors
/// If there is no such axis.
pub fn axis(axis: i64, rank: usize) -> Result<usize> {
    let counted = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    counted.and_then(|axis| usize::try_from(axis).ok()).filter(|&axis| axis < rank).ok_or_else(|| {
        Error::invalid(format!(
            "axis {axis} of a tensor of rank {rank}: expected {} to {}",
            -(rank as i64),
            rank as i64 - 1
        ))
    })
}

/// Distinct axes, sorted.
///
/// # Errors
/// If there is no such axis, or one twice.
pub fn axes(list: &[i64], rank: usize) -> Result<Vec<usize>> {
    let mut result = list.iter().map(|&one| axis(one, rank)).collect::<Result<Vec<usize>>>()?;
    result.sort_unstable();
    match result.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::invalid(format!("axis {} is given twice", pair[0]))),
        None => Ok(result),
    }
}

/// Sizes around an axis: before it, its own, behind it.
pub fn axis_sizes(shape: &[usize], axis: usize) -> [usize; 3] {
    [shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_broadcast_and_transpose() {
        let row = Array { shape: vec![1, 3], data: vec![1i64, 2, 3] };
        assert_eq!(row.broadcast(&[2, 3]).unwrap().data, [1, 2, 3, 1, 2, 3]);
        assert_eq!(row.broadcast(&[2, 2, 3]).unwrap().data.len(), 12);
        assert!(row.broadcast(&[3, 2]).is_err());
        let two = Array { shape: vec![2, 3], data: vec![1i64, 2, 3, 4, 5, 6] };
        assert_eq!(two.transpose(&[1, 0]).data, [1, 4, 2, 5, 3, 6]);
        let empty = Array::<i64> { shape: vec![0, 3], data: vec![] };
        assert_eq!(empty.transpose(&[1, 0]).shape, [3, 0]);
        assert_eq!(broadcast_shape([[3, 1].as_slice(), &[4], &[]]).unwrap(), [3, 4]);
        assert_eq!(broadcast_shape([[1].as_slice(), &[0]]).unwrap(), [0]);
    }

    #[test]
    fn sizes_and_axes_are_bounded() {
        assert_eq!(volume(&[]).unwrap(), 1);
        assert_eq!(volume(&[0, 5]).unwrap(), 0);
        for shape in [[MAX_ELEMENTS, 2].as_slice(), &[usize::MAX, usize::MAX], &[0, usize::MAX, 2]] {
            assert!(volume(shape).unwrap_err().to_string().contains("2^31"));
        }
        assert_eq!((axis(-1, 3).unwrap(), axes(&[2, -3], 3).unwrap()), (2, vec![0, 2]));
        for wrong in [3, -4, i64::MIN, i64::MAX] {
            assert!(axis(wrong, 3).is_err());
        }
        assert!(axes(&[0, -3], 3).is_err());
    }
}
