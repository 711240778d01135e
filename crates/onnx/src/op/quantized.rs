//! Products and convolutions of integers. Sums are computed in `f64`, which holds them exactly: operands have 8 bits, and a
//! sum has fewer than 2³¹ terms.

use super::conv::{add_bias, convolve_as};
use super::matmul::multiply_stacks;
use crate::array::{Array, StridedWalk, broadcast_strides};
use crate::call::{Call, Outputs};
use crate::integers::{Integers, OpenOutputs};
use crate::number::integer_bounds;
use tapml_graph::{DType, Error, Result, Tensor};

/// Where a parameter of each row, column or channel stands in the shape that it belongs to.
#[derive(Clone, Copy)]
enum Along {
    /// The rows of a matrix.
    Rows,
    /// The columns of a matrix.
    Columns,
    /// The first axis.
    First,
}

/// The numbers of a parameter in a shape that broadcasts.
///
/// One number broadcasts to everything. A list is laid along the axis that `along` names; other shapes stay.
fn parameter(tensor: &Tensor, along: Along, rank: usize) -> Array<f64> {
    let count = tensor.len();
    let shape = match (tensor.shape().len(), along) {
        // A list of one number is one for all.
        (0 | 1, _) if count == 1 => vec![],
        (1, Along::Rows) => vec![count, 1],
        (1, Along::First) => [vec![count], vec![1; rank.saturating_sub(1)]].concat(),
        _ => tensor.shape().to_vec(),
    };
    Array { shape, data: tensor.to_f64() }
}

/// The numbers of an input of 8 bits with its zero point taken off.
///
/// # Errors
/// If it is no `i8` or `u8`, if the zero point has another dtype, or if it does not broadcast.
fn centre_input(call: &Call<'_>, place: usize, zero: usize, along: Along) -> Result<Array<f64>> {
    let tensor = call.input(place)?;
    if !matches!(tensor.dtype(), DType::I8 | DType::U8) {
        return Err(Error::unsupported(format!(
            "input {place}: expected i8 or u8, found {}",
            tensor.dtype()
        )));
    }
    let mut x = Array { shape: tensor.shape().to_vec(), data: tensor.to_f64() };
    if let Some(zero) = call.optional(zero) {
        if zero.dtype() != tensor.dtype() {
            return Err(Error::invalid(format!("a zero point in {} for {}", zero.dtype(), tensor.dtype())));
        }
        let zero = parameter(zero, along, x.rank());
        let places = StridedWalk::new(&x.shape, &broadcast_strides(&zero.shape, &x.shape)?);
        x.data.iter_mut().zip(places).for_each(|(x, at)| *x -= zero.data[at]);
    }
    Ok(x)
}

/// A sum as the accumulator holds it, which wraps.
fn wrap_sum(value: f64) -> i32 {
    // `f64` to `i64` is exact here; `as i32` keeps the low bits.
    value as i64 as i32
}

/// `MatMulInteger`.
pub fn matmul_integer(call: &Call<'_>) -> Outputs {
    let (a, b) = (centre_input(call, 0, 2, Along::Rows)?, centre_input(call, 1, 3, Along::Columns)?);
    call.single_output(multiply_stacks(&a, &b)?.map(wrap_sum), DType::I32)
}

/// `ConvInteger`.
pub fn conv_integer(call: &Call<'_>) -> Outputs {
    let (x, w) = (centre_input(call, 0, 2, Along::First)?, centre_input(call, 1, 3, Along::First)?);
    call.single_output(convolve_as(call, &x, &w)?.map(wrap_sum), DType::I32)
}

/// Sums times `a_scale · b_scale / y_scale`, and the zero point of each.
struct Scaled {
    /// The sums, scaled.
    values: Array<f64>,
    /// The zero point of each.
    zeros: Vec<f64>,
    /// That of the result: `i8` or `u8`.
    dtype: DType,
}

impl Scaled {
    /// `scales` are those of both operands and of the result, in shapes that broadcast to `y`.
    ///
    /// # Errors
    /// If a scale or zero point does not broadcast, or the zero point is no `i8` or `u8`.
    fn from_sums(call: &Call<'_>, mut y: Array<f64>, scales: [Array<f64>; 3]) -> Result<Scaled> {
        for (at, scale) in scales.iter().enumerate() {
            let places = StridedWalk::new(&y.shape, &broadcast_strides(&scale.shape, &y.shape)?);
            for (y, place) in y.data.iter_mut().zip(places) {
                // Both operands' scales are factors, that of the result a divisor.
                *y = if at < 2 { *y * scale.data[place] } else { *y / scale.data[place] };
            }
        }
        // The zero point of the result decides its dtype.
        let zero = call.input(7)?;
        if !matches!(zero.dtype(), DType::I8 | DType::U8) {
            return Err(Error::unsupported(format!("an output in {} is not served", zero.dtype())));
        }
        let offset = parameter(zero, Along::Rows, y.rank());
        let places = StridedWalk::new(&y.shape, &broadcast_strides(&offset.shape, &y.shape)?);
        let zeros = places.map(|at| offset.data[at]).collect();
        Ok(Scaled { values: y, zeros, dtype: zero.dtype() })
    }

    /// Rounded to even and moved to the zero point.
    fn round_to_even(self) -> Outputs {
        let (least, most) = integer_bounds(self.dtype);
        let round =
            |(y, zero): (&f64, &f64)| (y.round_ties_even() + zero).clamp(least as f64, most as f64) as i64;
        let values: Vec<i64> = self.values.data.iter().zip(&self.zeros).map(round).collect();
        Ok(vec![Some(Tensor::from_i64(self.dtype, self.values.shape, &values)?)])
    }

    /// What [`Scaled::round_to_even`] leaves open.
    fn integers(self) -> Vec<Option<Integers>> {
        vec![Some(Integers::new(self.values.data, self.zeros, self.dtype))]
    }
}

/// `QLinearMatMul` before it rounds. Inputs: each operand with scale and zero point, then those of the result.
fn scaled_matmul(call: &Call<'_>) -> Result<Scaled> {
    let (a, b) = (centre_input(call, 0, 2, Along::Rows)?, centre_input(call, 3, 5, Along::Columns)?);
    let y = multiply_stacks(&a, &b)?;
    let scale = |place, along| Ok(parameter(call.input(place)?, along, y.rank()));
    let scales = [scale(1, Along::Rows)?, scale(4, Along::Columns)?, scale(6, Along::Rows)?];
    Scaled::from_sums(call, y, scales)
}

/// `QLinearMatMul`.
pub fn qlinear_matmul(call: &Call<'_>) -> Outputs {
    scaled_matmul(call)?.round_to_even()
}

/// What [`qlinear_matmul`] leaves open.
pub fn qlinear_matmul_integers(call: &Call<'_>) -> OpenOutputs {
    Ok(scaled_matmul(call)?.integers())
}

/// `QLinearConv` before it rounds. Inputs as those of `QLinearMatMul`, then the bias.
fn scaled_conv(call: &Call<'_>) -> Result<Scaled> {
    let (x, w) = (centre_input(call, 0, 2, Along::First)?, centre_input(call, 3, 5, Along::First)?);
    let mut y = convolve_as(call, &x, &w)?;
    let bias = call.optional_array::<i32>(8)?.map(|bias| bias.map(f64::from));
    add_bias(&mut y, bias)?;
    // A scale of each channel of the result stands on its second axis.
    let scale = |place| Ok(parameter(call.input(place)?, Along::First, y.rank().saturating_sub(1)));
    let scales = [scale(1)?, scale(4)?, scale(6)?];
    Scaled::from_sums(call, y, scales)
}

/// `QLinearConv`; the bias is in the scale of the sums.
pub fn qlinear_conv(call: &Call<'_>) -> Outputs {
    scaled_conv(call)?.round_to_even()
}

/// What [`qlinear_conv`] leaves open.
pub fn qlinear_conv_integers(call: &Call<'_>) -> OpenOutputs {
    Ok(scaled_conv(call)?.integers())
}
