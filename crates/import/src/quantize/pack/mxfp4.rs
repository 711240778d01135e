//! MXFP4: the code of e2m1 nearest to each number of a group, with the power of two that errs least.

use tapml_graph::packing::{exponent_scale, float4};

/// The largest number of e2m1, and its exponent.
const LARGEST: f32 = 6.0;
const LARGEST_EXPONENT: i32 = 2;

/// The scale of a group as a byte of e8m0, and its codes. A group with what is not finite has the scale NaN.
///
/// The OCP Microscaling Formats (MX) Specification, version 1.0, section 6.3, takes the exponent of the group's largest
/// number less that of the largest element, which cuts off what lies beyond 6; the next exponent is tried too.
pub fn encode(numbers: &[f32], codes: &mut [u8]) -> u8 {
    let largest = numbers.iter().fold(0.0f32, |most, &x| most.max(x.abs()));
    if !numbers.iter().all(|x| x.is_finite()) {
        // A scale of NaN makes the whole group NaN, which later checks find.
        codes.fill(0);
        return 255;
    }
    if largest == 0.0 {
        codes.fill(0);
        return 127;
    }
    let floor = (f64::from(largest).log2().floor() as i32 - LARGEST_EXPONENT + 127).clamp(0, 253) as u8;
    let error = |byte: u8| {
        let scale = exponent_scale(byte);
        numbers.iter().map(|x| f64::from(x - float4(code_of(x / scale)) * scale).powi(2)).sum::<f64>()
    };
    let byte = if error(floor + 1) < error(floor) { floor + 1 } else { floor };
    let scale = exponent_scale(byte);
    for (code, x) in codes.iter_mut().zip(numbers) {
        *code = code_of(x / scale) as u8;
    }
    byte
}

/// The code of the nearest number, ties to the even code; the largest for what lies beyond it.
///
/// The sign is bit 3; 0 is never written with a sign.
fn code_of(x: f32) -> u32 {
    // The middles between neighbouring sizes, and whether a tie goes up: to the code whose last bit is 0.
    const MIDDLES: [(f32, bool); 7] =
        [(0.25, false), (0.75, true), (1.25, false), (1.75, true), (2.5, false), (3.5, true), (5.0, false)];
    let size = x.abs().min(LARGEST);
    let above = |&&(middle, tie): &&(f32, bool)| size > middle || size == middle && tie;
    let code = MIDDLES.iter().filter(above).count() as u32;
    if x < 0.0 && code > 0 { code | 8 } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_code_and_ties_go_to_the_even_one() {
        for code in (0..16u32).filter(|code| *code != 8) {
            assert_eq!(code_of(float4(code)), code);
        }
        for code in 0..7u32 {
            let (a, b) = (float4(code), float4(code + 1));
            let middle = (a + b) / 2.0;
            assert_eq!(code_of(middle), if code % 2 == 0 { code } else { code + 1 }, "{middle}");
            assert_eq!((code_of(middle - 0.01), code_of(middle + 0.01)), (code, code + 1));
        }
        assert_eq!((code_of(1e9), code_of(-1e9), code_of(-0.1)), (7, 15, 0));
    }

    #[test]
    fn numbers_with_codes_are_stored_as_they_are() {
        let mut codes = [0; 8];
        let numbers: Vec<f32> = (0..8).map(|code| float4(code) * 0.125).collect();
        assert_eq!(encode(&numbers, &mut codes), 124);
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn the_better_of_two_exponents_is_taken() {
        let mut codes = [0; 4];
        // 7.9 is cut to 6 with the scale 1, and is 8 with the scale 2.
        assert_eq!(encode(&[7.9, 8.0, 4.0, -6.0], &mut codes), 128);
        assert_eq!(codes.map(|code| float4(u32::from(code)) * 2.0), [8.0, 8.0, 4.0, -6.0]);
        assert_eq!(encode(&[0.0; 4], &mut codes), 127);
        assert_eq!(encode(&[1.0, f32::NAN, 0.0, 0.0], &mut codes), 255);
        assert_eq!(encode(&[f32::MIN_POSITIVE, 0.0, 0.0, 0.0], &mut codes), 0);
    }
}
