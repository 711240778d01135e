//! `tapml run`: one forward run of a model that generates no text.
//!
//! What the target does not serve runs on the source, node by node, and the report says which.

use super::common::{InputArgs, TargetArgs, note_unused};
use crate::Outcome;
use crate::output::{self, JsonArg, table};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use tapml::files::NewFolder;
use tapml::jobs::{Run, RunJob, RunReport};

/// Run an ONNX model, or a PyTorch module that was exported into a suite, on a target and write its outputs as NumPy arrays.
#[derive(Args)]
#[command(
    after_help = "Example:\n  tapml run detector.onnx --input image=photo.png --target vulkan --out detected"
)]
pub struct RunCommand {
    /// The ONNX file, or a suite of a PyTorch module, which has inputs of its own
    model: PathBuf,
    #[command(flatten)]
    inputs: InputArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// What the sizes of values are learned from, and what runs the operators that the target does not serve
    #[arg(long, value_name = "PLATFORM", default_value = "cpu")]
    source: String,
    /// Folder for `NAME.npy` of each output, and for the report as `run.json`; within it a folder for each of several sets of inputs
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace the outputs of another run
    #[arg(long)]
    overwrite: bool,
    /// How often each set of inputs runs, for the times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    #[command(flatten)]
    json: JsonArg,
}

impl RunCommand {
    /// Runs the model on each set of inputs and writes the outputs.
    ///
    /// # Errors
    /// If the model or an input cannot be read, or neither platform runs a node.
    pub fn run(self) -> Result<Outcome> {
        let job = RunJob {
            model: self.model,
            inputs: self.inputs.data(),
            target: self.target.target.clone(),
            kernels: self.target.kernel.clone(),
            source: self.source,
            repeat: self.repeat,
        };
        // Refused before the work if it holds something else.
        let folder = NewFolder::create(&self.out, RunReport::FILE, self.overwrite)?;
        let bar = Bar::new();
        let stop = stopping::stop_on_signal()?;
        let done = job.run(&bar, &stop);
        bar.finish();
        let (report, outputs) = done?;
        report.write_arrays(folder.folder(), &outputs)?;
        let text = serde_json::to_string_pretty(&report)?;
        tapml::files::write(&folder.folder().join(RunReport::FILE), text.as_bytes())?;
        // Outputs appear all at once, or not at all.
        folder.publish()?;
        self.json.say(&render(&report))?;
        let unused = note_unused(&self.target.kernel, report.ops.iter().map(|op| op.kernel.as_str()));
        for op in &report.ops {
            if let Some(reason) = &op.reason {
                output::note(
                    "elsewhere",
                    &format!("{} of {} nodes ran on {}: {reason}", op.op, op.nodes, op.platform),
                );
            }
        }
        self.json.say(&format!("\noutputs: {}", self.out.display()))?;
        self.json.write(&report)?;
        // A kernel that was given and never ran is a mistake of the command line.
        Ok(if unused { Outcome::Fails } else { Outcome::Holds })
    }
}

/// A line for each output of each set of inputs, and the times.
fn render(report: &RunReport) -> String {
    let nodes: usize = report.ops.iter().map(|op| op.nodes).sum();
    // A reason tells why nodes ran elsewhere.
    let own = report.ops.iter().filter(|op| op.reason.is_none()).map(|op| op.nodes).sum::<usize>();
    let (model, target, source) = (&report.model, &report.target, &report.source);
    let mut text = format!("{model} on {target}: {own} of {nodes} nodes\n\n");
    let mut rows = table(&["INPUTS", "OUTPUT", "TYPE", "FILE", "LARGEST", "DIFFERS", "SECONDS"])
        .with_optional(&["SECONDS", "LARGEST"]);
    for run in &report.runs {
        for output in &run.outputs {
            let shape: Vec<String> = output.shape.iter().map(ToString::to_string).collect();
            // Values that are not finite have no distance.
            let differs = output.max_difference.map_or("not finite".into(), |d| format!("{d:.1e}"));
            rows.add_row([
                run.inputs.clone(),
                output.name.clone(),
                format!("{} [{}]", output.dtype, shape.join(", ")),
                output.file.clone(),
                format!("{:.3e}", output.max_magnitude),
                differs,
                median(run),
            ]);
        }
    }
    let s = &report.seconds;
    text += &rows.to_string();
    text += &format!(
        "\n\nDIFFERS is the largest distance from what {source} gives, LARGEST the largest magnitude there."
    );
    text += &format!("\n{:.2} s (sizes from {source} {:.2}, load {:.2})", s.total, s.trace, s.load);
    text
}

/// The median time of a run, and the least and the greatest of several.
/// Both in seconds.
fn median(run: &Run) -> String {
    let mut seconds = run.seconds.clone();
    seconds.sort_by(f64::total_cmp);
    // Of an even number of runs, the upper one of the two in the middle.
    let middle = seconds.get(seconds.len() / 2).copied().unwrap_or_default();
    match seconds.as_slice() {
        [least, .., greatest] => format!("{middle:.4} ({least:.4} to {greatest:.4})"),
        _ => format!("{middle:.4}"),
    }
}
