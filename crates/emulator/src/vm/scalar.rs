//! Scalar rules of WGSL that differ from Rust's operators: division, shifts, conversions, bit fields, packing.
//!
//! Where WGSL leaves a result open, the rule here is one that it allows.

/// `a / b`; a zero divisor gives `a`, the one overflowing quotient wraps (WGSL section 8.7).
#[inline(always)]
pub fn div_i(a: i32, b: i32) -> i32 {
    if b == 0 { a } else { a.wrapping_div(b) }
}

/// `a % b` with the sign of `a`; 0 for a zero divisor.
#[inline(always)]
pub fn rem_i(a: i32, b: i32) -> i32 {
    if b == 0 { 0 } else { a.wrapping_rem(b) }
}

/// `a / b`; a zero divisor gives `a`.
#[inline(always)]
pub fn div_u(a: u32, b: u32) -> u32 {
    a.checked_div(b).unwrap_or(a)
}

/// `a % b`; 0 for a zero divisor.
#[inline(always)]
pub fn rem_u(a: u32, b: u32) -> u32 {
    a.checked_rem(b).unwrap_or(0)
}

/// `f32` to `i32`: truncated, clamped to what both types represent; NaN gives 0.
#[inline(always)]
pub fn to_i(x: f32) -> i32 {
    // The largest f32 below 2^31. Rust's `as` clamps the lower side and maps NaN to 0.
    (if x > 2_147_483_520.0 { 2_147_483_520.0 } else { x }) as i32
}

/// `f32` to `u32`: as [`to_i`].
#[inline(always)]
pub fn to_u(x: f32) -> u32 {
    // The largest f32 below 2^32.
    (if x > 4_294_967_040.0 { 4_294_967_040.0 } else { x }) as u32
}

/// The sign: -1, 0 or 1.
#[inline(always)]
pub fn sign(x: f32) -> f32 {
    let positive = if x > 0.0 { 1.0 } else { 0.0 };
    if x < 0.0 { -1.0 } else { positive }
}

/// `min` as WGSL defines it: `b` if it is less than `a`, else `a`.
#[inline(always)]
pub fn min(a: f32, b: f32) -> f32 {
    if b < a { b } else { a }
}

/// `max` as WGSL defines it: `b` if it is greater than `a`, else `a`.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// `a - b·trunc(a/b)`, the definition of `%` on floats.
#[inline(always)]
pub fn rem_f(a: f32, b: f32) -> f32 {
    a - b * (a / b).trunc()
}

/// `x · 2^e`, exact before the one rounding to `f32`.
pub fn ldexp(x: f32, e: i32) -> f32 {
    // Any f32 is zero or infinite beyond, and 2^400 is finite as f64.
    let e = e.clamp(-400, 400);
    let scale = f64::from_bits(((e + 1023) as u64) << 52);
    (f64::from(x) * scale) as f32
}

/// Splits `x` into a fraction with magnitude in [0.5, 1) and an exponent of two; zero, infinity and NaN keep exponent 0.
pub fn frexp(x: f32) -> (f32, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    // Subnormal numbers of f32 are normal ones of f64, so one rule serves all.
    let wide = f64::from(x).to_bits();
    let exponent = ((wide >> 52) & 0x7ff) as i32 - 1022;
    let fraction = f64::from_bits((wide & !(0x7ff << 52)) | (1022 << 52));
    (fraction as f32, exponent)
}

/// Position of the highest bit that differs from the sign bit; -1 if there is none.
#[inline(always)]
pub fn first_leading_i(x: i32) -> i32 {
    first_leading_u((x ^ (x >> 31)) as u32)
}

/// Position of the highest set bit; -1 if there is none.
#[inline(always)]
pub fn first_leading_u(x: u32) -> i32 {
    31 - x.leading_zeros() as i32
}

/// Position of the lowest set bit; -1 if there is none.
#[inline(always)]
pub fn first_trailing(x: u32) -> i32 {
    if x == 0 { -1 } else { x.trailing_zeros() as i32 }
}

/// Bits `offset .. offset + count` of `x`, clipped to the word (WGSL `extractBits`).
#[inline(always)]
pub fn extract_u(x: u32, offset: u32, count: u32) -> u32 {
    let (o, c) = clip(offset, count);
    if c == 0 { 0 } else { (x << (32 - c - o)) >> (32 - c) }
}

/// As [`extract_u`], sign-extended from the field's highest bit.
#[inline(always)]
pub fn extract_i(x: u32, offset: u32, count: u32) -> i32 {
    let (o, c) = clip(offset, count);
    if c == 0 { 0 } else { ((x << (32 - c - o)) as i32) >> (32 - c) }
}

/// A mask of the bits that `insertBits` replaces.
#[inline(always)]
pub fn field_mask(offset: u32, count: u32) -> u32 {
    let (o, c) = clip(offset, count);
    if c == 0 { 0 } else { (u32::MAX >> (32 - c)) << o }
}

/// Offset and count as WGSL clips them: `min(offset, 32)` and `min(count, 32 - offset)`.
fn clip(offset: u32, count: u32) -> (u32, u32) {
    let o = offset.min(32);
    (o, count.min(32 - o))
}

/// The dot product of four packed signed bytes.
#[inline(always)]
pub fn dot_i8(a: u32, b: u32) -> u32 {
    let byte = |x: u32, k: u32| (x << (24 - 8 * k)) as i32 >> 24;
    (0..4).fold(0_i32, |sum, k| sum.wrapping_add(byte(a, k) * byte(b, k))) as u32
}

/// The dot product of four packed unsigned bytes.
#[inline(always)]
pub fn dot_u8(a: u32, b: u32) -> u32 {
    (0..4).fold(0_u32, |sum, k| sum.wrapping_add(((a >> (8 * k)) & 255) * ((b >> (8 * k)) & 255)))
}

/// `floor(0.5 + scale · clamp(x))`, the integer that `pack…norm` stores.
#[inline(always)]
pub fn pack_norm(x: f32, low: f32, scale: f32) -> i32 {
    (0.5 + scale * min(max(x, low), 1.0)).floor() as i32
}
