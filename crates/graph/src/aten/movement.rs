//! What moves, stretches and chooses elements, and what makes them of nothing.
//!
//! Views of PyTorch share memory with their input. No value of a graph changes, so that a view is the same as a copy here.

use super::arguments::Arguments;
use super::arithmetic::Defined;
use super::builder::{Builder, Operand, axis};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use serde_json::json;

/// Sizes of which one may be -1: what is left.
///
/// # Errors
/// If they do not hold exactly so many `elements`, or the open size is not determined.
fn filled_up(given: &[i64], elements: usize) -> Result<Vec<usize>> {
    let wrong = || Error::invalid(format!("{elements} elements do not fill {given:?}"));
    // Only −1 stands for what is left; other negative sizes are wrong.
    let known = given.iter().filter(|size| **size != -1).map(|&size| usize::try_from(size).ok());
    let known = known.collect::<Option<Vec<usize>>>().ok_or_else(wrong)?;
    let product = known.iter().try_fold(1usize, |all, &size| all.checked_mul(size)).ok_or_else(wrong)?;
    let open = given.len() - known.len();
    let rest = match open {
        0 => 1,
        // With a known size of 0 the open one could be anything.
        1 if product > 0 && elements.is_multiple_of(product) => elements / product,
        _ => return Err(wrong()),
    };
    // Without an open size the product has to be right by itself.
    if product.checked_mul(rest) != Some(elements) {
        return Err(wrong());
    }
    Ok(given.iter().map(|&size| usize::try_from(size).unwrap_or(rest)).collect())
}

/// The same elements in another shape, which the argument `name` gives.
pub fn view(builder: &mut Builder, arguments: &Arguments, name: &'static str) -> Defined {
    let x = arguments.tensor("self")?;
    let shape = filled_up(&arguments.needed_ints(name)?, x.elements())?;
    reshape_to(builder, &x, &shape)
}

/// The same elements in a shape of as many, as a value of its own.
fn reshape_to(builder: &mut Builder, x: &Operand, shape: &[usize]) -> Defined {
    let made = builder.reshape(x, shape)?;
    Ok(vec![builder.copy_value(&made)?])
}

/// Dimensions `start_dim` to `end_dim` as one.
pub fn flatten(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.tensor("self")?;
    let start = x.axis(arguments.int("start_dim")?.unwrap_or(0))?;
    let end = x.axis(arguments.int("end_dim")?.unwrap_or(-1))?;
    if x.rank() == 0 {
        return reshape_to(builder, &x, &[1]);
    }
    if start > end {
        return Err(Error::invalid(format!("dimensions {start} to {end}")));
    }
    let one = x.shape[start..=end].iter().product();
    let shape = [&x.shape[..start], &[one], &x.shape[end + 1..]].concat();
    reshape_to(builder, &x, &shape)
}

/// A further dimension of one.
pub fn unsqueeze(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.tensor("self")?;
    let at = axis(arguments.needed_int("dim")?, x.rank() + 1)?;
    let mut shape = x.shape.clone();
    shape.insert(at, 1);
    reshape_to(builder, &x, &shape)
}

/// Without these dimensions, or without all, where they have one element.
pub fn squeeze(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.tensor("self")?;
    let dims = match arguments.ints("dim")? {
        Some(dims) => dims.into_iter().map(|dim| x.axis(dim)).collect::<Result<Vec<usize>>>()?,
        None => (0..x.rank()).collect(),
    };
    let kept = x.shape.iter().enumerate().filter(|(d, size)| **size != 1 || !dims.contains(d));
    let shape: Vec<usize> = kept.map(|(_, &size)| size).collect();
    reshape_to(builder, &x, &shape)
}

/// Dimensions in another order.
pub fn permute(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.tensor("self")?;
    let order = arguments.needed_ints("dims")?.into_iter().map(|dim| x.axis(dim));
    let order = order.collect::<Result<Vec<usize>>>()?;
    Ok(vec![builder.transpose(&x, &order)?])
}

/// Two dimensions exchanged.
pub fn transpose(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.tensor("self")?;
    let (one, other) = (x.axis(arguments.needed_int("dim0")?)?, x.axis(arguments.needed_int("dim1")?)?);
    let mut order: Vec<usize> = (0..x.rank()).collect();
    if !order.is_empty() {
        order.swap(one, other);
    }
    Ok(vec![builder.transpose(&x, &order)?])
}

/// A matrix with rows and columns exchanged; a vector stays as it is.
pub fn transpose_matrix(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.tensor("self")?;
    match x.rank() {
        2 => Ok(vec![builder.transpose_matrix(&x)?]),
        0 | 1 => Ok(vec![builder.copy_value(&x)?]),
        // As `torch.t`, which takes at most two dimensions.
        _ => Err(Error::invalid(format!("{} is no matrix", x.ty()))),
    }
}

/// Stretched; -1 keeps a size.
pub fn expand(builder: &mut Builder, arguments: &Arguments) -> Defined {
    arguments.ignore(&["implicit"]);
    let x = arguments.tensor("self")?;
    let sizes = arguments.needed_ints("size")?;
    // New dimensions stand in front; -1 has no meaning for them.
    let missing = sizes.len().checked_sub(x.rank());
    let missing = missing.ok_or_else(|| Error::invalid(format!("{sizes:?} for {}", x.ty())))?;
    let size = |(d, &size): (usize, &i64)| match (size, d.checked_sub(missing)) {
        (-1, Some(own)) => Ok(x.shape[own]),
        (size, _) => usize::try_from(size).map_err(|_| Error::invalid(format!("a size of {size}"))),
    };
    let shape = sizes.iter().enumerate().map(size).collect::<Result<Vec<usize>>>()?;
    Ok(vec![builder.expand(&x, &shape)?])
}

/// Several times along each dimension.
pub fn repeat(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.tensor("self")?;
    let repeats = arguments.needed_ints("repeats")?.into_iter().map(|count| usize::try_from(count).ok());
    let repeats = repeats.collect::<Option<Vec<usize>>>().filter(|repeats| repeats.len() >= x.rank());
    let repeats = repeats.ok_or_else(|| Error::invalid(format!("`repeats` does not fit {}", x.ty())))?;
    let missing = repeats.len() - x.rank();
    let sizes: Vec<usize> = vec![1; missing].into_iter().chain(x.shape.iter().copied()).collect();
    // Each dimension is repeated on a new one in front of it, and both are merged.
    let apart: Vec<usize> = sizes.iter().flat_map(|&size| [1, size]).collect();
    let wide: Vec<usize> = sizes.iter().zip(&repeats).flat_map(|(&size, &count)| [count, size]).collect();
    let shape = sizes.iter().zip(&repeats).map(|(&size, &count)| size.checked_mul(count));
    let shape =
        shape.collect::<Option<Vec<usize>>>().ok_or_else(|| Error::unsupported("sizes beyond 64 bits"))?;
    let x = builder.reshape(&x, &apart)?;
    let x = builder.expand(&x, &wide)?;
    Ok(vec![builder.reshape(&x, &shape)?])
}

/// A bound of a slice: counted from the end if negative, kept within the dimension.
///
/// PyTorch clamps bounds of slices, while an index outside is an error.
fn bound(value: i64, size: usize) -> usize {
    let from_front = if value < 0 { value.saturating_add(size as i64) } else { value };
    usize::try_from(from_front).unwrap_or(0).min(size)
}

/// Elements `start`, `start + step`, … before `end` of a dimension.
pub fn slice(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.tensor("self")?;
    let at = x.axis(arguments.int("dim")?.unwrap_or(0))?;
    let size = x.shape.get(at).copied().ok_or_else(|| Error::invalid("a slice of a number"))?;
    let start = bound(arguments.int("start")?.unwrap_or(0), size);
    // An end that is absent or beyond the dimension is the end of it.
    let end = bound(arguments.int("end")?.unwrap_or(i64::MAX), size);
    let step = usize::try_from(arguments.int("step")?.unwrap_or(1)).ok().filter(|step| *step > 0);
    let step = step.ok_or_else(|| Error::invalid("`step` is no positive integer"))?;
    Ok(vec![builder.slice(&x, at, start..end.max(start), step)?])
}

/// One index of a dimension, which goes.
pub fn select(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.tensor("self")?;
    let at = x.axis(arguments.needed_int("dim")?)?;
    let size = x.shape.get(at).copied().ok_or_else(|| Error::invalid("an index of a number"))?;
    // An index counts from the end if it is negative, as a dimension does.
    let index = axis(arguments.needed_int("index")?, size)?;
    let one = builder.slice(&x, at, index..index + 1, 1)?;
    let mut shape = x.shape.clone();
    shape.remove(at);
    Ok(vec![builder.reshape(&one, &shape)?])
}

/// One after the other along a dimension.
pub fn concat(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let mut parts = arguments.list("tensors")?;
    // A legacy rule of `torch.cat`, for tensors of the shape `[0]`.
    // An empty vector joins anything.
    if parts.iter().any(|part| part.rank() > 1) {
        parts.retain(|part| part.shape != [0]);
    }
    let first = parts.first().filter(|first| first.rank() > 0);
    let first = first.ok_or_else(|| Error::invalid("nothing to join, or numbers without dimensions"))?;
    let at = first.axis(arguments.int("dim")?.unwrap_or(0))?;
    Ok(vec![builder.concat(&parts, at)?])
}

/// One after the other along a further dimension.
pub fn stack(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let parts = arguments.list("tensors")?;
    let rank = parts.first().map_or(0, Operand::rank);
    let at = axis(arguments.int("dim")?.unwrap_or(0), rank + 1)?;
    let mut wide = Vec::new();
    for part in &parts {
        let mut shape = part.shape.clone();
        // Parts of other ranks are refused by `concat`.
        shape.insert(at.min(part.rank()), 1);
        wide.push(builder.reshape(part, &shape)?);
    }
    Ok(vec![builder.concat(&wide, at)?])
}

/// Parts of these sizes along a dimension.
pub fn split(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.tensor("self")?;
    let at = x.axis(arguments.int("dim")?.unwrap_or(0))?;
    let size = x.shape.get(at).copied().ok_or_else(|| Error::invalid("parts of a number"))?;
    let sizes: Vec<usize> = match arguments.ints("split_size")? {
        // All of this size but the last, which has the rest.
        Some(each) => {
            let each = each.first().and_then(|&each| usize::try_from(each).ok()).filter(|each| *each > 0);
            let each = each.ok_or_else(|| Error::invalid("`split_size` is no positive integer"))?;
            (0..size.div_ceil(each).max(1)).map(|part| each.min(size - part * each)).collect()
        }
        None => {
            let sizes =
                arguments.needed_ints("split_sizes")?.into_iter().map(|size| usize::try_from(size).ok());
            sizes.collect::<Option<_>>().ok_or_else(|| Error::invalid("a size is negative"))?
        }
    };
    if sizes.iter().try_fold(0usize, |all, &part| all.checked_add(part)) != Some(size) {
        return Err(Error::invalid(format!("{sizes:?} are not the parts of {size}")));
    }
    let mut start = 0;
    let mut parts = Vec::new();
    for (place, part) in sizes.into_iter().enumerate() {
        // What nobody asks for is not made.
        let asked = builder.asks(place);
        parts.push(if asked { builder.slice(&x, at, start..start + part, 1)? } else { x.clone() });
        start += part;
    }
    Ok(parts)
}

/// A border of one number. `pad` has begin and end of the last dimension, then of the one before.
pub fn pad(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.tensor("self")?;
    let (given, value) = (arguments.needed_ints("pad")?, arguments.float("value", 0.0)?);
    // Negative widths cut in PyTorch. They are not served.
    let small = |&width: &i64| usize::try_from(width).ok().filter(|width| *width <= 1 << 20);
    let widths = given.iter().map(small).collect::<Option<Vec<usize>>>();
    let widths = widths.filter(|widths| widths.len() % 2 == 0 && widths.len() <= 2 * x.rank());
    let widths = widths.ok_or_else(|| Error::unsupported(format!("`pad` of {given:?} for {}", x.ty())))?;
    let (mut begins, mut ends) = (vec![0; x.rank()], vec![0; x.rank()]);
    for (pair, width) in widths.chunks(2).enumerate() {
        let at = x.rank() - 1 - pair;
        (begins[at], ends[at]) = (width[0], width[1]);
    }
    // The sizes are bounded by those of a tensor and of `small`.
    let sizes = x.shape.iter().zip(begins.iter().zip(&ends));
    let shape = sizes.map(|(size, (begin, end))| size + begin + end).collect();
    let pads: Vec<i64> = begins.into_iter().chain(ends).map(|width| width as i64).collect();
    let (pads, value) = (builder.ints(&pads)?, builder.number(value, x.dtype)?);
    Ok(vec![builder.add_operator(
        "onnx.Pad@13",
        json!({"mode": "constant"}),
        &[&x, &pads, &value],
        (x.dtype, shape),
    )?])
}

/// Rows of a table.
pub fn embedding(builder: &mut Builder, arguments: &Arguments) -> Defined {
    // They concern gradients alone.
    arguments.ignore(&["padding_idx", "scale_grad_by_freq", "sparse"]);
    let (table, indices) = (arguments.tensor("weight")?, arguments.tensor("indices")?);
    Ok(vec![gather_along(builder, &table, &indices, 0)?])
}

/// Slices of `x` along dimension `at`; the dimensions of `indices` stand in its place.
///
/// # Errors
/// If `x` has no dimension, or the indices are no `i32` or `i64`.
fn gather_along(builder: &mut Builder, x: &Operand, indices: &Operand, at: usize) -> Result<Operand> {
    if x.rank() == 0 || !matches!(indices.dtype, DType::I32 | DType::I64) {
        return Err(Error::invalid(format!("indices of {} into {}", indices.ty(), x.ty())));
    }
    let shape = [&x.shape[..at], &indices.shape, &x.shape[at + 1..]].concat();
    builder.add_operator("onnx.Gather@13", json!({ "axis": at }), &[x, indices], (x.dtype, shape))
}

/// These indices of a dimension.
pub fn index_select(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let (x, indices) = (arguments.tensor("self")?, arguments.tensor("index")?);
    let at = x.axis(arguments.needed_int("dim")?)?;
    // PyTorch takes a number for a list of one index.
    let indices = if indices.rank() == 0 { builder.reshape(&indices, &[1])? } else { indices };
    Ok(vec![gather_along(builder, &x, &indices, at)?])
}

/// Along a dimension the elements at places of their own.
pub fn gather(builder: &mut Builder, arguments: &Arguments) -> Defined {
    arguments.expect("sparse_grad", false)?;
    let (x, index) = (arguments.tensor("self")?, arguments.tensor("index")?);
    let at = x.axis(arguments.needed_int("dim")?)?;
    // PyTorch allows smaller sizes along other dimensions. They are not served.
    let fits = |d: usize| d == at || index.shape.get(d) == x.shape.get(d);
    if index.rank() != x.rank() || index.dtype != DType::I64 || !(0..x.rank()).all(fits) {
        return Err(Error::unsupported(format!("indices of {} into {}", index.ty(), x.ty())));
    }
    let ty = (x.dtype, index.shape.clone());
    Ok(vec![builder.add_operator("onnx.GatherElements@13", json!({ "axis": at }), &[&x, &index], ty)?])
}

/// A tensor of one number.
pub fn full(builder: &mut Builder, arguments: &Arguments, value: Option<f64>) -> Defined {
    arguments.ignore(&["memory_format", "requires_grad"]);
    let like = arguments.optional("self");
    let shape = match &like {
        Some(like) => like.shape.clone(),
        None => {
            let sizes = arguments.needed_ints("size")?.into_iter().map(|size| usize::try_from(size).ok());
            sizes.collect::<Option<_>>().ok_or_else(|| Error::invalid("a size is negative"))?
        }
    };
    let given = arguments.number("fill_value")?;
    // Without `dtype`, a float gives PyTorch's default dtype and an integer `i64`.
    let own = match (&like, given) {
        (Some(like), _) => like.dtype,
        (None, Some(number)) if !number.float => DType::I64,
        _ => builder.float(),
    };
    // A tensor of floats that is asked for as f32 is exact in f64 as well.
    let dtype = arguments.dtype("dtype")?.unwrap_or(own);
    let dtype = if dtype == DType::F32 { builder.float() } else { dtype };
    let value = value.or(given.map(|number| number.value));
    let value = value.ok_or_else(|| Error::invalid("needs the argument `fill_value`"))?;
    let one = builder.number(value, dtype)?;
    Ok(vec![builder.expand(&one, &shape)?])
}

/// Most numbers of a range.
/// A constant of the definition: 2²⁴.
const MOST: f64 = 16_777_216.0;

/// `start`, `start + step`, … before `end`.
pub fn arange(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let number = |name: &'static str, default: f64| -> Result<(f64, bool)> {
        Ok(arguments.number(name)?.map_or((default, false), |number| (number.value, number.float)))
    };
    arguments.ignore(&["requires_grad"]);
    let [start, end, step] = [number("start", 0.0)?, number("end", 0.0)?, number("step", 1.0)?];
    // With a step of 0 it is infinite; `max` drops the NaN of a range from a number to itself, which is empty.
    let count = ((end.0 - start.0) / step.0).ceil().max(0.0);
    if count.is_nan() || count > MOST {
        return Err(Error::unsupported(format!("a range of {count} numbers")));
    }
    let own = if [start, end, step].iter().any(|(_, float)| *float) { builder.float() } else { DType::I64 };
    let dtype = arguments.dtype("dtype")?.unwrap_or(own);
    let dtype = if dtype == DType::F32 { builder.float() } else { dtype };
    let values: Vec<f64> = (0..count as usize).map(|at| start.0 + at as f64 * step.0).collect();
    let made = if dtype.is_float() {
        Tensor::from_f64(dtype, vec![values.len()], &values)?
    } else {
        let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
        Tensor::from_i64(dtype, vec![values.len()], &values)?
    };
    let made = builder.constant(made);
    Ok(vec![builder.copy_value(&made)?])
}
