//! For unit tests: a graph to reason about, and experiments that functions answer in the place of platforms.
#![allow(clippy::unwrap_used)]

use crate::context::Facts;
use crate::experiment::{Experiment, Outcomes, Pause, Reasoned, RunBehind, are_same};
use tapml_exec::Call;
use tapml_graph::{DType, Graph, NodeId, Symbols, Tensor};
use tapml_migrate::verdict::Precision;
use tapml_migrate::{KernelChoices, Oracles, terms};
use tapml_reference::run_node;

/// What a target gives for a call.
pub(crate) type Answer<'a> = dyn Fn(&Call) -> Vec<Tensor> + 'a;

/// A graph, and what explanations of its calls read. No platform was asked for its kernels.
pub(crate) struct TestGraph {
    pub graph: Graph,
    choices: KernelChoices,
    pub oracles: Oracles,
}

impl TestGraph {
    /// The graph with this text.
    pub fn new(text: &str) -> TestGraph {
        let (choices, oracles) = (KernelChoices::default(), Oracles::new(0));
        TestGraph { graph: Graph::parse(text).unwrap(), choices, oracles }
    }

    pub fn facts(&self) -> Facts<'_> {
        Facts { graph: &self.graph, choices: &self.choices, oracles: &self.oracles }
    }

    pub fn node(&self, name: &str) -> NodeId {
        self.graph.find_node(name).unwrap()
    }

    /// The call of a node with these inputs; of the graph's weights each has its name.
    pub fn call(&self, node: NodeId, symbols: &Symbols, inputs: Vec<Tensor>) -> Call {
        let node = self.graph.node(node);
        let weight = |id| {
            let value = self.graph.value(id);
            (value.origin == tapml_graph::Origin::Weight).then(|| value.name.clone())
        };
        Call {
            node: node.name.clone(),
            op: node.op.clone(),
            symbols: symbols.clone(),
            inputs,
            input_types: self.graph.input_types(node),
            weights: node.inputs.iter().map(|&id| weight(id)).collect(),
            output_types: node.outputs.iter().map(|&id| self.graph.value(id).ty.clone()).collect(),
        }
    }

    /// What reasoning comes to if experiments on the target give this, and those on the source the right results.
    pub fn conclude<T>(
        &self,
        target: &Answer<'_>,
        reason: impl Fn(Facts<'_>, &Outcomes) -> Reasoned<T>,
    ) -> T {
        let mut outcomes = Outcomes::default();
        loop {
            let experiment = match reason(self.facts(), &outcomes) {
                Ok(found) => return found,
                Err(Pause::Needs(experiment)) => *experiment,
                Err(Pause::Failed(error)) => panic!("{error}"),
            };
            match experiment {
                Experiment::Repeat(call) => {
                    let outputs = vec![target(&call), target(&call)];
                    outcomes.add_repeats(call, outputs);
                }
                Experiment::Evaluate(call) => {
                    let exact = self.oracles.exact(&call, 0).unwrap();
                    outcomes.add_exact(call, exact);
                }
                Experiment::RunBehind(calls) => {
                    target(&calls[0]);
                    let outcome = RunBehind { recorded: run_right(&calls[0]), outputs: target(&calls[1]) };
                    outcomes.add_behind(*calls, Some(outcome));
                }
                Experiment::Match(guesses) => {
                    let same = |call| are_same(&target(call), &guesses.outputs);
                    let all =
                        guesses.calls.iter().map(|call| same(call) && !same(&guesses.unchanged)).collect();
                    outcomes.add_matches(guesses, all);
                }
            }
        }
    }
}

/// What a target without faults gives for a call.
pub(crate) fn run_right(call: &Call) -> Vec<Tensor> {
    let dtypes: Vec<DType> = call.output_types.iter().map(|ty| ty.dtype).collect();
    run_node(&call.op, &call.symbols, &call.inputs, &dtypes).unwrap()
}

/// The outputs with every number changed.
pub(crate) fn change(outputs: Vec<Tensor>, change: impl Fn(usize, f64) -> f64) -> Vec<Tensor> {
    let changed = |tensor: Tensor| {
        let values = tensor.to_f64().into_iter().enumerate().map(|(i, v)| change(i, v));
        let values: Vec<f64> = values.collect();
        Tensor::from_f64(tensor.dtype(), tensor.shape().to_vec(), &values).unwrap()
    };
    outputs.into_iter().map(changed).collect()
}

/// What the reference declares for a call.
pub(crate) fn precision(call: &Call) -> Precision {
    Precision { accumulate: DType::F32, terms: terms(call) }
}

/// Numbers between -1 and 1, other ones for each seed.
pub(crate) fn numbers(shape: &[usize], seed: u32) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let values = (0..shape.iter().product()).map(|_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        f64::from(state) / f64::from(u32::MAX) * 2.0 - 1.0
    });
    let values: Vec<f64> = values.collect();
    Tensor::from_f64(DType::F32, shape.to_vec(), &values).unwrap()
}
