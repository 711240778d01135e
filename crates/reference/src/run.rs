//! A plain interpreter of graphs, node by node.
//!
//! Nodes stand in topological order, so that one pass is enough. Weights are asked for where they are used and are not kept here.

use crate::real::Real;
use crate::split::WAKING;
use crate::value::{Value, zeros};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tapml_graph::{Context, Error, Graph, Node, Origin, Output, Result, Symbols, ValueId};

/// What a run leaves behind.
#[derive(Clone, Debug)]
pub struct GraphRun<T> {
    /// Name and value of each result, in the graph's order.
    pub outputs: Vec<(String, Value<T>)>,
    /// The states after the run, in the graph's order.
    pub states: Vec<Value<T>>,
}

impl<T> GraphRun<T> {
    /// The result of this name.
    pub fn output(&self, name: &str) -> Result<&Value<T>> {
        let found = self.outputs.iter().find(|(n, _)| n == name).map(|(_, value)| value);
        found.ok_or_else(|| Error::invalid(format!("the graph has no output `{name}`")))
    }
}

/// Called after each node with the node, its inputs and its outputs. An error ends the run.
pub type Observer<'a, T> = &'a mut dyn FnMut(&Node, &[Value<T>], &[Value<T>]) -> Result<()>;

/// Gives the value of a weight by its name.
pub type WeightSource<'a, T> = &'a (dyn Fn(&str) -> Result<Value<T>> + Sync);

/// Runs a graph in `T` throughout. `inputs` are by name, `weights` gives the value of a weight by its name, `states` are
/// those before the run in the graph's order. Values are dropped after their last use. Without an observer the run takes
/// place on a thread of the pool, see [`on_pool`].
///
/// # Errors
/// If an input is missing or has another shape than the graph says, or a node cannot be evaluated; the node is named.
pub fn run_graph<T: Real>(
    graph: &Graph,
    symbols: &Symbols,
    inputs: &HashMap<String, Value<T>>,
    weights: WeightSource<'_, T>,
    states: Vec<Value<T>>,
    observer: Option<Observer<'_, T>>,
) -> Result<GraphRun<T>> {
    if states.len() != graph.states().len() {
        let (have, want) = (states.len(), graph.states().len());
        return Err(Error::invalid(format!("graph `{}` has {want} states, {have} given", graph.name())));
    }
    let mut run = RunState::new(graph, symbols, weights);
    for (id, value) in graph.inputs() {
        let missing = || Error::invalid(format!("input `{}` ({}) is not given", value.name, value.ty));
        run.give(id, inputs.get(&value.name).ok_or_else(missing)?.clone())?;
    }
    for (state, before) in graph.states().iter().zip(states) {
        run.give(state.input, before)?;
    }
    match observer {
        Some(observe) => run.nodes(Some(observe))?,
        None => {
            let work = graph.nodes().iter().map(|node| graph.estimate_work(node, symbols));
            on_pool(work.fold(0, u64::saturating_add), || run.nodes(None))?
        }
    }
    let output = |o: &Output| Ok((o.name.clone(), run.get(o.value)?));
    let outputs = graph.outputs().iter().map(output).collect::<Result<_>>()?;
    let states = graph.states().iter().map(|s| run.get(s.output)).collect::<Result<_>>()?;
    Ok(GraphRun { outputs, states })
}

/// How long a thread of the pool that finds nothing to do looks for more before it may sleep: longer than a step computes
/// on one thread at a time.
const AWAKE: Duration = Duration::from_micros(200);

/// Threads of a pool that is worth it: fewer are at work most of the time, or share the processor with others.
const TEAM: usize = 4;

/// Multiplications from which a run keeps the threads of the pool awake: a millisecond of one thread. Less is done before
/// most of them would have joined in.
const AWAKE_FROM: u64 = 1 << 22;

/// Runs `f`, which has about so many multiplications to do, on a thread of the pool that evaluations spread their work over. Of
/// much work it keeps the others awake meanwhile: evaluations within find the pool awake; from any other thread each of them
/// wakes it, which costs a decode step a third of its time. Little work is done on the calling thread.
pub fn on_pool<R: Send>(work: u64, f: impl FnOnce() -> R + Send) -> R {
    if work < WAKING as u64 {
        return f();
    }
    rayon::scope(|_| {
        let awake = work >= AWAKE_FROM && rayon::current_num_threads() >= TEAM;
        let _awake = awake.then(Awake::begin);
        f()
    })
}

/// Threads of the pool are kept awake until this is dropped.
struct Awake(Arc<AtomicBool>);

impl Awake {
    /// Asks all threads of the pool but this one to look for work.
    fn begin() -> Awake {
        let done = Arc::new(AtomicBool::new(false));
        let (awake, own) = (Awake(done.clone()), rayon::current_thread_index());
        // This thread is the one that has work; as it waits for the others it must not stay in here.
        rayon::spawn_broadcast(move |thread| {
            if Some(thread.index()) != own {
                look_for_work(&done);
            }
        });
        awake
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Does the pool's work until there was none for a while, which bounds how long anything that waits below this call is held
/// up, or until `done`.
fn look_for_work(done: &AtomicBool) {
    let mut last = Instant::now();
    while !done.load(Ordering::Acquire) {
        match rayon::yield_now() {
            Some(rayon::Yield::Executed) => last = Instant::now(),
            _ if last.elapsed() > AWAKE => return,
            _ => std::thread::yield_now(),
        }
    }
}

/// The states before the first step: growing ones without rows, fixed ones all zero.
///
/// # Errors
/// If a state has a size of another symbol than `n` and `p`.
pub fn empty_states<T: Real>(graph: &Graph) -> Result<Vec<Value<T>>> {
    let symbols = Symbols::np(0, 0);
    let empty = |id: ValueId| {
        let shape = graph.value(id).ty.sizes(&symbols)?;
        let elements = zeros(shape.iter().product(), 1)?;
        Value::float(shape, elements)
    };
    graph.states().iter().map(|s| empty(s.input)).collect()
}

/// Runs the definition of a fused operator: `inputs` are in the graph's order, so are the results.
///
/// # Errors
/// If the definition has weights, which is a bug, or a node cannot be evaluated.
pub(crate) fn run_definition<T: Real>(
    graph: &Graph,
    symbols: &Symbols,
    inputs: &[Value<T>],
) -> Result<Vec<Value<T>>> {
    let none = |name: &str| Err(Error::bug(format!("a definition names the weight `{name}`")));
    let mut run = RunState::new(graph, symbols, &none);
    for ((id, _), value) in graph.inputs().zip(inputs) {
        run.give(id, value.clone())?;
    }
    run.nodes(None)?;
    graph.outputs().iter().map(|o| run.get(o.value)).collect()
}

/// The values of a graph while it runs.
struct RunState<'a, T> {
    /// What runs.
    graph: &'a Graph,
    /// Sizes of this run.
    symbols: &'a Symbols,
    /// Gives weights by name.
    weights: WeightSource<'a, T>,
    /// Each value, from when it is computed until its last use.
    values: Vec<Option<Value<T>>>,
    /// How often each value is still needed.
    uses: Vec<usize>,
}

impl<'a, T: Real> RunState<'a, T> {
    fn new(graph: &'a Graph, symbols: &'a Symbols, weights: WeightSource<'a, T>) -> RunState<'a, T> {
        let mut uses = vec![0; graph.values().len()];
        let inputs = graph.nodes().iter().flat_map(|node| &node.inputs);
        let kept = graph.outputs().iter().map(|o| &o.value).chain(graph.states().iter().map(|s| &s.output));
        // Results and states are uses as well: they stay until the end.
        for id in inputs.chain(kept) {
            uses[id.0 as usize] += 1;
        }
        RunState { graph, symbols, weights, values: vec![None; graph.values().len()], uses }
    }

    /// Sets a value from outside. Fails unless it has the shape that the graph says.
    fn give(&mut self, id: ValueId, value: Value<T>) -> Result<()> {
        let declared = self.graph.value(id);
        let expected = declared.ty.sizes(self.symbols)?;
        if value.shape() != expected {
            let (name, found) = (&declared.name, value.shape());
            return Err(Error::invalid(format!("`{name}` must have shape {expected:?}, found {found:?}")));
        }
        self.values[id.0 as usize] = Some(value);
        Ok(())
    }

    /// A value that is there, or a weight.
    fn get(&self, id: ValueId) -> Result<Value<T>> {
        let declared = self.graph.value(id);
        match (&self.values[id.0 as usize], declared.origin) {
            (Some(value), _) => Ok(value.clone()),
            (None, Origin::Weight) => (self.weights)(&declared.name),
            (None, _) => Err(Error::bug(format!("`{}` is read but not there", declared.name))),
        }
    }

    /// Runs all nodes; errors name the node.
    fn nodes(&mut self, mut observer: Option<Observer<'_, T>>) -> Result<()> {
        for node in self.graph.nodes() {
            let at_node = || format!("node `{}`", node.name);
            let inputs: Vec<_> =
                node.inputs.iter().map(|&id| self.get(id)).collect::<Result<_>>().context(at_node)?;
            let outputs = T::eval(&node.op, self.symbols, &inputs).context(at_node)?;
            if let Some(observe) = &mut observer {
                observe(node, &inputs, &outputs).context(at_node)?;
            }
            for id in &node.inputs {
                self.uses[id.0 as usize] -= 1;
                if self.uses[id.0 as usize] == 0 {
                    self.values[id.0 as usize] = None;
                }
            }
            for (id, value) in node.outputs.iter().zip(outputs) {
                // A value that nothing uses is dropped at once.
                self.values[id.0 as usize] = (self.uses[id.0 as usize] > 0).then_some(value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;

    /// Runs within runs, on every thread at once, end, and give what they should.
    #[test]
    fn threads_that_look_for_work_hold_nobody_up() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(TEAM).build().unwrap();
        let run = |i: u64| on_pool(u64::MAX, || (0..1000u64).into_par_iter().map(|j| j * i).sum::<u64>());
        let sums: Vec<u64> = pool.install(|| (0..200).into_par_iter().map(run).collect());
        assert!(sums.iter().zip(0..).all(|(&sum, i)| sum == i * 499_500));
        assert!(sums.len() == 200);
    }

    #[test]
    fn little_work_stays_on_its_thread_and_much_goes_to_the_pool() {
        let here = std::thread::current().id();
        let on_thread = |work| on_pool(work, || std::thread::current().id());
        assert_eq!(on_thread(WAKING as u64 - 1), here);
        assert_ne!(on_thread(WAKING as u64), here);
    }
}
