//! `relu_squared`: the square of the rectified linear unit.

super::elementwise::elementwise! {
    /// `y = max(x, 0)²`, element by element of `x: [n, k]`. So et al., "Primer", 2021, section 4.
    ReluSquared, "relu_squared"
}
