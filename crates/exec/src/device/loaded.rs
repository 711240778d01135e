//! A graph on a device: a compiled program whose states stay there between runs.
//!
//! A device elsewhere may be lost and opened again. Then the program is loaded again and the history is run
//! again, in the same pieces, so that states have the same bits. Of a device that cannot be lost no history
//! is kept.

use super::state::{PlatformState, SharedState, lock};
use super::trace::Trace;
use crate::again::repeat;
use crate::{Loaded, NodeEvent, Observer, TracedNode};
use std::collections::HashMap;
use std::ops::Range;
use tapml_device::PeerMemory;
use tapml_graph::{Error, ErrorKind, Graph, Model, Node, NodeId, Result, Symbol, Symbols, Tensor, ValueId};
use tapml_kernels::{Instance, ObservableNodes, ObservedNode, OutputRows, Program, WatchedNodes, is_trace};

/// The detail of the error of a run whose device was lost and is open again, without its pages.
pub const REOPENED: &str = "reopened";

/// See the module.
pub(super) struct DeviceLoaded {
    /// The device, shared with the platform.
    shared: SharedState,
    /// The model, if the device may be lost and opened again, or if every node is traced.
    model: Option<Model>,
    /// Present until the drop.
    instance: Option<Instance>,
    /// The device's generation that holds the instance.
    generation: u64,
    /// What made the states and the traces what they are, of a device that may be lost.
    history: Vec<Ran>,
    /// Rows that went into the states, which growing ones hold; `None` after a failed run.
    rows: Option<u64>,
    trace: Trace,
    /// Whether every node is traced.
    watched: bool,
    /// The nodes of the deployed program, if it shows them.
    observable: Option<ObservableNodes>,
    /// Where the ranks of the graph meet, if this is one of them.
    memories: Vec<PeerMemory>,
    /// The symbols of the last run; `None` before the first and after a failed one.
    ran: Option<Symbols>,
}

/// A run, and what is wanted of its outputs.
#[derive(Clone, Copy)]
struct RunRequest<'a> {
    symbols: &'a Symbols,
    inputs: &'a HashMap<String, Tensor>,
    wanted: &'a [OutputRows<'a>],
}

/// A run that stops at nodes.
struct Observed<'a> {
    nodes: WatchedNodes<'a>,
    /// What was found at them.
    seen: Vec<ObservedNode>,
}

/// A run that succeeded.
enum Ran {
    Step(Symbols, HashMap<String, Tensor>),
    /// Steps from a position and a token on, and the tokens that they gave.
    Greedy((u64, u32), Vec<u32>),
}

impl DeviceLoaded {
    /// Uploads weights and compiles kernels; repeated if the device is lost meanwhile.
    pub fn new(
        shared: &SharedState,
        program: &Program,
        observable: Option<ObservableNodes>,
        model: &Model,
        memories: Vec<PeerMemory>,
    ) -> Result<DeviceLoaded> {
        let mut inner = lock(shared);
        let instance = repeat(&mut *inner, |inner| place(inner, program, model, &memories))?;
        let trace = Trace::from_program(program, model.graph());
        // An observer is shown whole calls, so that every node must be traced.
        let watched = trace.len() == model.graph().nodes().len();
        Ok(DeviceLoaded {
            shared: shared.clone(),
            // Else the program has all that is needed, and the weights' bytes can be freed here.
            model: (watched || observable.is_some() || inner.device.reopens()).then(|| model.clone()),
            instance: Some(instance),
            generation: inner.generation,
            history: Vec::new(),
            rows: Some(0),
            trace,
            watched,
            observable,
            ran: None,
            memories,
        })
    }

    /// Works with the instance, which is loaded again, and its runs repeated, if the device has been opened again.
    fn with_instance<T>(
        &mut self,
        mut work: impl FnMut(&mut Instance, &mut PlatformState) -> Result<T>,
    ) -> Result<T> {
        let shared = self.shared.clone();
        repeat(&mut *lock(&shared), |inner| {
            if self.generation != inner.generation {
                self.restore(inner)?;
                // No history is kept of pages: whoever gave them out knows what belongs in them.
                if self.has_pages() && self.rows != Some(0) {
                    return Err(pages_lost());
                }
            }
            work(self.instance.as_mut().ok_or_else(device_gone)?, inner)
        })
    }

    /// Loads and runs everything again on the device that was opened again.
    fn restore(&mut self, inner: &mut PlatformState) -> Result<()> {
        if !self.memories.is_empty() {
            return Err(Error::invalid(
                "the device was lost, and with it the memory in which the ranks meet",
            )
            .with_hint("load the model again"));
        }
        let program = self.instance.as_ref().ok_or_else(device_gone)?.program();
        let mut instance = place(inner, program, self.model.as_ref().ok_or_else(device_gone)?, &[])?;
        match run_again(&mut instance, inner, &self.history) {
            Ok(()) => {
                (self.instance, self.generation) = (Some(instance), inner.generation);
                Ok(())
            }
            Err(error) => {
                // A lost device has freed everything already.
                drop(instance.unload(inner.device.as_mut()));
                Err(error)
            }
        }
    }

    /// Whether the states are pages of several texts: their steps have rows whose logits are wanted.
    fn has_pages(&self) -> bool {
        self.instance.as_ref().is_some_and(|instance| instance.program().symbols.contains(&Symbol::S))
    }

    /// Notes a run that succeeded, if it may have to be repeated.
    fn note(&mut self, ran: Ran) {
        if self.has_pages() || !lock(&self.shared).device.reopens() {
            return;
        }
        // Without states only the last run matters, for traces.
        if self.instance.as_ref().is_none_or(|instance| instance.program().states.is_empty()) {
            self.history.clear();
        }
        self.history.push(ran);
    }
}

/// Puts the program and its weights on the device.
fn place(
    inner: &mut PlatformState,
    program: &Program,
    model: &Model,
    memories: &[PeerMemory],
) -> Result<Instance> {
    let PlatformState { device, kernels, .. } = inner;
    let weights = &|name: &str| model.weight(name);
    Instance::load_for_rank(device.as_mut(), kernels, program, weights, memories)
}

/// Runs again what has run, in the same order and pieces, so that the states have the same bits.
fn run_again(instance: &mut Instance, inner: &mut PlatformState, history: &[Ran]) -> Result<()> {
    let PlatformState { device, kernels, .. } = inner;
    for ran in history {
        match ran {
            Ran::Step(symbols, inputs) => {
                let inputs: Vec<(&str, &Tensor)> =
                    inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
                instance.run(device.as_mut(), symbols, &inputs)?;
            }
            Ran::Greedy(at, tokens) => {
                // Tokens that differ mean states that differ: going on would mix two histories.
                let count = tokens.len() as u64;
                if instance.generate_greedily(device.as_mut(), kernels, *at, count)? != *tokens {
                    let text =
                        "the device gave other tokens when its steps were repeated after a lost connection";
                    return Err(
                        Error::invalid(text).with_hint("`tapml diagnose` finds what is not repeatable")
                    );
                }
            }
        }
    }
    // Errors of the repeated runs show here, and not in the run that follows.
    device.wait()
}

/// The error of a run that would read pages of a device that is gone.
fn pages_lost() -> Error {
    Error::invalid("the device was lost, and with it what the pages held")
        .with_detail(REOPENED, "the device was opened again")
        .with_hint("reset the session and compute the texts again")
}

/// Never seen by users.
fn device_gone() -> Error {
    Error::bug("the program was unloaded while in use")
}

impl Loaded for DeviceLoaded {
    fn run(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        observer: Option<&mut dyn Observer>,
    ) -> Result<HashMap<String, Tensor>> {
        let program = self.instance.as_ref().ok_or_else(device_gone)?.program();
        // Traced values are outputs of the program, too, and are read only on request.
        let outputs = program.outputs.iter().filter(|o| !is_trace(&o.name));
        let names: Vec<String> = outputs.map(|o| o.name.clone()).collect();
        let wanted: Vec<OutputRows<'_>> = names.iter().map(|name| OutputRows::whole(name)).collect();
        let tensors = self.run_rows(symbols, inputs, &wanted, observer)?;
        Ok(names.into_iter().zip(tensors).collect())
    }

    fn run_rows(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        wanted: &[OutputRows<'_>],
        mut observer: Option<&mut dyn Observer>,
    ) -> Result<Vec<Tensor>> {
        let request = RunRequest { symbols, inputs, wanted };
        if let Some(observer) = &mut observer
            && let Some(observable) = self.observable.take()
        {
            let shown = self.run_observed(request, &observable, &mut **observer);
            self.observable = Some(observable);
            return shown;
        }
        if observer.is_some() && !self.watched {
            return Err(Error::unsupported(
                "a device runs a graph as one submission and shows no single nodes",
            )
            .with_hint("load it with a trace of every node, or record on the platform `cpu`"));
        }
        let outputs = self.step(request, &mut None)?;
        match observer {
            Some(observer) => self.show(symbols, observer).map(|()| outputs),
            None => Ok(outputs),
        }
    }

    fn keeps_outputs(&self) -> bool {
        true
    }

    fn read_row(&mut self, output: &str, row: usize, columns: Range<usize>) -> Result<Tensor> {
        let none = || Error::invalid("there was no run whose outputs could be read");
        let ran = self.ran.clone().ok_or_else(none)?;
        let read = |instance: &mut Instance, inner: &mut PlatformState| {
            instance.read_row(inner.device.as_mut(), &OutputRows::single(output, row), columns.clone(), &ran)
        };
        self.with_instance(read)
    }

    fn generate_greedily(&mut self, (p, first): (u64, u32), count: u64) -> Result<Option<Vec<u32>>> {
        // The tokens fed so far are not those that the caller means: it must step itself.
        if self.rows != Some(p) || count == 0 {
            return Ok(None);
        }
        (self.rows, self.ran) = (None, None);
        let followed = self.with_instance(|instance, inner| {
            let PlatformState { device, kernels, .. } = inner;
            instance.generate_greedily(device.as_mut(), kernels, (p, first), count)
        });
        match followed {
            Ok(tokens) => {
                self.note(Ran::Greedy((p, first), tokens.clone()));
                self.rows = Some(p.saturating_add(count));
                self.ran = Some(Symbols::np(1, p.saturating_add(count).saturating_sub(1)));
                Ok(Some(tokens))
            }
            // Nothing ran, so the states still hold `p` rows.
            Err(e) if e.kind() == ErrorKind::Unsupported => {
                self.rows = Some(p);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn reset(&mut self) -> Result<()> {
        self.history.clear();
        self.rows = Some(0);
        self.with_instance(|instance, inner| instance.zero_states(inner.device.as_mut()))?;
        self.rows = Some(0);
        Ok(())
    }

    fn traced_nodes(&mut self) -> Result<Vec<TracedNode>> {
        let none = || Error::invalid("there was no run whose values could be shown");
        let ran = self.ran.clone().ok_or_else(none)?;
        let trace = std::mem::take(&mut self.trace);
        let read = self.with_instance(|instance, inner| trace.read(instance, inner.device.as_mut(), &ran));
        self.trace = trace;
        read
    }
}

impl DeviceLoaded {
    /// One run, and what it gave.
    fn step(
        &mut self,
        RunRequest { symbols, inputs, wanted }: RunRequest<'_>,
        observed: &mut Option<Observed<'_>>,
    ) -> Result<Vec<Tensor>> {
        let program = self.instance.as_ref().ok_or_else(device_gone)?.program();
        let p = symbols.get(Symbol::P);
        // A run writes rows from `p` on: another `p` would leave a gap or overwrite rows.
        if self.has_pages() {
            // Positions are an input: the number of rows says nothing of them.
            self.rows.ok_or_else(pages_lost)?;
        } else if !program.states.is_empty() && self.rows != p {
            let p = p.map_or("unbound".into(), |p| p.to_string());
            let held = self.rows.map_or("an undefined number of rows".into(), |r| format!("{r} rows"));
            return Err(Error::invalid(format!("p is {p}, but the states hold {held}")));
        }
        // Set again when the run has succeeded.
        (self.rows, self.ran) = (None, None);
        let given: Vec<(&str, &Tensor)> =
            inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let tensors = self.with_instance(|instance, inner| {
            let PlatformState { device, kernels, .. } = inner;
            let Some(observed) = observed.as_mut() else {
                return instance.step(device.as_mut(), symbols, &given, wanted);
            };
            let (device, nodes) = (device.as_mut(), observed.nodes);
            let (outputs, seen) = instance.step_observed(device, kernels, symbols, &given, wanted, nodes)?;
            observed.seen = seen;
            Ok(outputs)
        })?;
        self.note(Ran::Step(symbols.clone(), inputs.clone()));
        self.rows = p.zip(symbols.get(Symbol::N)).map(|(p, n)| p.saturating_add(n));
        self.ran = Some(symbols.clone());
        Ok(tensors)
    }

    /// One run of the deployed program that shows an observer the nodes that it watches.
    fn run_observed(
        &mut self,
        request: RunRequest<'_>,
        observable: &ObservableNodes,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Tensor>> {
        let symbols = request.symbols;
        let graph = &observable.graph;
        let nodes = (0..graph.nodes().len() as u32).map(NodeId);
        let watched: Vec<NodeId> = nodes.filter(|&id| observer.watches(graph, id, symbols)).collect();
        if watched.is_empty() {
            return self.step(request, &mut None);
        }
        let nodes = WatchedNodes { nodes: observable, watched: &watched, pool_bytes: observer.pool_bytes() };
        let mut observed = Some(Observed { nodes, seen: Vec::new() });
        let outputs = self.step(request, &mut observed)?;
        for ObservedNode { node: id, inputs, outputs, parts } in
            observed.into_iter().flat_map(|observed| observed.seen)
        {
            let whole = graph.node(id);
            let inputs = self.with_weights(graph, whole, inputs)?;
            let narrow = parts.map(|parts| Node { op: whole.op.with_parts(parts), ..whole.clone() });
            let node = narrow.as_ref().unwrap_or(whole);
            observer.node(&NodeEvent { graph, id, node, symbols, inputs: &inputs, outputs: &outputs })?;
        }
        Ok(outputs)
    }

    /// What a node found, with the model's weights in their places.
    fn with_weights(&self, graph: &Graph, node: &Node, found: Vec<Option<Tensor>>) -> Result<Vec<Tensor>> {
        let model = self.model.as_ref().ok_or_else(device_gone)?;
        let input = |(found, value): (Option<Tensor>, &ValueId)| match found {
            Some(found) => Ok(found),
            None => model.weight(&graph.value(*value).name),
        };
        found.into_iter().zip(&node.inputs).map(input).collect()
    }

    /// Shows an observer every node of the last run.
    fn show(&mut self, symbols: &Symbols, observer: &mut dyn Observer) -> Result<()> {
        let traced = self.traced_nodes()?;
        let model = self.model.as_ref().ok_or_else(device_gone)?;
        let graph = model.graph();
        for ((node, traced), id) in graph.nodes().iter().zip(traced).zip(0..) {
            let inputs = self.with_weights(graph, node, traced.inputs)?;
            let (id, outputs) = (NodeId(id), &traced.outputs);
            observer.node(&NodeEvent { graph, id, node, symbols, inputs: &inputs, outputs })?;
        }
        Ok(())
    }
}

impl Drop for DeviceLoaded {
    fn drop(&mut self) {
        if let Some(instance) = self.instance.take() {
            let mut inner = lock(&self.shared);
            // A lost device has freed everything already; there is nobody to tell.
            if self.generation == inner.generation {
                drop(instance.unload(inner.device.as_mut()));
            }
        }
    }
}
