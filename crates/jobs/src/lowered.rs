//! The lowered graphs of a model on a platform, and the row of the kernel list that each of their nodes runs by.
//!
//! What is shown is what `exec` runs: the same planner, the same kernel list, the same user's kernels.

use crate::platform::Platform;
use std::collections::HashMap;
use tapml_graph::{Error, ErrorKind, Graph, Node, Result};
use tapml_kernels::Phase;

/// The graph of one phase as a platform runs it.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The phase.
    pub phase: Phase,
    /// The graph.
    pub graph: Graph,
    /// For each node the row of the kernel list that runs it, or the user's kernel; or why none does.
    pub kernels: Vec<std::result::Result<String, String>>,
}

impl Lowered {
    /// The graph as a platform runs it in a phase. Fails with [`ErrorKind::Unsupported`] on a platform that runs graphs
    /// node by node, without kernels.
    pub fn from_platform(platform: &dyn Platform, graph: &Graph, phase: Phase) -> Result<Lowered> {
        let lowered = platform.lower(graph, phase)?.ok_or_else(|| {
            let text = format!(
                "`{}` has no lowered graph: it runs the nodes of the model's graph one by one, without kernels",
                platform.word()
            );
            Error::unsupported(text).with_hint("name a device, such as `emulator?kind=gpu`, which needs no GPU")
        })?;
        let kernel = |node: &Node| match platform.kernel_for(&node.op, &lowered.input_types(node), phase) {
            Ok(choice) => Ok(Ok(choice.name)),
            // A node without a kernel is part of the answer; any other error is not.
            Err(e) if e.kind() == ErrorKind::Unsupported => Ok(Err(e.to_string())),
            Err(e) => Err(e.context(format!("node `{}`", node.name))),
        };
        let kernels = lowered.nodes().iter().map(kernel).collect::<Result<_>>()?;
        Ok(Lowered { phase, graph: lowered, kernels })
    }

    /// The text form of the graph, with the kernel of each node in a comment behind it.
    pub fn text(&self) -> String {
        let names = self.graph.nodes().iter().map(|node| node.name.as_str());
        let kernels: HashMap<&str, _> = names.zip(&self.kernels).collect();
        self.graph.to_text_with(&|node| match kernels.get(node.name.as_str())? {
            Ok(kernel) => Some(kernel.clone()),
            Err(reason) => Some(format!("no kernel: {reason}")),
        })
    }
}
