//! Whether the parts of a model fit together: names that are read are made before, domains have a version, tensors their bytes.

use super::messages::{Attribute, Graph, Model, Node, OperatorSet, Tensor};
use super::tensor;
use std::collections::HashSet;
use std::path::Path;
use tapml_graph::{Context, Error, Result};

/// The domain's own name where a model may write two.
pub fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

/// What holds for the nodes of a graph or of a function.
struct Checker<'m> {
    domains: HashSet<String>,
    folder: &'m Path,
}

/// Checks a model that lies in this folder.
pub fn model(model: &Model, folder: &Path) -> Result<()> {
    let Some(graph) = &model.graph else {
        let text = format!("this is no ONNX model: it has no graph (ir_version {})", model.ir_version);
        return Err(Error::invalid(text));
    };
    let own: Vec<&str> = model.functions.iter().map(|function| domain(&function.domain)).collect();
    // Functions belong to domains that nobody has to import.
    let checker = |sets: &[OperatorSet]| {
        let imported = sets.iter().map(|set| domain(&set.domain).to_string());
        Checker { domains: imported.chain(own.iter().map(|name| name.to_string())).collect(), folder }
    };
    checker(&model.opset_import).graph(graph, &HashSet::new())?;
    for function in &model.functions {
        let of_function = checker(&function.opset_import);
        let mut known: HashSet<&str> = function.input.iter().map(String::as_str).collect();
        let context = || format!("function `{}`", function.name);
        of_function.nodes(&function.node, &mut known).context(context)?;
        all_known(&function.output, &known).context(context)?;
    }
    Ok(())
}

fn all_known(outputs: &[String], known: &HashSet<&str>) -> Result<()> {
    match outputs.iter().find(|name| !known.contains(name.as_str())) {
        Some(name) => Err(Error::invalid(format!("nothing makes the output `{name}`"))),
        None => Ok(()),
    }
}

/// A node in words, for errors; names may be empty.
fn called(node: &Node) -> String {
    match node.name.is_empty() {
        true => format!("a node `{}`", node.op_type),
        false => format!("node `{}` (`{}`)", node.name, node.op_type),
    }
}

impl Checker<'_> {
    /// Checks a graph within a scope of names.
    fn graph<'g>(&self, graph: &'g Graph, outer: &HashSet<&'g str>) -> Result<()> {
        let mut known = outer.clone();
        let sparse = graph.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_ref());
        let tensors = || graph.initializer.iter().chain(sparse.clone());
        known.extend(graph.input.iter().map(|value| value.name.as_str()));
        known.extend(tensors().map(|tensor| tensor.name.as_str()));
        tensors().try_for_each(|tensor| tensor::check(tensor, self.folder))?;
        self.nodes(&graph.node, &mut known)?;
        let outputs: Vec<String> = graph.output.iter().map(|value| value.name.clone()).collect();
        all_known(&outputs, &known)
    }

    fn nodes<'g>(&self, nodes: &'g [Node], known: &mut HashSet<&'g str>) -> Result<()> {
        let mut made = HashSet::new();
        for node in nodes {
            if !self.domains.contains(domain(&node.domain)) {
                let text = format!(
                    "{}: the model imports no version of the operators of `{}`",
                    called(node),
                    if node.domain.is_empty() { "ai.onnx" } else { &node.domain }
                );
                return Err(Error::invalid(text));
            }
            let unknown = |name: &&String| !name.is_empty() && !known.contains(name.as_str());
            if let Some(name) = node.input.iter().find(unknown) {
                let text = format!("{} reads `{name}`, which nothing before it makes", called(node));
                return Err(Error::invalid(text));
            }
            node.attribute
                .iter()
                .try_for_each(|attribute| self.attribute(attribute, known))
                .context(|| called(node))?;
            for name in node.output.iter().filter(|name| !name.is_empty()) {
                if !made.insert(name.as_str()) {
                    return Err(Error::invalid(format!(
                        "{} makes `{name}`, which is made before",
                        called(node)
                    )));
                }
                known.insert(name);
            }
        }
        Ok(())
    }

    fn attribute<'g>(&self, attribute: &'g Attribute, known: &HashSet<&'g str>) -> Result<()> {
        let tensors: Vec<&Tensor> = attribute.t.iter().chain(&attribute.tensors).collect();
        tensors.into_iter().try_for_each(|tensor| tensor::check(tensor, self.folder))?;
        attribute.g.iter().chain(&attribute.graphs).try_for_each(|graph| self.graph(graph, known))
    }
}
