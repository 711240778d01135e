//! Operators that move elements of any dtype as bytes: `Reshape`, `Transpose`, and [`gather`] for many others.
//!
//! Bytes are moved as they are, so that nothing is rounded and a NaN keeps its bits.

use crate::array::{StridedWalk, axis, strides, volume};
use crate::call::{Call, Outputs};
use tapml_graph::{Bytes, DType, Error, Result, Tensor};

/// A tensor of the elements of another at these places, in this shape. Every place has to lie within the tensor.
///
/// # Errors
/// If there are more or fewer places than the shape has elements, or for dtypes of other widths than 1, 2, 4 and 8 bytes.
pub fn gather(tensor: &Tensor, shape: Vec<usize>, places: impl Iterator<Item = usize>) -> Result<Tensor> {
    // The width is a constant, so that the compiler copies an element by one load and one store.
    fn copy<const W: usize>(bytes: &[u8], places: impl Iterator<Item = usize>) -> Vec<u8> {
        let elements = bytes.as_chunks::<W>().0;
        places.flat_map(|at| elements[at]).collect()
    }
    let bytes = match tensor.dtype().size() {
        1 => copy::<1>(tensor.bytes(), places),
        2 => copy::<2>(tensor.bytes(), places),
        4 => copy::<4>(tensor.bytes(), places),
        8 => copy::<8>(tensor.bytes(), places),
        _ => return Err(Error::unsupported(format!("not served for {}", tensor.dtype()))),
    };
    Tensor::new(tensor.dtype(), shape, Bytes::new(bytes))
}

impl Call<'_> {
    /// A tensor that was moved, as the operator stores it: floats as `f64` in a wide evaluation.
    pub fn store_moved(&self, tensor: Tensor) -> Result<Tensor> {
        if self.is_wide() && tensor.dtype().is_float() && tensor.dtype() != DType::F64 {
            Tensor::from_f64(DType::F64, tensor.shape().to_vec(), &tensor.to_f64())
        } else {
            Ok(tensor)
        }
    }
}

/// The same elements in the shape of an input or, before version 5, of an attribute; 0 keeps a size unless `allowzero`, and
/// one size may be −1.
///
/// # Errors
/// If the elements do not fill the shape, or the open size is not determined.
pub fn reshape(call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let asked = if call.version() < 5 {
        call.ints("shape")?.ok_or_else(|| Error::invalid("the attribute `shape` is missing"))?
    } else {
        call.integers(1)?
    };
    call.ignore(&["consumed_inputs"]);
    let keeps = !call.flag("allowzero", false)?;
    let wrong = || Error::invalid(format!("{:?} cannot be reshaped to {asked:?}", x.shape()));
    let mut shape = Vec::with_capacity(asked.len());
    let mut open = None;
    for (at, &size) in asked.iter().enumerate() {
        shape.push(match size {
            -1 if open.is_none() => {
                open = Some(at);
                1
            }
            0 if keeps => *x.shape().get(at).ok_or_else(wrong)?,
            size => usize::try_from(size).map_err(|_| wrong())?,
        });
    }
    let known = volume(&shape)?;
    if let Some(at) = open {
        // With another size of 0 the open one could be anything.
        shape[at] = x.len().checked_div(known).ok_or_else(wrong)?;
    }
    if volume(&shape)? != x.len() {
        return Err(wrong());
    }
    let reshaped = Tensor::new(x.dtype(), shape, x.bytes().clone())?;
    Ok(vec![Some(call.store_moved(reshaped)?)])
}

/// The axes in another order, reversed by default.
///
/// # Errors
/// If `perm` does not name every axis exactly once.
pub fn transpose(call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let rank = x.shape().len();
    let order = match call.ints("perm")? {
        None => (0..rank).rev().collect(),
        Some(order) => order.iter().map(|&at| axis(at, rank)).collect::<Result<Vec<usize>>>()?,
    };
    // Sorted, an order of all axes is 0, 1, 2, …
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..rank) {
        return Err(Error::invalid(format!("`perm` {order:?} is no order of {rank} axes")));
    }
    let own = strides(x.shape());
    let shape: Vec<usize> = order.iter().map(|&axis| x.shape()[axis]).collect();
    let steps: Vec<usize> = order.iter().map(|&axis| own[axis]).collect();
    let places = StridedWalk::new(&shape, &steps);
    Ok(vec![Some(call.store_moved(gather(x, shape, places)?)?)])
}
