//! `silu`: the sigmoid linear unit.

super::elementwise::elementwise! {
    /// `y = x / (1 + exp(−x))`, element by element of `x: [n, k]`. Elfwing, Uchibe, Doya 2018, section 2.
    Silu, "silu", saturates
}
