//! Approximate functions of the `fast-math` profile, within the error that WGSL allows but not more exact.

/// `exp(x)` as `exp2(x · log2 e)` with the product rounded first: the relative error grows with |x| as on GPUs.
pub fn exp(x: f32) -> f32 {
    (x * std::f32::consts::LOG2_E).exp2()
}

/// `log(x)` as `log2(x) · ln 2`, with the logarithm rounded first.
pub fn log(x: f32) -> f32 {
    x.log2() * std::f32::consts::LN_2
}
