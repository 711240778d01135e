//! What operators share that compute each element from the same one of their input: one kernel, in front of which each
//! operator puts its formula. One invocation per element; workgroup `x` treats elements `1024·x` to `1024·x + 1023`.

use super::Request;
use super::source::{Kernel, elements, plan as planned, rows_and_width};
use crate::plan::NodePlan;
use tapml_graph::Result;

/// A formula of one number.
pub struct Formula {
    /// A WGSL function `formula` from `f32` to `f32`, which may use the `math` prelude, and its constants.
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

/// Plans a node of an operator with this formula; `name` is the kernel's.
pub fn plan(request: &Request, name: &'static str, formula: &Formula) -> Result<NodePlan> {
    let flat = Kernel::flat(name, "elementwise/portable.wgsl", include_str!("portable.wgsl"));
    let kernel = Kernel { math: true, formula: formula.text, ..flat };
    let ty = &request.inputs[0];
    let (rows, width) = rows_and_width(ty)?;
    let launch = kernel.launch(ty.dtype, ty.dtype)?.input(0).output(0).rows(&rows)?.set("K", width);
    let launch = launch.formula(formula);
    Ok(planned(&kernel, vec![launch.flat(elements(&rows, width)?)], 1))
}
