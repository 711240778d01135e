//! What is known of a failing node call.
//!
//! The caller gathers it; nothing here runs a platform.

use tapml_exec::Call;
use tapml_graph::Tensor;
use tapml_migrate::verdict::{Exact, Precision};

/// A failing node call with everything that may tell why.
#[derive(Clone, Copy)]
pub struct Evidence<'a> {
    /// The call: operator, symbols, inputs and types.
    pub call: &'a Call,
    /// The exact result and its sensitivity, for each output.
    pub exact: &'a [Exact],
    /// The outputs of each repeat of the same call on the platform; at least one.
    pub observed: &'a [Vec<Tensor>],
    /// The precision that the kernel declares.
    pub precision: Precision,
    /// Other calls of the same operator that the platform ran before, the latest first.
    pub earlier: &'a [Earlier<'a>],
    /// What a checking device reported while the call ran.
    pub findings: &'a [DeviceFinding],
    /// Where the call is one node of several that ran as one model: what the others make of its outputs. `exact` and `observed`
    /// are then what they give.
    pub after: Option<&'a dyn Downstream>,
}

/// The nodes of a region that run behind one of it.
///
/// A prediction for the node becomes one for the region, which alone was observed.
pub trait Downstream: Sync {
    /// The outputs of the region for these outputs of the node, floats in `f64`; `None` if a node refuses its inputs.
    fn run(&self, outputs: &[Tensor]) -> Option<Vec<Tensor>>;
}

/// Another call of the same operator that the platform ran before.
#[derive(Clone, Copy, Debug)]
pub struct Earlier<'a> {
    /// Its name, for the explanation, such as `p0.s1.layers.0.attention`.
    pub name: &'a str,
    /// The call.
    pub call: &'a Call,
    /// What the platform gave; empty if unknown.
    pub observed: &'a [Tensor],
    /// What the source platform gave; empty if unknown.
    pub recorded: &'a [Tensor],
    /// Whether it was made up, and run right before one of the repeats: no other hypothesis gives its results.
    pub made: bool,
}

/// One finding of a checking device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFinding {
    /// The sort of defect as the device layer names it, such as `data race within a workgroup`.
    pub kind: String,
    /// A sentence with the numbers.
    pub message: String,
    /// Line of the kernel's source, from 1; 0 if unknown.
    pub line: u32,
}
