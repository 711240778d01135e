//! What is compiled in this crate for each number type.

use crate::array::Value;
use crate::eval::evaluate;
use crate::lanes::dispatch;
use crate::real::Real;
use crate::real::sealed::TypeKernels;
use pulp::{Simd, WithSimd};
use tapml_graph::{DType, Op, Result, Symbols, Tensor};

/// Converts numbers of 16 or 32 bits. Written for the vectors of every processor: the loops have no branch.
struct Widen<'a, T> {
    /// The dtype of the bytes.
    dtype: DType,
    /// Little-endian numbers.
    bytes: &'a [u8],
    /// A place for each of them.
    into: &'a mut [T],
}

impl<T: Real> WithSimd for Widen<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Widen { dtype, bytes, into } = self;
        let (pairs, words) = (bytes.as_chunks::<2>().0, bytes.as_chunks::<4>().0);
        match dtype {
            DType::F16 => {
                for (to, pair) in into.iter_mut().zip(pairs) {
                    *to = T::from_f32(f16_to_f32(u16::from_le_bytes(*pair)));
                }
            }
            DType::BF16 => {
                for (to, pair) in into.iter_mut().zip(pairs) {
                    *to = T::from_f32(f32::from_bits(u32::from(u16::from_le_bytes(*pair)) << 16));
                }
            }
            DType::F32 => {
                for (to, word) in into.iter_mut().zip(words) {
                    *to = T::from_f32(f32::from_le_bytes(*word));
                }
            }
            _ => into.fill(T::ZERO),
        }
    }
}

/// The number that these bits are in `f16`.
#[inline(always)]
fn f16_to_f32(bits: u16) -> f32 {
    /// Difference of the exponents' biases, in place.
    const REBIAS: u32 = (127 - 15) << 23;
    let (sign, rest) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff));
    // Exponent and mantissa of `f16` move to the place of those of `f32`.
    let normal = (rest << 13) + REBIAS;
    // Infinities and NaN have the highest exponent in both formats.
    let wide = if rest >= 0x7c00 { normal + REBIAS } else { normal };
    // Below the smallest normal number bits count multiples of 2⁻²⁴.
    let small = rest as i32 as f32 * (1.0 / 16_777_216.0);
    f32::from_bits(sign | if rest < 0x400 { small.to_bits() } else { wide })
}

/// [`TypeKernels`] for a float of Rust, with what differs between the two.
macro_rules! type_kernels {
    ($ty:ident, widen = $widen:expr, odd = $odd:expr) => {
        impl TypeKernels for $ty {
            fn widen(tensor: &Tensor) -> Vec<$ty> {
                $widen(tensor)
            }
            fn widen_part(tensor: &Tensor, range: std::ops::Range<usize>, into: &mut [$ty]) {
                let (dtype, size) = (tensor.dtype(), tensor.dtype().size());
                dispatch(Widen { dtype, bytes: &tensor.bytes()[range.start * size..range.end * size], into });
            }
            fn to_f32_odd(values: &[$ty]) -> Vec<f32> {
                values.iter().map($odd).collect()
            }
            fn eval(op: &Op, symbols: &Symbols, inputs: &[Value<$ty>]) -> Result<Vec<Value<$ty>>> {
                evaluate(op, symbols, inputs)
            }
        }
    };
}

type_kernels!(f32, widen = |t: &Tensor| t.to_f32().into_owned(), odd = |&v| v);
type_kernels!(f64, widen = Tensor::to_f64, odd = |&v| round_to_odd(v));

/// The `f32` next to `value` whose last bit is set, unless `value` is itself an `f32`.
/// Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008, section 3.
/// A second rounding to fewer digits then sees whether something was lost in the first.
fn round_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    // Exact, NaN, or odd already.
    if f64::from(nearest) == value || nearest.is_nan() || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    // The nearest one is even; the odd neighbour on the other side of `value` is one step of the bit pattern away,
    // which moves away from zero if added.
    let away = (value.abs() > f64::from(nearest.abs())) as u32;
    f32::from_bits(nearest.to_bits().wrapping_add(away).wrapping_sub(1 - away))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_numbers_of_16_bits_widen_as_they_should() {
        for dtype in [DType::F16, DType::BF16] {
            let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            let tensor = Tensor::new(dtype, vec![1 << 16], tapml_graph::Bytes::new(bytes)).unwrap();
            let (mut narrow, mut wide) = (vec![0f32; 1 << 16], vec![0f64; 1 << 16]);
            TypeKernels::widen_part(&tensor, 0..1 << 16, &mut narrow);
            TypeKernels::widen_part(&tensor, 0..1 << 16, &mut wide);
            for ((&expected, narrow), wide) in tensor.to_f32().iter().zip(narrow).zip(wide) {
                let same = |found: f64| found == f64::from(expected) || found.is_nan() && expected.is_nan();
                assert!(same(f64::from(narrow)) && same(wide), "{dtype}: {narrow} and {wide} for {expected}");
                assert!(expected.is_nan() || narrow.is_sign_negative() == expected.is_sign_negative());
            }
        }
    }

    #[test]
    fn rounding_to_odd_keeps_f32_values_and_brackets_the_others() {
        for value in [0.0, -0.0, 1.5, -3.25, f64::INFINITY, 1e-40f32 as f64] {
            assert_eq!(round_to_odd(value).to_bits(), (value as f32).to_bits());
        }
        for value in [0.1, -0.1, 1.0 + 1e-12, 1.0 - 1e-12, 1e-44 * 1.3, 1e300, -1e-300] {
            let odd = round_to_odd(value);
            assert_eq!(odd.to_bits() & 1, 1, "{value}");
            let (low, high) = (odd.next_down(), odd.next_up());
            assert!(f64::from(low) < value && value < f64::from(high) || odd == f32::MAX, "{value} {odd}");
        }
        assert!(round_to_odd(f64::NAN).is_nan());
    }
}
