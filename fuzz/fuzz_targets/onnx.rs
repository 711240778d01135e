//! ONNX: the walk, the messages, the checks, what is told of a model that passes them, and its run, of which TapML evaluates the
//! operators. A run has few operators, which are small.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;
use tapml_graph::op::{Foreign, Op};
use tapml_graph::{DType, Error, ErrorKind, Graph, Result, Tensor, TensorType};
use tapml_import::onnx::{File, InputType, OperatorRunner};
use tapml_reference::foreign;

/// Elements of an input or a result, and terms of a sum.
const ELEMENTS: usize = 1 << 10;
/// Operators of a run.
const RUNS: usize = 1000;

struct Evaluates {
    left: usize,
}

impl OperatorRunner for Evaluates {
    fn run(&mut self, _: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>> {
        self.left = self.left.checked_sub(1).ok_or_else(|| Error::invalid("enough operators"))?;
        let inputs: Vec<Tensor> = inputs.iter().map(|(tensor, _)| tensor.clone()).collect();
        let ty = |tensor: &Tensor| TensorType::new(tensor.dtype(), tensor.shape().iter().copied());
        let types: Vec<TensorType> = inputs.iter().map(ty).collect();
        if foreign::terms(&Op::Foreign(op.clone()), &types) > ELEMENTS as u64 {
            return Err(Error::unsupported("a long sum"));
        }
        tapml_onnx::limit_elements(ELEMENTS, || foreign::evaluate(op, &inputs))
    }
}

/// Numbers of a type that the model takes; a free size is 2.
fn make_input(of: &InputType) -> Option<Tensor> {
    let shape: Vec<usize> = of.shape.iter().flatten().map(|size| size.unwrap_or(2)).collect();
    let count = shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size))?;
    let values: Vec<f64> = (0..count.min(ELEMENTS + 1)).map(|at| (at % 3) as f64 - 1.0).collect();
    let dtype = of.dtype.unwrap_or(DType::F32);
    (count <= ELEMENTS).then(|| Tensor::from_f64(dtype, shape, &values).ok())?
}

fuzz_target!(|data: &[u8]| {
    let path = tapml_fuzz::put("model.onnx", data);
    let Ok(file) = File::open(&path) else { return };
    drop(file.outline());
    let inputs = file.input_types();
    let inputs: HashMap<String, Tensor> =
        inputs.iter().filter_map(|of| Some((of.name.clone(), make_input(of)?))).collect();
    match file.trace(&inputs, &mut Evaluates { left: RUNS }) {
        Ok(traced) => {
            let graph = traced.model.graph();
            assert_eq!(traced.values.len(), graph.values().len());
            let text = graph.to_text();
            assert_eq!(Graph::parse(&text).expect("the text of a graph").to_text(), text);
        }
        Err(error) => assert_ne!(error.kind(), ErrorKind::Bug, "{error}"),
    }
});
