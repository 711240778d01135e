//! What the parts of architectures build with: a graph under construction whose weights take their dtype from the
//! checkpoint.

use crate::options::{ImportOptions, LogitRows};
use crate::source::Source;
use std::collections::HashMap;
use std::fmt;
use tapml_graph::op::MergeRows;
use tapml_graph::{Builder, DType, Error, Graph, Op, Result, Symbol, TensorType, ValueId};

/// A module's place in the checkpoint, such as `model.layers.0.self_attn`: weights and nodes are named under it.
///
/// Always without the prefix of a model within a model; [`Net`] puts that in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    /// The module of this name.
    pub fn new(name: impl Into<String>) -> Path {
        Path(name.into())
    }

    /// A module, weight or node within this one.
    pub fn child(&self, name: impl fmt::Display) -> Path {
        Path(format!("{}.{name}", self.0))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A graph under construction.
pub struct Net<'a> {
    builder: Builder,
    /// Stands before the names of weights, nodes and states.
    prefix: String,
    /// Rows of an image, to be put in the place of tokens.
    image: Option<ValueId>,
    /// Asked with full names, prefix included.
    dtype_of: &'a dyn Fn(&str) -> Option<DType>,
    /// What the user asked for.
    options: &'a ImportOptions,
    /// By the full name of the weight that is made.
    sources: HashMap<String, Source>,
    /// Names of values in the order in which they were noted.
    hidden: Vec<String>,
}

/// A finished graph with what the importer has to know of it.
#[derive(Debug)]
pub struct Finished {
    /// The graph.
    pub graph: Graph,
    /// The weights that are not tensors of the checkpoint as they are.
    pub sources: HashMap<String, Source>,
    /// Names of the values that [`Net::hidden`] was called with, in order.
    pub hidden: Vec<String>,
}

impl<'a> Net<'a> {
    /// An empty graph of this name. `dtype_of` tells the dtype of a weight in the checkpoint; one that it does not
    /// know counts as f32 here and is reported when the weights are loaded.
    pub fn new(
        name: &str,
        dtype_of: &'a dyn Fn(&str) -> Option<DType>,
        options: &'a ImportOptions,
    ) -> Net<'a> {
        Net {
            builder: Builder::new(name),
            prefix: String::new(),
            image: None,
            dtype_of,
            options,
            sources: HashMap::new(),
            hidden: Vec::new(),
        }
    }

    /// From here on, `prefix` stands before the names of weights, nodes and states: of a model within a model.
    pub fn with_prefix(self, prefix: &str) -> Net<'a> {
        Net { prefix: prefix.into(), ..self }
    }

    /// The full name of a module, weight or node.
    fn name(&self, at: &Path) -> String {
        format!("{}{at}", self.prefix)
    }

    /// Dtype of activations and caches.
    pub fn activation(&self) -> DType {
        self.options.activation
    }

    /// Which positions get logits.
    pub fn rows(&self) -> LogitRows {
        self.options.logits
    }

    /// The token ids of this step: `u32[n]`.
    pub fn ids(&mut self) -> Result<ValueId> {
        self.builder.input("ids", TensorType::new(DType::U32, [Symbol::N]))
    }

    /// The pixels of an image: `f32[channels, height, width]`.
    pub fn pixels(&mut self, shape: [u32; 3]) -> Result<ValueId> {
        self.builder.input("pixels", TensorType::new(DType::F32, shape.map(u64::from)))
    }

    /// Rows of an image, `[m, hidden]`, which [`Net::merge_image`] puts in the place of tokens.
    pub fn show(&mut self, image: ValueId) {
        self.image = Some(image);
    }

    /// `x: [n, hidden]` with the rows of the image in the places that the input `slots: u32[n]` names; `x` itself if
    /// there is no image.
    pub fn merge_image(&mut self, at: &Path, x: ValueId) -> Result<ValueId> {
        // Taken, so that `finish` can tell that a tower was built whose rows nobody reads.
        let Some(image) = self.image.take() else { return Ok(x) };
        let slots = self.builder.input("slots", TensorType::new(DType::U32, [Symbol::N]))?;
        self.node(at, MergeRows {}, &[x, image, slots])
    }

    /// Whether the checkpoint holds a weight of this name.
    pub fn holds(&self, name: &str) -> bool {
        (self.dtype_of)(&format!("{}{name}", self.prefix)).is_some()
    }

    /// The weight of this name and shape.
    /// Sizes outermost first. The dtype is the checkpoint's; a weight that is missing is reported when it
    /// is loaded.
    pub fn weight(&mut self, at: &Path, shape: &[u32]) -> Result<ValueId> {
        let name = self.name(at);
        let dtype = (self.dtype_of)(&name).unwrap_or(DType::F32);
        self.builder.weight(name, TensorType::new(dtype, shape.iter().map(|&size| u64::from(size))))
    }

    /// The weight of this name and shape, made from other tensors of the checkpoint.
    ///
    /// The dtype follows from that of the first tensor; [`Source::make`] refuses tensors of several dtypes.
    pub fn derive(&mut self, at: &Path, shape: &[u32], source: Source) -> Result<ValueId> {
        let source = source.with_prefix(&self.prefix);
        let part = source.tensors().first().map(String::as_str).unwrap_or_default();
        let dtype = source.dtype((self.dtype_of)(part).unwrap_or(DType::F32));
        let name = self.name(at);
        self.sources.insert(name.clone(), source);
        self.builder.weight(name, TensorType::new(dtype, shape.iter().map(|&size| u64::from(size))))
    }

    /// Notes a value that Transformers calls a hidden state: what enters the first layer, what leaves each layer.
    pub fn hidden(&mut self, value: ValueId) {
        self.hidden.push(self.builder.name(value).to_string());
    }

    /// The type of a value.
    pub fn ty(&self, value: ValueId) -> &TensorType {
        self.builder.ty(value)
    }

    /// A cache that grows by this step's rows: `[p, columns]`.
    /// The caller sets what it holds after the step with [`Net::set_cache`].
    pub fn cache(&mut self, at: &Path, columns: u32) -> Result<ValueId> {
        let shape = [Symbol::P.into(), tapml_graph::Dim::from(u64::from(columns))];
        self.builder.state(self.name(at), TensorType::new(self.activation(), shape))
    }

    /// A state in f32 that keeps its shape from step to step, zero at the start.
    /// f32 whatever the activation is: a recurrence adds its rounding errors up over all tokens.
    pub fn state(&mut self, at: &Path, shape: &[u32]) -> Result<ValueId> {
        let shape = shape.iter().map(|&size| u64::from(size));
        self.builder.state(self.name(at), TensorType::new(DType::F32, shape))
    }

    /// Sets what a cache or state holds after the step.
    pub fn set_cache(&mut self, before: ValueId, after: ValueId) -> Result<()> {
        self.builder.set_state(before, after)
    }

    /// Adds a node with one output.
    pub fn node(&mut self, at: &Path, op: impl Into<Op>, inputs: &[ValueId]) -> Result<ValueId> {
        self.builder.node(self.name(at), op, inputs)
    }

    /// Adds a node whose outputs get these names below its own.
    pub fn node_multi(
        &mut self,
        at: &Path,
        op: impl Into<Op>,
        inputs: &[ValueId],
        outputs: &[&str],
    ) -> Result<Vec<ValueId>> {
        let outputs: Vec<String> = outputs.iter().map(|name| self.name(&at.child(name))).collect();
        self.builder.node_multi(self.name(at), op, inputs, &outputs)
    }

    /// Names a result.
    pub fn output(&mut self, name: &str, value: ValueId) {
        self.builder.output(name, value);
    }

    /// Finishes the graph. Fails if there is an image that takes the place of no token.
    pub fn finish(self) -> Result<Finished> {
        if self.image.is_some() {
            return Err(Error::unsupported("this language model takes no image in the place of tokens"));
        }
        Ok(Finished { graph: self.builder.finish()?, sources: self.sources, hidden: self.hidden })
    }
}
