//! One node call as data: what a platform needs to run one operator alone.
//!
//! A call holds everything: no graph, suite or session is needed to run it. Tensors share their bytes, so a
//! call is cheap to clone.

use tapml_graph::{Error, Op, Result, Symbols, Tensor, TensorType};

/// One execution of one node. Inputs and their types agree: `input_types[i].bind(symbols)` is the type of `inputs[i]`.
#[derive(Clone, Debug)]
pub struct Call {
    /// Name of the node, for messages.
    pub node: String,
    /// The operator with its attributes.
    pub op: Op,
    /// Values of the symbols in this step.
    pub symbols: Symbols,
    /// Values of the inputs, weights included.
    pub inputs: Vec<Tensor>,
    /// Types of the inputs as the graph has them; sizes may name symbols.
    pub input_types: Vec<TensorType>,
    /// For each input that is a weight, its name: equal names mean equal bytes, so that a device keeps one copy.
    pub weights: Vec<Option<String>>,
    /// Types of the outputs as the graph has them.
    pub output_types: Vec<TensorType>,
}

impl Call {
    /// Fails unless the lists have equal lengths and every input has the type that the symbols give.
    pub fn check(&self) -> Result<()> {
        let count = self.inputs.len();
        if count != self.input_types.len() || count != self.weights.len() {
            let (types, weights) = (self.input_types.len(), self.weights.len());
            return Err(self.wrong(format!("{count} inputs, {types} input types, {weights} weight names")));
        }
        for (i, (tensor, ty)) in self.inputs.iter().zip(&self.input_types).enumerate() {
            let sizes = ty.sizes(&self.symbols).map_err(|e| e.context(format!("node `{}`", self.node)))?;
            if tensor.dtype() != ty.dtype || tensor.shape() != sizes {
                let (dtype, shape) = (tensor.dtype(), tensor.shape());
                return Err(
                    self.wrong(format!("input {i}: expected {}{sizes:?}, found {dtype}{shape:?}", ty.dtype))
                );
            }
        }
        let inferred =
            self.op.infer(&self.input_types).map_err(|e| e.context(format!("node `{}`", self.node)))?;
        if inferred != self.output_types {
            let show =
                |types: &[TensorType]| types.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", ");
            let (want, have) = (show(&inferred), show(&self.output_types));
            return Err(self.wrong(format!("expected outputs {want}, found {have}")));
        }
        Ok(())
    }

    /// An error that names the node.
    fn wrong(&self, message: String) -> Error {
        Error::invalid(message).context(format!("node `{}`", self.node))
    }
}
