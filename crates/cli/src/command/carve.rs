//! `tapml carve`: record every node call of real runs on the source.
//!
//! The source is a platform on which the model is known to work. The suite that comes out is what `tapml check`
//! replays.

use super::common::{GraphArgs, InputArgs};
use crate::Outcome;
use crate::output::{JsonArg, bytes};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use tapml::jobs::CarveJob;
use tapml::prompts::Prompts;

/// Run a model on the source with real prompts and record every operator call as a test.
#[derive(Args)]
#[command(
    after_help = "Example:\n  tapml carve models/llama --prompts prompts.txt --out llama.suite --steps 8\n  tapml carve detector.onnx --input image=photo.png --source ort --out detector.suite"
)]
pub struct CarveCommand {
    /// Folder in Hugging Face layout, a GGUF or an ONNX file
    model: PathBuf,
    /// Prompts, one per line, ![](FILE) before one for an image; bundled ones if not given
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    #[command(flatten)]
    inputs: InputArgs,
    /// The suite's folder; must not exist unless --overwrite is given
    #[arg(long, value_name = "SUITE")]
    out: PathBuf,
    /// Replace an existing suite
    #[arg(long)]
    overwrite: bool,
    /// Where the model is known to work
    #[arg(long, value_name = "PLATFORM", default_value = "cpu")]
    source: String,
    #[arg(long, help = format!("Decode steps after each prompt; {} if not given", CarveJob::STEPS))]
    steps: Option<u32>,
    /// Put the weights into the suite too
    #[arg(long)]
    self_contained: bool,
    #[command(flatten)]
    graph: GraphArgs,
    #[command(flatten)]
    json: JsonArg,
}

impl CarveCommand {
    /// Records the suite and tells what is in it.
    ///
    /// # Errors
    /// If the folder of the suite exists and is not to be replaced, the model cannot be read, or the source does not run it.
    pub fn run(self) -> Result<Outcome> {
        let job = CarveJob {
            model: self.model,
            out: self.out,
            inputs: self.inputs.data(),
            prompts: Prompts::from_file(self.prompts.as_deref()),
            overwrite: self.overwrite,
            source: self.source,
            steps: self.steps,
            self_contained: self.self_contained,
            graph: self.graph.options(),
        };
        let bar = Bar::new();
        let stop = stopping::stop_on_signal()?;
        let carved = job.run(&bar, &stop);
        bar.finish();
        // The bar is gone before an error is printed.
        let carved = carved?;
        let totals = &carved.totals;
        self.json.say(&format!(
            "{}: {} calls of {} nodes, {} tensors, {} in {:.2} s",
            carved.suite,
            totals.calls,
            carved.nodes,
            totals.tensors,
            bytes(totals.tensor_bytes),
            carved.seconds.total
        ))?;
        carved.unrolled.iter().for_each(|note| crate::output::note("unrolled", note));
        self.json.write(&carved)?;
        Ok(Outcome::Holds)
    }
}
