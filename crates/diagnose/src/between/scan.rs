//! Looks through the traced steps of a loaded program: does every node find what was left for it, and is what it leaves
//! right for what it found? Each node is judged on its own inputs, so that one fault does not hide or imply another.
//!
//! Comparisons are of bytes: what a node finds must be exactly what was left or given.

use super::runs::RunStep;
use super::traced::TracedValues;
use crate::context::DiagnosisContext;
use rayon::prelude::*;
use std::collections::HashMap;
use tapml_exec::{Call, TracedNode};
use tapml_graph::{DType, Graph, Model, NodeId, Origin, Result, State, Symbols, Tensor, ValueId};
use tapml_migrate::verdict::{Exact, Judgement, Precision, judge};

/// So many equal bytes are no accident.
/// Four words, such as the beginning of a row.
const CLEAR_BYTES: usize = 16;

/// Inputs that are so many times larger than in the recorded run come from a fault before; what a node makes of them says
/// little, since rounding may do anything then.
/// One is added to the recorded magnitude, so that small values are not taken for garbage.
const GARBAGE: f32 = 1e3;

/// Something that is not as it must be in a step.
#[derive(Clone, Debug)]
pub(super) struct Anomaly {
    /// [`RunStep::label`].
    pub step: String,
    /// The node that shows it.
    pub node: NodeId,
    pub what: AnomalyKind,
}

/// What is not as it must be. The first four are about memory, the others about what a node computed.
#[derive(Clone, Debug)]
pub(super) enum AnomalyKind {
    /// A value that the program gets from outside is not what was given.
    Given { value: ValueId, holds: Holds },
    /// A value is not what its node left.
    Changed { value: ValueId, producer: NodeId, holds: Holds },
    /// A state is not what the step before left in it.
    State { state: usize, holds: Holds },
    /// Bytes behind an output were written.
    Overrun { output: usize, bytes: u64 },
    /// An output is wrong for the inputs that the node found.
    Wrong(Box<Wrong>),
    /// An output is another than the node gives alone for the inputs that it found.
    Differs(Box<Differs>),
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
    /// A state at the start of a text that is what the last text left in it.
    Kept,
    /// What another state is to hold.
    State(usize),
    /// What memory was filled with before anyone wrote it.
    Nothing,
    /// The value itself, rounded to a narrower type.
    Rounded(DType),
    /// Something else.
    Other,
}

/// A node call as it happened within the program, and why it is wrong.
#[derive(Clone, Debug)]
pub(super) struct Wrong {
    /// The inputs are those that the node found.
    pub call: Call,
    /// What it left.
    pub observed: Vec<Tensor>,
    /// What it should have left, from the oracle.
    pub exact: Vec<Exact>,
    pub precision: Precision,
    /// The verdict, which fails.
    pub judgement: Judgement,
}

/// A node call as it happened within the program, and what the node gives alone.
#[derive(Clone, Debug)]
pub(super) struct Differs {
    pub call: Call,
    pub observed: Vec<Tensor>,
    /// What the same call gives by itself.
    pub alone: Vec<Tensor>,
}

/// What a step needs to know of the one before.
#[derive(Default)]
pub(super) struct Before {
    /// What each state was left as; empty before the first step.
    left: HashMap<ValueId, Tensor>,
    /// What each value that is read was when it was read.
    pub read: HashMap<ValueId, Tensor>,
    /// What each node left.
    pub outputs: HashMap<NodeId, Vec<Tensor>>,
    /// Sizes and positions of the step before.
    pub symbols: Option<Symbols>,
    /// Whether a text begins.
    first: bool,
}

impl Before {
    /// Before the first step of a text; the device may remember the step before it all the same.
    pub fn text(self) -> Before {
        Before { first: true, ..self }
    }

    /// After this step.
    pub fn step(run: &DiagnosisContext<'_>, step: &RunStep, values: &TracedValues) -> Before {
        StepView::new(run, step, values).memory_after()
    }
}

/// The values of a step by node.
struct StepView<'a, 'r> {
    run: &'a DiagnosisContext<'r>,
    step: &'a RunStep,
    values: &'a TracedValues,
    /// By name, as the trace gives them.
    nodes: HashMap<&'a str, &'a TracedNode>,
}

/// What is not as it must be in a step, in the order of the graph. `judged` nodes are also judged by the oracle.
pub(super) fn scan(
    run: &DiagnosisContext<'_>,
    step: &RunStep,
    values: &TracedValues,
    before: &Before,
    judged: bool,
) -> Result<Vec<Anomaly>> {
    let view = StepView::new(run, step, values);
    let mut found = Vec::new();
    for (id, node) in view.traced_nodes() {
        for (k, tensor) in node.inputs.iter().enumerate() {
            let value = run.suite.graph().node(id).inputs[k];
            if let Some(what) = tensor.as_ref().and_then(|t| view.input((id, value), t, before)) {
                found.push(Anomaly { step: step.label.clone(), node: id, what });
            }
        }
        for (output, &bytes) in node.out_of_bounds_bytes.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
            let what = AnomalyKind::Overrun { output, bytes };
            found.push(Anomaly { step: step.label.clone(), node: id, what });
        }
    }
    if judged {
        found.extend(view.judge_nodes()?);
    }
    // Stable, so that what a node finds stands before what it leaves.
    found.sort_by_key(|a| a.node);
    Ok(found)
}

impl<'a, 'r> StepView<'a, 'r> {
    /// The view of one step; nothing is copied.
    fn new(run: &'a DiagnosisContext<'r>, step: &'a RunStep, values: &'a TracedValues) -> StepView<'a, 'r> {
        let nodes = values.nodes.iter().map(|t| (t.node.as_str(), t)).collect();
        StepView { run, step, values, nodes }
    }

    /// The traced nodes in graph order.
    fn traced_nodes(&self) -> impl Iterator<Item = (NodeId, &'a TracedNode)> + '_ {
        let all = self.run.suite.graph().nodes().iter().zip(0u32..);
        all.filter_map(|(node, i)| Some((NodeId(i), *self.nodes.get(node.name.as_str())?)))
    }

    /// What a node left in one of its outputs; `None` if it is not traced.
    fn left_output(&self, producer: NodeId, output: u32) -> Option<&'a Tensor> {
        self.nodes.get(self.run.name(producer))?.outputs.get(output as usize)
    }

    /// What is wrong with an input as a node found it.
    fn input(
        &self,
        (reader, value): (NodeId, ValueId),
        found: &Tensor,
        before: &Before,
    ) -> Option<AnomalyKind> {
        if let Some(given) = self.values.given.get(&(reader, value)) {
            // The kind is found out only where the bytes differ.
            let what = || AnomalyKind::Given { value, holds: self.judge_given(value, given, found, before) };
            return (!are_same(given, found)).then(what);
        }
        match self.run.suite.graph().value(value).origin {
            // Inputs of the graph are given from outside, which was looked at above.
            Origin::Weight | Origin::Input => None,
            Origin::Node { node, output } => {
                let left = self.left_output(node, output)?;
                let what = || AnomalyKind::Changed {
                    value,
                    producer: node,
                    holds: self.holds(value, found, before),
                };
                (!are_same(left, found)).then(what)
            }
            Origin::State(state) => self.state(state as usize, found, before),
        }
    }

    /// What stands where a value from outside should be.
    fn judge_given(&self, value: ValueId, given: &Tensor, found: &Tensor, before: &Before) -> Holds {
        let old = before.read.get(&value).map(|t| &t.bytes()[..]).unwrap_or_default();
        // Steps differ in length: what is left of the old one is its beginning.
        let common = old.len().min(found.bytes().len());
        let narrow = [DType::F16, DType::BF16].into_iter().find(|&dtype| is_rounded(given, dtype, found));
        match narrow {
            Some(dtype) => Holds::Rounded(dtype),
            None if common > 0 && old[..common] == found.bytes()[..common] => Holds::Before,
            None if self.values.is_untouched(found) => Holds::Nothing,
            None => Holds::Other,
        }
    }

    /// What is wrong with a state as a node found it: it must be empty at the start of a text, and what the last step left after.
    fn state(&self, state: usize, found: &Tensor, before: &Before) -> Option<AnomalyKind> {
        let output = self.run.suite.graph().states()[state].output;
        if before.first {
            let empty = found.bytes().iter().all(|&b| b == 0);
            let kept = before.left.get(&output).is_some_and(|left| are_same(left, found));
            let holds = if kept { Holds::Kept } else { Holds::NotEmpty };
            return (!empty).then_some(AnomalyKind::State { state, holds });
        }
        let left = before.left.get(&output)?;
        if are_same(left, found) {
            return None;
        }
        let states = self.run.suite.graph().states().iter().enumerate();
        let other = |(_, s): &(usize, &State)| before.left.get(&s.output).is_some_and(|t| are_same(t, found));
        let old = before.read.get(&self.run.suite.graph().states()[state].input);
        let holds = match states.filter(|(i, _)| *i != state).find(other) {
            Some((i, _)) => Holds::State(i),
            None if old.is_some_and(|t| are_same(t, found)) => Holds::Before,
            None => Holds::Other,
        };
        Some(AnomalyKind::State { state, holds })
    }

    /// What stands where this value should be.
    fn holds(&self, value: ValueId, found: &Tensor, before: &Before) -> Holds {
        let bytes = &found.bytes()[..];
        if self.values.is_untouched(found) || bytes.iter().all(|&b| b == 0) {
            return Holds::Nothing;
        }
        if before.read.get(&value).is_some_and(|t| are_same(t, found)) {
            return Holds::Before;
        }
        // Where memory overlaps, the value that was written later shows its beginning.
        let begins = |t: &Tensor| t.bytes().iter().zip(bytes).take_while(|(a, b)| a == b).count();
        let common = |node: &TracedNode| node.outputs.iter().map(begins).max().unwrap_or(0);
        let all = self.traced_nodes().map(|(id, node)| (common(node), id));
        // Of equal ones the first: others may hand it on.
        let best = all.reduce(|best, other| if other.0 > best.0 { other } else { best });
        match best {
            Some((len, id)) if len >= bytes.len().min(CLEAR_BYTES) => Holds::Output(id),
            _ => Holds::Other,
        }
    }

    /// The nodes whose outputs are wrong for what they found.
    fn judge_nodes(&self) -> Result<Vec<Anomaly>> {
        let (suite, model, oracles) = (self.run.suite, self.run.model, self.run.oracles);
        let values = self.values;
        let calls: Vec<(NodeId, Call, &[Tensor], Precision)> = self
            .traced_nodes()
            .map(|(id, node)| {
                let call = call_of(suite.graph(), model, id, node, &self.step.symbols)?;
                let precision = self.run.choices.precision(id, &self.step.symbols)?;
                Ok((id, call, node.outputs.as_slice(), precision))
            })
            .collect::<Result<_>>()?;
        // The oracle takes most of the time, so that nodes are judged in parallel; the order is kept.
        let wrong = calls.into_par_iter().filter_map(|(id, call, observed, precision)| {
            if is_spoilt(values, &call) {
                return None;
            }
            // An index that points nowhere has no exact result; the node that gave it is judged itself.
            let exact = oracles.exact(&call, u64::from(id.0)).ok()?;
            let judgement = judge(&exact, observed, precision, None).ok()?;
            (!judgement.passes())
                .then(|| (id, Wrong { call, observed: observed.to_vec(), exact, precision, judgement }))
        });
        let wrong: Vec<(NodeId, Wrong)> = wrong.collect();
        let wrong = wrong.into_iter().filter(|(id, wrong)| !self.garbage(*id, &wrong.call));
        let anomaly = |(id, wrong)| {
            let what = AnomalyKind::Wrong(Box::new(wrong));
            Anomaly { step: self.step.label.clone(), node: id, what }
        };
        Ok(wrong.map(anomaly).collect())
    }

    /// Whether a call found numbers that are far larger than those of the recorded run.
    fn garbage(&self, id: NodeId, call: &Call) -> bool {
        let Some(frame) = self.step.frame else { return false };
        let largest = |t: &Tensor| t.to_f32().iter().fold(0.0f32, |a, v| a.max(v.abs()));
        let found = self.run.suite.graph().node(id).inputs.iter().zip(&call.inputs).zip(&call.weights);
        let mut found = found.filter(|((_, t), weight)| weight.is_none() && t.dtype().is_float());
        found.any(|((&value, t), _)| {
            let recorded = self.run.suite.value(frame, value);
            recorded.is_ok_and(|recorded| largest(t) > GARBAGE * (1.0 + largest(&recorded)))
        })
    }

    /// What the next step needs to know of this one. States that no traced node left are unknown to it.
    fn memory_after(&self) -> Before {
        let graph = self.run.suite.graph();
        let (mut left, mut read, mut outputs) = (HashMap::new(), HashMap::new(), HashMap::new());
        for state in graph.states() {
            if let Origin::Node { node, output } = graph.value(state.output).origin
                && let Some(tensor) = self.left_output(node, output)
            {
                left.insert(state.output, tensor.clone());
            }
        }
        for (id, node) in self.traced_nodes() {
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
/// Inputs that the trace does not have are weights, which the model gives.
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
            None => model.weight(name)?,
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

/// Whether a call found a NaN or what memory was filled with. WGSL leaves open what operations give for a NaN (WGSL,
/// section 15.7.2), so only the node that it came from can be judged.
fn is_spoilt(values: &TracedValues, call: &Call) -> bool {
    let found = call.inputs.iter().zip(&call.weights).filter(|(_, weight)| weight.is_none());
    found
        .into_iter()
        .any(|(t, _)| values.touches_fill(t) || t.dtype().is_float() && t.to_f32().iter().any(|v| v.is_nan()))
}

/// Whether `found` is `given`, its numbers rounded to a type: floats, integers that pass through floats, or words that are
/// taken for integers.
fn is_rounded(given: &Tensor, dtype: DType, found: &Tensor) -> bool {
    let words = |t: &Tensor| Tensor::new(DType::U32, vec![t.bytes().len() / 4], t.bytes().clone()).ok();
    let narrow = |t: &Tensor| {
        let all = Tensor::from_f32_as(dtype, vec![t.len()], t.to_f32().into_owned()).ok()?;
        Some(all.to_f32().into_owned())
    };
    let through = |given: &Tensor, found: &Tensor| {
        let narrow = narrow(given).unwrap_or_default();
        // What is too large for the type is too large for an integer, too.
        let same =
            |(&a, &b): (&f32, &f32)| a == b || a.is_infinite() && !found.dtype().is_float() && b >= 4e9;
        narrow.len() == found.len() && !found.is_empty() && narrow.iter().zip(found.to_f32().iter()).all(same)
    };
    given.dtype() == found.dtype()
        && (through(given, found)
            || words(given).zip(words(found)).is_some_and(|(given, found)| through(&given, &found)))
}

/// Same shape and same bytes.
fn are_same(a: &Tensor, b: &Tensor) -> bool {
    a.shape() == b.shape() && a.bytes()[..] == b.bytes()[..]
}
