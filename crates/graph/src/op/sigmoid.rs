//! `sigmoid`: the logistic function.

super::elementwise::elementwise! {
    /// `y = 1 / (1 + exp(−x))`, element by element of `x: [n, k]`.
    Sigmoid, "sigmoid", saturates
}
