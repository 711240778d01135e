//! What operators share that compute each element from the same one of their inputs: one kernel for one input and one for
//! two, behind which each operator puts its formula. One invocation per element; workgroup `x` treats elements
//! `1024·x` to `1024·x + 1023`.

use super::formula::Formula;
use super::request::Request;
use super::source::{KernelSource, elements, plan as planned, rows_and_width};
use crate::plan::NodePlan;
use tapml_graph::Result;
use tapml_graph::op::Broadcast;

/// Plans a node of an operator with this formula of its only input; `name` is the kernel's.
///
/// Input and output have the same shape and dtype. Formulas compute in f32, and results are rounded to the dtype.
pub fn plan(request: &Request, name: &'static str, formula: &Formula) -> Result<NodePlan> {
    let flat = KernelSource::flat(name, "elementwise/portable.wgsl", include_str!("portable.wgsl"));
    let kernel = KernelSource { math: true, formula: formula.text, ..flat };
    let ty = &request.inputs[0];
    let (rows, width) = rows_and_width(ty)?;
    let launch = kernel.launch(ty.dtype, ty.dtype)?.input(0).output(0).rows(&rows)?.set("K", width);
    let launch = launch.formula(formula);
    // A chain of 1: the formula may add, but no sum grows with a size.
    Ok(planned(&kernel, vec![launch.flat(elements(&rows, width)?)], 1))
}

/// The kernel for a second operand like the first, or of one column.
const PAIRS: &str = concat!(include_str!("pairs.wgsl"), include_str!("second.wgsl"));
/// The kernel for a second operand that is one row.
const PAIRS_ROW: &str = concat!(include_str!("pairs.wgsl"), include_str!("second_row.wgsl"));

/// Plans a node of an operator with this formula of two inputs, of which the second stretches to the first; the names are
/// those of the kernels for a second operand like the first, or of one column, and of one row.
///
/// A row operand is bound as a weight, of f32, f16 or bf16. Any other has the dtype of the activations.
pub fn plan_pairs(request: &Request, names: [&'static str; 2], formula: &Formula) -> Result<NodePlan> {
    let (a, b) = (&request.inputs[0], &request.inputs[1]);
    let broadcast = Broadcast::from_types(a, b)?;
    let by_row = broadcast == Broadcast::Row;
    let (name, file, text) = if by_row {
        (names[1], "elementwise/pairs.wgsl+elementwise/second_row.wgsl", PAIRS_ROW)
    } else {
        (names[0], "elementwise/pairs.wgsl+elementwise/second.wgsl", PAIRS)
    };
    let kernel =
        KernelSource { weights: by_row, formula: formula.text, ..KernelSource::flat(name, file, text) };
    let (rows, width) = rows_and_width(a)?;
    let launch = kernel.launch(a.dtype, a.dtype)?.input(0).input(1).output(0).rows(&rows)?.set("K", width);
    let launch = if by_row {
        launch.weight_dtype(b.dtype)?
    } else {
        // One text serves both: with `COLUMN` the second operand is read at the row, else at the element.
        launch.set("COLUMN", u32::from(broadcast == Broadcast::Column))
    };
    Ok(planned(&kernel, vec![launch.formula(formula).flat(elements(&rows, width)?)], 1))
}
