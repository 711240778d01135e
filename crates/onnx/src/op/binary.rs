//! Functions of two or more numbers at one place, which broadcast: arithmetic, bits, comparisons, choices.
//!
//! From version 7 on, shapes broadcast by the rules of NumPy. Integers are computed in `i128` and keep the low bits of their
//! dtype. `Add` stands in [`super::elementwise`].

use crate::array::{Array, StridedWalk, axis, broadcast_shape, broadcast_strides, volume};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, elementwise_facts, terms};
use crate::number::{Number, with_exact, with_number};
use crate::op::elementwise::binary;
use crate::real::{Element, Real};
use tapml_graph::{Bytes, Error, Result, Tensor};

/// The two inputs. Before version 7 the second is laid at the axis `axis` of the first if `broadcast` is set.
fn pair<A: Element, B: Element>(call: &Call<'_>) -> Result<(Array<A>, Array<B>)> {
    let (a, b) = (call.array::<A>(0)?, call.array::<B>(1)?);
    if call.version() >= 7 {
        return Ok((a, b));
    }
    call.ignore(&["consumed_inputs", "broadcast"]);
    // Without `axis` the shapes are aligned at their last axes, as NumPy does.
    let Some(at) = call.int("axis")? else { return Ok((a, b)) };
    let at = axis(at, a.rank().max(1))?;
    let behind = a.rank().checked_sub(at + b.rank()).ok_or_else(|| {
        Error::invalid(format!("the shape {:?} does not fit at axis {at} of {:?}", b.shape, a.shape))
    })?;
    let shape = b.shape.iter().copied().chain(std::iter::repeat_n(1, behind)).collect();
    let b = b.reshape(shape)?;
    Ok((a, b))
}

/// Refuses inputs of different dtypes, which the standard does not convert.
fn check_dtypes(call: &Call<'_>) -> Result<()> {
    let first = call.dtype(0)?;
    match call.all()?.iter().find(|other| other.dtype() != first) {
        None => Ok(()),
        Some(other) => {
            Err(Error::invalid(format!("inputs of {first} and {}: expected one dtype", other.dtype())))
        }
    }
}

/// A function of two numbers of one dtype.
fn arithmetic<T: Element>(call: &Call<'_>, f: impl Fn(T, T) -> T) -> Outputs {
    check_dtypes(call)?;
    let (a, b) = pair::<T, T>(call)?;
    call.like_first(binary(&a, &b, f)?)
}

/// Refuses a division of integers by zero: targets may give anything there.
///
/// # Errors
/// Of kind `Unsupported`, as there is no value to compare with.
fn refuse_zero(b: &Array<i128>) -> Result<()> {
    if b.data.contains(&0) {
        Err(Error::unsupported("integers are divided by zero, which the standard leaves undefined"))
    } else {
        Ok(())
    }
}

/// `a − b`.
pub fn sub(call: &Call<'_>) -> Outputs {
    match call.dtype(0)? {
        dtype if !dtype.is_float() => arithmetic(call, i128::wrapping_sub),
        _ if call.is_double() => arithmetic(call, |a: f64, b| a - b),
        _ => arithmetic(call, |a: f32, b| a - b),
    }
}

/// `a · b`.
pub fn mul(call: &Call<'_>) -> Outputs {
    with_number!(call, call.dtype(0)?, T => arithmetic::<T>(call, Number::times))
}

/// `a / b`; of integers towards zero. Floats follow IEEE 754, so that a division by zero gives an infinity or NaN.
pub fn div(call: &Call<'_>) -> Outputs {
    match call.dtype(0)? {
        dtype if !dtype.is_float() => {
            refuse_zero(&call.array(1)?)?;
            arithmetic(call, i128::wrapping_div)
        }
        _ if call.is_double() => arithmetic(call, |a: f64, b| a / b),
        _ => arithmetic(call, |a: f32, b| a / b),
    }
}

/// `aᵇ` in the dtype of `a`. Integers wrap; a power of an integer that is not one is truncated.
pub fn pow(call: &Call<'_>) -> Outputs {
    /// By squaring, modulo two to the power of 128.
    fn whole(a: i128, b: i128) -> i128 {
        match (a, b < 0) {
            // Only 1 and −1 have negative powers that are integers; those of others are cut to 0.
            (1, _) => 1,
            (-1, _) => {
                if b & 1 == 0 {
                    1
                } else {
                    -1
                }
            }
            (_, true) => 0,
            _ => {
                let (mut result, mut square, mut left) = (1i128, a, b);
                while left > 0 {
                    if left & 1 == 1 {
                        result = result.wrapping_mul(square);
                    }
                    square = square.wrapping_mul(square);
                    left >>= 1;
                }
                result
            }
        }
    }
    fn float<T: Real>(call: &Call<'_>) -> Outputs {
        if call.dtype(1)?.is_float() {
            let (a, b) = pair::<T, T>(call)?;
            return call.like_first(binary(&a, &b, T::powf)?);
        }
        // The standard lets the exponent have a dtype of its own from version 12 on.
        let (a, b) = pair::<T, i128>(call)?;
        call.like_first(binary(&a, &b, |a, b| a.powf(T::nearest(b as f64)))?)
    }
    match (call.dtype(0)?.is_float(), call.dtype(1)?.is_float()) {
        (true, _) if call.is_double() => float::<f64>(call),
        (true, _) => float::<f32>(call),
        (false, false) => {
            let (a, b) = pair::<i128, i128>(call)?;
            if a.data.contains(&0) && b.data.iter().any(|&b| b < 0) {
                return Err(Error::unsupported("zero has no negative power among integers"));
            }
            call.like_first(binary(&a, &b, whole)?)
        }
        // A base of integers with an exponent of floats is truncated to the base's dtype.
        (false, true) => {
            let (a, b) = pair::<i128, f64>(call)?;
            call.like_first(binary(&a, &b, |a, b| (a as f64).powf(b) as i128)?)
        }
    }
}

/// `a − ⌊a / b⌋·b`, or `a − trunc(a / b)·b` with `fmod`.
pub fn modulo(call: &Call<'_>) -> Outputs {
    /// The remainder with the sign of `b`, as Python's `%`.
    fn floor_modulo(a: f64, b: f64) -> f64 {
        let rest = a % b;
        if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
            rest + b
        } else if rest == 0.0 {
            // A zero takes the sign of the divisor, as in Python.
            rest.copysign(b)
        } else {
            rest
        }
    }
    let truncates = call.flag("fmod", false)?;
    if call.dtype(0)?.is_float() {
        return arithmetic(call, |a: f64, b| if truncates { a % b } else { floor_modulo(a, b) });
    }
    refuse_zero(&call.array(1)?)?;
    let rest = |a: i128, b: i128| {
        // Wrapping, because the least integer has no remainder by −1 in Rust.
        let rest = a.wrapping_rem(b);
        if truncates || rest == 0 || (rest < 0) == (b < 0) { rest } else { rest + b }
    };
    arithmetic(call, rest)
}

/// A float remainder is exact with `fmod`; else one sum rounds.
pub fn modulo_facts(sizes: &InputSizes<'_>) -> CallFacts {
    if sizes.int("fmod", 0) != 0 { CallFacts { exact: true, terms: 1 } } else { elementwise_facts(sizes) }
}

/// `x`, or `slope · x` below 0.
pub fn prelu(call: &Call<'_>) -> Outputs {
    fn run<T: Number>(call: &Call<'_>) -> Outputs {
        let (x, mut slope) = (call.array::<T>(0)?, call.array::<T>(1)?);
        // Before version 7, one slope for each channel stands without spatial axes.
        if call.version() < 7 && slope.rank() == 1 && x.rank() > 2 && slope.data.len() > 1 {
            let shape =
                std::iter::once(slope.data.len()).chain(std::iter::repeat_n(1, x.rank() - 2)).collect();
            slope = slope.reshape(shape)?;
        }
        let y = binary(&x, &slope, |x, slope| if x < T::default() { x.times(slope) } else { x })?;
        call.like_first(y)
    }
    call.ignore(&["consumed_inputs"]);
    with_number!(call, call.dtype(0)?, T => run::<T>(call))
}

/// The bits moved to the left or to the right; 0 where they are moved by their count or more.
pub fn bit_shift(call: &Call<'_>) -> Outputs {
    let left = match call.require_attribute("direction", call.text("direction")?)? {
        "LEFT" => true,
        "RIGHT" => false,
        other => {
            return Err(Error::invalid(format!(
                "attribute `direction`: there is no `{}`",
                other.escape_debug()
            )));
        }
    };
    // C leaves shifts by the width or more undefined.
    let bits = 8 * call.dtype(0)?.size() as i128;
    let shifted = |a: i128, by: i128| {
        if (0..bits).contains(&by) {
            if left { a << by } else { a >> by }
        } else if a < 0 && !left {
            // A negative number is filled with its sign from the left.
            -1
        } else {
            0
        }
    };
    arithmetic(call, shifted)
}

/// `a & b` of bits.
pub fn bitwise_and(call: &Call<'_>) -> Outputs {
    arithmetic(call, |a: i128, b| a & b)
}

/// `a | b` of bits.
pub fn bitwise_or(call: &Call<'_>) -> Outputs {
    arithmetic(call, |a: i128, b| a | b)
}

/// `a ^ b` of bits.
pub fn bitwise_xor(call: &Call<'_>) -> Outputs {
    arithmetic(call, |a: i128, b| a ^ b)
}

/// Operators on truths, each from its formula.
macro_rules! truths {
    ($($(#[$doc:meta])* $name:ident: $a:ident, $b:ident => $value:expr;)*) => {$(
        $(#[$doc])*
        pub fn $name(call: &Call<'_>) -> Outputs {
            let (a, b) = pair::<bool, bool>(call)?;
            call.truths(binary(&a, &b, |$a, $b| $value)?)
        }
    )*};
}

truths! {
    /// `a ∧ b`.
    and: a, b => a & b;
    /// `a ∨ b`.
    or: a, b => a | b;
    /// Either, but not both.
    xor: a, b => a ^ b;
}

/// A comparison of two inputs of one dtype. A NaN is not equal to, less or greater than anything (IEEE 754).
fn compare<T: Element>(call: &Call<'_>, f: impl Fn(&T, &T) -> bool) -> Outputs {
    check_dtypes(call)?;
    let (a, b) = pair::<T, T>(call)?;
    call.truths(binary(&a, &b, |a, b| f(&a, &b))?)
}

/// Comparisons, each by a method of `PartialEq` or `PartialOrd`. `f64` holds every float exactly, so that it compares all.
macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident: $method:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(call: &Call<'_>) -> Outputs {
            with_exact!(call.dtype(0)?, T => compare::<T>(call, T::$method))
        }
    )*};
}

comparisons! {
    /// `a = b`.
    equal: eq;
    /// `a < b`.
    less: lt;
    /// `a > b`.
    greater: gt;
    /// `a ≤ b`.
    less_or_equal: le;
    /// `a ≥ b`.
    greater_or_equal: ge;
}

/// All inputs taken together in their order, which broadcast. For floats the order decides how sums are rounded.
fn fold<T: Number>(call: &Call<'_>, f: impl Fn(T, T) -> T) -> Result<Array<T>> {
    check_dtypes(call)?;
    call.ignore(&["consumed_inputs"]);
    // With one input it is the result.
    let mut result = call.array::<T>(0)?;
    for place in 1..call.places() {
        result = binary(&result, &call.array(place)?, &f)?;
    }
    Ok(result)
}

/// The greatest of all inputs; NaN if one is.
pub fn max(call: &Call<'_>) -> Outputs {
    with_exact!(call.dtype(0)?, T => call.like_first(fold::<T>(call, Number::greater)?))
}

/// The least of all inputs; NaN if one is.
pub fn min(call: &Call<'_>) -> Outputs {
    with_exact!(call.dtype(0)?, T => call.like_first(fold::<T>(call, Number::lesser)?))
}

/// The sum of all inputs.
pub fn sum(call: &Call<'_>) -> Outputs {
    with_number!(call, call.dtype(0)?, T => call.like_first(fold::<T>(call, Number::plus)?))
}

/// The mean of all inputs.
pub fn mean<T: Real + Number>(call: &Call<'_>) -> Outputs {
    let count = T::count(call.places());
    call.like_first(fold::<T>(call, Number::plus)?.map(|sum| sum / count))
}

/// As many terms as there are inputs.
pub fn input_terms(sizes: &InputSizes<'_>) -> CallFacts {
    terms(sizes.op.inputs().len())
}

/// Elements of the second input where the first is true, of the third elsewhere.
pub fn choose(call: &Call<'_>) -> Outputs {
    let (condition, a, b) = (call.array::<bool>(0)?, call.input(1)?, call.input(2)?);
    if a.dtype() != b.dtype() {
        return Err(Error::invalid(format!("a choice between {} and {}", a.dtype(), b.dtype())));
    }
    let shape = broadcast_shape([condition.shape.as_slice(), a.shape(), b.shape()])?;
    // Elements are copied as bytes: a choice rounds nothing and keeps the bits of a NaN.
    let size = a.dtype().size();
    let mut bytes = Vec::with_capacity(volume(&shape)?.saturating_mul(size));
    let walk = |from: &[usize]| {
        Ok::<StridedWalk, Error>(StridedWalk::new(&shape, &broadcast_strides(from, &shape)?))
    };
    for ((at, a_at), b_at) in walk(&condition.shape)?.zip(walk(a.shape())?).zip(walk(b.shape())?) {
        let (from, at) = if condition.data[at] { (a, a_at) } else { (b, b_at) };
        bytes.extend_from_slice(&from.bytes()[at * size..(at + 1) * size]);
    }
    call.one_moved(Tensor::new(a.dtype(), shape, Bytes::new(bytes))?)
}
