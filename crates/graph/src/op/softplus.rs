//! `softplus`: the smooth rectifier.

super::elementwise::elementwise! {
    /// `y = ln(1 + exp(x))`, element by element of `x: [n, k]`. Dugas et al. 2001, section 3.
    Softplus, "softplus", saturates
}
