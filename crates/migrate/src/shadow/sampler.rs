//! Chooses calls of a running program and records them.
//!
//! Whole steps are chosen first, because a step that is looked at costs something by itself, then nodes within. The two shares
//! multiply to the share that is asked for.

use super::counts::{ShadowState, increment};
use super::queue::ShadowQueue;
use std::collections::HashMap;
use std::sync::Arc;
use tapml_exec::{Call, KernelChoice, NodeEvent, Observer, StepSampler};
use tapml_graph::{Bytes, Graph, NodeId, Origin, Result, Symbols, Tensor, Value, ValueId, byte_len};

/// Calls that are recorded of a chosen step, on average, where the share leaves a choice.
const CALLS_OF_STEP: f64 = 16.0;

/// A call with what the target gave.
pub struct RecordedCall {
    /// The graph as it runs.
    pub graph: Arc<Graph>,
    /// The node.
    pub node: NodeId,
    /// The call.
    pub call: Call,
    /// What runs it; empty if nobody says.
    pub kernel: String,
    /// What the target gave.
    pub outputs: Vec<Tensor>,
    /// The room that it takes while it waits.
    pub bytes: u64,
    /// Bytes with those of its weights, by which a verdict's time is guessed.
    pub work: u64,
}

/// See the module.
pub struct ShadowSampler {
    state: Arc<ShadowState>,
    queue: Arc<ShadowQueue>,
    /// The kernel of each node, by name.
    kernels: Arc<HashMap<String, KernelChoice>>,
    random: fastrand::Rng,
    /// Of steps.
    step_share: f64,
    /// Of the nodes of a chosen step.
    node_share: f64,
    /// Kernels and room that was taken for nodes of this step.
    reserved: HashMap<NodeId, (String, u64)>,
    /// The graph as it runs, once a node was recorded.
    graph: Option<Arc<Graph>>,
    /// Whether it is known to be that of this step.
    is_graph_known: bool,
}

impl ShadowSampler {
    /// Chooses this share of the calls of a program with these nodes.
    pub(super) fn new(
        state: Arc<ShadowState>,
        queue: Arc<ShadowQueue>,
        kernels: Arc<HashMap<String, KernelChoice>>,
        share: f64,
        seed: u64,
    ) -> ShadowSampler {
        let step_share = (share * kernels.len() as f64 / CALLS_OF_STEP).clamp(share, 1.0);
        ShadowSampler {
            state,
            queue,
            kernels,
            random: fastrand::Rng::with_seed(seed),
            step_share,
            node_share: share / step_share,
            reserved: HashMap::new(),
            graph: None,
            is_graph_known: false,
        }
    }

    /// The graph of this step, shared by its calls and those of other steps.
    fn own_graph(&mut self, graph: &Graph) -> Arc<Graph> {
        let is_known = self.is_graph_known;
        self.is_graph_known = true;
        let known = self.graph.take().filter(|own| is_known || **own == *graph);
        self.graph.insert(known.unwrap_or_else(|| Arc::new(graph.clone()))).clone()
    }

    /// What runs a node; empty if nobody says.
    fn kernel(&self, node: &str) -> &str {
        self.kernels.get(node).map_or("", |choice| choice.name.as_str())
    }

    /// The call and what it gave. What a state holds is copied: the next step writes over it.
    fn record(&mut self, event: &NodeEvent<'_>, bytes: u64) -> Result<RecordedCall> {
        let graph = event.graph;
        let own = self.own_graph(graph);
        let state = |id: &ValueId| {
            matches!(graph.value(*id).origin, Origin::State(_))
                || graph.states().iter().any(|s| s.output == *id)
        };
        let copy = |(tensor, id): (&Tensor, &ValueId)| {
            if state(id) {
                let bytes = Bytes::new(tensor.bytes().to_vec());
                Tensor::new(tensor.dtype(), tensor.shape().to_vec(), bytes)
            } else {
                Ok(tensor.clone())
            }
        };
        let node = event.node;
        let weight = |id: &ValueId| {
            let value = graph.value(*id);
            (value.origin == Origin::Weight).then(|| value.name.clone())
        };
        let call = Call {
            node: node.name.clone(),
            op: node.op.clone(),
            symbols: event.symbols.clone(),
            inputs: event.inputs.iter().zip(&node.inputs).map(copy).collect::<Result<_>>()?,
            input_types: graph.input_types(node),
            weights: node.inputs.iter().map(weight).collect(),
            output_types: node.outputs.iter().map(|&id| graph.value(id).ty.clone()).collect(),
        };
        let outputs = event.outputs.iter().zip(&node.outputs).map(copy).collect::<Result<_>>()?;
        let kernel = self.kernel(&node.name).to_string();
        let work = call_bytes(graph, event.id, event.symbols, &|_| true);
        Ok(RecordedCall { graph: own, node: event.id, call, kernel, outputs, bytes, work })
    }
}

impl StepSampler for ShadowSampler {
    fn begin_step(&mut self) -> Option<&mut dyn Observer> {
        // Of a step that failed before its nodes were shown.
        for (_, (kernel, bytes)) in self.reserved.drain() {
            self.queue.release(&kernel, bytes);
        }
        self.is_graph_known = false;
        if self.random.f64() < self.step_share { Some(self) } else { None }
    }
}

impl Observer for ShadowSampler {
    fn watches(&mut self, graph: &Graph, id: NodeId, symbols: &Symbols) -> bool {
        if self.random.f64() >= self.node_share {
            return false;
        }
        let bytes = call_bytes(graph, id, symbols, &|value| value.origin != Origin::Weight);
        let kernel = self.kernel(&graph.node(id).name).to_string();
        let has_room = self.queue.reserve(&kernel, bytes);
        if has_room {
            self.reserved.insert(id, (kernel, bytes));
        } else {
            increment(&self.state.dropped);
        }
        has_room
    }

    /// Never stops the run.
    fn node(&mut self, event: &NodeEvent<'_>) -> Result<()> {
        let Some((kernel, bytes)) = self.reserved.remove(&event.id) else { return Ok(()) };
        if let Ok(recorded) = self.record(event, bytes) {
            self.queue.push(recorded);
        } else {
            self.queue.release(&kernel, bytes);
            increment(&self.state.dropped);
        }
        Ok(())
    }
}

impl Drop for ShadowSampler {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Bytes of those of a call's inputs and outputs that count.
fn call_bytes(graph: &Graph, id: NodeId, symbols: &Symbols, counts: &dyn Fn(&Value) -> bool) -> u64 {
    let node = graph.node(id);
    let values = node.inputs.iter().chain(&node.outputs).map(|&id| graph.value(id));
    let values = values.filter(|value| counts(value));
    let bytes = |ty: &tapml_graph::TensorType| byte_len(ty.dtype, &ty.sizes(symbols).ok()?);
    values.map(|value| bytes(&value.ty).map_or(u64::MAX, |bytes| bytes as u64)).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_exec::Accumulate;
    use tapml_graph::{DType, Dim};

    fn sampler(share: f64, nodes: usize, seed: u64) -> ShadowSampler {
        let accumulate = Accumulate { dtype: DType::F32, chain: Dim::from(0), keeps_chain: false };
        let kernel =
            KernelChoice { name: "a/portable".into(), hash: String::new(), accumulate, regimes: Vec::new() };
        let kernels = (0..nodes).map(|node| (node.to_string(), kernel.clone())).collect();
        let queue = Arc::new(ShadowQueue::new(1, 1, []));
        ShadowSampler::new(Arc::default(), queue, Arc::new(kernels), share, seed)
    }

    #[test]
    fn the_shares_of_steps_and_of_nodes_multiply_to_the_share() {
        for (share, nodes) in [(0.01, 20), (0.01, 400), (0.3, 400), (1.0, 3), (1e-6, 1)] {
            let sampler = sampler(share, nodes, 1);
            let (step_share, node_share) = (sampler.step_share, sampler.node_share);
            assert!((step_share * node_share - share).abs() < 1e-12, "{share} of {nodes}");
            assert!(step_share <= 1.0 && node_share <= 1.0, "{step_share} {node_share}");
        }
    }

    #[test]
    fn steps_are_chosen_at_their_share_and_the_same_ones_each_time() {
        let chosen = || {
            let mut sampler = sampler(0.01, 160, 7);
            (0..4000).map(|_| sampler.begin_step().is_some()).collect::<Vec<bool>>()
        };
        let steps = chosen().iter().filter(|chosen| **chosen).count();
        assert!((300..500).contains(&steps), "{steps} of 4000 at a share of 0.1");
        assert_eq!(chosen(), chosen());
    }
}
