//! Runs of graphs with operators of others: of tensors, floats in `f64`, node by node.

use super::{Noisy, RUNS, Results};
use crate::suite::Case;
use tapml_graph::{Context, DType, Error, NodeId, Op, Origin, Result, Tensor};
use tapml_reference::Array;
use tapml_reference::foreign::{widened, widened_tensor};

impl Noisy<'_> {
    /// As [`Noisy::prompt`].
    pub(super) fn arrays(&self, prompt: u32) -> Result<Vec<Results>> {
        let frames = self.suite.frames().iter().enumerate().filter(|(_, frame)| frame.prompt == prompt);
        let frames: Vec<usize> = frames.map(|(at, _)| at).collect();
        let way = |seed: u64| frames.iter().map(|&frame| Ok((frame, self.array_run(frame, seed)?))).collect();
        (0..=RUNS).map(way).collect()
    }

    /// The results of one run.
    fn array_run(&self, frame: usize, seed: u64) -> Result<Vec<Array<f64>>> {
        let graph = self.model.graph();
        let mut values: Vec<Option<Tensor>> = vec![None; graph.values().len()];
        for (at, value) in graph.values().iter().enumerate() {
            let id = tapml_graph::ValueId(at as u32);
            values[at] = match value.origin {
                Origin::Input => Some(widened_tensor(&self.suite.value(frame, id)?)?),
                Origin::Weight => Some(widened_tensor(&self.model.weight(&value.name)?)?),
                Origin::State(_) | Origin::Node { .. } => None,
            };
        }
        for (at, node) in graph.nodes().iter().enumerate() {
            let missing = || Error::bug("a value is read before it is there");
            let inputs = node.inputs.iter().map(|id| values[id.0 as usize].clone().ok_or_else(missing));
            let inputs = inputs.collect::<Result<Vec<Tensor>>>()?;
            let weights = node.inputs.iter().map(|&id| graph.value(id).origin == Origin::Weight);
            let weights: Vec<bool> = weights.collect();
            let Op::Foreign(op) = &node.op else {
                let text = "graphs of others' operators hold none of TapML's own";
                return Err(Error::unsupported(text).context(format!("node `{}`", node.name)));
            };
            let outputs = self.oracles.evaluate(&widened(op)?, &inputs, &weights);
            let outputs = outputs.context(|| format!("node `{}`", node.name))?;
            let case = Case { frame, node: NodeId(at as u32) };
            let declared = (self.precision)(case.node, &self.suite.frames()[frame].symbols)?;
            for (k, (&id, output)) in node.outputs.iter().zip(outputs).enumerate() {
                let moved = match declared {
                    Some(precision) if seed > 0 && output.dtype() == DType::F64 => {
                        self.moved(case, (k, id), &output.to_f64(), (precision, seed))?
                    }
                    _ => None,
                };
                values[id.0 as usize] = Some(match moved {
                    Some(moved) => Tensor::from_f64(DType::F64, output.shape().to_vec(), &moved)?,
                    None => output,
                });
            }
        }
        let result = |id: &tapml_graph::ValueId| {
            let tensor = values[id.0 as usize].as_ref().ok_or_else(|| Error::bug("a result is missing"))?;
            Array::new(tensor.shape().to_vec(), tensor.to_f64())
        };
        self.results.iter().map(result).collect::<Result<_>>()
    }
}
