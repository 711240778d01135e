//! A graph on a device: a compiled program whose states stay there between runs.

use super::trace::Trace;
use super::{Inner, Shared, lock};
use crate::{Loaded, NodeEvent, Observer, TracedNode};
use std::collections::HashMap;
use tapml_graph::{Error, ErrorKind, Model, NodeId, Result, Symbol, Symbols, Tensor, ValueId};
use tapml_kernels::{Instance, Program, is_trace};

/// See the module.
pub(super) struct DeviceLoaded {
    shared: Shared,
    /// Present until the drop.
    instance: Option<Instance>,
    /// Rows that went into the states, which growing ones hold; `None` after a failed run.
    rows: Option<u64>,
    trace: Trace,
    /// The model, if every node of it is traced.
    watched: Option<Model>,
    /// The symbols of the last run; `None` before the first and after a failed one.
    ran: Option<Symbols>,
}

impl DeviceLoaded {
    pub fn new(shared: &Shared, program: &Program, model: &Model) -> Result<DeviceLoaded> {
        let mut inner = lock(shared);
        let Inner { device, kernels, .. } = &mut *inner;
        let weight = |name: &str| model.weight(name);
        let instance = Instance::load_with(device.as_mut(), kernels, program, &weight)?;
        let trace = Trace::of(program, model.graph());
        let watched = (trace.len() == model.graph().nodes().len()).then(|| model.clone());
        let (shared, instance) = (shared.clone(), Some(instance));
        Ok(DeviceLoaded { shared, instance, rows: Some(0), trace, watched, ran: None })
    }
}

fn gone() -> Error {
    Error::bug("the program was unloaded while in use")
}

impl Loaded for DeviceLoaded {
    fn run(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        observer: Option<&mut dyn Observer>,
    ) -> Result<HashMap<String, Tensor>> {
        if observer.is_some() && self.watched.is_none() {
            return Err(Error::unsupported(
                "a device runs a graph as one submission and shows no single nodes",
            )
            .with_hint("load it with a trace of every node, or record on the platform `cpu`"));
        }
        let outputs = self.step(symbols, inputs)?;
        match observer {
            Some(observer) => self.show(symbols, observer).map(|()| outputs),
            None => Ok(outputs),
        }
    }

    fn follow(&mut self, (p, first): (u64, u32), count: u64) -> Result<Option<Vec<u32>>> {
        let instance = self.instance.as_mut().ok_or_else(gone)?;
        if self.rows != Some(p) || count == 0 {
            return Ok(None);
        }
        (self.rows, self.ran) = (None, None);
        let mut inner = lock(&self.shared);
        let Inner { device, kernels, .. } = &mut *inner;
        match instance.follow(device.as_mut(), kernels, (p, first), count) {
            Ok(tokens) => {
                self.rows = Some(p.saturating_add(count));
                self.ran = Some(Symbols::np(1, p.saturating_add(count).saturating_sub(1)));
                Ok(Some(tokens))
            }
            Err(e) if e.kind() == ErrorKind::Unsupported => {
                self.rows = Some(p);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn reset(&mut self) -> Result<()> {
        let instance = self.instance.as_mut().ok_or_else(gone)?;
        instance.zero_states(lock(&self.shared).device.as_mut())?;
        self.rows = Some(0);
        Ok(())
    }

    fn traced(&mut self) -> Result<Vec<TracedNode>> {
        let instance = self.instance.as_ref().ok_or_else(gone)?;
        let ran = self
            .ran
            .as_ref()
            .ok_or_else(|| Error::invalid("there was no run whose values could be shown"))?;
        self.trace.read(instance, lock(&self.shared).device.as_mut(), ran)
    }
}

impl DeviceLoaded {
    fn step(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
    ) -> Result<HashMap<String, Tensor>> {
        let instance = self.instance.as_mut().ok_or_else(gone)?;
        let p = symbols.get(Symbol::P);
        if !instance.program().states.is_empty() && self.rows != p {
            let p = p.map_or("unbound".into(), |p| p.to_string());
            let held = self.rows.map_or("an undefined number of rows".into(), |r| format!("{r} rows"));
            return Err(Error::invalid(format!("p is {p}, but the states hold {held}")));
        }
        (self.rows, self.ran) = (None, None);
        let mut inner = lock(&self.shared);
        let device = inner.device.as_mut();
        let inputs: Vec<(&str, &Tensor)> =
            inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let outputs = instance.program().outputs.iter().filter(|o| !is_trace(&o.name));
        let names: Vec<String> = outputs.map(|o| o.name.clone()).collect();
        let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
        let tensors = instance.step(device, symbols, &inputs, &wanted)?;
        let outputs = names.into_iter().zip(tensors).collect();
        self.rows = p.zip(symbols.get(Symbol::N)).map(|(p, n)| p.saturating_add(n));
        self.ran = Some(symbols.clone());
        Ok(outputs)
    }

    /// Shows an observer every node of the last run.
    fn show(&mut self, symbols: &Symbols, observer: &mut dyn Observer) -> Result<()> {
        let traced = self.traced()?;
        let model = self.watched.as_ref().ok_or_else(gone)?;
        let graph = model.graph();
        for ((node, traced), id) in graph.nodes().iter().zip(traced).zip(0..) {
            let input = |(found, value): (Option<Tensor>, &ValueId)| match found {
                Some(found) => Ok(found),
                None => model.weight(&graph.value(*value).name),
            };
            let inputs = traced.inputs.into_iter().zip(&node.inputs).map(input);
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            let (id, outputs) = (NodeId(id), &traced.outputs);
            observer.node(&NodeEvent { graph, id, node, symbols, inputs: &inputs, outputs })?;
        }
        Ok(())
    }
}

impl Drop for DeviceLoaded {
    fn drop(&mut self) {
        if let Some(instance) = self.instance.take() {
            // A lost device has freed everything already; there is nobody to tell.
            drop(instance.unload(lock(&self.shared).device.as_mut()));
        }
    }
}
