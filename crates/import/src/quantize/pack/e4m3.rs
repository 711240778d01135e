//! Numbers of 8 bits: the code nearest to each number of a group, with the scale among several that errs least.
//!
//! E4M3 is that of Micikevicius et al., "FP8 Formats for Deep Learning", 2022: no infinities, 448 the
//! largest number.

use super::scale::{best_scale, inverse};
use half::f16;
use tapml_graph::packing::float8;

/// The largest number that is written, 448 of e4m3: the code after it is NaN there.
const LARGEST: u32 = 0x7e;
/// Codes that the largest number of a group may become: all mantissas there are.
const REACH: std::ops::RangeInclusive<u32> = LARGEST - 7..=LARGEST;
/// The first number with a leading one; those below are multiples of [`STEP`].
const NORMAL: f32 = 1.0 / 16_384.0;
/// The least number.
const STEP: f32 = 1.0 / 131_072.0;

/// The scale of a group and its codes; an infinite scale if f16 holds none that is large enough.
pub fn encode(numbers: &[f32], codes: &mut [u8]) -> f16 {
    let largest = numbers.iter().fold(0.0f32, |most, &x| most.max(x.abs()));
    let finite = numbers.iter().all(|x| x.is_finite());
    if largest == 0.0 || !finite {
        // A code beside 0, so that what is not finite stays so.
        codes.fill(u8::from(!finite));
        return f16::from_f32(if finite { 0.0 } else { f32::NAN });
    }
    let scales = REACH.map(|code| largest / float8(code));
    let best = best_scale(numbers, scales, nearest);
    if best.is_infinite() {
        return best;
    }
    let inverse = inverse(best.to_f32());
    for (code, &x) in codes.iter_mut().zip(numbers) {
        *code = code_of(nearest(x * inverse));
    }
    best
}

/// The nearest number that has a code, ties to the even one.
fn nearest(x: f32) -> f32 {
    let most = float8(LARGEST);
    // Saturates: the format has no infinity to round to.
    let x = x.clamp(-most, most);
    // The last of 20 bits of the mantissa that go, and half of what they can be.
    let bits = x.to_bits();
    let rounded = f32::from_bits((bits + 0x7_ffff + (bits >> 20 & 1)) & !0xf_ffff);
    // 1.5 · 2²³ steps: numbers beyond it are multiples of a step.
    const FAR: f32 = 12_582_912.0 * STEP;
    let low = (x + FAR) - FAR;
    if x.abs() < NORMAL { low } else { rounded }
}

/// The code of a number that has one.
fn code_of(number: f32) -> u8 {
    let size = number.abs();
    let magnitude =
        if size < NORMAL { (size / STEP) as u32 } else { (size.to_bits() - ((127 - 7 - 8) << 23)) >> 20 };
    magnitude as u8 | if number < 0.0 { 0x80 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_its_own_nearest_and_has_its_code() {
        for code in (0..256u32).filter(|code| code & 0x7f != 0x7f) {
            let number = float8(code);
            assert_eq!(nearest(number), number, "{code:#x}");
            let expected = if code == 0x80 { 0 } else { code as u8 };
            assert_eq!(code_of(number), expected, "{code:#x}");
        }
    }

    #[test]
    fn what_lies_between_goes_to_the_nearer_one() {
        for code in 0..LARGEST {
            let (a, b) = (float8(code), float8(code + 1));
            let middle = (a + b) / 2.0;
            let even = if code % 2 == 0 { a } else { b };
            let off = (b - a) / 64.0;
            for (x, expected) in [(middle, even), (middle - off, a), (middle + off, b)] {
                assert_eq!(nearest(x), expected, "{code:#x}: {x}");
                assert_eq!(nearest(-x), -expected, "{code:#x}: {x}");
            }
        }
        assert_eq!((nearest(9.0), nearest(-1e30)), (1.75, -1.75));
    }

    #[test]
    fn numbers_with_codes_are_stored_as_they_are() {
        let numbers: Vec<f32> = (0..LARGEST + 1).map(|code| 0.375 * float8(code)).collect();
        let mut codes = vec![0; numbers.len()];
        assert_eq!(encode(&numbers, &mut codes).to_f32(), 0.375);
        assert!(codes.iter().zip(0..).all(|(&found, code)| found == code), "{codes:?}");
    }
}
