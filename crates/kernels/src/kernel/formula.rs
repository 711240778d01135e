//! Formulas of operators that compute each element from the same one of their inputs.

/// A formula of one number or two.
pub struct Formula {
    /// A WGSL function `formula` of one `f32` or two, which may use the `math` prelude, and its constants.
    /// Constants are `override` declarations of f32 within the text.
    pub text: &'static str,
    /// Values of the constants.
    pub constants: Vec<(&'static str, f64)>,
}

impl Formula {
    /// A formula without constants.
    pub fn new(text: &'static str) -> Formula {
        Formula { text, constants: Vec::new() }
    }

    /// Sets a constant.
    pub fn set(mut self, name: &'static str, value: impl Into<f64>) -> Formula {
        self.constants.push((name, value.into()));
        self
    }
}
