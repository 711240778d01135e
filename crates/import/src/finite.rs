//! Finds NaN and infinities in stored floats by their exponent bits, in parallel.
//!
//! A float is NaN or infinite exactly if all bits of its exponent are set. Shifting out the sign leaves one
//! comparison for each element.

use rayon::prelude::*;
use tapml_graph::{DType, Tensor};

/// Bytes that one task looks at.
const CHUNK: usize = 1 << 18;

/// The index and value of the first element that is NaN or infinite; `None` for integers, packed elements and healthy floats.
///
/// The index counts elements in row-major order. Every byte of the tensor is read, so a mapped file comes
/// into memory.
pub fn first_not_finite(tensor: &Tensor) -> Option<(usize, f64)> {
    let index = match tensor.dtype() {
        DType::F64 => first::<8>(tensor, |b| u64::from_le_bytes(b) << 1 >= 0x7ff << 53),
        DType::F32 => first::<4>(tensor, |b| u32::from_le_bytes(b) << 1 >= 0xff << 24),
        DType::F16 => first::<2>(tensor, |b| u16::from_le_bytes(b) << 1 >= 0x1f << 11),
        DType::BF16 => first::<2>(tensor, |b| u16::from_le_bytes(b) << 1 >= 0xff << 8),
        _ => None,
    }?;
    let size = tensor.dtype().size();
    let element = tensor.bytes().slice(index * size, size)?;
    let value = Tensor::new(tensor.dtype(), vec![1], element).ok()?;
    Some((index, value.to_f64()[0]))
}

/// The index of the first element, of `W` bytes each, for which `bad` holds.
fn first<const W: usize>(tensor: &Tensor, bad: impl Fn([u8; W]) -> bool + Sync) -> Option<usize> {
    let elements = tensor.bytes().as_chunks::<W>().0;
    let per_task = CHUNK / W;
    // The fold has no early exit, so that it compiles to vector code; damage is rare and then searched for.
    let damaged = |chunk: &[[u8; W]]| chunk.iter().fold(false, |any, &b| any | bad(b));
    let (task, chunk) = elements.par_chunks(per_task).enumerate().find_first(|(_, c)| damaged(c))?;
    Some(task * per_task + chunk.iter().position(|&b| bad(b))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_first_of_each_dtype() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let mut values = vec![-1.5; 300_000];
            let healthy = Tensor::from_f64(dtype, vec![300_000], &values).unwrap();
            assert_eq!(first_not_finite(&healthy), None);
            values[299_999] = f64::NAN;
            values[270_001] = f64::NEG_INFINITY;
            let ill = Tensor::from_f64(dtype, vec![300_000], &values).unwrap();
            assert_eq!(first_not_finite(&ill), Some((270_001, f64::NEG_INFINITY)), "{dtype}");
            values[270_001] = f64::NAN;
            let ill = Tensor::from_f64(dtype, vec![300_000], &values).unwrap();
            let (index, value) = first_not_finite(&ill).unwrap();
            assert!(index == 270_001 && value.is_nan(), "{dtype}");
        }
    }

    #[test]
    fn largest_finite_values_and_integers_pass() {
        let cases = [(DType::F16, 65504.0), (DType::F32, f64::from(f32::MAX)), (DType::BF16, 3.3895e38)];
        for (dtype, value) in cases {
            let tensor = Tensor::from_f64(dtype, vec![2], &[value, -value]).unwrap();
            assert_eq!(first_not_finite(&tensor), None, "{dtype}");
        }
        assert_eq!(first_not_finite(&Tensor::from_u32(vec![1], vec![u32::MAX]).unwrap()), None);
        assert_eq!(first_not_finite(&Tensor::from_f32(vec![0], vec![]).unwrap()), None);
    }
}
