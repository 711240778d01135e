//! Reductions along dimensions, as `ReduceMean`, `ReduceSum`, `ArgMax` and their relatives of ONNX.
//!
//! A reduction of a number without dimensions gives the number itself: ONNX has no axis there, and PyTorch allows 0 and −1.

use super::arguments::Arguments;
use super::arithmetic::Defined;
use super::builder::{Builder, Operand};
use crate::dtype::DType;
use crate::error::{Error, Result};
use serde_json::json;

/// The dimensions of `dim`; all where it is absent or empty.
///
/// # Errors
/// If there is no such dimension. One that is given twice counts as one.
fn dims(x: &Operand, arguments: &Arguments) -> Result<Vec<usize>> {
    let given = arguments.ints("dim")?.unwrap_or_default();
    let mut dims = given.into_iter().map(|dim| x.axis(dim)).collect::<Result<Vec<usize>>>()?;
    dims.sort_unstable();
    dims.dedup();
    if dims.is_empty() || x.rank() == 0 {
        dims = (0..x.rank()).collect();
    }
    Ok(dims)
}

/// The shape that is left. Reduced dimensions have size 1 if `keeps`, else they go.
fn remaining_shape(x: &Operand, dims: &[usize], keeps: bool) -> Vec<usize> {
    let size = |(d, &size): (usize, &usize)| match (dims.contains(&d), keeps) {
        (false, _) => Some(size),
        (true, true) => Some(1),
        (true, false) => None,
    };
    x.shape.iter().enumerate().filter_map(size).collect()
}

/// One reduction of `x`, in its own dtype.
///
/// `kind` names a version that takes its axes as an attribute.
fn reduce_dims(
    builder: &mut Builder,
    x: &Operand,
    kind: &str,
    dims: &[usize],
    keeps: bool,
) -> Result<Operand> {
    if x.rank() == 0 {
        return builder.copy_value(x);
    }
    let attributes = json!({"axes": dims, "keepdims": i32::from(keeps)});
    builder.add_operator(kind, attributes, &[x], (x.dtype, remaining_shape(x, dims, keeps)))
}

/// A reduction of floats, or one that chooses.
///
/// # Errors
/// Of kind `Unsupported` for a `dtype` other than that of the input, and for means of integers.
pub fn reduce(builder: &mut Builder, arguments: &Arguments, kind: &str) -> Defined {
    let x = arguments.tensor("self")?;
    let (dims, keeps) = (dims(&x, arguments)?, arguments.flag("keepdim", false)?);
    let x = match arguments.dtype("dtype")? {
        Some(dtype) if dtype != x.dtype => return Err(Error::unsupported(format!("{} as {dtype}", x.ty()))),
        _ => x,
    };
    // Sums of integers are wider than these in PyTorch.
    if kind.contains("Mean") && !x.dtype.is_float() {
        return Err(Error::unsupported(format!("a mean of {}", x.dtype)));
    }
    let x = if kind.contains("Sum") && !x.dtype.is_float() { builder.cast(&x, DType::I64)? } else { x };
    Ok(vec![reduce_dims(builder, &x, kind, &dims, keeps)?])
}

/// The variance: the mean of squared distances, of so many terms less `correction`.
pub fn variance(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.floats("self")?;
    let (dims, keeps) = (dims(&x, arguments)?, arguments.flag("keepdim", false)?);
    // `correction` is 1 by default: Bessel's correction.
    let correction = arguments.float("correction", 1.0)?;
    let terms: usize = dims.iter().map(|&d| x.shape[d]).product();
    let mean = reduce_dims(builder, &x, "onnx.ReduceMean@13", &dims, true)?;
    let distance = builder.pair("onnx.Sub@14", &x, &mean)?;
    let square = builder.pair("onnx.Mul@14", &distance, &distance)?;
    let sum = reduce_dims(builder, &square, "onnx.ReduceSum@11", &dims, keeps)?;
    // PyTorch bounds the divisor by 0 from below, so that too few terms give an infinity or NaN.
    let divisor = builder.number((terms as f64 - correction).max(0.0), x.dtype)?;
    Ok(vec![builder.pair("onnx.Div@14", &sum, &divisor)?])
}

/// Where the largest or the smallest number is; the first of several.
pub fn arg(builder: &mut Builder, arguments: &Arguments, kind: &str) -> Defined {
    let x = arguments.tensor("self")?;
    let keeps = arguments.flag("keepdim", false)?;
    // Without `dim` the place counts through all elements.
    let Some(dim) = arguments.int("dim")? else {
        let flat = builder.reshape(&x, &[x.elements()])?;
        let found = builder.add_operator(
            kind,
            json!({"axis": 0, "keepdims": 0}),
            &[&flat],
            (DType::I64, Vec::new()),
        )?;
        // `keepdim` without `dim` keeps every dimension, with size 1.
        let shape = if keeps { vec![1; x.rank()] } else { Vec::new() };
        return Ok(vec![builder.reshape(&found, &shape)?]);
    };
    let axis = x.axis(dim)?;
    if x.rank() == 0 {
        return Err(Error::unsupported("a number without dimensions"));
    }
    let ty = (DType::I64, remaining_shape(&x, &[axis], keeps));
    Ok(vec![builder.add_operator(kind, json!({"axis": axis, "keepdims": i32::from(keeps)}), &[&x], ty)?])
}

/// Sums of all elements before each, with it.
pub fn cumulative_sum(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.tensor("self")?;
    let axis = x.axis(arguments.needed_int("dim")?)?;
    if arguments.dtype("dtype")?.is_some_and(|dtype| dtype != x.dtype) || x.rank() == 0 {
        return Err(Error::unsupported(format!("sums of {}", x.ty())));
    }
    // Running sums of integers are `i64` in PyTorch.
    let x = if x.dtype.is_float() { x } else { builder.cast(&x, DType::I64)? };
    let axis = builder.number(axis as f64, DType::I64)?;
    let ty = (x.dtype, x.shape.clone());
    Ok(vec![builder.add_operator("onnx.CumSum@14", json!({}), &[&x, &axis], ty)?])
}
