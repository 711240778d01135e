//! The scale of a group that makes its squared error small.

use half::f16;

/// Of some scales as f16 holds them, and of those that fit the codes they give, the one that errs least; infinite if f16 holds
/// none. `nearest` gives what of a scale a number becomes.
pub(super) fn best_scale(
    numbers: &[f32],
    scales: impl Iterator<Item = f32>,
    nearest: impl Fn(f32) -> f32 + Copy,
) -> f16 {
    let mut best = (f32::INFINITY, f16::INFINITY);
    for first in scales.map(f16::from_f32) {
        let (error, fitted) = fit(numbers, first.to_f32(), nearest);
        let refined = f16::from_f32(fitted);
        let (again, _) = fit(numbers, refined.to_f32(), nearest);
        for found in [(error, first), (again, refined)] {
            if found.0 < best.0 {
                best = found;
            }
        }
    }
    best.1
}

/// The squared error of a group with this scale, and the scale that fits the same codes best: `Σ x·c / Σ c²`. `nearest` gives
/// what of a scale a number becomes.
fn fit(numbers: &[f32], scale: f32, nearest: impl Fn(f32) -> f32) -> (f32, f32) {
    let inverse = inverse(scale);
    let (mut error, mut product, mut square) = (0.0f32, 0.0f32, 0.0f32);
    for &x in numbers {
        let c = nearest(x * inverse);
        let off = x - c * scale;
        error += off * off;
        product += x * c;
        square += c * c;
    }
    (error, if square > 0.0 { product / square } else { scale })
}

/// What numbers are multiplied by to be divided by a scale; 0 for none.
pub(super) fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}
