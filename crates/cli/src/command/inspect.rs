//! `tapml inspect`: what a model consists of.

use super::common::GraphArgs;
use crate::Outcome;
use crate::output::{JsonArg, bytes, table};
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use tapml::graph::Summary;
use tapml::import::quantize::parameters;

/// Show a model's graph: operator kinds, parameters, memory.
#[derive(Args)]
#[command(after_help = "Example:\n  tapml inspect models/llama")]
pub struct InspectCommand {
    /// Folder in Hugging Face layout, or a GGUF file
    model: PathBuf,
    /// Print the graph's text form instead
    #[arg(long, conflicts_with = "json")]
    text: bool,
    #[command(flatten)]
    graph: GraphArgs,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    model: String,
    model_type: String,
    vocab: usize,
    context: usize,
    #[serde(flatten)]
    summary: Summary,
    unused_tensors: Vec<String>,
}

impl InspectCommand {
    pub fn run(self) -> Result<Outcome> {
        let (checkpoint, model) = self.graph.open_unread(&self.model)?;
        if self.text {
            self.json.say(&model.graph().to_text())?;
            return Ok(Outcome::Holds);
        }
        let report = Report {
            schema: 1,
            model: self.model.display().to_string(),
            model_type: checkpoint.model_type().to_string(),
            vocab: checkpoint.vocab(),
            context: checkpoint.context(),
            summary: Summary { parameters: parameters(model.graph()), ..model.graph().summary()? },
            unused_tensors: checkpoint.unused_tensors().to_vec(),
        };
        self.json.say(&render(&report))?;
        self.json.write(&report)?;
        Ok(Outcome::Holds)
    }
}

fn render(report: &Report) -> String {
    let s = &report.summary;
    let mut text = format!(
        "{} ({}): {:.2} M parameters, {} of weights, vocabulary {}, context {}\n",
        report.model,
        report.model_type,
        s.parameters as f64 / 1e6,
        bytes(s.weight_bytes),
        report.vocab,
        report.context
    );
    let cache = s.state_bytes_per_token;
    text += &format!(
        "{} states: {} per token, {} at full context\n\n",
        s.states,
        bytes(cache),
        bytes(cache * report.context as u64 + s.state_bytes_fixed)
    );
    let mut ops = table(&["OP", "NODES"]);
    for op in &s.ops {
        ops.add_row([op.op.clone(), op.nodes.to_string()]);
    }
    ops.add_row(["all".to_string(), s.nodes.to_string()]);
    let mut weights = table(&["DTYPE", "TENSORS", "PARAMETERS", "BYTES"]);
    for w in &s.weights {
        weights.add_row([
            w.dtype.to_string(),
            w.tensors.to_string(),
            w.parameters.to_string(),
            bytes(w.bytes),
        ]);
    }
    text += &format!("{ops}\n\n{weights}");
    if !report.unused_tensors.is_empty() {
        text += &format!("\n\nin the checkpoint but not in the graph: {}", report.unused_tensors.join(", "));
    }
    text
}
