//! IEEE half precision in branch-free integer arithmetic, so that whole chunks convert at vector width.
//!
//! Constants: 0x3880_0000 is 2^-14, the least normal half; 0x4780_0000 is 2^16, the first power of two beyond its range. The bias of the
//! exponent is 127 in `f32` and 15 in `f16`, and the mantissas differ by 13 bits.

/// The `f16` value nearest to an `f32`, ties to even, as the bits of the equal `f32`. Too large becomes infinity.
#[inline(always)]
pub fn round(bits: u32) -> u32 {
    let sign = bits & 0x8000_0000;
    let abs = bits & 0x7fff_ffff;
    // Half of the last kept bit, less one unless that bit is odd, is ties to even. A carry into the exponent is right.
    let normal = (abs + 0x0fff + ((abs >> 13) & 1)) & !0x1fff;
    // Adding 0.5 aligns the sum's last bit with 2^-24, the step of subnormal halves.
    let small = ((f32::from_bits(abs) + 0.5) - 0.5).to_bits();
    let finite = if abs < 0x3880_0000 { small } else { normal };
    let capped = if finite >= 0x4780_0000 { 0x7f80_0000 } else { finite };
    // NaN keeps its payload.
    let value = if abs > 0x7f80_0000 { abs } else { capped };
    value | sign
}

/// The 16 bits of an `f32` that holds an `f16` value.
/// The value must be one that `f16` has, as [`round`] gives it.
#[inline(always)]
pub fn to_bits(bits: u32) -> u32 {
    let sign = (bits >> 16) & 0x8000;
    let abs = bits & 0x7fff_ffff;
    let normal = abs.wrapping_sub(0x3800_0000) >> 13;
    // 2^24 times the value is the integer that a subnormal half stores.
    let small = (f32::from_bits(if abs < 0x3880_0000 { abs } else { 0 }) * 16_777_216.0) as u32;
    let finite = if abs < 0x3880_0000 { small } else { normal };
    let infinite = if abs > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    (if abs >= 0x4780_0000 { infinite } else { finite }) | sign
}

/// The bits of the `f32` equal to the `f16` in the low 16 bits.
#[inline(always)]
pub fn from_bits(half: u32) -> u32 {
    let sign = (half & 0x8000) << 16;
    let em = half & 0x7fff;
    let normal = (em << 13) + 0x3800_0000;
    // The largest exponent of a half becomes the largest of an f32, for infinity and NaN.
    let special = (em << 13) + 0x7000_0000;
    let small = (em as i32 as f32 * (1.0 / 16_777_216.0)).to_bits();
    let finite = if em < 0x0400 { small } else { normal };
    (if em >= 0x7c00 { special } else { finite }) | sign
}

#[cfg(test)]
mod tests {
    use half::f16;

    #[test]
    fn every_half_converts_exactly() {
        for bits in 0..=u16::MAX {
            let value = f16::from_bits(bits);
            let wide = super::from_bits(u32::from(bits));
            if value.is_nan() {
                assert!(
                    f32::from_bits(wide).is_nan() && f16::from_bits(super::to_bits(wide) as u16).is_nan()
                );
            } else {
                assert_eq!(wide, value.to_f32().to_bits(), "{bits:#x}");
                assert_eq!(super::to_bits(wide), u32::from(bits));
                assert_eq!(super::round(wide), wide);
            }
        }
    }

    #[test]
    fn rounding_agrees_with_the_half_crate() {
        for step in 0..2_000_000_u32 {
            let bits = step.wrapping_mul(2_654_435_761);
            let x = f32::from_bits(bits);
            if !x.is_nan() {
                assert_eq!(super::round(bits), f16::from_f32(x).to_f32().to_bits(), "{x:e}");
            }
        }
        for x in [65519.996_f32, 65520.0, -65520.0, 2.0_f32.powi(-25), 3.0 * 2.0_f32.powi(-26), 0.0, -0.0] {
            assert_eq!(super::round(x.to_bits()), f16::from_f32(x).to_f32().to_bits(), "{x:e}");
        }
    }
}
