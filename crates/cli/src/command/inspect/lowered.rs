//! The lowered graphs of a model: the text form with a kernel behind each node, and the same as a report.
//!
//! There is one graph for each phase. Its text form is that of any graph: kernels stand behind the nodes as comments.

use crate::Outcome;
use crate::output::JsonArg;
use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;
use tapml::exec::PlatformInfo;
use tapml::graph::{Graph, Node, Op};
use tapml::kernels::Phase;
use tapml::lowered::Lowered;
use tapml::platform::Platform;

/// A phase on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Only {
    Decode,
    Prefill,
}

impl Only {
    /// The phase itself.
    fn phase(self) -> Phase {
        match self {
            Only::Decode => Phase::Decode,
            Only::Prefill => Phase::Prefill,
        }
    }
}

/// What is written as JSON.
#[derive(Serialize)]
struct Report {
    schema: u32,
    model: String,
    /// The device that the graphs are for.
    target: PlatformInfo,
    phases: Vec<PhaseReport>,
}

/// The graph of one phase.
#[derive(Serialize)]
struct PhaseReport {
    phase: Phase,
    /// The text form, kernels included as comments.
    text: String,
    /// In the order in which they run.
    nodes: Vec<NodeReport>,
}

/// A node, with names of the values that it reads and gives.
#[derive(Serialize)]
struct NodeReport {
    name: String,
    op: &'static str,
    /// The row of the kernel list that runs the node, or the user's kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<String>,
    /// Why no kernel runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    unsupported: Option<String>,
    inputs: Vec<String>,
    outputs: Vec<String>,
    /// Of a plain operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<Value>,
    /// Of a fused operator: the nodes that it stands for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    body: Vec<NodeReport>,
}

/// Prints the lowered graphs, or that of one phase.
///
/// # Errors
/// If the platform has no kernels, or the graph cannot be lowered. A node without a kernel is no error: its line says
/// why.
pub fn show(
    model: &str,
    graph: &Graph,
    platform: &dyn Platform,
    only: Option<Only>,
    json: &JsonArg,
) -> Result<Outcome> {
    let phases = Phase::ALL.into_iter().filter(|phase| only.is_none_or(|only| only.phase() == *phase));
    let lowered =
        phases.map(|phase| Lowered::from_platform(platform, graph, phase)).collect::<Result<Vec<_>, _>>()?;
    let target = platform.describe();
    for (at, of) in lowered.iter().enumerate() {
        let gap = if at > 0 { "\n" } else { "" };
        // A comment of the text form, so that what is printed can be read again.
        let head = format!("# {} of {model} on {}, {}", of.phase.name(), target.platform, target.device);
        json.say_whole(&format!("{gap}{}\n{}", head.escape_debug(), of.text().trim_end()))?;
    }
    let phases = lowered.iter().map(phase_report).collect();
    json.write(&Report { schema: 1, model: model.to_string(), target, phases })?;
    Ok(Outcome::Holds)
}

/// The nodes of a phase with their kernels.
fn phase_report(lowered: &Lowered) -> PhaseReport {
    let nodes = lowered.graph.nodes().iter().zip(&lowered.kernels).map(|(node, kernel)| NodeReport {
        kernel: kernel.as_ref().ok().cloned(),
        unsupported: kernel.as_ref().err().cloned(),
        ..node_report(&lowered.graph, node)
    });
    PhaseReport { phase: lowered.phase, text: lowered.text(), nodes: nodes.collect() }
}

/// A node without its kernel.
fn node_report(graph: &Graph, node: &Node) -> NodeReport {
    let names = |values: &[tapml::graph::ValueId]| {
        values.iter().map(|&value| graph.value(value).name.clone()).collect()
    };
    // Names within a body are those of its own graph.
    let body = match &node.op {
        Op::Fused(fused) => {
            fused.body().nodes().iter().map(|inner| node_report(fused.body(), inner)).collect()
        }
        _ => Vec::new(),
    };
    NodeReport {
        name: node.name.clone(),
        op: node.op.name(),
        kernel: None,
        unsupported: None,
        inputs: names(&node.inputs),
        outputs: names(&node.outputs),
        // A fused operator is told by its body.
        attributes: body.is_empty().then(|| node.op.attributes()),
        body,
    }
}
