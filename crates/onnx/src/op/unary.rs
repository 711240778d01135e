//! Functions of one number, element by element.
//!
//! Functions that round are computed in the precision of the call. Functions that do not round are computed in `f64` and `i128`,
//! which hold every number of the other dtypes.

use crate::array::Array;
use crate::call::{Call, Outputs};
use crate::number::{Number, with_exact};
use crate::real::{Element, Real};
use tapml_graph::{DType, Error, Result};

/// The function of each element, in the dtype of the input.
fn map_elements<T: Real>(call: &Call<'_>, f: impl Fn(T) -> T) -> Outputs {
    call.ignore(&["consumed_inputs"]);
    call.like_first(call.array::<T>(0)?.map(f))
}

/// The function of each element, which rounds nothing.
fn exact(call: &Call<'_>, float: impl Fn(f64) -> f64, int: impl Fn(i128) -> i128) -> Outputs {
    call.ignore(&["consumed_inputs"]);
    if call.dtype(0)?.is_float() {
        call.like_first(call.array::<f64>(0)?.map(float))
    } else {
        call.like_first(call.array::<i128>(0)?.map(int))
    }
}

/// Functions that round, each from its formula.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident: $x:ident => $value:expr;)*) => {$(
        $(#[$doc])*
        pub fn $name<T: Real>(call: &Call<'_>) -> Outputs {
            map_elements::<T>(call, |$x| $value)
        }
    )*};
}

functions! {
    /// `√x`.
    sqrt: x => x.sqrt();
    /// The error function.
    erf: x => x.erf();
    /// `eˣ`.
    exp: x => x.exp();
    /// The natural logarithm.
    log: x => x.ln();
    sin: x => x.sin();
    cos: x => x.cos();
    tan: x => x.tan();
    asin: x => x.asin();
    acos: x => x.acos();
    atan: x => x.atan();
    sinh: x => x.sinh();
    cosh: x => x.cosh();
    tanh: x => x.tanh();
    asinh: x => x.asinh();
    acosh: x => x.acosh();
    atanh: x => x.atanh();
    /// `1 / x`.
    reciprocal: x => x.recip();
    /// `1 / (1 + e⁻ˣ)`.
    sigmoid: x => logistic(x);
    /// `ln(1 + eˣ)`.
    softplus: x => log_one_plus_exp(x);
    /// `x / (1 + |x|)`.
    softsign: x => x / (T::one() + x.abs());
    /// `x · tanh(ln(1 + eˣ))`.
    mish: x => x * log_one_plus_exp(x).tanh();
    /// `x · max(0, min(1, x / 6 + 1 / 2))`.
    hard_swish: x => x * (x / T::nearest(6.0) + T::nearest(0.5)).max(T::zero()).min(T::one());
}

/// `1 / (1 + e⁻ˣ)`. It is computed from `e^−|x|`, which does not overflow and keeps small results exact.
pub fn logistic<T: Real>(x: T) -> T {
    let small = (-x.abs()).exp();
    if x < T::zero() { small / (T::one() + small) } else { T::one() / (T::one() + small) }
}

/// `ln(1 + eˣ)`, without overflow.
fn log_one_plus_exp<T: Real>(x: T) -> T {
    // `max` would drop a NaN.
    if x.is_nan() { x } else { x.max(T::zero()) + (-x.abs()).exp().ln_1p() }
}

/// `max(0, min(1, αx + β))`.
pub fn hard_sigmoid<T: Real>(call: &Call<'_>) -> Outputs {
    let (alpha, beta): (T, T) = (call.single("alpha", 0.2)?, call.single("beta", 0.5)?);
    map_elements::<T>(call, |x| keep_nan(x, (alpha * x + beta).min(T::one()).max(T::zero())))
}

/// The value, but NaN where `x` is NaN.
/// `min` and `max` of floats drop a NaN, unlike the operators.
fn keep_nan<T: Real>(x: T, value: T) -> T {
    if x.is_nan() { x } else { value }
}

/// `x`, or `αx` below 0.
pub fn leaky_relu<T: Real>(call: &Call<'_>) -> Outputs {
    let alpha: T = call.single("alpha", 0.01)?;
    map_elements::<T>(call, |x| if x < T::zero() { alpha * x } else { x })
}

/// `x`, or `α(eˣ − 1)` below 0.
pub fn elu<T: Real>(call: &Call<'_>) -> Outputs {
    let alpha: T = call.single("alpha", 1.0)?;
    map_elements::<T>(call, |x| if x < T::zero() { alpha * x.exp_m1() } else { x })
}

/// `max(0, x) + min(0, α(e^(x/α) − 1))`.
pub fn celu<T: Real>(call: &Call<'_>) -> Outputs {
    let alpha: T = call.single("alpha", 1.0)?;
    // `exp_m1` keeps the digits that `exp(x) − 1` loses near 0.
    let low = |x: T| alpha * (x / alpha).exp_m1();
    map_elements::<T>(call, |x| keep_nan(x, x.max(T::zero()) + low(x).min(T::zero())))
}

/// `γx`, or `γα(eˣ − 1)` from 0 down. The constants have fewer digits before version 6.
pub fn selu<T: Real>(call: &Call<'_>) -> Outputs {
    let old = call.version() < 6;
    let alpha: T = call.single("alpha", if old { 1.6732 } else { 1.673_263_2 })?;
    let gamma: T = call.single("gamma", if old { 1.0507 } else { 1.050_701 })?;
    map_elements::<T>(call, |x| if x > T::zero() { gamma * x } else { gamma * alpha * x.exp_m1() })
}

/// `x` above `α`, else 0.
pub fn thresholded_relu<T: Real>(call: &Call<'_>) -> Outputs {
    let alpha: T = call.single("alpha", 1.0)?;
    map_elements::<T>(call, |x| if x > alpha { x } else { keep_nan(x, T::zero()) })
}

/// `x · sigmoid(αx)`.
pub fn swish<T: Real>(call: &Call<'_>) -> Outputs {
    let alpha: T = call.single("alpha", 1.0)?;
    map_elements::<T>(call, |x| x * logistic(alpha * x))
}

/// `x·(1 + erf(x/√2)) / 2`, or its approximation by `tanh(√(2/π)·(x + 0.044715·x³))` in the place of `erf(x/√2)`.
pub fn gelu<T: Real>(call: &Call<'_>) -> Outputs {
    let half = T::nearest(0.5);
    match call.text_or("approximate", "none")? {
        "none" => map_elements::<T>(call, |x| half * x * (T::one() + (x * T::FRAC_1_SQRT_2()).erf())),
        "tanh" => {
            let scale = (T::nearest(2.0) * T::FRAC_1_PI()).sqrt();
            let inner = |x: T| scale * (x + T::nearest(0.044715) * x * x * x);
            map_elements::<T>(call, |x| half * x * (T::one() + inner(x).tanh()))
        }
        other => {
            Err(Error::invalid(format!("attribute `approximate`: there is no `{}`", other.escape_debug())))
        }
    }
}

/// `x + bias` below `−lambd`, `x − bias` above `lambd`, else 0.
pub fn shrink<T: Real>(call: &Call<'_>) -> Outputs {
    let (bias, limit): (T, T) = (call.single("bias", 0.0)?, call.single("lambd", 0.5)?);
    let shrunk = |x: T| {
        if x < -limit {
            x + bias
        } else if x > limit {
            x - bias
        } else {
            keep_nan(x, T::zero())
        }
    };
    map_elements::<T>(call, shrunk)
}

/// `|x|`.
pub fn abs(call: &Call<'_>) -> Outputs {
    exact(call, f64::abs, i128::abs)
}

/// `−x`.
pub fn neg(call: &Call<'_>) -> Outputs {
    exact(call, |x| -x, |x| -x)
}

/// −1, 0 or 1; a NaN stays one.
pub fn sign(call: &Call<'_>) -> Outputs {
    exact(call, |x| if x == 0.0 || x.is_nan() { x } else { x.signum() }, i128::signum)
}

/// The integer not above `x`.
pub fn floor(call: &Call<'_>) -> Outputs {
    exact(call, f64::floor, |x| x)
}

/// The integer not below `x`.
pub fn ceil(call: &Call<'_>) -> Outputs {
    exact(call, f64::ceil, |x| x)
}

/// The nearest integer, the even one of two.
pub fn round(call: &Call<'_>) -> Outputs {
    exact(call, f64::round_ties_even, |x| x)
}

/// Each bit of an integer turned.
pub fn bitwise_not(call: &Call<'_>) -> Outputs {
    call.like_first(call.array::<i128>(0)?.map(|x| !x))
}

/// Each truth turned.
pub fn not(call: &Call<'_>) -> Outputs {
    call.truths(call.array::<bool>(0)?.map(|x| !x))
}

/// Whether a float is not a number.
pub fn is_nan(call: &Call<'_>) -> Outputs {
    call.truths(call.array::<f64>(0)?.map(f64::is_nan))
}

/// Whether a float is infinite, of the signs that are asked for.
pub fn is_inf(call: &Call<'_>) -> Outputs {
    let (negative, positive) = (call.flag("detect_negative", true)?, call.flag("detect_positive", true)?);
    let found = |x: f64| x.is_infinite() && if x < 0.0 { negative } else { positive };
    call.truths(call.array::<f64>(0)?.map(found))
}

/// `min(max(x, least), most)`. The bounds are attributes before version 11, and inputs from it on. A NaN stays one.
pub fn clip(call: &Call<'_>) -> Outputs {
    fn clip_typed<T: Number>(call: &Call<'_>, least: Option<T>, most: Option<T>) -> Outputs {
        // Comparisons with a NaN are false, so that it stays.
        let high = |x: T| if least.is_some_and(|least| x < least) { least.unwrap_or(x) } else { x };
        let low = |x: T| if most.is_some_and(|most| x > most) { most.unwrap_or(x) } else { x };
        call.like_first(call.array::<T>(0)?.map(|x| low(high(x))))
    }
    fn bound<T: Element>(call: &Call<'_>, place: usize) -> Result<Option<T>> {
        let Some(Array { shape, data }) = call.optional_array::<T>(place)? else { return Ok(None) };
        match data.as_slice() {
            [one] => Ok(Some(*one)),
            _ => {
                Err(Error::invalid(format!("input {place}: expected one number, found the shape {shape:?}")))
            }
        }
    }
    call.ignore(&["consumed_inputs"]);
    if call.version() < 11 {
        return clip_typed::<f64>(call, call.float("min")?, call.float("max")?);
    }
    with_exact!(call.dtype(0)?, T => clip_typed::<T>(call, bound(call, 1)?, bound(call, 2)?))
}

/// The elements as they are.
pub fn identity(call: &Call<'_>) -> Outputs {
    call.ignore(&["consumed_inputs"]);
    call.one_moved(call.input(0)?.clone())
}

/// The elements as they are, and a mask of truths; before version 10 the mask is of the input's dtype.
///
/// # Errors
/// If elements would be dropped at random, as in training.
pub fn dropout(call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    call.ignore(&["consumed_inputs", "seed"]);
    let given = call.float_or("ratio", 0.5)?;
    // Inference is `is_test` before 7, the only mode before 12, and the third input from 12 on.
    let training = match call.version() {
        0..7 => !call.flag("is_test", false)?,
        7..12 => false,
        _ => call.optional_integers(2)?.is_some_and(|mode| mode.contains(&1)),
    };
    let ratio = if call.optional(1).is_some() { call.number::<f64>(1)? } else { given };
    if training && ratio != 0.0 {
        return Err(Error::unsupported("dropout in training draws random numbers"));
    }
    let mut outputs = vec![Some(call.store_moved(x.clone())?)];
    if call.asks(1) {
        let shape = x.shape().to_vec();
        outputs.push(Some(if call.version() >= 10 {
            call.store(Array::full(shape, true)?, DType::Bool)?
        } else if x.dtype().is_float() {
            call.store(Array::<f64>::full(shape, 1.0)?, x.dtype())?
        } else {
            call.store(Array::<i128>::full(shape, 1)?, x.dtype())?
        }));
    }
    Ok(outputs)
}
