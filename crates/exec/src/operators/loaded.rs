//! A graph on a server of nodes: the loop over its nodes, its values and its states.
//!
//! Only what is read outside crosses the wire: outputs, traced values and what the plan keeps here. States
//! stay with the server between runs.

use super::held::{Held, ServerWeights, ValuePlace};
use super::plan::OperatorPlan;
use super::server::{NodeCall, NodeInput};
use crate::again::{Reopen, repeat};
use crate::{Loaded, Observer, TracedNode};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tapml_graph::{
    Context, Error, Graph, Model, Node, Origin, Result, State, Symbol, Symbols, Tensor, TensorType, ValueId,
};

/// See the module.
pub(super) struct OperatorLoaded {
    /// Graph and weights.
    model: Model,
    /// The server and its weights.
    shared: ServerWeights,
    /// For each value that is a weight, where the server holds it.
    weights: Vec<Option<Arc<Held>>>,
    /// Which values are needed where, and until when.
    plan: OperatorPlan,
    /// In the order of the graph's states.
    states: Vec<ValuePlace>,
    /// Rows that went into the states; `None` after a failed run.
    rows: Option<u64>,
    /// Names of nodes whose values are kept.
    trace: HashSet<String>,
    /// `None` before the first run and after a failed one.
    traced: Option<Vec<TracedNode>>,
    /// The server's generation that holds weights and states.
    generation: u64,
    /// The runs that made the states what they are, of a server that may be lost.
    history: Vec<(Symbols, HashMap<String, Tensor>)>,
}

impl Reopen for OperatorLoaded {
    fn reopen(&mut self, lost: Error) -> Result<()> {
        self.shared.reopen(lost)
    }
}

/// The values of one run, by value id.
type PlacedValues = Vec<Option<ValuePlace>>;

impl OperatorLoaded {
    /// Sends the weights that the server does not hold; states begin empty.
    ///
    /// # Errors
    /// If a weight cannot be read or sent.
    pub fn new(model: &Model, shared: &ServerWeights, trace: &HashSet<String>) -> Result<OperatorLoaded> {
        let mut loaded = OperatorLoaded {
            model: model.clone(),
            shared: shared.clone(),
            weights: put(model, shared)?,
            plan: OperatorPlan::from_graph(model.graph(), trace),
            states: Vec::new(),
            rows: None,
            trace: trace.clone(),
            traced: None,
            generation: shared.generation(),
            history: Vec::new(),
        };
        loaded.reset()?;
        Ok(loaded)
    }

    /// Brings weights and states back to a server that was opened again: by the same runs, so that they have the same bits.
    fn restore(&mut self) -> Result<()> {
        let generation = self.shared.generation();
        self.weights = put(&self.model, &self.shared)?;
        // `reset` clears it, and it is needed for the next loss as well.
        let history = std::mem::take(&mut self.history);
        let again = self.reset().and_then(|()| {
            history.iter().try_for_each(|(symbols, inputs)| self.step(symbols, inputs).map(drop))
        });
        self.history = history;
        again.inspect(|()| self.generation = generation)
    }

    /// One run over all nodes.
    fn step(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
    ) -> Result<HashMap<String, Tensor>> {
        let mut values = self.start(symbols, inputs)?;
        // Set again when the run has succeeded.
        (self.rows, self.traced) = (None, None);
        let model = self.model.clone();
        let graph = model.graph();
        for (node, dead) in graph.nodes().iter().zip(&self.plan.dead) {
            self.node(node, &mut values, symbols).context(|| format!("node `{}`", node.name))?;
            for id in dead {
                // The last holder's drop frees the value on the server.
                values[id.0 as usize] = None;
            }
        }
        let outputs = graph.outputs().iter();
        let outputs = outputs.map(|o| Ok((o.name.clone(), self.tensor(&values, o.value)?)));
        let outputs = outputs.collect::<Result<_>>()?;
        self.traced = Some(self.trace(&values)?);
        for (state, held) in graph.states().iter().zip(&mut self.states) {
            let value = values[state.output.0 as usize].clone();
            *held = value.ok_or_else(|| missing(graph, state.output))?;
        }
        let (n, p) = (symbols.get(Symbol::N), symbols.get(Symbol::P));
        self.rows = n.zip(p).map(|(n, p)| n.saturating_add(p));
        Ok(outputs)
    }

    /// Inputs and states, if they are those that the graph asks for.
    fn start(&self, symbols: &Symbols, inputs: &HashMap<String, Tensor>) -> Result<PlacedValues> {
        let graph = self.model.graph();
        let mut values: PlacedValues = vec![None; graph.values().len()];
        for (id, value) in graph.inputs() {
            let missing = || Error::invalid(format!("input `{}` ({}) is missing", value.name, value.ty));
            let tensor = inputs.get(&value.name).ok_or_else(missing)?;
            let (expected, found) =
                (value.ty.bind(symbols)?, TensorType::new(tensor.dtype(), tensor.shape().to_vec()));
            if expected != found {
                return Err(Error::invalid(format!(
                    "input `{}`: expected {expected}, found {found}",
                    value.name
                )));
            }
            values[id.0 as usize] = Some(ValuePlace::Here(tensor.clone()));
        }
        let known = |name: &str| graph.inputs().any(|(_, v)| v.name == name);
        if let Some(name) = inputs.keys().find(|name| !known(name)) {
            return Err(Error::invalid(format!("graph `{}` has no input `{name}`", graph.name())));
        }
        let p = symbols.get(Symbol::P);
        if !graph.states().is_empty() && self.rows != p {
            let p = p.map_or("unbound".into(), |p| p.to_string());
            let held = self.rows.map_or("an undefined number of rows".into(), |r| format!("{r} rows"));
            return Err(Error::invalid(format!("p is {p}, but the states hold {held}")));
        }
        for (state, held) in graph.states().iter().zip(&self.states) {
            values[state.input.0 as usize] = Some(held.clone());
        }
        Ok(values)
    }

    /// One call of the server.
    fn node(&self, node: &Node, values: &mut PlacedValues, symbols: &Symbols) -> Result<()> {
        let graph = self.model.graph();
        let input = |id: &ValueId| match (&values[id.0 as usize], &self.weights[id.0 as usize]) {
            (Some(ValuePlace::Here(tensor)), _) => Ok(NodeInput::Here(tensor)),
            (Some(ValuePlace::There(held)), _) | (None, Some(held)) => Ok(NodeInput::Held(held.id())),
            (None, None) => Err(missing(graph, *id)),
        };
        let outputs = node.outputs.iter().map(|&id| graph.value(id).ty.bind(symbols));
        let call = NodeCall {
            node: &node.name,
            op: &node.op,
            symbols,
            inputs: node.inputs.iter().map(input).collect::<Result<_>>()?,
            constants: node.inputs.iter().map(|id| graph.value(*id).origin == Origin::Weight).collect(),
            outputs: outputs.collect::<Result<_>>()?,
            keep: node.outputs.iter().map(|id| !self.plan.here[id.0 as usize]).collect(),
        };
        let gave = self.shared.call(&call)?;
        for (id, place) in node.outputs.iter().zip(gave) {
            values[id.0 as usize] = Some(place);
        }
        Ok(())
    }

    /// A value whose bytes are here.
    fn tensor(&self, values: &PlacedValues, id: ValueId) -> Result<Tensor> {
        let value = self.model.graph().value(id);
        match (&values[id.0 as usize], value.origin) {
            (Some(place), _) => place.clone().tensor(),
            (None, Origin::Weight) => self.model.weight(&value.name),
            (None, _) => Err(missing(self.model.graph(), id)),
        }
    }

    /// The values of the traced nodes, as the run left them.
    fn trace(&self, values: &PlacedValues) -> Result<Vec<TracedNode>> {
        let graph = self.model.graph();
        let one = |node: &Node| {
            let input = |&id: &ValueId| match graph.value(id).origin {
                Origin::Weight => Ok(None),
                _ => self.tensor(values, id).map(Some),
            };
            Ok(TracedNode {
                node: node.name.clone(),
                inputs: node.inputs.iter().map(input).collect::<Result<_>>()?,
                outputs: node.outputs.iter().map(|&id| self.tensor(values, id)).collect::<Result<_>>()?,
                out_of_bounds_bytes: vec![0; node.outputs.len()],
            })
        };
        graph.nodes().iter().filter(|node| self.trace.contains(&node.name)).map(one).collect()
    }
}

/// The weights of a model, where the server holds them.
fn put(model: &Model, shared: &ServerWeights) -> Result<Vec<Option<Arc<Held>>>> {
    let graph = model.graph();
    let mut weights = vec![None; graph.values().len()];
    for (id, value) in graph.weights() {
        weights[id.0 as usize] = Some(shared.weight(&value.name, &model.weight(&value.name)?)?);
    }
    Ok(weights)
}

/// A bug: the order of nodes is that of the graph.
fn missing(graph: &Graph, id: ValueId) -> Error {
    Error::bug(format!("value `{}` is not there when it is needed", graph.value(id).name))
}

impl Loaded for OperatorLoaded {
    fn run(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        observer: Option<&mut dyn Observer>,
    ) -> Result<HashMap<String, Tensor>> {
        if observer.is_some() {
            return Err(Error::unsupported("a device that runs operators itself shows no single nodes")
                .with_hint("record on the platform `cpu`"));
        }
        let outputs = repeat(self, |loaded| {
            if loaded.generation != loaded.shared.generation() {
                loaded.restore()?;
            }
            loaded.step(symbols, inputs)
        })?;
        // Without states every run stands for itself, and nothing has to be repeated.
        if self.shared.reopens() && !self.states.is_empty() {
            self.history.push((symbols.clone(), inputs.clone()));
        }
        Ok(outputs)
    }

    fn reset(&mut self) -> Result<()> {
        self.history.clear();
        let graph = self.model.graph();
        let empty = |state: &State| {
            let ty = &graph.value(state.input).ty;
            let sizes = ty.sizes(&Symbols::np(0, 0)).context(|| format!("state `{}`", state.name))?;
            let zeros = vec![0.0; sizes.iter().product()];
            // Empty states are sent with the first call.
            Ok(ValuePlace::Here(Tensor::from_f64(ty.dtype, sizes, &zeros)?))
        };
        self.states = graph.states().iter().map(empty).collect::<Result<_>>()?;
        self.rows = Some(0);
        Ok(())
    }

    fn traced_nodes(&mut self) -> Result<Vec<TracedNode>> {
        let none = || Error::invalid("there was no run whose values could be shown");
        self.traced.clone().ok_or_else(none)
    }
}
