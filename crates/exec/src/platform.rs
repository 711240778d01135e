//! What a platform is: it replays single calls, and loads whole graphs to run them step by step.
//!
//! The trait has defaults for what only some platforms do; `Unsupported` means that another way must be
//! taken, not that the run failed.

use crate::{Call, LoadOptions, Observer, RankMemory, TracedNode};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;
use tapml_device::Finding;
use tapml_graph::op::Foreign;
use tapml_graph::{Dim, Error, Graph, Model, NodeId, Op, Result, Symbols, Tensor, TensorType};
use tapml_kernels::{Accumulate, NodePlan, OutputRows, Phase, Regime};

/// Most tokens that one run takes unless said otherwise; longer inputs run in chunks of this many.
pub const CHUNK: usize = 64;

/// Identity of a platform, as reports show it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlatformInfo {
    /// Word of the command line: `cpu`, `emulator`, `vulkan`, …
    pub platform: String,
    /// The device's own name.
    pub device: String,
    /// Driver name and version.
    pub driver: String,
}

/// The kernel that a platform uses for an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelChoice {
    /// Name for people, such as `linear/portable`.
    pub name: String,
    /// Changes whenever the kernel's text or constants change; hexadecimal.
    pub hash: String,
    /// The precision in which it accumulates.
    pub accumulate: Accumulate,
    /// The ways in which it works, told apart by the sizes of a call; none are known of a platform without kernels.
    pub regimes: Vec<Regime>,
}

/// The launches of one row of the kernel list in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The phase of the run.
    pub phase: Phase,
    /// The row, or the user's kernel.
    pub row: String,
    /// Its launches.
    pub launches: u64,
}

/// The longest chain of additions that an operator could form, where nothing is known of how it adds up: over the largest
/// size, and over the rows too if they see each other.
///
/// An upper bound of the error follows from it; too long a chain only widens what is allowed.
pub(crate) fn longest_chain(op: &Op, inputs: &[TensorType]) -> Dim {
    let largest = inputs.iter().flat_map(|ty| &ty.shape).filter_map(|d| d.as_const()).max().unwrap_or(0);
    let rows = inputs.first().and_then(|ty| ty.shape.first()).filter(|_| !op.row_wise());
    rows.and_then(|rows| rows.checked_add(&Dim::from(largest))).unwrap_or(Dim::from(largest))
}

/// The number of terms of an operator's sums: the longest row of its matrices, and, if rows see each other, the most rows.
pub(crate) fn reduction(op: &Op, inputs: &[TensorType]) -> Dim {
    let matrix = |ty: &&TensorType| ty.shape.len() > 1;
    let rows = inputs.iter().filter(matrix).filter_map(|ty| ty.shape.last()?.as_const());
    let terms = Dim::from(rows.max().unwrap_or(0));
    // Symbolic sizes are compared at one row each.
    let some = Symbols::np(1, 1);
    let first = inputs.iter().filter(|_| !op.row_wise()).filter_map(|ty| ty.shape.first());
    let most = first.max_by_key(|dim| dim.eval(&some).unwrap_or(0));
    most.and_then(|rows| rows.checked_add(&terms)).unwrap_or(terms)
}

/// The wanted rows of a run's outputs.
pub(crate) fn slice_outputs(
    outputs: &HashMap<String, Tensor>,
    wanted: &[OutputRows<'_>],
) -> Result<Vec<Tensor>> {
    let whole =
        |name: &str| outputs.get(name).ok_or_else(|| Error::invalid(format!("there is no output `{name}`")));
    wanted.iter().map(|wanted| wanted.slice(whole(wanted.name)?)).collect()
}

/// Takes the outputs of one replayed call, by the call's index.
pub type Sink<'a> = dyn FnMut(usize, Result<Vec<Tensor>>) + 'a;

/// Where graphs run: the CPU reference, or a device with its kernels.
pub trait Platform: Send {
    /// Word of the command line: `cpu`, `emulator`, `vulkan`, …
    fn word(&self) -> &str;

    /// Platform, device and driver for reports.
    fn describe(&self) -> PlatformInfo;

    /// The kernel for an operator on inputs of these types (sizes may name symbols) in one phase.
    /// [`tapml_graph::ErrorKind::Unsupported`] if there is none.
    fn kernel_for(&self, op: &Op, inputs: &[TensorType], phase: Phase) -> Result<KernelChoice>;

    /// The launches behind [`Platform::kernel_for`]. [`tapml_graph::ErrorKind::Unsupported`] if the platform has none.
    fn plan(&self, op: &Op, _inputs: &[TensorType], _phase: Phase) -> Result<NodePlan> {
        Err(Error::unsupported(format!("`{}` runs `{}` without kernels", self.word(), op.name())))
    }

    /// Makes ready what calls of these nodes in these phases need, such as compiled kernels. It saves time and does nothing else.
    fn prepare(&mut self, _nodes: &[(&Graph, NodeId, Phase)]) {}

    /// The graph as the platform runs it in a phase of greedy generation: with fused operators in the place of nodes, and
    /// with the choice of the next token behind the logits of a language model. `None` if the platform runs graphs node by
    /// node, without kernels.
    fn lower(&self, _graph: &Graph, _phase: Phase) -> Result<Option<Graph>> {
        Ok(None)
    }

    /// What one run of each phase launches of a graph that is loaded with these options: rows of the kernel list with the
    /// number of their launches. `None` if the platform launches nothing itself.
    fn launches(&self, _graph: &Graph, _options: &LoadOptions) -> Result<Option<Vec<Launched>>> {
        Ok(None)
    }

    /// Runs each call alone and gives its outputs, or its error, to `sink` under the call's index: each index once, in
    /// any order. Fails as a whole only if no call can be run any more, such as after device loss; the indices that
    /// `sink` has not seen by then were not run. `sink` must not use what the platform has loaded: the device is busy.
    fn replay(&mut self, calls: &[Call], sink: &mut Sink<'_>) -> Result<()>;

    /// Runs an operator of others whose outputs' types are not known. `inputs` are those that are there, each with whether it is
    /// the same in every call of the node; gives the outputs that are asked for.
    /// [`tapml_graph::ErrorKind::Unsupported`] if the platform does not run such operators.
    fn discover(&mut self, node: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>> {
        let (_, _) = (node, inputs);
        Err(Error::unsupported(format!("`{}` is no source of `{}`", self.word(), op.kind()))
            .with_hint("a source is `cpu`, or a runtime behind an agent, such as `ort`"))
    }

    /// Whether several nodes may run as one model, which the platform fuses and plans by itself; see [`Platform::run_region`].
    fn runs_regions(&self) -> bool {
        false
    }

    /// Runs several nodes as one model, as it does whole models; gives the region's outputs.
    /// [`tapml_graph::ErrorKind::Unsupported`] if the platform runs nodes one by one anyway.
    fn run_region(&mut self, region: &crate::Region) -> Result<Vec<Tensor>> {
        let text = format!("`{}` runs `{}` node by node", self.word(), region.name);
        Err(Error::unsupported(text))
    }

    /// Prepares a graph with its weights for runs of at most `capacity` (largest `n`, largest `p`). States start empty.
    fn load(&mut self, model: &Model, capacity: &Symbols) -> Result<Box<dyn Loaded>>;

    /// As [`Platform::load`] with other options. A platform that plans no memory has nothing to do for those of memory;
    /// one that shows no values fails with [`tapml_graph::ErrorKind::Unsupported`] if a trace is asked for.
    fn load_with(
        &mut self,
        model: &Model,
        capacity: &Symbols,
        options: &LoadOptions,
    ) -> Result<Box<dyn Loaded>> {
        if options.trace.is_empty() {
            self.load(model, capacity)
        } else {
            Err(Error::unsupported(format!("`{}` shows no values of single nodes", self.word())))
        }
    }

    /// Memory of so many words in which a rank on this platform meets others without the host.
    /// [`tapml_graph::ErrorKind::Unsupported`] if they must meet on the host.
    fn create_rank_memory(&mut self, _words: u64) -> Result<RankMemory> {
        Err(Error::unsupported(format!("ranks on `{}` meet on the host", self.word())))
    }

    /// Whether the host's processor computes what the platform runs, as in an emulator: more slowly than the CPU reference.
    fn is_software(&self) -> bool {
        false
    }

    /// Tokens of a prompt that one run should take at most: as many as it needs to be fast.
    fn chunk(&self) -> usize {
        CHUNK
    }

    /// What a checking device has found since the last call.
    fn take_findings(&mut self) -> Vec<Finding>;

    /// Bytes of the platform's memory in use by it, and the most that were in use at once. Zeros if it does not count.
    fn memory(&self) -> (u64, u64);
}

/// A graph on a platform. It stays usable when the [`Platform`] it came from is gone.
pub trait Loaded: Send {
    /// One step: takes the graph's inputs by name, advances the states, returns the graph's outputs by name.
    ///
    /// The CPU platform serves an observer, and a device what was loaded by [`crate::load_watched`]; others fail with
    /// [`tapml_graph::ErrorKind::Unsupported`]. After an
    /// error the states are undefined until [`Loaded::reset`].
    fn run(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        observer: Option<&mut dyn Observer>,
    ) -> Result<HashMap<String, Tensor>>;

    /// As [`Loaded::run`], but gives only these rows of outputs, in this order. A device hands over nothing else.
    ///
    /// # Errors
    /// As [`Loaded::run`], and if an output is unknown or has fewer rows.
    fn run_rows(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        wanted: &[OutputRows<'_>],
        observer: Option<&mut dyn Observer>,
    ) -> Result<Vec<Tensor>> {
        slice_outputs(&self.run(symbols, inputs, observer)?, wanted)
    }

    /// Whether [`Loaded::read_row`] gives what the last run left behind.
    fn keeps_outputs(&self) -> bool {
        false
    }

    /// These elements of a row of an output of the last run, whether or not the run gave them: `[1, columns]`.
    ///
    /// # Errors
    /// [`tapml_graph::ErrorKind::Unsupported`] unless [`Loaded::keeps_outputs`]. Fails if there was no run, or for a row or
    /// elements that the output does not have.
    fn read_row(&mut self, output: &str, row: usize, columns: Range<usize>) -> Result<Tensor> {
        let (_, _) = (row, columns);
        Err(Error::unsupported(format!("output `{output}` is given with the run, and not kept")))
    }

    /// `count` steps of one token from position `p` on, the first with token `first`, each other one with the token whose
    /// logit was the greatest in the step before; gives these tokens, the last step's included. `None` if the platform, or
    /// the graph, does not do this by itself: nothing has run then. After an error the states are undefined until
    /// [`Loaded::reset`].
    fn generate_greedily(&mut self, at: (u64, u32), count: u64) -> Result<Option<Vec<u32>>> {
        let _ = (at, count);
        Ok(None)
    }

    /// Empties the states: growing ones lose their rows, fixed ones become zero.
    fn reset(&mut self) -> Result<()>;

    /// The values of the nodes that [`LoadOptions::trace`] named, in the order of the graph, as the last run found and
    /// left them. Fails if there was no run.
    fn traced_nodes(&mut self) -> Result<Vec<TracedNode>> {
        Ok(Vec::new())
    }
}
