//! Runs of graphs with operators of others: of tensors, floats in `f64`, node by node.
//!
//! Evaluators of others' operators take tensors and not TapML's arrays. States are not read here: each run
//! stands for itself.

use super::{HEADROOM, Noisy, RUNS, Results};
use crate::stop::Stop;
use crate::suite::Case;
use crate::verdict::{Exact, INNER};
use rayon::prelude::*;
use std::collections::BTreeSet;
use tapml_graph::{Context, DType, Error, NodeId, Op, Origin, Result, Tensor};
use tapml_reference::Array;
use tapml_reference::foreign::{widen_outputs, widened_tensor};

impl Noisy<'_> {
    /// As [`Noisy::prompt`].
    pub(super) fn arrays(&self, prompt: u32, stop: &Stop) -> Result<Vec<Results>> {
        let frames = self.suite.frames().iter().enumerate().filter(|(_, frame)| frame.prompt == prompt);
        let frames: Vec<usize> = frames.map(|(at, _)| at).collect();
        // The exact way is the first one.
        let mut ways = vec![Results::new(); RUNS as usize + 1];
        for frame in frames {
            stop.check()?;
            let exact = self.array_run(frame, 0, None, None)?;
            for (seed, results) in (0..).zip(&mut ways) {
                let values = match seed {
                    0 => None,
                    _ => Some(self.array_run(frame, seed, Some(&exact), None)?),
                };
                results.insert(frame, self.array_results(values.as_ref().unwrap_or(&exact))?);
            }
        }
        Ok(ways)
    }

    /// The values of one run, disturbed if the exact ones are given; of some nodes alone, if such are named, with recorded values
    /// in the place of what others give.
    fn array_run(
        &self,
        frame: usize,
        seed: u64,
        exact: Option<&RunValues>,
        only: Option<&BTreeSet<NodeId>>,
    ) -> Result<RunValues> {
        let outside = |node: &NodeId| only.is_some_and(|only| !only.contains(node));
        let graph = self.model.graph();
        let mut values: RunValues = vec![None; graph.values().len()];
        for (at, value) in graph.values().iter().enumerate() {
            let id = tapml_graph::ValueId(at as u32);
            values[at] = match value.origin {
                Origin::Input => Some(widened_tensor(&self.suite.value(frame, id)?)?),
                Origin::Weight => Some(widened_tensor(&self.model.weight(&value.name)?)?),
                Origin::Node { node, .. } if outside(&node) && self.suite.ran(Case { frame, node }) => {
                    Some(widened_tensor(&self.suite.value(frame, id)?)?)
                }
                // Computed below, or not read at all.
                Origin::State(_) | Origin::Node { .. } => None,
            };
        }
        for (at, node) in graph.nodes().iter().enumerate() {
            if outside(&NodeId(at as u32)) {
                continue;
            }
            let missing = || Error::bug("a value is read before it is there");
            let inputs = node.inputs.iter().map(|id| values[id.0 as usize].clone().ok_or_else(missing));
            let inputs = inputs.collect::<Result<Vec<Tensor>>>()?;
            let weights = node.inputs.iter().map(|&id| graph.value(id).origin == Origin::Weight);
            let weights: Vec<bool> = weights.collect();
            let Op::Foreign(op) = &node.op else {
                let text = "graphs of others' operators hold none of TapML's own";
                return Err(Error::unsupported(text).context(format!("node `{}`", node.name)));
            };
            let outputs = self.oracles.evaluate(&widen_outputs(op)?, &inputs, &weights);
            let outputs = outputs.context(|| format!("node `{}`", node.name))?;
            let case = Case { frame, node: NodeId(at as u32) };
            let declared = (self.precision)(case.node, &self.suite.frames()[frame].symbols)?;
            for (k, (&id, mut output)) in node.outputs.iter().zip(outputs).enumerate() {
                // Integers and booleans are not moved.
                if let (Some(exact), DType::F64) = (exact, output.dtype()) {
                    let exact = exact[id.0 as usize].as_ref().ok_or_else(missing)?;
                    let mut found = within_domain(&output, exact);
                    if let Some(moved) = self.move_values(case, (k, id), &found, (declared, seed))? {
                        found = moved;
                    }
                    output = Tensor::from_f64(DType::F64, output.shape().to_vec(), &found)?;
                }
                values[id.0 as usize] = Some(output);
            }
        }
        Ok(values)
    }

    /// What a model is judged by, of all the values of a run.
    fn array_results(&self, values: &RunValues) -> Result<Vec<Array<f64>>> {
        let result = |id: &tapml_graph::ValueId| {
            let tensor = values[id.0 as usize].as_ref().ok_or_else(|| Error::bug("a result is missing"))?;
            Array::new(tensor.shape().to_vec(), tensor.to_f64())
        };
        self.results.iter().map(result).collect::<Result<_>>()
    }
}

/// The exact outputs of a region, and how far they move when each of its nodes errs as much as its verdict allows.
pub(crate) struct RegionMovement {
    /// The exact values of each output.
    pub exact: Vec<Vec<f64>>,
    /// What each disturbed run gives.
    pub ways: Vec<Vec<Vec<f64>>>,
    /// For each output and each of its rows the largest movement.
    rows: Vec<Vec<f64>>,
    /// Elements of a row of each output.
    widths: Vec<usize>,
}

impl RegionMovement {
    /// Measures them for these nodes with the recorded values of a run around them.
    pub fn measure(run: &Noisy<'_>, nodes: &BTreeSet<NodeId>, frame: usize) -> Result<RegionMovement> {
        let exact = run.array_run(frame, 0, None, Some(nodes))?;
        let of = |values: &RunValues| run.array_results(values);
        let ways: Vec<Vec<Array<f64>>> = (1..=RUNS)
            .into_par_iter()
            .map(|seed| of(&run.array_run(frame, seed, Some(&exact), Some(nodes))?))
            .collect::<Result<_>>()?;
        let exact = of(&exact)?;
        let mut rows = Vec::new();
        for (k, exact) in exact.iter().enumerate() {
            let mut moved: Vec<f64> = Vec::new();
            for way in &ways {
                let distances = super::distances(exact, way[k].values());
                moved.resize(distances.len(), 0.0);
                moved.iter_mut().zip(distances).for_each(|(old, new)| *old = old.max(new));
            }
            // As for a whole model: no row is allowed less than what rows move in the mean.
            let mean = moved.iter().sum::<f64>() / moved.len().max(1) as f64;
            rows.push(moved.into_iter().map(|row| HEADROOM * row.max(mean)).collect());
        }
        let widths = exact.iter().map(|exact| exact.row_len().max(1)).collect();
        let values =
            |arrays: &[Array<f64>]| arrays.iter().map(|array| array.values().to_vec()).collect::<Vec<_>>();
        let mut by_output: Vec<Vec<Vec<f64>>> = vec![Vec::new(); exact.len()];
        for way in &ways {
            by_output.iter_mut().zip(values(way)).for_each(|(known, values)| known.push(values));
        }
        Ok(RegionMovement { exact: values(&exact), ways: by_output, rows, widths })
    }

    /// Output `k` as exact results are given to those who look for causes.
    pub fn exact_of(&self, k: usize) -> Exact {
        let values = self.exact[k].clone();
        // The verdict multiplies by [`INNER`] again.
        let inner = (0..values.len()).map(|i| self.allowed_movement(k, i) / INNER).collect();
        let deviation = vec![0.0; values.len()];
        Exact { values, deviation, inner, row_len: self.widths[k], integers: None }
    }

    /// How far element `i` of output `k` may lie from the exact one.
    pub fn allowed_movement(&self, k: usize, i: usize) -> f64 {
        self.rows[k].get(i / self.widths[k]).copied().unwrap_or(0.0)
    }
}

/// The values of a run by their ids.
type RunValues = Vec<Option<Tensor>>;

/// The elements of an output, with the exact ones where a disturbance left the operator's domain: no platform gives a sum
/// of squares below zero, but a disturbed one may be, and its root is no number.
fn within_domain(output: &Tensor, exact: &Tensor) -> Vec<f64> {
    let mut found = output.to_f64();
    if output.shape() == exact.shape() {
        for (found, exact) in found.iter_mut().zip(exact.to_f64()) {
            if found.is_nan() {
                *found = exact;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_the_domain_is_exact_again() {
        let tensor = |values: &[f64]| Tensor::from_f64(DType::F64, vec![values.len()], values).unwrap();
        let found = within_domain(&tensor(&[f64::NAN, 2.0, f64::INFINITY]), &tensor(&[0.0, 1.0, 1.0]));
        assert_eq!(found, [0.0, 2.0, f64::INFINITY]);
    }
}
