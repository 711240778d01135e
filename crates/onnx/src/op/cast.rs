//! Numbers in another dtype: converted, or with the same bits.
//!
//! `Cast`, `CastLike` and `BitCast`. Texts and floats of 8 bits are not served.

use crate::call::element_type;
use crate::call::{Call, Outputs};
use crate::integers::{Integers, OpenOutputs};
use crate::number::integer_bounds;
use tapml_graph::{Bytes, DType, Error, Result, Tensor};

/// The elements as `dtype`. Floats are rounded once; integers keep their low bits. A float becomes an integer towards zero; one
/// outside the dtype, for which the standard has no rule, becomes the nearest.
fn convert_elements(call: &Call<'_>, dtype: DType) -> Outputs {
    if !call.dtype(0)?.is_float() {
        let x = call.array::<i128>(0)?;
        return match dtype {
            dtype if !dtype.is_float() => call.single_output(x, dtype),
            // `f64` between would round a second time.
            DType::F32 if !call.is_wide() => call.single_output(x.map(|x| x as f32), dtype),
            dtype => call.single_output(x.map(|x| x as f64), dtype),
        };
    }
    // `f64` holds every float exactly, so that the result is rounded once.
    let x = call.array::<f64>(0)?;
    match dtype {
        // Every number but zero is true, NaN too.
        DType::Bool => call.truths(x.map(|x| x != 0.0)),
        dtype if dtype.is_float() => call.single_output(x, dtype),
        dtype => {
            let (least, most) = integer_bounds(dtype);
            // `as` truncates, saturates at `i128` and makes NaN 0; the bounds of the dtype come after it.
            call.single_output(x.map(|x| (x as i128).clamp(least, most)), dtype)
        }
    }
}

/// The dtype of the attribute `to`: its name before version 6, its number from it on.
fn target(call: &Call<'_>) -> Result<DType> {
    if call.version() >= 6 {
        return element_type(call.require_attribute("to", call.int("to")?)?);
    }
    let name = call.require_attribute("to", call.text("to")?)?;
    // The names of `TensorProto.DataType`, by which the first version of `Cast` told the dtype.
    let numbers = [
        ("FLOAT", 1),
        ("UINT8", 2),
        ("INT8", 3),
        ("UINT16", 4),
        ("INT16", 5),
        ("INT32", 6),
        ("INT64", 7),
        ("BOOL", 9),
        ("FLOAT16", 10),
        ("DOUBLE", 11),
        ("UINT32", 12),
        ("UINT64", 13),
    ];
    let number = numbers.iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
    element_type(
        number.ok_or_else(|| Error::unsupported(format!("no conversion to `{}`", name.escape_debug())))?.1,
    )
}

/// `Cast`.
pub fn cast(call: &Call<'_>) -> Outputs {
    // They concern floats of 8 bits.
    call.ignore(&["saturate", "round_mode"]);
    convert_elements(call, target(call)?)
}

/// `CastLike`: to the dtype of the second input.
pub fn cast_like(call: &Call<'_>) -> Outputs {
    call.ignore(&["saturate", "round_mode"]);
    convert_elements(call, call.dtype(1)?)
}

/// What a conversion to `dtype` leaves open: a float that is NaN or outside an integer's dtype becomes any integer (ONNX,
/// `Cast`: "fixed point: undefined if OOR"; no rule for NaN).
fn converted_integers(call: &Call<'_>, dtype: DType) -> OpenOutputs {
    if !call.dtype(0)?.is_float() || dtype.is_float() || dtype == DType::Bool {
        return Ok(vec![None]);
    }
    let open = Integers::new(call.array::<f64>(0)?.data, vec![0.0], dtype).with_decided_ties();
    // Truncation is done first: 255.9 fits in `u8`.
    let cut = |x: &f64| Some(x.trunc()).filter(|x| (open.least..=open.most).contains(x)).unwrap_or(f64::NAN);
    Ok(vec![Some(Integers { before: open.before.iter().map(cut).collect(), ..open })])
}

/// What [`cast`] leaves open.
pub fn cast_integers(call: &Call<'_>) -> OpenOutputs {
    converted_integers(call, target(call)?)
}

/// What [`cast_like`] leaves open.
pub fn cast_like_integers(call: &Call<'_>) -> OpenOutputs {
    converted_integers(call, call.dtype(1)?)
}

/// `BitCast`: the same bits as another dtype of as many.
///
/// # Errors
/// If a wide evaluation does not say which float of 16 bits its input was.
pub fn bit_cast(call: &Call<'_>) -> Outputs {
    let (x, dtype) = (call.input(0)?, element_type(call.require_attribute("to", call.int("to")?)?)?);
    // A wide input holds numbers of a float with as many bits as the result.
    let own = match (call.is_wide() && x.dtype() == DType::F64, dtype.size()) {
        (true, 4) => DType::F32,
        (true, 2) => return Err(Error::unsupported("floats of 16 bits are not told apart in f64")),
        _ => x.dtype(),
    };
    let narrow =
        if own == x.dtype() { x.clone() } else { Tensor::from_f64(own, x.shape().to_vec(), &x.to_f64())? };
    if own.size() != dtype.size() {
        return Err(Error::invalid(format!("{own} and {dtype} have different widths")));
    }
    // A truth is one byte, of which every value but 0 is true.
    let bytes = match dtype {
        DType::Bool => {
            Bytes::new(narrow.bytes().iter().map(|&byte| u8::from(byte != 0)).collect::<Vec<u8>>())
        }
        _ => narrow.bytes().clone(),
    };
    call.one_moved(Tensor::new(dtype, x.shape().to_vec(), bytes)?)
}
