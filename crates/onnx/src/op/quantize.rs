//! Numbers as integers with scales and zero points, and back: `QuantizeLinear`, `DequantizeLinear`, `DynamicQuantizeLinear`.
//!
//! A number `x` and its integer `q` are related by `x = (q − zero point) · scale`. Scales and zero points belong to a tensor, to
//! the indices of an axis (from version 13 on) or to blocks (from version 21 on). Floats of 8 bits are not served.

use crate::array::{Array, axis, axis_sizes};
use crate::call::element_type;
use crate::call::{Call, Outputs};
use crate::integers::{Integers, OpenOutputs};
use crate::number::integer_bounds;
use crate::real::Real;
use tapml_graph::{DType, Error, Result};

/// The place of each element's scale: one scale for all, one for each index of an axis, or one for each block along it.
///
/// # Errors
/// If the shape of the scales is none of these.
fn scale_places(call: &Call<'_>, x: &[usize], scale: &[usize]) -> Result<Vec<usize>> {
    let (given, block) = (call.int_or("axis", 1)?, call.int_or("block_size", 0)?);
    let count = x.iter().product::<usize>();
    // A scale for the whole tensor, with one axis or none.
    if scale.iter().all(|&size| size == 1) && scale.len() <= 1 {
        return Ok(vec![0; count]);
    }
    let at = axis(given, x.len())?;
    let [_, size, behind] = axis_sizes(x, at);
    let wrong = || Error::invalid(format!("scales {scale:?} for {x:?} along axis {at} in blocks of {block}"));
    if block == 0 {
        let fits = scale == [size];
        return fits.then(|| (0..count).map(|flat| flat / behind % size).collect()).ok_or_else(wrong);
    }
    let block = usize::try_from(block).ok().filter(|&block| block > 0).ok_or_else(wrong)?;
    // The last block may be shorter.
    let blocks = size.div_ceil(block);
    let mut expected = x.to_vec();
    expected[at] = blocks;
    let place = |flat: usize| {
        let (outer, index, inner) = (flat / behind / size, flat / behind % size, flat % behind);
        (outer * blocks + index / block) * behind + inner
    };
    (scale == expected).then(|| (0..count).map(place).collect()).ok_or_else(wrong)
}

/// Zero points, as many as there are scales; zeros by default.
///
/// # Errors
/// If there is another number of them.
fn zero_points(call: &Call<'_>, scale: &[usize], count: usize) -> Result<Vec<i128>> {
    match call.optional_array::<i128>(2)? {
        None => Ok(vec![0; count]),
        Some(zero) if zero.data.len() == count => Ok(zero.data),
        Some(zero) => Err(Error::invalid(format!("zero points {:?} for scales {scale:?}", zero.shape))),
    }
}

/// The integer nearest to `value`, the even one of two, moved by the zero point and kept within the dtype.
///
/// The zero point is added after rounding, as the standard says: before it, the sum would round ties otherwise.
fn saturate<T: Real>(value: T, zero: i128, dtype: DType) -> i128 {
    let (least, most) = integer_bounds(dtype);
    (value.wide().round_ties_even() as i128).saturating_add(zero).clamp(least, most)
}

/// `x / scale` with the zero point of each element.
struct Quotients<T> {
    /// The shape of the input.
    shape: Vec<usize>,
    /// The quotient of each element.
    values: Vec<T>,
    /// The zero point of each element.
    zeros: Vec<i128>,
    /// The integer that they are rounded to.
    dtype: DType,
}

impl<T: Real> Quotients<T> {
    /// From the inputs. The dtype is that of the zero point, else of `output_dtype`, else `u8`.
    fn from_call(call: &Call<'_>) -> Result<Quotients<T>> {
        // `saturate` concerns floats of 8 bits; division is done in the precision of the evaluation.
        call.ignore(&["saturate", "precision"]);
        let x = call.input(0)?;
        let scale = call.array::<T>(1)?;
        let asked = call.int("output_dtype")?.filter(|&number| number != 0).map(element_type).transpose()?;
        let dtype = call.optional(2).map(|zero| zero.dtype()).or(asked).unwrap_or(DType::U8);
        let zero = zero_points(call, &scale.shape, scale.data.len())?;
        let places = scale_places(call, x.shape(), &scale.shape)?;
        let values = x.to_f64();
        let values = values.iter().zip(&places).map(|(&x, &at)| T::nearest(x) / scale.data[at]).collect();
        let zeros = places.iter().map(|&at| zero[at]).collect();
        Ok(Quotients { shape: x.shape().to_vec(), values, zeros, dtype })
    }
}

/// `saturate(round(x / scale) + zero point)`.
pub fn quantize<T: Real>(call: &Call<'_>) -> Outputs {
    let Quotients { shape, values, zeros, dtype } = Quotients::<T>::from_call(call)?;
    let data = values.iter().zip(&zeros).map(|(&value, &zero)| saturate(value, zero, dtype)).collect();
    call.single_output(Array { shape, data }, dtype)
}

/// What [`quantize`] leaves open.
pub fn quantize_integers(call: &Call<'_>) -> OpenOutputs {
    let Quotients { values, zeros, dtype, .. } = Quotients::<f64>::from_call(call)?;
    let zeros = zeros.into_iter().map(|zero| zero as f64).collect();
    Ok(vec![Some(Integers::new(values, zeros, dtype).with_decided_ties())])
}

/// `(x − zero point) · scale`.
pub fn dequantize<T: Real>(call: &Call<'_>) -> Outputs {
    let (x, scale) = (call.array::<i128>(0)?, call.array::<T>(1)?);
    let asked = call.int("output_dtype")?.filter(|&number| number != 0).map(element_type).transpose()?;
    if let Some(other) = asked.filter(|dtype| !dtype.is_float()) {
        return Err(Error::invalid(format!("attribute `output_dtype`: expected a float, found {other}")));
    }
    let zero = zero_points(call, &scale.shape, scale.data.len())?;
    let places = scale_places(call, &x.shape, &scale.shape)?;
    let one = |(&x, &at): (&i128, &usize)| T::nearest((x - zero[at]) as f64) * scale.data[at];
    let data = x.data.iter().zip(&places).map(one).collect();
    call.single_output(Array { shape: x.shape, data }, asked.unwrap_or(call.dtype(1)?))
}

/// The scale with which all of `x`, and 0, lie within `u8`, and the zero point before it is rounded.
fn dynamic_scale<T: Real>(x: &[T]) -> (T, T) {
    // Both folds begin at 0, which so lies within.
    let most = x.iter().copied().fold(T::zero(), T::max);
    let least = x.iter().copied().fold(T::zero(), T::min);
    let scale = (most - least) / T::nearest(255.0);
    (scale, -least / scale)
}

/// The numbers that `u8` with a scale and a zero point of their own stand for; zeros if there is nothing else.
pub fn through_bytes<T: Real>(values: &[T]) -> Vec<T> {
    let (scale, zero) = dynamic_scale(values);
    // All elements are zeros: the quotients would be NaN.
    if scale == T::zero() {
        return vec![T::zero(); values.len()];
    }
    let zero = saturate(zero, 0, DType::U8);
    let number = |&x: &T| T::nearest((saturate(x / scale, zero, DType::U8) - zero) as f64) * scale;
    values.iter().map(number).collect()
}

/// `u8` with a scale and a zero point such that the least and the greatest element, and 0, lie within:
/// `scale = (max(0, max x) − min(0, min x)) / 255`, `zero point = saturate(round(−min(0, min x) / scale))`.
pub fn dynamic_quantize<T: Real>(call: &Call<'_>) -> Outputs {
    let x = call.array::<T>(0)?;
    let (scale, zero) = dynamic_scale(&x.data);
    let zero = saturate(zero, 0, DType::U8);
    let y = x.map(|x| saturate(x / scale, zero, DType::U8));
    Ok(vec![
        Some(call.store(y, DType::U8)?),
        Some(call.store(Array { shape: Vec::new(), data: vec![scale] }, call.dtype(0)?)?),
        Some(call.store(Array { shape: Vec::new(), data: vec![zero] }, DType::U8)?),
    ])
}

/// What [`dynamic_quantize`] leaves open.
pub fn dynamic_quantize_integers(call: &Call<'_>) -> OpenOutputs {
    let x = call.array::<f64>(0)?;
    let (scale, zero) = dynamic_scale(&x.data);
    // The scale is a quotient, too, so that ties of the results are not decided in every precision.
    let quotients = x.data.iter().map(|x| x / scale).collect();
    let zeros = Integers::new(vec![zero], vec![0.0], DType::U8);
    Ok(vec![Some(Integers::new(quotients, vec![zero], DType::U8)), None, Some(zeros)])
}
