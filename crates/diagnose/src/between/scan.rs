//! Looks through the traced steps of a loaded program: does every node find what was left for it, and is what it leaves
//! right for what it found? Each node is judged on its own inputs, so that one fault does not hide or imply another.

use super::runs::Step;
use crate::diagnose::Run;
use rayon::prelude::*;
use std::collections::HashMap;
use tapml_exec::{Call, TracedNode};
use tapml_graph::{Graph, Model, NodeId, Origin, Result, State, Symbols, Tensor, ValueId};
use tapml_migrate::verdict::{Exact, Judgement, Precision, judge};

/// So many equal bytes are no accident.
const TELLING: usize = 16;

/// Something that is not as it must be in a step.
#[derive(Clone, Debug)]
pub(super) struct Anomaly {
    /// [`Step::label`].
    pub step: String,
    /// The node that shows it.
    pub node: NodeId,
    pub what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// An input of the graph is not what was given.
    Given { input: String },
    /// A value is not what its node left.
    Changed { value: ValueId, producer: NodeId, holds: Holds },
    /// A state is not what the step before left in it.
    State { state: usize, holds: Holds },
    /// Bytes behind an output were written.
    Beyond { output: usize, bytes: u64 },
    /// An output is wrong for the inputs that the node found.
    Wrong(Box<Wrong>),
}

/// What stands where a value should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// What another node left in this step.
    Output(NodeId),
    /// What the same value was in the step before.
    Before,
    /// A state at the start of a text that is not empty.
    NotEmpty,
    /// What another state is to hold.
    State(usize),
    /// What memory was filled with before anyone wrote it.
    Nothing,
    /// Something else.
    Other,
}

/// A node call as it happened within the program, and why it is wrong.
#[derive(Clone, Debug)]
pub(super) struct Wrong {
    pub call: Call,
    pub observed: Vec<Tensor>,
    pub exact: Vec<Exact>,
    pub precision: Precision,
    pub judgement: Judgement,
    /// What the node left in the step before.
    pub earlier: Option<Vec<Tensor>>,
    /// The symbols of the step before.
    pub stale: Option<Symbols>,
}

/// What a step needs to know of the one before.
#[derive(Default)]
pub(super) struct Before {
    /// What each state was left as; empty before the first step.
    left: HashMap<ValueId, Tensor>,
    /// What each value that is read was when it was read.
    read: HashMap<ValueId, Tensor>,
    /// What each node left.
    outputs: HashMap<NodeId, Vec<Tensor>>,
    symbols: Option<Symbols>,
    /// Whether a text begins.
    first: bool,
}

impl Before {
    /// Before the first step of a text; the device may remember the step before it all the same.
    pub fn text(self) -> Before {
        Before { first: true, ..self }
    }

    /// After this step.
    pub fn step(run: &Run<'_>, step: &Step, traced: &[TracedNode]) -> Before {
        View::new(run, step, traced).after()
    }
}

/// The values of a step by node.
struct View<'a, 'r> {
    run: &'a Run<'r>,
    step: &'a Step,
    nodes: HashMap<&'a str, &'a TracedNode>,
}

/// What is not as it must be in a step, in the order of the graph. `judged` nodes are also judged by the oracle.
pub(super) fn scan(
    run: &Run<'_>,
    step: &Step,
    traced: &[TracedNode],
    before: &mut Before,
    judged: bool,
) -> Result<Vec<Anomaly>> {
    let view = View::new(run, step, traced);
    let mut found = Vec::new();
    for (id, node) in view.traced() {
        for (k, tensor) in node.inputs.iter().enumerate() {
            let value = run.suite.graph().node(id).inputs[k];
            if let Some(what) = tensor.as_ref().and_then(|t| view.input(value, t, before)) {
                found.push(Anomaly { step: step.label.clone(), node: id, what });
            }
        }
        for (output, &bytes) in node.beyond.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
            let what = What::Beyond { output, bytes };
            found.push(Anomaly { step: step.label.clone(), node: id, what });
        }
    }
    if judged {
        found.extend(view.judged(before)?);
    }
    found.sort_by_key(|a| a.node);
    *before = view.after();
    Ok(found)
}

impl<'a, 'r> View<'a, 'r> {
    fn new(run: &'a Run<'r>, step: &'a Step, traced: &'a [TracedNode]) -> View<'a, 'r> {
        let nodes = traced.iter().map(|t| (t.node.as_str(), t)).collect();
        View { run, step, nodes }
    }

    /// The traced nodes in graph order.
    fn traced(&self) -> impl Iterator<Item = (NodeId, &'a TracedNode)> + '_ {
        let all = self.run.suite.graph().nodes().iter().zip(0u32..);
        all.filter_map(|(node, i)| Some((NodeId(i), *self.nodes.get(node.name.as_str())?)))
    }

    fn left(&self, producer: NodeId, output: u32) -> Option<&'a Tensor> {
        self.nodes.get(self.run.name(producer))?.outputs.get(output as usize)
    }

    /// What is wrong with an input as a node found it.
    fn input(&self, value: ValueId, found: &Tensor, before: &Before) -> Option<What> {
        let described = self.run.suite.graph().value(value);
        match described.origin {
            Origin::Weight => None,
            Origin::Input => {
                let given = self.step.inputs.get(&described.name)?;
                (!same(given, found)).then(|| What::Given { input: described.name.clone() })
            }
            Origin::Node { node, output } => {
                let left = self.left(node, output)?;
                let what =
                    || What::Changed { value, producer: node, holds: self.holds(value, found, before) };
                (!same(left, found)).then(what)
            }
            Origin::State(state) => self.state(state as usize, found, before),
        }
    }

    fn state(&self, state: usize, found: &Tensor, before: &Before) -> Option<What> {
        let output = self.run.suite.graph().states()[state].output;
        if before.first {
            let empty = found.bytes().iter().all(|&b| b == 0);
            return (!empty).then_some(What::State { state, holds: Holds::NotEmpty });
        }
        let left = before.left.get(&output)?;
        if same(left, found) {
            return None;
        }
        let states = self.run.suite.graph().states().iter().enumerate();
        let other = |(_, s): &(usize, &State)| before.left.get(&s.output).is_some_and(|t| same(t, found));
        let old = before.read.get(&self.run.suite.graph().states()[state].input);
        let holds = match states.filter(|(i, _)| *i != state).find(other) {
            Some((i, _)) => Holds::State(i),
            None if old.is_some_and(|t| same(t, found)) => Holds::Before,
            None => Holds::Other,
        };
        Some(What::State { state, holds })
    }

    /// What stands where this value should be.
    fn holds(&self, value: ValueId, found: &Tensor, before: &Before) -> Holds {
        let bytes = &found.bytes()[..];
        let nothing = bytes.chunks_exact(4).all(|w| w == tapml_exec::POISON.to_le_bytes());
        if nothing || bytes.iter().all(|&b| b == 0) {
            return Holds::Nothing;
        }
        if before.read.get(&value).is_some_and(|t| same(t, found)) {
            return Holds::Before;
        }
        // Where memory overlaps, the value that was written later shows its beginning.
        let begins = |t: &Tensor| t.bytes().iter().zip(bytes).take_while(|(a, b)| a == b).count();
        let common = |node: &TracedNode| node.outputs.iter().map(begins).max().unwrap_or(0);
        let all = self.traced().map(|(id, node)| (common(node), id));
        // Of equal ones the first: others may hand it on.
        let best = all.reduce(|best, other| if other.0 > best.0 { other } else { best });
        match best {
            Some((len, id)) if len >= bytes.len().min(TELLING) => Holds::Output(id),
            _ => Holds::Other,
        }
    }

    /// The nodes whose outputs are wrong for what they found.
    fn judged(&self, before: &Before) -> Result<Vec<Anomaly>> {
        let (suite, model, oracles) = (self.run.suite, self.run.model, self.run.oracles);
        let calls: Vec<(NodeId, Call, &[Tensor], Precision)> = self
            .traced()
            .map(|(id, node)| {
                let call = call_of(suite.graph(), model, id, node, &self.step.symbols)?;
                let precision = self.run.choices.precision(id, &self.step.symbols)?;
                Ok((id, call, node.outputs.as_slice(), precision))
            })
            .collect::<Result<_>>()?;
        let label = &self.step.label;
        let wrong = calls.into_par_iter().filter_map(|(id, call, observed, precision)| {
            if found_nan(&call) {
                return None;
            }
            // An index that points nowhere has no exact result; the node that gave it is judged itself.
            let exact = oracles.exact(&call, u64::from(id.0)).ok()?;
            let judgement = judge(&exact, observed, precision, None).ok()?;
            if judgement.passed() {
                return None;
            }
            let (earlier, stale) = (before.outputs.get(&id).cloned(), before.symbols.clone());
            let observed = observed.to_vec();
            let wrong = Wrong { call, observed, exact, precision, judgement, earlier, stale };
            Some(Anomaly { step: label.clone(), node: id, what: What::Wrong(Box::new(wrong)) })
        });
        Ok(wrong.collect())
    }

    fn after(&self) -> Before {
        let graph = self.run.suite.graph();
        let (mut left, mut read, mut outputs) = (HashMap::new(), HashMap::new(), HashMap::new());
        for state in graph.states() {
            if let Origin::Node { node, output } = graph.value(state.output).origin
                && let Some(tensor) = self.left(node, output)
            {
                left.insert(state.output, tensor.clone());
            }
        }
        for (id, node) in self.traced() {
            outputs.insert(id, node.outputs.clone());
            for (&value, tensor) in graph.node(id).inputs.iter().zip(&node.inputs) {
                if let Some(tensor) = tensor {
                    read.insert(value, tensor.clone());
                }
            }
        }
        Before { left, read, outputs, symbols: Some(self.step.symbols.clone()), first: false }
    }
}

/// The call that a node made within the program.
pub(super) fn call_of(
    graph: &Graph,
    model: &Model,
    id: NodeId,
    traced: &TracedNode,
    symbols: &Symbols,
) -> Result<Call> {
    let node = graph.node(id);
    let (mut inputs, mut weights) = (Vec::new(), Vec::new());
    for (&value, found) in node.inputs.iter().zip(&traced.inputs) {
        let name = &graph.value(value).name;
        weights.push(found.is_none().then(|| name.clone()));
        inputs.push(match found {
            Some(tensor) => tensor.clone(),
            None => model.weight(name)?.clone(),
        });
    }
    Ok(Call {
        node: node.name.clone(),
        op: node.op.clone(),
        symbols: symbols.clone(),
        inputs,
        input_types: graph.input_types(node),
        weights,
        output_types: node.outputs.iter().map(|&v| graph.value(v).ty.clone()).collect(),
    })
}

/// Whether a call found a NaN, such as the poison of memory that nobody wrote. WGSL leaves open what operations give for
/// it (WGSL, section 15.7.2), so only the node that it came from can be judged.
fn found_nan(call: &Call) -> bool {
    let found =
        call.inputs.iter().zip(&call.weights).filter(|(t, weight)| weight.is_none() && t.dtype().is_float());
    found.into_iter().any(|(tensor, _)| tensor.to_f32().iter().any(|v| v.is_nan()))
}

fn same(a: &Tensor, b: &Tensor) -> bool {
    a.shape() == b.shape() && a.bytes()[..] == b.bytes()[..]
}
