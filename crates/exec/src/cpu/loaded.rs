//! A graph on the `cpu` platform: its values, its states, and the loop over its nodes.

use super::rows::Rows;
use super::weights::Weights;
use crate::{Loaded, NodeEvent, Observer};
use std::collections::HashMap;
use tapml_graph::{
    Context, DType, Error, Graph, Model, Node, NodeId, Origin, Result, State, Symbol, Symbols, Tensor,
    ValueId,
};
use tapml_reference::{Value, eval, on_pool};

/// See the module.
pub(super) struct CpuLoaded {
    model: Model,
    /// For each value of the graph that is a weight, its numbers.
    weights: Vec<Option<Value<f32>>>,
    states: Vec<Held>,
    /// For each node, the state that it adds rows to.
    grows: Vec<Option<usize>>,
    /// For each node, the values that nobody needs after it.
    dead: Vec<Vec<ValueId>>,
}

/// What a state holds between runs.
enum Held {
    /// Rows that its `append` node adds to in place.
    Rows(Rows),
    /// Any other state.
    Whole(Tensor),
}

/// The values of one run, by value id.
type Values = Vec<Option<Tensor>>;

impl CpuLoaded {
    pub fn new(model: &Model, shared: &Weights) -> Result<CpuLoaded> {
        let graph = model.graph();
        let mut weights = vec![None; graph.values().len()];
        for (id, value) in graph.weights() {
            let converted = shared.get(&value.name, model.weight(&value.name)?);
            weights[id.0 as usize] = Some(converted.context(|| format!("weight `{}`", value.name))?);
        }
        let mut grows = vec![None; graph.nodes().len()];
        for (i, state) in graph.states().iter().enumerate() {
            if let Some(node) = grown_by(graph, state) {
                grows[node.0 as usize] = Some(i);
            }
        }
        let (model, dead) = (model.clone(), dead(graph));
        let mut loaded = CpuLoaded { model, weights, states: Vec::new(), grows, dead };
        loaded.reset()?;
        Ok(loaded)
    }

    fn start(&self, symbols: &Symbols, inputs: &HashMap<String, Tensor>) -> Result<Values> {
        let graph = self.model.graph();
        let mut values: Values = vec![None; graph.values().len()];
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
                Held::Whole(tensor) => {
                    expect(&value.name, tensor, value.ty.dtype, &value.ty.sizes(symbols)?)?;
                    values[state.input.0 as usize] = Some(tensor.clone());
                }
            }
        }
        Ok(values)
    }

    /// One value as a tensor. Rows before a run are a view of what the state holds.
    fn tensor(&self, values: &Values, symbols: &Symbols, id: ValueId) -> Result<Tensor> {
        let value = self.model.graph().value(id);
        if let Some(tensor) = &values[id.0 as usize] {
            return Ok(tensor.clone());
        }
        match value.origin {
            Origin::Weight => self.model.weight(&value.name).cloned(),
            Origin::State(i) => match &self.states[i as usize] {
                Held::Rows(rows) => rows.view(symbols.get(Symbol::P).unwrap_or(0) as usize),
                Held::Whole(_) => Err(Error::bug(format!("state `{}` has no value", value.name))),
            },
            _ => Err(Error::bug(format!("value `{}` is not there when it is needed", value.name))),
        }
    }

    fn number(&self, values: &Values, symbols: &Symbols, id: ValueId) -> Result<Value<f32>> {
        match &self.weights[id.0 as usize] {
            Some(weight) => Ok(weight.clone()),
            None => Value::from_tensor(&self.tensor(values, symbols, id)?),
        }
    }

    fn evaluate(
        &mut self,
        (index, node): (usize, &Node),
        values: &Values,
        symbols: &Symbols,
    ) -> Result<Vec<Tensor>> {
        if let Some(i) = self.grows[index]
            && let Held::Rows(rows) = &mut self.states[i]
            && let Some(new) = &values[node.inputs[1].0 as usize]
        {
            rows.push(new)?;
            return Ok(vec![rows.view(rows.count())?]);
        }
        let inputs: Vec<Value<f32>> =
            node.inputs.iter().map(|&id| self.number(values, symbols, id)).collect::<Result<_>>()?;
        let outputs = eval(&node.op, symbols, &inputs)?;
        let typed = outputs.iter().zip(&node.outputs);
        typed.map(|(output, &id)| output.to_tensor(self.model.graph().value(id).ty.dtype)).collect()
    }

    fn nodes(
        &mut self,
        values: &mut Values,
        symbols: &Symbols,
        mut observer: Option<&mut dyn Observer>,
    ) -> Result<()> {
        let model = self.model.clone();
        let graph = model.graph();
        for (i, node) in graph.nodes().iter().enumerate() {
            let outputs =
                self.evaluate((i, node), values, symbols).context(|| format!("node `{}`", node.name))?;
            if let Some(observer) = observer.as_deref_mut() {
                let inputs = node.inputs.iter().map(|&id| self.tensor(values, symbols, id));
                let inputs: Vec<Tensor> = inputs.collect::<Result<_>>()?;
                let id = NodeId(i as u32);
                observer.node(&NodeEvent { graph, id, node, symbols, inputs: &inputs, outputs: &outputs })?;
            }
            for (&id, output) in node.outputs.iter().zip(outputs) {
                values[id.0 as usize] = Some(output);
            }
            for id in &self.dead[i] {
                values[id.0 as usize] = None;
            }
        }
        Ok(())
    }

    fn finish(&mut self, values: &Values, symbols: &Symbols) -> Result<HashMap<String, Tensor>> {
        let model = self.model.clone();
        let graph = model.graph();
        let outputs = graph.outputs().iter();
        let outputs = outputs.map(|o| Ok((o.name.clone(), self.tensor(values, symbols, o.value)?)));
        let outputs: HashMap<String, Tensor> = outputs.collect::<Result<_>>()?;
        for (i, state) in graph.states().iter().enumerate() {
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
        match observer {
            Some(observer) => self.nodes(&mut values, symbols, Some(observer))?,
            None => on_pool(|| self.nodes(&mut values, symbols, None))?,
        }
        self.finish(&values, symbols)
    }

    fn reset(&mut self) -> Result<()> {
        let graph = self.model.graph();
        self.states = graph.states().iter().map(|state| empty(graph, state)).collect::<Result<_>>()?;
        Ok(())
    }
}

/// A state before the first run: no rows, or zeros.
fn empty(graph: &Graph, state: &State) -> Result<Held> {
    let ty = &graph.value(state.input).ty;
    let sizes = ty.sizes(&Symbols::np(0, 0)).context(|| format!("state `{}`", state.name))?;
    if grown_by(graph, state).is_some() {
        return Ok(Held::Rows(Rows::new(ty.dtype, sizes[1..].to_vec())));
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

/// For each node, the values whose last use it is, outputs that nobody uses included. What the graph or a state gives
/// at the end stays, except the rows of growing states: a view of them would force the next step to copy.
fn dead(graph: &Graph) -> Vec<Vec<ValueId>> {
    let mut last: Vec<Option<usize>> = vec![None; graph.values().len()];
    for (i, node) in graph.nodes().iter().enumerate() {
        for id in node.inputs.iter().chain(&node.outputs) {
            last[id.0 as usize] = Some(i);
        }
    }
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

fn expect(name: &str, tensor: &Tensor, dtype: DType, sizes: &[usize]) -> Result<()> {
    if tensor.dtype() == dtype && tensor.shape() == sizes {
        return Ok(());
    }
    let (found, shape) = (tensor.dtype(), tensor.shape());
    Err(Error::invalid(format!("`{name}`: expected {dtype}{sizes:?}, found {found}{shape:?}")))
}
