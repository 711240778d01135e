//! `If`, `Loop` and `Scan` as one operator: the graphs within them are attributes, and what these read of the graph around them are
//! inputs behind the operator's own. See [`Foreign`] for their form.
//!
//! A graph within is read once into numbered values and run for each turn. Its nodes stand in topological order, so that one
//! pass over them is enough. Work is bounded by [`MAX_STEPS`], because a file can ask for a loop without end.

use crate::array::{axis, volume};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, terms};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::collections::HashMap;
use tapml_graph::op::{DeclaredType, Foreign, Subgraph};
use tapml_graph::{Bytes, Context, DType, Error, Result, Tensor};

/// Nodes within that are evaluated at most, over all turns.
const MAX_STEPS: usize = 1 << 22;

/// What gives values within a graph.
enum ValueOrigin {
    /// The tensor of a `Constant` node, read once.
    Constant(Tensor),
    /// Any other node, evaluated in every turn.
    Operator(Foreign),
}

/// A node of a graph within.
struct BodyStep {
    /// What gives its outputs.
    maker: ValueOrigin,
    /// Its operator, for errors.
    name: String,
    /// Places of values.
    inputs: Vec<Option<usize>>,
    /// Places of values that it gives; `None` where nobody reads an output.
    outputs: Vec<Option<usize>>,
}

/// A graph within an operator, with numbers in the place of names.
struct GraphBody {
    /// Places of values that each turn is given, in order.
    inputs: Vec<usize>,
    /// Places of values, and of the operator's inputs that fill them.
    outer: Vec<(usize, usize)>,
    /// Nodes in topological order.
    steps: Vec<BodyStep>,
    /// Places of values that a turn gives, in order.
    outputs: Vec<usize>,
    /// Count of values.
    values: usize,
}

/// The names of values of a graph and their places.
#[derive(Default)]
struct ValueNames<'v>(HashMap<&'v str, usize>);

impl<'v> ValueNames<'v> {
    /// The place of a value that is made here.
    ///
    /// # Errors
    /// If another node or input has made it: graphs of ONNX are in static single assignment form.
    fn define(&mut self, name: &'v str) -> Result<usize> {
        let place = self.0.len();
        match self.0.insert(name, place) {
            None => Ok(place),
            Some(_) => Err(Error::invalid(format!("the value `{name}` is made twice"))),
        }
    }

    /// The place of a value that was made before.
    ///
    /// # Errors
    /// If nothing has made it yet.
    fn find(&self, name: &str) -> Result<usize> {
        self.0.get(name).copied().ok_or_else(|| Error::invalid(format!("nothing makes the value `{name}`")))
    }
}

impl GraphBody {
    /// The graph with names resolved.
    ///
    /// # Errors
    /// If a name is made twice or never, or a node does not fit its operator.
    fn read(graph: &Subgraph, call: &Call<'_>) -> Result<GraphBody> {
        let mut names = ValueNames::default();
        let inputs = graph.inputs.iter().map(|name| names.define(name)).collect::<Result<_>>()?;
        let outer = graph.outer.iter().map(|(name, place)| Ok((names.define(name)?, *place)));
        let outer = outer.collect::<Result<_>>()?;
        let mut steps = Vec::new();
        for node in &graph.nodes {
            let find = |name: &String| if name.is_empty() { Ok(None) } else { names.find(name).map(Some) };
            let inputs: Vec<Option<usize>> = node.inputs.iter().map(find).collect::<Result<_>>()?;
            let mut outputs = Vec::new();
            for name in &node.outputs {
                // ONNX writes an absent input or output as an empty name.
                outputs.push(if name.is_empty() { None } else { Some(names.define(name)?) });
            }
            let maker = match constant(&node.op, &node.attributes, call)? {
                Some(tensor) => ValueOrigin::Constant(tensor),
                None => {
                    let asked = |output: &Option<usize>| match output {
                        Some(_) => DeclaredType::Unknown,
                        None => DeclaredType::Absent,
                    };
                    let declared = outputs.iter().map(asked).collect();
                    let places = inputs.iter().map(Option::is_some).collect();
                    ValueOrigin::Operator(Foreign::new(&node.op, node.attributes.clone(), places, declared)?)
                }
            };
            steps.push(BodyStep { maker, name: node.op.clone(), inputs, outputs });
        }
        let outputs = graph.outputs.iter().map(|name| names.find(name)).collect::<Result<_>>()?;
        Ok(GraphBody { inputs, outer, steps, outputs, values: names.0.len() })
    }

    /// The outputs for these inputs. `done` counts nodes.
    fn run(&self, call: &Call<'_>, inputs: &[Tensor], done: &Cell<usize>) -> Result<Vec<Tensor>> {
        if inputs.len() != self.inputs.len() {
            let (wanted, given) = (self.inputs.len(), inputs.len());
            return Err(Error::invalid(format!("its graph takes {wanted} inputs, and is given {given}")));
        }
        let mut values: Vec<Option<Tensor>> = vec![None; self.values];
        for (&place, tensor) in self.inputs.iter().zip(inputs) {
            values[place] = Some(tensor.clone());
        }
        for &(place, input) in &self.outer {
            values[place] = Some(call.input(input)?.clone());
        }
        for step in &self.steps {
            done.set(done.get() + 1);
            if done.get() > MAX_STEPS {
                return Err(Error::unsupported(format!("it runs more than {MAX_STEPS} nodes within")));
            }
            let made = match &step.maker {
                ValueOrigin::Constant(tensor) => vec![Some(tensor.clone())],
                ValueOrigin::Operator(op) => {
                    let given = |place: &Option<usize>| place.and_then(|place| values[place].clone());
                    let given: Vec<Option<Tensor>> = step.inputs.iter().map(given).collect();
                    call.evaluate_within(op, &given).context(|| format!("`{}` within", step.name))?
                }
            };
            for (place, tensor) in step.outputs.iter().zip(made) {
                if let Some(place) = place {
                    values[*place] = tensor;
                }
            }
        }
        let missing = || Error::invalid("an output of its graph is absent");
        self.outputs.iter().map(|&place| values[place].clone().ok_or_else(missing)).collect()
    }
}

/// The tensor of a `Constant`; `None` for any other operator.
fn constant(kind: &str, attributes: &Map<String, Value>, around: &Call<'_>) -> Result<Option<Tensor>> {
    if !kind.starts_with("onnx.Constant@") {
        return Ok(None);
    }
    let op = Foreign::new(kind, attributes.clone(), Vec::new(), vec![DeclaredType::Unknown])?;
    let call = around.of_attributes(&op);
    let ints = |shape: Vec<usize>, values: &[i64]| Tensor::from_i64(DType::I64, shape, values).map(Some);
    let floats = |shape: Vec<usize>, values: &[f64]| Tensor::from_f64(DType::F32, shape, values).map(Some);
    if let Some(tensor) = call.tensor("value")? {
        return Ok(Some(tensor));
    }
    match (
        call.int("value_int")?,
        // Exactly one attribute is there; texts and sparse tensors have no numbers that are served.
        call.ints("value_ints")?,
        call.float("value_float")?,
        call.floats("value_floats")?,
    ) {
        (Some(value), ..) => ints(vec![], &[value]),
        (_, Some(values), ..) => ints(vec![values.len()], &values),
        (_, _, Some(value), _) => floats(vec![], &[value]),
        (.., Some(values)) => floats(vec![values.len()], &values),
        _ => Err(Error::unsupported("a constant without numbers")),
    }
}

/// The one truth of a tensor.
fn truth(tensor: &Tensor) -> Result<bool> {
    match (tensor.dtype(), tensor.to_i64()?.as_slice()) {
        (DType::Bool, &[value]) => Ok(value != 0),
        (dtype, _) => Err(Error::invalid(format!("expected one bool, found {dtype}{:?}", tensor.shape()))),
    }
}

/// Tensors of one type as one, with a size for them at `at`. `None` if there are none.
fn stack(rows: &[Tensor], at: i64) -> Result<Option<Tensor>> {
    let Some(first) = rows.first() else { return Ok(None) };
    let (dtype, shape) = (first.dtype(), first.shape().to_vec());
    let same = |row: &&Tensor| row.dtype() != dtype || row.shape() != shape;
    if let Some(other) = rows.iter().find(same) {
        let text = format!("its turns give {dtype}{shape:?} and {}{:?}", other.dtype(), other.shape());
        return Err(Error::invalid(text));
    }
    let at = axis(at, shape.len() + 1)?;
    let mut stacked = shape.clone();
    stacked.insert(at, rows.len());
    volume(&stacked)?;
    // The new axis stands before axis `at`, so that blocks of `inner` bytes alternate between the rows.
    let inner = shape[at..].iter().product::<usize>() * dtype.size();
    let mut bytes = Vec::with_capacity(inner * shape[..at].iter().product::<usize>() * rows.len());
    for outer in 0..shape[..at].iter().product() {
        rows.iter().for_each(|row| bytes.extend_from_slice(&row.bytes()[outer * inner..(outer + 1) * inner]));
    }
    Tensor::new(dtype, stacked, Bytes::new(bytes)).map(Some)
}

/// One row of an axis.
fn row(tensor: &Tensor, at: usize, index: usize) -> Result<Tensor> {
    let mut shape = tensor.shape().to_vec();
    let count = shape.remove(at);
    let inner = shape[at..].iter().product::<usize>() * tensor.dtype().size();
    let mut bytes = Vec::with_capacity(inner * shape[..at].iter().product::<usize>());
    for outer in 0..shape[..at].iter().product::<usize>() {
        let start = (outer * count + index) * inner;
        bytes.extend_from_slice(&tensor.bytes()[start..start + inner]);
    }
    Tensor::new(tensor.dtype(), shape, Bytes::new(bytes))
}

/// What is carried into a loop: every input from `first` to `end`.
fn carried_inputs(call: &Call<'_>, first: usize, end: usize) -> Result<Vec<Tensor>> {
    (first..end).map(|place| call.input(place).cloned()).collect()
}

/// The outputs that turns give one by one. Where there are no turns, nobody knows their sizes.
fn stack_outputs(rows: Vec<Vec<Tensor>>, axes: &dyn Fn(usize) -> i64) -> Result<Vec<Option<Tensor>>> {
    let unknown = || Error::unsupported("without turns its outputs have unknown sizes");
    let one = |(at, rows): (usize, Vec<Tensor>)| stack(&rows, axes(at))?.map(Some).ok_or_else(unknown);
    rows.into_iter().enumerate().map(one).collect()
}

/// `If`: the outputs of the graph that the condition chooses. The other one is not run.
pub fn branch(call: &Call<'_>) -> Outputs {
    let (yes, no) = (call.graph("then_branch")?, call.graph("else_branch")?);
    let taken = if truth(call.input(0)?)? { yes } else { no };
    let made = GraphBody::read(&taken, call)?.run(call, &[], &Cell::new(0))?;
    Ok(made.into_iter().map(Some).collect())
}

/// `Loop`: values carried from turn to turn, then one stacked output for each further value of a turn.
///
/// The body takes the number of the turn, the condition and the carried values. It gives the next condition, the carried
/// values and one row of each stacked output. Both the count of turns and the first condition may be absent.
///
/// # Errors
/// If the body has other inputs or outputs, or runs more than [`MAX_STEPS`] nodes.
pub fn run_loop(call: &Call<'_>) -> Outputs {
    let graph = call.graph("body")?;
    let body = GraphBody::read(&graph, call)?;
    let most = match call.optional(0) {
        None => i64::MAX,
        Some(_) => call.integer(0)?,
    };
    let mut go_on = call.optional(1).map_or(Ok(true), truth)?;
    let mut state = carried_inputs(call, 2, call.own_inputs())?;
    let count = state.len();
    let mut rows: Vec<Vec<Tensor>> = vec![Vec::new(); body.outputs.len().saturating_sub(count + 1)];
    let (done, mut turn) = (Cell::new(0), 0i64);
    while go_on && turn < most {
        // The condition that the body is given is true, else this turn would not run.
        let number = Tensor::from_i64(DType::I64, vec![], &[turn])?;
        let mut inputs = vec![number, Tensor::from_i64(DType::Bool, vec![], &[1])?];
        inputs.append(&mut state);
        // A body without nodes takes its time, too.
        done.set(done.get() + 1);
        let mut made = body.run(call, &inputs, &done).context(|| format!("turn {turn}"))?;
        if made.len() < count + 1 || done.get() > MAX_STEPS {
            let text =
                format!("its body gives {} outputs, expected {} in {MAX_STEPS} steps", made.len(), count + 1);
            return Err(Error::unsupported(text));
        }
        let tail = made.split_off(count + 1);
        go_on = truth(&made.remove(0)).context(|| "the condition".into())?;
        state = made;
        rows.iter_mut().zip(tail).for_each(|(rows, row)| rows.push(row));
        turn += 1;
    }
    let stacks = stack_outputs(rows, &|_| 0)?;
    Ok(state.into_iter().map(Some).chain(stacks).collect())
}

/// `Scan` from version 9 on: states carried over the rows of inputs, then one stacked output for each further value of a turn.
///
/// # Errors
/// If inputs have different numbers of rows, or the body other inputs or outputs. For version 8, and beyond [`MAX_STEPS`].
pub fn scan(call: &Call<'_>) -> Outputs {
    if call.version() < 9 {
        return Err(Error::unsupported("a `Scan` of version 8, which has a batch"));
    }
    let graph = call.graph("body")?;
    let body = GraphBody::read(&graph, call)?;
    let own = call.own_inputs();
    let count = usize::try_from(call.int_or("num_scan_inputs", 0)?).unwrap_or(0);
    let states = own.checked_sub(count).filter(|_| count > 0);
    let states = states.ok_or_else(|| Error::invalid("`num_scan_inputs` is not that of its inputs"))?;
    let lists = ["scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions"];
    let [axes, reversed, output_axes, output_reversed] = lists.map(|name| call.ints(name));
    let (axes, reversed, output_axes, output_reversed) = (axes?, reversed?, output_axes?, output_reversed?);
    let of = |list: &Option<Vec<i64>>, at: usize| {
        list.as_ref().and_then(|list| list.get(at).copied()).unwrap_or(0)
    };
    let mut state = carried_inputs(call, 0, states)?;
    let mut scanned = Vec::new();
    for (at, tensor) in carried_inputs(call, states, own)?.into_iter().enumerate() {
        scanned.push((axis(of(&axes, at), tensor.shape().len())?, tensor));
    }
    let turns = scanned.first().map_or(0, |(at, tensor)| tensor.shape()[*at]);
    if scanned.iter().any(|(at, tensor)| tensor.shape()[*at] != turns) {
        return Err(Error::invalid("its inputs have different numbers of turns"));
    }
    let mut rows: Vec<Vec<Tensor>> = vec![Vec::new(); body.outputs.len().saturating_sub(states)];
    let done = Cell::new(0);
    // A body without nodes takes its time, too. Inputs without elements may have any number of turns.
    if turns > MAX_STEPS {
        return Err(Error::unsupported(format!("it runs {turns} turns, more than {MAX_STEPS}")));
    }
    for turn in 0..turns {
        let mut inputs = std::mem::take(&mut state);
        for (at, (axis, tensor)) in scanned.iter().enumerate() {
            let index = if of(&reversed, at) == 1 { turns - 1 - turn } else { turn };
            inputs.push(row(tensor, *axis, index)?);
        }
        let mut made = body.run(call, &inputs, &done).context(|| format!("turn {turn}"))?;
        if made.len() < states {
            return Err(Error::invalid(format!("its body gives {} outputs, expected {states}", made.len())));
        }
        let tail = made.split_off(states);
        state = made;
        rows.iter_mut().zip(tail).for_each(|(rows, row)| rows.push(row));
    }
    for (_, rows) in rows.iter_mut().enumerate().filter(|(at, _)| of(&output_reversed, *at) == 1) {
        rows.reverse();
    }
    let stacks = stack_outputs(rows, &|at| of(&output_axes, at))?;
    Ok(state.into_iter().map(Some).chain(stacks).collect())
}

/// A loop rounds in every turn, and each rounding goes into the next one.
pub fn facts(sizes: &InputSizes<'_>) -> CallFacts {
    let turns = |value: &Value| value.get("graph")?.get("turns")?.as_u64();
    let known = sizes.op.attributes().values().filter_map(turns).max().unwrap_or(1);
    let longest = (0..).take_while(|&at| at < sizes.places()).flat_map(|at| sizes.shape(at)).copied().max();
    terms(usize::try_from(known).unwrap_or(usize::MAX).max(longest.unwrap_or(1)))
}
