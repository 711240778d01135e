//! A recorded list and the graphs that were made of it: one for each geometry, that is the values of all sizes that depend
//! on symbols. Most steps of a model differ in what the block of symbols holds and not in geometry.
//!
//! A graph has fixed arguments and grids. So it may run again only while its geometry is the same and
//! nothing that it uses was freed.

use crate::driver::CudaGraph;
use std::collections::HashMap;
use tapml_device::{Command, KernelId};
use tapml_graph::{Extent, Result, Symbols};

// The one that was asked for longest ago makes room.
/// Graphs of one list that are kept. Prompts of many lengths make many that never come again.
const MOST: usize = 32;
// A launch of a graph costs about as much as a few launches of kernels.
/// Lists of fewer calls gain nothing from a graph.
pub(crate) const LEAST_CALLS: usize = 4;

/// See the module.
pub(crate) struct CudaList {
    /// The different sizes that depend on symbols.
    sizes: Vec<Extent>,
    /// The state of the device's books when the list was last found whole.
    pub(crate) whole_at: Option<u64>,
    /// Label and kernel of each command, empty for those that run none.
    names: Vec<(String, String)>,
    /// By geometry: what is known of it.
    made: HashMap<Vec<u64>, Made>,
    /// Counts requests; orders what was asked for.
    turn: u64,
}

/// What was made of a geometry.
struct Made {
    /// None until the geometry came a second time.
    graph: Option<CudaGraph>,
    /// When it was last asked for.
    turn: u64,
}

impl CudaList {
    /// The books of commands; `kernel` gives a kernel's name.
    pub(crate) fn new<'a>(commands: &[Command], kernel: impl Fn(KernelId) -> &'a str) -> CudaList {
        let mut sizes: Vec<Extent> = Vec::new();
        let mut add = |extent: &Extent| {
            if extent.dim.symbols().next().is_some() && !sizes.contains(extent) {
                sizes.push(extent.clone());
            }
        };
        for command in commands {
            match command {
                Command::Dispatch { groups, .. } => groups.iter().for_each(&mut add),
                Command::Copy { src_offset, dst_offset, len, .. } => {
                    [src_offset, dst_offset, len].into_iter().for_each(&mut add);
                }
                Command::Fill { .. } => {}
            }
        }
        let name = |command: &Command| match command {
            Command::Dispatch { label, kernel: id, .. } => (label.clone(), kernel(*id).to_string()),
            _ => Default::default(),
        };
        let names = commands.iter().map(name).collect();
        CudaList { sizes, whole_at: None, names, made: HashMap::new(), turn: 0 }
    }

    /// Label and kernel of the command at a place; `None` for one that runs no kernel.
    pub(crate) fn name(&self, at: usize) -> Option<&(String, String)> {
        self.names.get(at).filter(|(_, kernel)| !kernel.is_empty())
    }

    /// How many commands run a kernel, and the name of the last one.
    pub(crate) fn kernels(&self) -> (usize, Option<&(String, String)>) {
        let mut kernels = self.names.iter().filter(|(_, kernel)| !kernel.is_empty());
        (kernels.clone().count(), kernels.next_back())
    }

    /// The geometry at these symbols.
    pub(crate) fn geometry(&self, symbols: &Symbols) -> Result<Vec<u64>> {
        self.sizes.iter().map(|extent| extent.eval(symbols)).collect()
    }

    /// Notes that a geometry is run; tells whether it was run before, so that a graph is worth its making.
    pub(crate) fn note_geometry(&mut self, geometry: &[u64]) -> bool {
        self.turn += 1;
        if let Some(made) = self.made.get_mut(geometry) {
            made.turn = self.turn;
            return true;
        }
        self.make_room();
        self.made.insert(geometry.to_vec(), Made { graph: None, turn: self.turn });
        false
    }

    /// The graph of a geometry, if there is one.
    pub(crate) fn graph(&mut self, geometry: &[u64]) -> Option<&CudaGraph> {
        let made = self.made.get_mut(geometry)?;
        self.turn += 1;
        made.turn = self.turn;
        made.graph.as_ref()
    }

    /// Keeps the graph of a geometry that was seen.
    pub(crate) fn keep(&mut self, geometry: &[u64], graph: CudaGraph) {
        if let Some(made) = self.made.get_mut(geometry) {
            made.graph = Some(graph);
        }
    }

    /// Drops the geometry that was asked for longest ago.
    fn make_room(&mut self) {
        if self.made.len() < MOST {
            return;
        }
        let oldest = self.made.iter().min_by_key(|(_, made)| made.turn).map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.made.remove(&key);
        }
    }
}
