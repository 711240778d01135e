//! What must hold of a suite's manifest and runs before anything is read through them. All of it is hostile input.
//!
//! A reader may index by what was checked here without looking again. Tensor bytes are not read; their
//! hashes are compared when they are.

use super::index::TensorRecord;
use super::manifest::{Frame, Manifest, SCHEMA, Slot};
use crate::hash::Hash;
use std::collections::HashMap;
use tapml_graph::{Context, Error, Graph, Origin, Result, Symbol, TensorType};

/// Fails unless this build reads the manifest's version and its parts agree; returns the graph.
pub fn manifest(manifest: &Manifest) -> Result<Graph> {
    if manifest.schema != SCHEMA {
        let found = manifest.schema;
        return Err(Error::unsupported(format!("the suite has format {found}, this build reads {SCHEMA}"))
            .with_hint("carve the model again with this version"));
    }
    if Hash::compute(manifest.graph.as_bytes()) != manifest.graph_hash {
        return Err(Error::invalid("the graph's text does not match its hash"));
    }
    let graph: Graph = manifest.graph.parse().context(|| "the graph's text".to_string())?;
    let listed: HashMap<&str, &TensorType> =
        manifest.weights.iter().map(|w| (w.name.as_str(), &w.ty)).collect();
    for (_, value) in graph.weights() {
        match listed.get(value.name.as_str()) {
            Some(&ty) if *ty == value.ty => {}
            Some(ty) => {
                return Err(Error::invalid(format!(
                    "weight `{}`: expected {}, found {ty}",
                    value.name, value.ty
                )));
            }
            None => {
                return Err(Error::invalid(format!("weight `{}` of the graph is not listed", value.name)));
            }
        }
    }
    Ok(graph)
}

/// What the runs may refer to.
pub struct Known<'a> {
    /// The manifest's graph.
    pub graph: &'a Graph,
    /// Its prompts, types and totals.
    pub manifest: &'a Manifest,
    /// Each known to lie within the file.
    pub records: &'a [TensorRecord],
}

impl Known<'_> {
    /// Fails unless the runs of each prompt follow each other and every value has a place of the right type.
    pub fn frames(&self, frames: &[Frame]) -> Result<()> {
        // By prompt: the step that must follow, and the rows before it.
        let mut next: HashMap<u32, (u32, u64)> = HashMap::new();
        for (i, frame) in frames.iter().enumerate() {
            self.frame(frame, &mut next).context(|| format!("run {i}"))?;
        }
        let totals = &self.manifest.totals;
        let once = self.graph.loop_invariant_nodes();
        let calls = match &self.manifest.cases {
            Some(cases) => cases.len() as u64,
            None => frames.iter().map(|frame| calls(self.graph, &once, frame)).sum::<u64>(),
        };
        let found = (frames.len() as u64, calls, self.records.len() as u64);
        let wanted = (totals.frames, totals.calls, totals.tensors);
        if found != wanted {
            return Err(Error::invalid(format!(
                "the manifest counts {} runs, {} calls, {} tensors; found {}, {}, {}",
                totals.frames, totals.calls, totals.tensors, found.0, found.1, found.2
            )));
        }
        Ok(())
    }

    /// One run: its prompt, the number of its places, its sizes, then the places.
    fn frame(&self, frame: &Frame, next: &mut HashMap<u32, (u32, u64)>) -> Result<()> {
        let graph = self.graph;
        if frame.prompt as usize >= self.manifest.prompts.len() {
            let count = self.manifest.prompts.len();
            return Err(Error::invalid(format!("prompt {} of {count} does not exist", frame.prompt)));
        }
        // Readers index places by the graph's ids.
        let sizes = [frame.values.len(), frame.states.len()];
        if sizes != [graph.values().len(), graph.states().len()] {
            let want = [graph.values().len(), graph.states().len()];
            return Err(Error::invalid(format!(
                "expected places of {want:?} values and states, found {sizes:?}"
            )));
        }
        let (step, cached) = next.entry(frame.prompt).or_insert((0, 0));
        let n = frame.symbols.get(Symbol::N).unwrap_or(0);
        let p = frame.symbols.get(Symbol::P).unwrap_or(0);
        // Counts of rows are u32 in the file.
        let total = p.checked_add(n).filter(|&t| t <= u64::from(u32::MAX));
        let total = total.ok_or_else(|| Error::invalid(format!("n = {n} and p = {p} are too large")))?;
        if (frame.step, p) != (*step, *cached) {
            let (want, rows, have) = (*step, *cached, frame.step);
            return Err(Error::invalid(format!(
                "prompt {}: expected step {want} after {rows} rows, found step {have} after {p}",
                frame.prompt
            )));
        }
        (*step, *cached) = (*step + 1, total);
        self.states(frame, n)?;
        self.values(frame, total)
    }

    /// A growing state has the rows of this run, any other one its whole value.
    fn states(&self, frame: &Frame, n: u64) -> Result<()> {
        for (state, slot) in self.graph.states().iter().zip(&frame.states) {
            let what = || format!("state `{}`", state.name);
            let mut ty = self.graph.value(state.input).ty.clone();
            if state.grows(self.graph)
                && let Some(first) = ty.shape.first_mut()
            {
                *first = n.into();
            }
            match slot {
                Slot::Stored(index) => self.check_stored(*index, &ty.bind(&frame.symbols)?).context(what)?,
                Slot::Rows(_) => {
                    return Err(Error::invalid("a state cannot refer to rows of itself").context(what()));
                }
                Slot::None => {}
            }
        }
        Ok(())
    }

    /// Rows of a state must be as many as there are tokens.
    fn values(&self, frame: &Frame, total: u64) -> Result<()> {
        for (i, (value, slot)) in self.graph.values().iter().zip(&frame.values).enumerate() {
            let wrong = |text: String| Err(Error::invalid(text).context(format!("value `{}`", value.name)));
            match *slot {
                Slot::None => {}
                Slot::Stored(index) => {
                    let bound = value.ty.bind(&frame.symbols)?;
                    self.check_stored(index, &bound).context(|| format!("value `{}`", value.name))?;
                }
                Slot::Rows([rows]) => {
                    let of = growing_output(self.graph, i as u32);
                    if of.is_none_or(|s| frame.states[s] == Slot::None) {
                        return wrong("refers to rows of a state that is not recorded".into());
                    }
                    if u64::from(rows) != total {
                        return wrong(format!("has {rows} rows after {total} tokens"));
                    }
                }
            }
            // Weights are named and hashed in the manifest; a second place could contradict it.
            if value.origin == Origin::Weight && *slot != Slot::None {
                return wrong("is a weight and has a place among the recorded values".into());
            }
        }
        Ok(())
    }

    /// Whether a tensor exists and has this type.
    fn check_stored(&self, index: u32, expected: &TensorType) -> Result<()> {
        let record = self.records.get(index as usize);
        let ty = record.and_then(|r| self.manifest.types.get(r.ty as usize));
        match ty {
            None => Err(Error::invalid(format!("tensor {index} of {} does not exist", self.records.len()))),
            Some(ty) if ty != expected => {
                Err(Error::invalid(format!("tensor {index}: expected {expected}, found {ty}")))
            }
            Some(_) => Ok(()),
        }
    }
}

/// Whether a run was given the inputs of the nodes that no step changes, the encoder of an image, so that these ran too.
pub fn encodes(graph: &Graph, frame: &Frame) -> bool {
    let mut constant =
        graph.inputs().filter(|(_, v)| v.ty.shape.iter().all(|size| size.as_const().is_some()));
    constant.all(|(id, _)| frame.values[id.0 as usize] != Slot::None)
}

/// The number of nodes that ran, where `once` are those that no step changes.
pub fn calls(graph: &Graph, once: &[bool], frame: &Frame) -> u64 {
    let encodes = encodes(graph, frame);
    once.iter().filter(|once| encodes || !**once).count() as u64
}

/// The growing state whose value after a run is this value.
pub fn growing_output(graph: &Graph, value: u32) -> Option<usize> {
    graph.states().iter().position(|s| s.output.0 == value && s.output != s.input && s.grows(graph))
}
