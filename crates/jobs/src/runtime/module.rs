//! What can be compiled: one operator, a graph, a model, or a kernel of one's own.

use super::kernel::OwnKernel;
use std::collections::HashMap;
use std::sync::Arc;
use tapml_exec::Interface;
use tapml_graph::{Builder, Error, Graph, Model, Op, Result, Tensor, TensorType};

/// Something to compile. Its name is the name of its function, except for language models; see [`super::compile`].
#[derive(Clone, Debug)]
pub struct Module {
    name: String,
    pub(super) body: Body,
}

/// What a module is made of.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// A graph with its weights, and the context length if it has one.
    Graph {
        model: Arc<Model>,
        context: Option<usize>,
    },
    Kernel(Box<OwnKernel>),
}

impl Module {
    /// One operator on inputs of these types, with its attributes as a JSON object. Inputs are named by their number.
    ///
    /// # Errors
    /// If there is no such operator, its attributes are wrong, or it does not take these types.
    pub fn op(name: &str, attributes: serde_json::Value, inputs: &[TensorType]) -> Result<Module> {
        let op = Op::parse(name, attributes)?;
        let outputs = op.infer(inputs)?.len();
        let mut builder = Builder::new(name);
        let mut ids = Vec::with_capacity(inputs.len());
        for (i, ty) in inputs.iter().enumerate() {
            ids.push(builder.input(format!("input.{i}"), ty.clone())?);
        }
        let names: Vec<String> = match outputs {
            1 => vec![name.to_string()],
            _ => (0..outputs).map(|i| format!("{name}.{i}")).collect(),
        };
        let results = builder.node_multi(name, op, &ids, &names)?;
        for (i, result) in results.into_iter().enumerate() {
            builder.output(format!("output.{i}"), result);
        }
        Module::graph(builder.finish()?, HashMap::new())
    }

    /// A graph with its weights by name.
    pub fn graph(graph: Graph, weights: HashMap<String, Tensor>) -> Result<Module> {
        Ok(Module::model(Model::new(graph, weights)?, None))
    }

    /// A model; `context` is the most tokens that it was made for.
    pub fn model(model: Model, context: Option<usize>) -> Module {
        let name = model.graph().name().to_string();
        Module { name, body: Body::Graph { model: Arc::new(model), context } }
    }

    /// A kernel of one's own.
    pub fn kernel(kernel: OwnKernel) -> Module {
        Module { name: kernel.entry().to_string(), body: Body::Kernel(Box::new(kernel)) }
    }

    /// The same module under another name. Fails on an empty name.
    pub fn with_name(mut self, name: &str) -> Result<Module> {
        if name.is_empty() {
            return Err(Error::invalid("a module needs a name"));
        }
        self.name = name.into();
        Ok(self)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The graph, if it is one.
    pub fn as_graph(&self) -> Option<&Graph> {
        match &self.body {
            Body::Graph { model, .. } => Some(model.graph()),
            Body::Kernel(_) => None,
        }
    }

    /// Whether this is a language model: token ids in, logits out, and what was read before is remembered.
    pub(super) fn is_language_model(&self) -> bool {
        self.as_graph().is_some_and(|graph| {
            let plain = Interface::from_graph(graph).and_then(|i| i.expect_logits().map(|_| i)).ok();
            plain.is_some_and(|i| !i.sees()) && !graph.states().is_empty()
        })
    }
}
