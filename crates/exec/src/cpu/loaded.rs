//! A graph on the `cpu` platform: its values, its states, and the loop over its nodes.
//!
//! A run goes through the nodes in graph order on the thread pool; operators split their own work. Values
//! are freed after their last use. After a failed run `rows` is none, so that the next run is refused until
//! a reset.

use super::quantized::{Quantized, only_packed};
use super::rows::StateRows;
use super::weights::ConvertedWeights;
use crate::observer::narrow_pools;
use crate::{Loaded, NodeEvent, Observer};
use std::borrow::Cow;
use std::collections::HashMap;
use tapml_graph::{
    Context, DType, Dim, Error, Graph, Model, Node, NodeId, Origin, Result, State, Symbol, Symbols, Tensor,
    ValueId,
};
use tapml_reference::{Value, eval, on_pool};

/// See the module.
pub(super) struct CpuLoaded {
    /// Graph and weights.
    model: Model,
    /// For each value of the graph that is a weight, its numbers, unless only nodes with packed weights use it.
    weights: Vec<Option<Value<f32>>>,
    /// For each node with packed weights, what it computes with.
    quantized: Vec<Option<Quantized>>,
    /// In the order of the graph's states.
    states: Vec<Held>,
    /// Rows that went into states of a fixed shape; `None` after a failed run.
    rows: Option<u64>,
    /// For each node, the state that it adds rows to, or replaces rows of.
    grows: Vec<Option<usize>>,
    /// For each node, the values that nobody needs after it.
    dead: Vec<Vec<ValueId>>,
    /// About the multiplications of the last run, and its `n`. Rows before a run change them little.
    work: Option<(Option<u64>, u64)>,
}

/// What a state holds between runs.
enum Held {
    /// Rows that its `append` node adds to in place.
    Rows(StateRows),
    /// Rows of which its `paged_append` node replaces some in place.
    Pages(StateRows),
    /// Any other state.
    Whole(Tensor),
}

/// Bytes of outputs that nodes may give between two visits to an observer. A visit leaves the pool, and entering it again
/// costs more than a small node, so that a decode step should need one visit only.
const WATCHED: usize = 64 << 20;

/// What an observer is to see of a node.
struct WatchedNode {
    /// In the graph that runs.
    id: NodeId,
    /// With the operator for the parts of pools that are shown, if not all are.
    node: Node,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

/// What an observer wants to see.
#[derive(Default)]
struct Watching {
    /// For each node, whether it is to be seen.
    nodes: Vec<bool>,
    /// Bytes of outputs after which the observer is visited.
    visit_bytes: usize,
    /// See [`Observer::pool_bytes`].
    pool_bytes: Option<u64>,
}

/// The values of one run, by value id.
type RunValues = Vec<Option<Tensor>>;

impl CpuLoaded {
    /// Converts weights, which all graphs of the platform share.
    pub fn new(model: &Model, shared: &ConvertedWeights) -> Result<CpuLoaded> {
        let graph = model.graph();
        let quantized = graph.nodes().iter().map(|node| {
            Quantized::from_node(node, model, shared).context(|| format!("node `{}`", node.name))
        });
        let quantized = quantized.collect::<Result<Vec<_>>>()?;
        // A packed weight that is used in other ways, too, is needed as numbers as well.
        let packed = only_packed(graph, &quantized);
        let mut weights = vec![None; graph.values().len()];
        for (id, value) in graph.weights().filter(|(id, _)| !packed[id.0 as usize]) {
            let converted = shared.get(&value.name, &model.weight(&value.name)?);
            weights[id.0 as usize] = Some(converted.context(|| format!("weight `{}`", value.name))?);
        }
        let mut grows = vec![None; graph.nodes().len()];
        for (i, state) in graph.states().iter().enumerate() {
            if let Some(node) = grown_by(graph, state).or(overwritten_by(graph, state)) {
                grows[node.0 as usize] = Some(i);
            }
        }
        let (model, dead) = (model.clone(), dead(graph));
        let states = Vec::new();
        let mut loaded = CpuLoaded { model, weights, quantized, states, rows: None, grows, dead, work: None };
        // States are made in one place.
        loaded.reset()?;
        Ok(loaded)
    }

    /// Inputs and states by value id.
    ///
    /// # Errors
    /// If an input is missing, unknown or of another type, or `p` is not what the states hold.
    fn start(&self, symbols: &Symbols, inputs: &HashMap<String, Tensor>) -> Result<RunValues> {
        let graph = self.model.graph();
        let mut values: RunValues = vec![None; graph.values().len()];
        for (id, value) in graph.inputs() {
            let missing = || Error::invalid(format!("input `{}` ({}) is missing", value.name, value.ty));
            let tensor = inputs.get(&value.name).ok_or_else(missing)?;
            expect(&value.name, tensor, value.ty.dtype, &value.ty.sizes(symbols)?)?;
            values[id.0 as usize] = Some(tensor.clone());
        }
        let known = |name: &str| graph.inputs().any(|(_, v)| v.name == name);
        if let Some(name) = inputs.keys().find(|name| !known(name)) {
            return Err(Error::invalid(format!("graph `{}` has no input `{name}`", graph.name())));
        }
        let wanted = Dim::symbol(Symbol::S);
        let several_texts = graph.inputs().any(|(_, value)| value.ty.shape.contains(&wanted));
        for (state, held) in graph.states().iter().zip(&self.states) {
            let value = graph.value(state.input);
            match held {
                Held::Rows(rows) => {
                    let (have, p) = (rows.count(), symbols.get(Symbol::P));
                    if p != Some(have as u64) {
                        let p = p.map_or("unbound".into(), |p| p.to_string());
                        return Err(Error::invalid(format!(
                            "p is {p}, but state `{}` holds {have} rows",
                            state.name
                        )));
                    }
                }
                // Positions are an input: the number of rows says nothing of them.
                Held::Pages(_) => {}
                // So it is with slots, but after a failed run they are undefined.
                Held::Whole(tensor) => {
                    if self.rows != symbols.get(Symbol::P) && !(several_texts && self.rows.is_some()) {
                        let p = symbols.get(Symbol::P).map_or("unbound".into(), |p| p.to_string());
                        let rows = self.rows.map_or("an undefined number of".into(), |r| r.to_string());
                        return Err(Error::invalid(format!(
                            "p is {p}, but {rows} rows went into state `{}`",
                            state.name
                        )));
                    }
                    expect(&value.name, tensor, value.ty.dtype, &value.ty.sizes(symbols)?)?;
                    values[state.input.0 as usize] = Some(tensor.clone());
                }
            }
        }
        Ok(values)
    }

    /// One value as a tensor. Rows before a run are a view of what the state holds.
    fn tensor(&self, values: &RunValues, symbols: &Symbols, id: ValueId) -> Result<Tensor> {
        let value = self.model.graph().value(id);
        if let Some(tensor) = &values[id.0 as usize] {
            return Ok(tensor.clone());
        }
        match value.origin {
            Origin::Weight => self.model.weight(&value.name),
            Origin::State(i) => match &self.states[i as usize] {
                Held::Rows(rows) => rows.view(symbols.get(Symbol::P).unwrap_or(0) as usize),
                Held::Pages(rows) => rows.view(rows.count()),
                Held::Whole(_) => Err(Error::bug(format!("state `{}` has no value", value.name))),
            },
            _ => Err(Error::bug(format!("value `{}` is not there when it is needed", value.name))),
        }
    }

    /// One value as `f32` numbers.
    fn number(&self, values: &RunValues, symbols: &Symbols, id: ValueId) -> Result<Value<f32>> {
        match &self.weights[id.0 as usize] {
            Some(weight) => Ok(weight.clone()),
            None => Value::from_tensor(&self.tensor(values, symbols, id)?),
        }
    }

    /// The outputs of one node, each rounded to its dtype.
    fn evaluate(
        &mut self,
        (index, node): (usize, &Node),
        values: &RunValues,
        symbols: &Symbols,
    ) -> Result<Vec<Tensor>> {
        // Rows are added and replaced in place: copying the cache in each step would be quadratic.
        if let Some(i) = self.grows[index]
            && let Some(new) = &values[node.inputs[1].0 as usize]
        {
            match &mut self.states[i] {
                Held::Rows(rows) => {
                    rows.push(new)?;
                    return Ok(vec![rows.view(rows.count())?]);
                }
                Held::Pages(rows) => {
                    let slots = node.inputs.get(2).and_then(|slots| values[slots.0 as usize].as_ref());
                    let slots = slots.ok_or_else(|| Error::bug("no slots for the rows of a step"))?;
                    rows.overwrite(new, &slots.to_u32()?)?;
                    return Ok(vec![rows.view(rows.count())?]);
                }
                Held::Whole(_) => {}
            }
        }
        let numbers = |ids: &[ValueId]| {
            ids.iter().map(|&id| self.number(values, symbols, id)).collect::<Result<Vec<Value<f32>>>>()
        };
        let outputs = match &self.quantized[index] {
            Some(quantized) => vec![quantized.eval(symbols, &numbers(&quantized.inputs)?)?],
            None => eval(&node.op, symbols, &numbers(&node.inputs)?)?,
        };
        let typed = outputs.iter().zip(&node.outputs);
        typed.map(|(output, &id)| output.to_tensor(self.model.graph().value(id).ty.dtype)).collect()
    }

    /// About the multiplications of a run.
    fn work(&mut self, symbols: &Symbols) -> u64 {
        let n = symbols.get(Symbol::N);
        if let Some((_, known)) = self.work.filter(|(of, _)| *of == n) {
            return known;
        }
        let graph = self.model.graph();
        let nodes = graph.nodes().iter().map(|node| graph.estimate_work(node, symbols));
        let work = nodes.fold(0, u64::saturating_add);
        self.work = Some((n, work));
        work
    }

    /// Runs nodes from `start` on: all, or until those that are watched have given enough bytes. Gives what an observer is to
    /// see of them, and the node that follows.
    fn nodes(
        &mut self,
        start: usize,
        values: &mut RunValues,
        symbols: &Symbols,
        watching: &Watching,
    ) -> Result<(Vec<WatchedNode>, usize)> {
        let model = self.model.clone();
        let graph = model.graph();
        let (mut seen, mut bytes, mut next) = (Vec::new(), 0, start);
        for (i, node) in graph.nodes().iter().enumerate().skip(start) {
            let outputs =
                self.evaluate((i, node), values, symbols).context(|| format!("node `{}`", node.name))?;
            next = i + 1;
            if watching.nodes.get(i) == Some(&true) {
                // Before outputs are entered and dead values freed: an observer sees what the node saw.
                let inputs = node.inputs.iter().map(|&id| self.tensor(values, symbols, id));
                let (mut inputs, mut outputs) = (inputs.collect::<Result<Vec<_>>>()?, outputs.clone());
                let shown = match watching.pool_bytes {
                    Some(most) => narrow_pools(graph, node, (&mut inputs, &mut outputs), most)?,
                    None => Some(Cow::Borrowed(node)),
                };
                if let Some(node) = shown.map(Cow::into_owned) {
                    bytes += outputs.iter().map(|output| output.bytes().len()).sum::<usize>();
                    seen.push(WatchedNode { id: NodeId(i as u32), node, inputs, outputs });
                }
            }
            for (&id, output) in node.outputs.iter().zip(outputs) {
                values[id.0 as usize] = Some(output);
            }
            for id in &self.dead[i] {
                values[id.0 as usize] = None;
            }
            // At least one node is run each time.
            if bytes > watching.visit_bytes {
                break;
            }
        }
        Ok((seen, next))
    }

    /// Runs all nodes and shows the observer those that it watches, on the caller's thread: an observer may wait for other threads that
    /// need the pool themselves.
    fn watch(
        &mut self,
        values: &mut RunValues,
        symbols: &Symbols,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let model = self.model.clone();
        let graph = model.graph();
        let nodes = (0..graph.nodes().len() as u32).map(NodeId);
        let nodes = nodes.map(|id| observer.watches(graph, id, symbols)).collect();
        let watching = Watching { nodes, visit_bytes: WATCHED, pool_bytes: observer.pool_bytes() };
        let (mut done, work) = (0, self.work(symbols));
        while done < graph.nodes().len() {
            let (seen, next) = on_pool(work, || self.nodes(done, values, symbols, &watching))?;
            done = next;
            for WatchedNode { id, node, inputs, outputs } in seen {
                let (node, inputs, outputs) = (&node, &inputs[..], &outputs[..]);
                observer.node(&NodeEvent { graph, id, node, symbols, inputs, outputs })?;
            }
        }
        Ok(())
    }

    /// Outputs by name, and the states for the next run.
    fn finish(&mut self, values: &RunValues, symbols: &Symbols) -> Result<HashMap<String, Tensor>> {
        let model = self.model.clone();
        let graph = model.graph();
        let outputs = graph.outputs().iter();
        let outputs = outputs.map(|o| Ok((o.name.clone(), self.tensor(values, symbols, o.value)?)));
        let outputs: HashMap<String, Tensor> = outputs.collect::<Result<_>>()?;
        for (i, state) in graph.states().iter().enumerate() {
            // Rows were added in place.
            if matches!(self.states[i], Held::Whole(_)) {
                self.states[i] = Held::Whole(self.tensor(values, symbols, state.output)?);
            }
        }
        Ok(outputs)
    }
}

impl Loaded for CpuLoaded {
    fn run(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        observer: Option<&mut dyn Observer>,
    ) -> Result<HashMap<String, Tensor>> {
        let mut values = self.start(symbols, inputs)?;
        // A run that fails leaves some states changed and others not.
        self.rows = None;
        match observer {
            Some(observer) => self.watch(&mut values, symbols, observer)?,
            None => {
                let work = self.work(symbols);
                drop(on_pool(work, || self.nodes(0, &mut values, symbols, &Watching::default()))?)
            }
        }
        let outputs = self.finish(&values, symbols)?;
        let (n, p) = (symbols.get(Symbol::N), symbols.get(Symbol::P));
        self.rows = n.zip(p).map(|(n, p)| n.saturating_add(p));
        Ok(outputs)
    }

    fn reset(&mut self) -> Result<()> {
        let graph = self.model.graph();
        self.states = graph.states().iter().map(|state| empty(graph, state)).collect::<Result<_>>()?;
        self.rows = Some(0);
        Ok(())
    }
}

/// A state before the first run: no rows, or zeros.
fn empty(graph: &Graph, state: &State) -> Result<Held> {
    let ty = &graph.value(state.input).ty;
    let sizes = ty.sizes(&Symbols::np(0, 0)).context(|| format!("state `{}`", state.name))?;
    if grown_by(graph, state).is_some() {
        return Ok(Held::Rows(StateRows::new(ty.dtype, sizes[1..].to_vec())));
    }
    if overwritten_by(graph, state).is_some() {
        return Ok(Held::Pages(StateRows::zeros(ty.dtype, sizes[0], sizes[1..].to_vec())));
    }
    let zeros = vec![0.0; sizes.iter().product()];
    Ok(Held::Whole(Tensor::from_f64(ty.dtype, sizes, &zeros)?))
}

/// The node that makes a growing state's next value by adding rows to it, if it is made so.
fn grown_by(graph: &Graph, state: &State) -> Option<NodeId> {
    let Origin::Node { node: id, output: 0 } = graph.value(state.output).origin else { return None };
    let node = graph.node(id);
    let new = graph.value(*node.inputs.get(1)?).origin;
    let appends = state.grows(graph) && node.op.appends() && node.inputs[0] == state.input;
    (appends && matches!(new, Origin::Node { .. } | Origin::Input)).then_some(id)
}

/// The node that makes a state's next value by replacing rows of it, if it is made so by what the step computes or is given.
fn overwritten_by(graph: &Graph, state: &State) -> Option<NodeId> {
    let Origin::Node { node: id, output: 0 } = graph.value(state.output).origin else { return None };
    let node = graph.node(id);
    let given = |&input: &ValueId| matches!(graph.value(input).origin, Origin::Node { .. } | Origin::Input);
    let all = node.inputs.len() == 3 && node.inputs[1..].iter().all(given);
    (node.op.overwrites() && node.inputs[0] == state.input && all).then_some(id)
}

/// For each node, the values whose last use it is, outputs that nobody uses included. What the graph or a state gives
/// at the end stays, except the rows of growing states: a view of them would force the next step to copy.
fn dead(graph: &Graph) -> Vec<Vec<ValueId>> {
    let mut last: Vec<Option<usize>> = vec![None; graph.values().len()];
    for (i, node) in graph.nodes().iter().enumerate() {
        for id in node.inputs.iter().chain(&node.outputs) {
            last[id.0 as usize] = Some(i);
        }
    }
    // They are read after the last node.
    for id in graph.outputs().iter().map(|o| o.value).chain(graph.states().iter().map(|s| s.output)) {
        last[id.0 as usize] = None;
    }
    let mut dead = vec![Vec::new(); graph.nodes().len()];
    for (id, last) in last.iter().enumerate() {
        if let Some(node) = last {
            dead[*node].push(ValueId(id as u32));
        }
    }
    dead
}

/// Fails unless a tensor has this type.
fn expect(name: &str, tensor: &Tensor, dtype: DType, sizes: &[usize]) -> Result<()> {
    if tensor.dtype() == dtype && tensor.shape() == sizes {
        return Ok(());
    }
    let (found, shape) = (tensor.dtype(), tensor.shape());
    Err(Error::invalid(format!("`{name}`: expected {dtype}{sizes:?}, found {found}{shape:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::op::Silu;
    use tapml_graph::{Builder, TensorType};

    #[test]
    fn watched_nodes_stop_for_a_visit_and_go_on_behind_it() {
        let mut b = Builder::new("chain");
        let mut x = b.input("x", TensorType::new(DType::F32, [1u64, 3])).unwrap();
        for i in 0..5 {
            x = b.node(format!("silu.{i}"), Silu {}, &[x]).unwrap();
        }
        b.output("y", x);
        let model = Model::new(b.finish().unwrap(), HashMap::new()).unwrap();
        let mut loaded = CpuLoaded::new(&model, &ConvertedWeights::default()).unwrap();
        let x = Tensor::from_f32(vec![1, 3], vec![1.0, -2.0, 0.5]).unwrap();
        let inputs = HashMap::from([("x".to_string(), x)]);
        let symbols = Symbols::np(1, 0);
        let mut values = loaded.start(&symbols, &inputs).unwrap();
        let mut ids = Vec::new();
        let watched = vec![true, true, true, false, true];
        let mut done = 0;
        for (visit_bytes, after) in [(0, 1), (12, 3), (usize::MAX, 5)] {
            let watching = Watching { nodes: watched.clone(), visit_bytes, pool_bytes: None };
            let (seen, next) = loaded.nodes(done, &mut values, &symbols, &watching).unwrap();
            ids.extend(seen.iter().map(|s| s.id.0));
            assert_eq!(next, after);
            done = next;
        }
        assert_eq!(ids, [0, 1, 2, 4]);
        let stepwise = loaded.finish(&values, &symbols).unwrap();
        let whole = loaded.run(&symbols, &inputs, None).unwrap();
        assert_eq!(stepwise["y"].bytes()[..], whole["y"].bytes()[..]);
    }
}
