//! What functions take and give.

use tapml_graph::TensorType;
use tapml_kernels::Program;

/// What a function takes or gives.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionArgument {
    /// Name.
    pub name: String,
    /// Dtype and sizes; `n` is bound by a call's arguments, `p` counts the tokens that the states hold.
    pub ty: TensorType,
    /// Whether the function writes it.
    pub output: bool,
    /// Which input or output of the program it is.
    pub(super) port: usize,
}

impl FunctionArgument {
    /// Inputs, then outputs.
    pub(super) fn from_program(program: &Program) -> Vec<FunctionArgument> {
        let of = |ports: &[tapml_kernels::Port], output: bool| -> Vec<FunctionArgument> {
            let argument = |(port, p): (usize, &tapml_kernels::Port)| FunctionArgument {
                name: p.name.clone(),
                ty: p.ty.clone(),
                output,
                port,
            };
            ports.iter().enumerate().map(argument).collect()
        };
        [of(&program.inputs, false), of(&program.outputs, true)].concat()
    }

    /// For a kernel of one's own, in the order in which it binds them.
    pub(super) fn in_order_of_bindings(
        program: &Program,
        writes: impl Fn(usize) -> bool,
    ) -> Vec<FunctionArgument> {
        // Reversed, because the next one is taken from the end.
        let (mut inputs, mut outputs): (Vec<_>, Vec<_>) =
            FunctionArgument::from_program(program).into_iter().rev().partition(|a| !a.output);
        let next = |i| if writes(i) { outputs.pop() } else { inputs.pop() };
        (0..program.buffers.len()).filter_map(next).collect()
    }
}
