//! One part of a split graph, loaded on its platform.
//!
//! A segment takes values by name from the host and gives its results back in the same way.

use super::split::HybridPart;
use crate::{LoadOptions, Loaded, Platform};
use std::collections::HashMap;
use tapml_graph::{Context, Error, Model, Result, Symbols, Tensor};

/// See the module.
pub(super) struct Segment {
    /// What it is a part of: segments are compared by it.
    pub part: HybridPart,
    pub loaded: Box<dyn Loaded>,
    /// Names of the values that it takes.
    inputs: Vec<String>,
    /// Names of the states that live in it.
    pub states: Vec<String>,
    /// How many placements have passed since one used it.
    pub unused: u32,
}

impl Segment {
    /// # Errors
    /// If the platform cannot run a node, or memory does not suffice.
    pub fn load(
        model: &Model,
        platform: &mut dyn Platform,
        part: &HybridPart,
        capacity: &Symbols,
        options: &LoadOptions,
    ) -> Result<Segment> {
        let graph = model.graph().extract(&part.nodes)?;
        let inputs = graph.inputs().map(|(_, v)| v.name.clone()).collect();
        let states = graph.states().iter().map(|s| s.name.clone()).collect();
        let loaded = platform.load_with(&model.with_graph(graph)?, capacity, options).context(|| {
            let first = &model.graph().node(part.nodes[0]).name;
            format!("segment of {} nodes from `{first}` on {}", part.nodes.len(), platform.word())
        })?;
        Ok(Segment { part: part.clone(), loaded, inputs, states, unused: 0 })
    }

    /// Runs the segment on `values`, by name, and adds what it computes to them.
    pub fn run(&mut self, symbols: &Symbols, values: &mut HashMap<String, Tensor>) -> Result<()> {
        let take = |name: &String| {
            let value = values.get(name).cloned();
            let missing = || Error::bug(format!("value `{name}` is not there when a segment needs it"));
            Ok((name.clone(), value.ok_or_else(missing)?))
        };
        let inputs: HashMap<String, Tensor> = self.inputs.iter().map(take).collect::<Result<_>>()?;
        values.extend(self.loaded.run(symbols, &inputs, None)?);
        Ok(())
    }
}
