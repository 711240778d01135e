//! Chooses calls of a running program and records them.
//!
//! Whole steps are chosen first, because a step that is looked at costs something by itself, then nodes within. The two shares
//! multiply to the share that is asked for. Within a step the kernels share alike, so that one of few nodes is met as one of many.
//! Of each kernel a call of the first step is taken, and one of the first small step, whatever the share.

use super::alone::node_alone;
use super::counts::{ShadowState, increment};
use super::queue::{RecordedCall, ShadowQueue};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tapml_exec::{Call, KernelChoice, NodeEvent, Observer, StepSampler};
use tapml_graph::{Bytes, Graph, NodeId, Origin, Result, Symbol, Symbols, Tensor, ValueId, byte_len};

/// Calls that are recorded of a chosen step, on average, where the share leaves a choice.
const CALLS_OF_STEP: f64 = 16.0;
/// Most bytes of the pages and slots that a call names: one with more is not recorded.
const POOL_BYTES: u64 = 32 << 20;

/// Steps of the beginning in which kernels without a call are looked for.
const EARLY_STEPS: usize = 64;
/// Rows of a small step, at most: their verdicts come soon.
const EARLY_ROWS: u64 = 16;

/// See the module.
pub struct ShadowSampler {
    state: Arc<ShadowState>,
    queue: Arc<ShadowQueue>,
    /// The kernel of each node, by name.
    kernels: Arc<HashMap<String, KernelChoice>>,
    random: fastrand::Rng,
    /// Of steps.
    step_share: f64,
    /// Of the nodes of a chosen step, by their kernels.
    node_shares: BTreeMap<String, f64>,
    /// Whether this step was chosen by its share.
    is_drawn: bool,
    /// Kernels of which no call was taken yet, and those of which none of few rows was.
    unmet: [BTreeSet<String>; 2],
    /// Steps left in which these are looked for: of those that encode no image, and of those that do.
    early_steps: [usize; 2],
    /// Kernels and room that was taken for nodes of this step, by name: an encoder's run within it is of another graph.
    reserved: HashMap<String, (String, u64)>,
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
        let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
        kernels.values().for_each(|choice| *nodes.entry(choice.name.clone()).or_default() += 1);
        ShadowSampler {
            state,
            queue,
            kernels,
            random: fastrand::Rng::with_seed(seed),
            step_share,
            unmet: [nodes.keys().cloned().collect(), nodes.keys().cloned().collect()],
            node_shares: share_alike(share / step_share, nodes),
            is_drawn: false,
            early_steps: [EARLY_STEPS; 2],
            reserved: HashMap::new(),
        }
    }

    /// What runs a node; empty if nobody says.
    fn kernel(&self, node: &str) -> &str {
        self.kernels.get(node).map_or("", |choice| choice.name.as_str())
    }

    /// The call and what it gave. What a state holds is copied: the next step writes over it.
    fn record(&self, event: &NodeEvent<'_>) -> Result<RecordedCall> {
        let (graph, node) = (event.graph, event.node);
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
        let mut input_types = graph.input_types(node);
        if let Some(pools) = node.op.pools(&graph.input_types(graph.node(event.id))) {
            let rows = pools.inputs.first().and_then(|&pool| event.inputs.get(pool)?.shape().first());
            pools.narrow_types(&mut input_types, rows.map_or(0, |rows| rows / pools.part));
        }
        let alone = node_alone(graph, node, &input_types)?;
        let of_alone = &alone.nodes()[0];
        let weight = |id: &ValueId| {
            let value = graph.value(*id);
            (value.origin == Origin::Weight).then(|| value.name.clone())
        };
        let call = Call {
            node: node.name.clone(),
            op: node.op.clone(),
            symbols: event.symbols.clone(),
            inputs: event.inputs.iter().zip(&node.inputs).map(copy).collect::<Result<_>>()?,
            input_types,
            weights: node.inputs.iter().map(weight).collect(),
            output_types: of_alone.outputs.iter().map(|&id| alone.value(id).ty.clone()).collect(),
        };
        let outputs: Vec<Tensor> =
            event.outputs.iter().zip(&node.outputs).map(copy).collect::<Result<_>>()?;
        let inputs = call.inputs.iter().zip(&call.weights).filter(|(_, weight)| weight.is_none());
        let held = inputs.map(|(input, _)| input).chain(&outputs);
        let bytes = held.map(|tensor| tensor.bytes().len() as u64).fold(0, u64::saturating_add);
        let work = alone.estimate_work(of_alone, event.symbols);
        let kernel = self.kernel(&node.name).to_string();
        Ok(RecordedCall { graph: alone, call, kernel, outputs, bytes, work })
    }
}

impl StepSampler for ShadowSampler {
    fn begin_step(&mut self, encodes: bool) -> Option<&mut dyn Observer> {
        // Of a step that failed before its nodes were shown, and of calls that name too many parts.
        for (_, (kernel, bytes)) in self.reserved.drain() {
            self.queue.release(&kernel, bytes);
            increment(&self.state.dropped);
        }
        self.is_drawn = self.random.f64() < self.step_share;
        let left = &mut self.early_steps[usize::from(encodes)];
        let is_early = *left > 0 && self.unmet.iter().any(|kernels| !kernels.is_empty());
        *left -= usize::from(is_early);
        if self.is_drawn || is_early { Some(self) } else { None }
    }
}

impl Observer for ShadowSampler {
    fn watches(&mut self, graph: &Graph, id: NodeId, symbols: &Symbols) -> bool {
        let kernel = self.kernel(&graph.node(id).name).to_string();
        let share = self.node_shares.get(&kernel).copied().unwrap_or_default();
        let is_small = symbols.get(Symbol::N).is_none_or(|rows| rows <= EARLY_ROWS);
        let is_unmet = self.unmet[usize::from(is_small)].contains(&kernel);
        let is_taken = is_unmet || (self.is_drawn && self.random.f64() < share);
        if !is_taken {
            return false;
        }
        let bytes = call_bytes(graph, id, symbols);
        let has_room = self.queue.reserve(&kernel, bytes);
        if has_room {
            // A call of few rows is one as well.
            self.unmet[..=usize::from(is_small)].iter_mut().for_each(|kernels| {
                kernels.remove(&kernel);
            });
            self.reserved.insert(graph.node(id).name.clone(), (kernel, bytes));
        } else {
            increment(&self.state.dropped);
        }
        has_room
    }

    /// Never stops the run.
    fn node(&mut self, event: &NodeEvent<'_>) -> Result<()> {
        let Some((kernel, bytes)) = self.reserved.remove(&event.node.name) else { return Ok(()) };
        let waits = match self.record(event) {
            Ok(recorded) => self.queue.push(recorded, bytes),
            Err(_) => {
                self.queue.release(&kernel, bytes);
                false
            }
        };
        if !waits {
            increment(&self.state.dropped);
        }
        Ok(())
    }

    fn pool_bytes(&self) -> Option<u64> {
        Some(POOL_BYTES)
    }
}

impl Drop for ShadowSampler {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The share of each kernel's nodes by which this share of all nodes is chosen, and as many of each kernel as it has.
fn share_alike(share: f64, nodes: BTreeMap<String, usize>) -> BTreeMap<String, f64> {
    let mut left = share * nodes.values().sum::<usize>() as f64;
    let mut by_count: Vec<(String, usize)> = nodes.into_iter().collect();
    by_count.sort_by_key(|(_, count)| *count);
    let kernels = by_count.len();
    let of_kernel = |(at, (kernel, count)): (usize, (String, usize))| {
        // What a kernel of few nodes leaves goes to the others.
        let each = (left / (kernels - at) as f64).min(count as f64);
        left -= each;
        (kernel, each / count.max(1) as f64)
    };
    by_count.into_iter().enumerate().map(of_kernel).collect()
}

/// Bytes of a call's inputs and outputs, but not of weights, and not of pools, whose named parts nobody knows yet.
fn call_bytes(graph: &Graph, id: NodeId, symbols: &Symbols) -> u64 {
    let node = graph.node(id);
    let pools = node.op.pools(&graph.input_types(node));
    let whole = |pools: &[usize], values: &[ValueId]| -> Vec<ValueId> {
        let values = values.iter().enumerate().filter(|(at, _)| !pools.contains(at));
        values.map(|(_, &value)| value).collect()
    };
    let [of_inputs, of_outputs] = pools.map_or_else(Default::default, |pools| [pools.inputs, pools.outputs]);
    let values = [whole(&of_inputs, &node.inputs), whole(&of_outputs, &node.outputs)].concat();
    let values = values.into_iter().map(|id| graph.value(id)).filter(|value| value.origin != Origin::Weight);
    let bytes = |ty: &tapml_graph::TensorType| byte_len(ty.dtype, &ty.sizes(symbols).ok()?);
    values.map(|value| bytes(&value.ty).map_or(u64::MAX, |bytes| bytes as u64)).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_exec::Accumulate;
    use tapml_graph::{DType, Dim};

    fn sampler(share: f64, nodes: usize, seed: u64) -> ShadowSampler {
        let accumulate = Accumulate { dtype: DType::F32, chain: Dim::from(0usize), keeps_chain: false };
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
            let (step_share, node_share) = (sampler.step_share, sampler.node_shares["a/portable"]);
            assert!((step_share * node_share - share).abs() < 1e-12, "{share} of {nodes}");
            assert!(step_share <= 1.0 && node_share <= 1.0, "{step_share} {node_share}");
        }
    }

    #[test]
    fn a_kernel_of_few_nodes_has_the_part_of_one_of_many() {
        let nodes = [("one", 1), ("eight", 8), ("many", 91)];
        let shares = share_alike(0.16, nodes.map(|(name, count)| (name.to_string(), count)).into());
        let calls = nodes.map(|(name, count)| shares[name] * count as f64);
        assert!(
            calls.iter().zip([1.0, 7.5, 7.5]).all(|(found, want)| (found - want).abs() < 1e-9),
            "{calls:?}"
        );
        let all = share_alike(1.0, nodes.map(|(name, count)| (name.to_string(), count)).into());
        assert!(all.values().all(|share| *share == 1.0), "{all:?}");
    }

    #[test]
    fn a_call_of_each_kernel_is_taken_early() {
        let graph =
            Graph::parse("graph g\ninput x: f32[n,2]\na: f32[n,2] = silu(x)\noutput a = a\n").unwrap();
        let mut sampler = sampler(1e-9, 1, 3);
        sampler.queue = Arc::new(ShadowQueue::new(9, 1000, ["a/portable".to_string()]));
        sampler.kernels =
            Arc::new(sampler.kernels.values().map(|kernel| ("a".into(), kernel.clone())).collect());
        let mut taken = |rows| {
            let looked = sampler.begin_step(false);
            looked.is_some_and(|looked| looked.watches(&graph, NodeId(0), &Symbols::np(rows, 0)))
        };
        assert!(taken(EARLY_ROWS + 1) && !taken(EARLY_ROWS + 1) && taken(3) && !taken(3));
    }

    #[test]
    fn steps_are_chosen_at_their_share_and_the_same_ones_each_time() {
        let chosen = || {
            let mut sampler = sampler(0.01, 160, 7);
            sampler.early_steps = [0; 2];
            (0..4000).map(|_| sampler.begin_step(false).is_some()).collect::<Vec<bool>>()
        };
        let steps = chosen().iter().filter(|chosen| **chosen).count();
        assert!((300..500).contains(&steps), "{steps} of 4000 at a share of 0.1");
        assert_eq!(chosen(), chosen());
    }
}
