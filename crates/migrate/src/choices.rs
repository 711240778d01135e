//! Which kernel a platform uses for each node of a graph, or why it has none.

use crate::suite::Case;
use crate::verdict::Precision;
use std::collections::HashMap;
use tapml_exec::{KernelChoice, Platform};
use tapml_graph::{DType, ErrorKind, Graph, NodeId, Result, Symbols};

/// The kernels of some nodes.
pub struct Choices {
    by_node: HashMap<NodeId, std::result::Result<KernelChoice, String>>,
}

impl Choices {
    /// Asks the platform for each of these nodes. Fails if it cannot say, such as for a source that does not compile.
    pub fn of(
        graph: &Graph,
        platform: &dyn Platform,
        nodes: impl Iterator<Item = NodeId>,
    ) -> Result<Choices> {
        let mut by_node = HashMap::new();
        for id in nodes {
            if by_node.contains_key(&id) {
                continue;
            }
            let node = graph.node(id);
            let choice = match platform.kernel_for(&node.op, &graph.input_types(node)) {
                Ok(choice) => Ok(choice),
                Err(e) if e.kind() == ErrorKind::Unsupported => Err(e.to_string()),
                Err(e) => return Err(e.context(format!("node `{}`", node.name))),
            };
            by_node.insert(id, choice);
        }
        Ok(Choices { by_node })
    }

    /// The kernel of a node that was asked for, or why there is none.
    pub fn get(&self, node: NodeId) -> std::result::Result<&KernelChoice, &str> {
        match self.by_node.get(&node) {
            Some(choice) => choice.as_ref().map_err(String::as_str),
            None => Err("the platform was not asked"),
        }
    }

    /// The cases that can run, and those that cannot with the reason.
    pub fn split(&self, cases: Vec<Case>) -> (Vec<Case>, Vec<(Case, String)>) {
        let (mut run, mut skipped) = (Vec::new(), Vec::new());
        for case in cases {
            match self.get(case.node) {
                Err(reason) => skipped.push((case, reason.to_string())),
                Ok(_) => run.push(case),
            }
        }
        (run, skipped)
    }

    /// The precision that the kernel of a node declares for a call at these symbols; plain f32 if there is none.
    pub fn precision(&self, node: NodeId, symbols: &Symbols) -> Result<Precision> {
        let declared = self.declared(node, symbols)?;
        Ok(declared.unwrap_or(Precision { accumulate: DType::F32, terms: 0 }))
    }

    /// The precision that the kernel of a node declares for a call at these symbols; `None` if there is none.
    pub fn declared(&self, node: NodeId, symbols: &Symbols) -> Result<Option<Precision>> {
        let Ok(choice) = self.get(node) else { return Ok(None) };
        let terms = usize::try_from(choice.accumulate.chain.eval(symbols)?).unwrap_or(usize::MAX);
        Ok(Some(Precision { accumulate: choice.accumulate.dtype, terms }))
    }

    /// A property of all kernels in use, each value once, joined by `+`.
    pub fn names(&self, property: impl Fn(&KernelChoice) -> String) -> String {
        let mut names: Vec<String> = self.by_node.values().flatten().map(property).collect();
        names.sort();
        names.dedup();
        names.join("+")
    }
}
