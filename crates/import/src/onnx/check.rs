//! Whether the parts of a model fit together: names that are read are made before, domains have a version, tensors their bytes.
//!
//! The rules are those of `onnx.checker` that the code behind relies on: topological order, single
//! assignment, imported domains. Types and shapes are not inferred here.

use super::messages::{Attribute, Graph, Model, Node, OperatorSet};
use super::tensor::{self, Around};
use std::collections::HashSet;
use tapml_graph::{Context, Error, Result};

/// The domain's own name where a model may write two.
pub fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

/// What holds for the nodes of a graph or of a function.
struct Checker<'m> {
    /// Those that may be used, the standard's as an empty text.
    domains: HashSet<String>,
    /// Where external data may lie.
    folder: &'m Around,
}

/// The advice for a model that names operators of a set which it does not import.
const NO_VERSION: &str = "`opset_import` must name each set of operators with its version; `onnx.checker.check_model` tells the same: export it again";

/// Checks a model that lies in this folder.
pub fn model(model: &Model, folder: &Around) -> Result<()> {
    let Some(graph) = &model.graph else {
        let text = format!("this is no ONNX model: it has no graph (ir_version {})", model.ir_version);
        return Err(Error::invalid(text));
    };
    let own: Vec<&str> = model.functions.iter().map(|function| domain(&function.domain)).collect();
    // Functions belong to domains that nobody has to import.
    // A function imports operator sets of its own.
    let checker = |sets: &[OperatorSet]| {
        let imported = sets.iter().map(|set| domain(&set.domain).to_string());
        Checker { domains: imported.chain(own.iter().map(|name| name.to_string())).collect(), folder }
    };
    checker(&model.opset_import).graph(graph, None)?;
    for function in &model.functions {
        let of_function = checker(&function.opset_import);
        // A function sees nothing of the graph that calls it.
        let mut scope = Scope { names: function.input.iter().map(String::as_str).collect(), outer: None };
        let context = || format!("function `{}`", function.name);
        of_function.nodes(&function.node, &mut scope).context(context)?;
        scope.has_all(function.output.iter()).context(context)?;
    }
    Ok(())
}

/// The names that nodes of a graph may read. Graphs within nodes see those around them.
struct Scope<'s, 'm> {
    /// Made so far in this graph.
    names: HashSet<&'m str>,
    outer: Option<&'s Scope<'s, 'm>>,
}

impl Scope<'_, '_> {
    /// Looks outwards, as the specification's rule for subgraphs says.
    fn has(&self, name: &str) -> bool {
        self.names.contains(name) || self.outer.is_some_and(|outer| outer.has(name))
    }

    /// Fails with the first output that nothing makes.
    fn has_all<'n>(&self, mut outputs: impl Iterator<Item = &'n String>) -> Result<()> {
        match outputs.find(|name| !self.has(name)) {
            Some(name) => Err(Error::invalid(format!("nothing makes the output `{name}`"))),
            None => Ok(()),
        }
    }
}

/// A node in words, for errors; names may be empty.
pub(super) fn describe_node(node: &Node) -> String {
    if node.name.is_empty() {
        format!("a node `{}`", node.op_type)
    } else {
        format!("node `{}` (`{}`)", node.name, node.op_type)
    }
}

impl Checker<'_> {
    /// Checks a graph, within a node if there is a scope around it.
    fn graph<'m>(&self, graph: &'m Graph, outer: Option<&Scope<'_, 'm>>) -> Result<()> {
        let sparse = graph.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_ref());
        let tensors = || graph.initializer.iter().chain(sparse.clone());
        tensors().try_for_each(|tensor| tensor::check(tensor, self.folder))?;
        let inputs = graph.input.iter().map(|value| value.name.as_str());
        let names = inputs.chain(tensors().map(|tensor| tensor.name.as_str())).collect();
        let mut scope = Scope { names, outer };
        self.nodes(&graph.node, &mut scope)?;
        scope.has_all(graph.output.iter().map(|value| &value.name))
    }

    /// Checks nodes in their order; names that they make count from then on.
    fn nodes<'m>(&self, nodes: &'m [Node], scope: &mut Scope<'_, 'm>) -> Result<()> {
        for node in nodes {
            if !self.domains.contains(domain(&node.domain)) {
                let text = format!(
                    "{}: the model imports no version of the operators of `{}`",
                    describe_node(node),
                    if node.domain.is_empty() { "ai.onnx" } else { &node.domain }
                );
                return Err(Error::invalid(text).with_hint(NO_VERSION));
            }
            // An empty name is an input that is left out.
            let unknown = |name: &&String| !name.is_empty() && !scope.has(name);
            if let Some(name) = node.input.iter().find(unknown) {
                let text = format!("{} reads `{name}`, which nothing before it makes", describe_node(node));
                return Err(Error::invalid(text));
            }
            for attribute in &node.attribute {
                self.attribute(attribute, scope).context(|| describe_node(node))?;
            }
            for name in node.output.iter().filter(|name| !name.is_empty()) {
                if !scope.names.insert(name) {
                    let text = format!("{} makes `{name}`, which is made before", describe_node(node));
                    return Err(Error::invalid(text));
                }
            }
        }
        Ok(())
    }

    /// Tensors and graphs of an attribute.
    fn attribute<'m>(&self, attribute: &'m Attribute, scope: &Scope<'_, 'm>) -> Result<()> {
        let mut tensors = attribute.t.iter().chain(&attribute.tensors);
        tensors.try_for_each(|tensor| tensor::check(tensor, self.folder))?;
        attribute.g.iter().chain(&attribute.graphs).try_for_each(|graph| self.graph(graph, Some(scope)))
    }
}
