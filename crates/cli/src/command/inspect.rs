//! `tapml inspect`: what a model consists of, and what becomes of it on a platform.
//!
//! Everything but the lowered graphs follows from the files alone. Lowered graphs depend on the device: it decides
//! which operators are fused and which kernel runs each node.

use super::common::{self, GraphArgs, InputArgs};
use crate::Outcome;
use crate::output::{JsonArg, bytes, table};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use tapml::graph::{Graph, Summary};
use tapml::onnx::TracedModel;

mod lowered;
mod onnx;

/// Show a model's graph: operator kinds, parameters, memory; or what a device runs of it, kernel by kernel. Of an ONNX
/// model: inputs, outputs, operators, weights.
#[derive(Args)]
#[command(after_help = "Examples:\n  tapml inspect models/llama\n  \
                        tapml inspect models/llama --lowered --target 'emulator?kind=gpu' --phase decode\n  \
                        tapml inspect detector.onnx --input image=photo.npy --lowered --target vulkan")]
pub struct InspectCommand {
    /// Folder in Hugging Face layout, a GGUF file, or an ONNX model
    model: PathBuf,
    /// Print the graph's text form instead
    #[arg(long, conflicts_with = "json")]
    text: bool,
    /// Print the lowered graphs instead, the kernel of each node behind it: what the platform runs
    #[arg(long, requires = "target", conflicts_with = "text")]
    lowered: bool,
    /// The platform of the lowered graphs: emulator, cuda, vulkan, metal, dx12, hip, opencl; options follow `?`
    #[arg(long, value_name = "PLATFORM", requires = "lowered")]
    target: Option<String>,
    /// Only the lowered graph of this phase; one alone is a graph in its text form
    #[arg(long, value_enum, requires = "lowered")]
    phase: Option<lowered::Only>,
    /// Use this source instead of the built-in kernel of an operator; may repeat
    #[arg(long, value_name = "OP=FILE", requires = "lowered")]
    kernel: Vec<String>,
    #[command(flatten)]
    inputs: InputArgs,
    /// What an ONNX model runs on, so that its sizes are known, for --text and --lowered
    #[arg(long, value_name = "PLATFORM", default_value = "cpu")]
    source: String,
    #[command(flatten)]
    graph: GraphArgs,
    #[command(flatten)]
    json: JsonArg,
}

/// What is written as JSON.
#[derive(Serialize)]
struct Report {
    schema: u32,
    model: String,
    /// The architecture, as the checkpoint names it.
    model_type: String,
    /// Rows of the vocabulary.
    vocab: usize,
    /// Positions that the model can have.
    context: usize,
    /// The graph in numbers; its fields stand beside the others.
    #[serde(flatten)]
    summary: Summary,
    /// Tensors of the checkpoint that no weight of the graph is.
    unused_tensors: Vec<String>,
}

impl InspectCommand {
    /// Shows what was asked for.
    ///
    /// # Errors
    /// If the model cannot be read, or the platform is not here.
    pub fn run(self) -> Result<Outcome> {
        // Such a model is a graph already, and has no configuration.
        if tapml::import::onnx::is_onnx(&self.model) {
            return if self.text || self.lowered {
                self.run_onnx()
            } else {
                onnx::show(&self.model, &self.json)
            };
        }
        if let Some(target) = &self.target {
            // A device that is not there is told before a large model is read.
            let platform = common::open_platform(target, &self.kernel)?;
            let (_, model) = self.graph.open_unread(&self.model)?;
            let model_name = self.model.display().to_string();
            return lowered::show(&model_name, model.graph(), platform.as_ref(), self.phase, &self.json);
        }
        // Only names, sizes and dtypes of weights are asked for.
        let (checkpoint, model) = self.graph.open_unread(&self.model)?;
        if self.text {
            self.json.say_whole(&model.graph().to_text())?;
            return Ok(Outcome::Holds);
        }
        let report = Report {
            schema: 1,
            model: self.model.display().to_string(),
            model_type: checkpoint.model_type().to_string(),
            vocab: checkpoint.vocab(),
            context: checkpoint.context(),
            summary: model.graph().summary()?,
            unused_tensors: checkpoint.unused_tensors().to_vec(),
        };
        self.json.say(&render(&report))?;
        self.json.write(&report)?;
        Ok(Outcome::Holds)
    }

    /// The graph of an ONNX model, whose sizes a run tells.
    fn run_onnx(self) -> Result<Outcome> {
        let target =
            self.target.as_ref().map(|target| common::open_platform(target, &self.kernel)).transpose()?;
        // Sizes are those of a run on the source.
        let mut source = common::open_platform(&self.source, &[])?;
        let (bar, stop) = (Bar::new(), stopping::stop_on_signal()?);
        let traced = TracedModel::trace(&self.model, &self.inputs.data(), source.as_mut(), &bar, &stop);
        bar.finish();
        let traced = traced?;
        // Several sets of inputs may give several graphs: the first one is shown.
        let graph: &Graph = traced.first.model.graph();
        let Some(target) = target else {
            self.json.say_whole(&graph.to_text())?;
            return Ok(Outcome::Holds);
        };
        // It has no steps: one graph serves every run.
        let phase = self.phase.or(Some(lowered::Only::Prefill));
        lowered::show(&self.model.display().to_string(), graph, target.as_ref(), phase, &self.json)
    }
}

/// Sizes, then operators and weights as tables.
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
        // States of a fixed size do not grow with the context.
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
