//! `LSTM`, `GRU` and `RNN`: one workgroup for each sequence and direction, which keeps the state in its memory. The outputs are
//! made as one and copied to where they belong, as each may be missing.
//!
//! See <https://onnx.ai/onnx/operators/onnx__LSTM.html>, and likewise for the others. Steps depend on each other:
//! they are a loop within the kernel, with barriers between them.

use super::joining::{CopyCell, Runs};
use super::{OnnxNode, Placed, count, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::{KernelSource, LaunchBuilder, single_workgroup};
use crate::plan::{Arg, Launch, NodePlan, Scratch};
use tapml_device::BindingKind;
use tapml_graph::{DType, Error, Extent, Result};

/// A kernel whose text stands behind what all have in common.
macro_rules! recurrent {
    ($name:literal, $file:literal, $memory:literal) => {
        KernelSource {
            math: true,
            workgroup_memory: $memory,
            ..KernelSource::flat(
                concat!("onnx/", $name),
                concat!("onnx/recurrent.wgsl+onnx/", $file),
                concat!(include_str!("recurrent.wgsl"), include_str!($file)),
            )
        }
    };
}

/// A kind of cell.
struct CellKind {
    /// The text that walks through the steps.
    kernel: KernelSource,
    /// Gates of a cell; each has a row of weights for each hidden unit.
    gates: u32,
    /// Its activations unless a node names others.
    activations: &'static [&'static str],
    /// Whether it keeps a second state.
    has_cell: bool,
}

/// Long short-term memory.
const LSTM: CellKind = CellKind {
    kernel: recurrent!("lstm", "lstm.wgsl", 12288),
    gates: 4,
    activations: &["sigmoid", "tanh", "tanh"],
    has_cell: true,
};
/// Gated recurrent unit.
const GRU: CellKind = CellKind {
    kernel: recurrent!("gru", "gru.wgsl", 12288),
    gates: 3,
    activations: &["sigmoid", "tanh"],
    has_cell: false,
};
/// The plain recurrent cell.
const RNN: CellKind = CellKind {
    kernel: recurrent!("rnn", "rnn.wgsl", 8192),
    gates: 1,
    activations: &["tanh"],
    has_cell: false,
};

/// Hidden units that the workgroup's memory holds.
const MOST_HIDDEN: u32 = 1024;

/// Attributes of all three; those that change a result are looked at one by one.
const READ: [&str; 11] = [
    "hidden_size",
    "direction",
    "layout",
    "input_forget",
    "linear_before_reset",
    "clip",
    "activations",
    "activation_alpha",
    "activation_beta",
    "output_sequence",
    "name",
];

/// Sizes of sequences and states.
pub struct Sequences {
    /// Steps of the longest sequence.
    pub steps: u32,
    /// Sequences.
    pub batch: u32,
    /// Elements of an input.
    pub inputs: u32,
    /// Hidden units of a state.
    pub hidden: u32,
    /// One, or two for a bidirectional node.
    pub directions: u32,
    /// Whether the batch is the first dimension, in front of the steps: `layout` is 1.
    batch_first: bool,
    /// 1 if the one direction goes from the last step to the first.
    reverse: u32,
    /// Bound of what activations take; 0 for none.
    clip: f64,
}

impl Sequences {
    /// Of a node with states of so many hidden units, whose activations are these.
    pub fn from_node(node: &OnnxNode, hidden: u32, activations: &[&str]) -> Result<Sequences> {
        node.reads(&READ)?;
        if node.int("input_forget", 0)? != 0 || node.optional(7).is_some_and(|_| activations.len() == 3) {
            return Err(node.unserved_error("coupled gates, or peepholes"));
        }
        let (directions, reverse) = match node.text("direction", "forward")? {
            "forward" => (1, 0u32),
            "reverse" => (1, 1),
            "bidirectional" => (2, 0),
            other => return Err(node.unserved_error(&format!("the direction `{other}`"))),
        };
        if let Some(given) = node.op.attributes().get("activations") {
            let list = given.as_array().or_else(|| given.get("strings")?.as_array());
            let names: Vec<&str> = list.into_iter().flatten().filter_map(|name| name.as_str()).collect();
            let expected = activations.repeat(directions as usize);
            // Names of activations differ in case from exporter to exporter.
            let alike = names.iter().zip(&expected).all(|(name, own)| name.eq_ignore_ascii_case(own));
            if names.len() != expected.len() || !alike {
                return Err(node.unserved_error(&format!("the activations {names:?}")));
            }
        }
        let x = node.input(0)?;
        let batch_first = node.int("layout", 0)? != 0;
        let (steps, batch, inputs) = match (x.sizes()?.as_slice(), batch_first) {
            (&[steps, batch, inputs], false) | (&[batch, steps, inputs], true) => (steps, batch, inputs),
            _ => return Err(Error::invalid(format!("sequences of {}", x.ty))),
        };
        if hidden > MOST_HIDDEN || hidden == 0 {
            return Err(node.unserved_error(&format!("{hidden} hidden units")));
        }
        let clip = node.float("clip", 0.0)?;
        // 0 stands for no clip in the kernel, so that a clip of 0 cannot be told.
        if clip < 0.0 || (clip == 0.0 && node.op.attributes().contains_key("clip")) {
            return Err(node.unserved_error(&format!("`clip` of {clip}")));
        }
        Ok(Sequences { steps, batch, inputs, hidden, directions, batch_first, reverse, clip })
    }

    /// Sizes of a state.
    pub fn state(&self) -> [u32; 3] {
        let Sequences { batch, directions, hidden, .. } = *self;
        if self.batch_first { [batch, directions, hidden] } else { [directions, batch, hidden] }
    }

    /// Sizes of all hidden states.
    fn all(&self) -> [u32; 4] {
        let Sequences { steps, batch, directions, hidden, .. } = *self;
        if self.batch_first { [batch, steps, directions, hidden] } else { [steps, directions, batch, hidden] }
    }

    /// Sets the constants of the text.
    pub fn set(&self, launch: LaunchBuilder, node: &OnnxNode) -> LaunchBuilder {
        let given = |place: usize| u32::from(node.optional(place).is_some());
        let launch = launch.set("STEPS", self.steps).set("BATCH", self.batch).set("INPUTS", self.inputs);
        let launch = launch.set("HIDDEN", self.hidden).set("DIRECTIONS", self.directions);
        let launch = launch.set("REVERSE", self.reverse).set("BATCH_FIRST", u32::from(self.batch_first));
        let launch = launch.set("HAS_BIAS", given(3)).set("HAS_LENGTHS", given(4)).set("HAS_H", given(5));
        launch.set("CLIP", self.clip)
    }

    /// A launch with a workgroup for each sequence and direction.
    pub fn launch(&self, launch: LaunchBuilder) -> Launch {
        launch.groups([
            Extent::from_dim(u64::from(self.batch)),
            Extent::from_dim(u64::from(self.directions)),
            single_workgroup(),
        ])
    }

    /// The launches that copy what a cell leaves in scratch 0, all hidden states and so many last ones, to the outputs; and the
    /// elements of it.
    pub fn copies(&self, node: &OnnxNode, dtype: DType, states: usize) -> Result<(Vec<Launch>, u64)> {
        let (all, last) = (count(&self.all())?, count(&self.state())?);
        let mut launches = Vec::new();
        for place in 0..=states {
            let asked = node.outputs.get(place).copied().flatten().is_some();
            let sizes = if place == 0 { self.all().to_vec() } else { self.state().to_vec() };
            // Scratch holds all hidden states, then the last one of each kind.
            let from = if place == 0 { 0 } else { all.saturating_add(last.saturating_mul(place as u32 - 1)) };
            if asked {
                let y = node.gives(place, dtype, &sizes)?;
                // States are stored in the dtype of the node.
                let cell = if dtype == DType::F16 { CopyCell::Half } else { CopyCell::Word };
                let bind = |launch: LaunchBuilder| launch.scratch(0, BindingKind::Read).output(y.index);
                launches.push(Runs::single(y.count()?, from).launch(cell, bind)?);
            }
        }
        Ok((launches, u64::from(all) + states as u64 * u64::from(last)))
    }
}

/// What binds an input that may be absent.
pub fn optional(node: &OnnxNode, place: usize) -> Arg {
    node.optional(place).map_or(Arg::Constant(0), whole)
}

/// The plan of a node by the kernel of its cell.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    let CellKind { kernel, gates, activations, has_cell } = match node.op.name() {
        "LSTM" => LSTM,
        "GRU" => GRU,
        _ => RNN,
    };
    let dtype = node.float_dtype()?;
    let (x, w, r) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let &[_, _, hidden] = r.sizes()?.as_slice() else {
        return Err(Error::invalid(format!("{} with {}", x.ty, r.ty)));
    };
    let sequences = Sequences::from_node(&node, hidden, activations)?;
    let Sequences { steps, batch, inputs, directions, .. } = sequences;
    node.takes(1, dtype, &[directions, gates * hidden, inputs])?;
    node.takes(2, dtype, &[directions, gates * hidden, hidden])?;
    node.may_take(3, dtype, &[directions, 2 * gates * hidden])?;
    node.may_take(4, DType::I32, &[batch])?;
    node.may_take(5, dtype, &sequences.state())?;
    let launch = kernel.launch(dtype, dtype)?.read(whole(x)).read(whole(w)).read(whole(r));
    let launch = launch.read(optional(&node, 3)).read(optional(&node, 4)).read(optional(&node, 5));
    let launch = if has_cell {
        node.may_take(6, dtype, &sequences.state())?;
        let given: Option<Placed> = node.optional(6);
        launch.read(optional(&node, 6)).set("HAS_C", u32::from(given.is_some()))
    } else {
        launch
    };
    let launch = match node.op.name() {
        "GRU" => launch.set("LINEAR", u32::from(node.int("linear_before_reset", 0)? != 0)),
        _ => launch,
    };
    let launch = sequences.set(launch.scratch(0, BindingKind::ReadWrite), &node);
    let (copies, elements) = sequences.copies(&node, dtype, if has_cell { 2 } else { 1 })?;
    let mut launches = vec![sequences.launch(launch)];
    launches.extend(copies);
    let bytes = elements * dtype.size() as u64;
    // A gate adds the products of an input and of a state; a cell adds to itself at each step.
    let chain = inputs.saturating_add(hidden).saturating_add(steps);
    let plan = plan_with(&kernel, launches, vec![vec![0; 4]], chain);
    Ok(NodePlan { scratch: vec![Scratch::Temporary(Extent::from_dim(bytes.next_multiple_of(4)))], ..plan })
}
