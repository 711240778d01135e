//! `tanh`: the hyperbolic tangent.

super::elementwise::elementwise! {
    /// `y = tanh(x)`, element by element of `x: [n, k]`.
    Tanh, "tanh", saturates
}
