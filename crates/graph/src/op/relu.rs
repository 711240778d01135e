//! `relu`: the rectified linear unit.

super::elementwise::elementwise! {
    /// `y = max(x, 0)`, element by element of `x: [n, k]`. Nair and Hinton 2010, section 2.
    Relu, "relu"
}
