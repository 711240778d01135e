//! `tapml tune`: the fastest built-in kernels for a model on a device.
//!
//! A kernel is timed only if its results pass the calls that were carved of the model. What was found holds for one
//! device and one driver.

use super::common::{GraphArgs, InputArgs};
use crate::Outcome;
use crate::output::{self, JsonArg, table};
use crate::progress::Bar;
use crate::stopping;
use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use tapml::kernels::TuningCache;
use tapml::prompts::Prompts;
use tapml::tune::{Phase, TuneJob, Tuned, cache_file};

/// Time the variants and settings of every operator at a model's shapes, and keep the fastest that pass their carved calls.
#[derive(Args)]
#[command(
    after_help = "Example:\n  tapml tune models/llama --target vulkan\n  tapml tune models/llama --target vulkan --out here.json\n  tapml generate models/llama --target 'vulkan?tuning=here.json' --prompt Once\n  tapml tune detector.onnx --input image=photo.png --source ort --target vulkan"
)]
pub struct TuneCommand {
    /// Folder in Hugging Face layout, a GGUF or an ONNX file, or a suite of operators of others
    model: PathBuf,
    /// The device: emulator, vulkan, metal, dx12, cuda; `:N` chooses a device, options follow `?`
    #[arg(long, value_name = "PLATFORM")]
    target: String,
    /// A suite of the model; carved for the time being if not given
    #[arg(long, value_name = "SUITE")]
    suite: Option<PathBuf>,
    /// Prompts for carving, one per line; bundled ones if not given
    #[arg(long, value_name = "FILE", conflicts_with = "suite")]
    prompts: Option<PathBuf>,
    #[command(flatten)]
    inputs: InputArgs,
    /// Where the model is carved
    #[arg(long, value_name = "PLATFORM", default_value = "cpu")]
    source: String,
    /// What the kernels are to be fast for: steps of one token, or prompts
    #[arg(long = "for", value_enum, default_value_t = For::Decode)]
    phase: For,
    /// Write the choices to this file, for `?tuning=FILE`, instead of where all commands look for them
    #[arg(long, value_name = "FILE", value_parser = output::writable())]
    out: Option<PathBuf>,
    #[command(flatten)]
    graph: GraphArgs,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Clone, Copy, ValueEnum)]
enum For {
    Decode,
    Prompt,
}

/// What is written as JSON.
#[derive(Serialize)]
struct Report {
    schema: u32,
    target: String,
    /// The device's own name.
    device: String,
    /// Choices hold for this driver alone.
    driver: String,
    /// Where the choices were written.
    file: String,
    /// What was timed for each operator.
    ops: Vec<Tuned>,
}

impl TuneCommand {
    /// Times the kernels, writes the choices, and fails if a kernel was wrong.
    ///
    /// # Errors
    /// If the model cannot be read, or the device is not here.
    pub fn run(self) -> Result<Outcome> {
        let job = TuneJob {
            model: self.model.clone(),
            target: self.target.clone(),
            source: self.source.clone(),
            inputs: self.inputs.data(),
            suite: self.suite.clone(),
            prompts: Prompts::from_file(self.prompts.as_deref()),
            graph: self.graph.options(),
            phase: match self.phase {
                For::Decode => Phase::Decode,
                For::Prompt => Phase::Prompt,
            },
        };
        let (bar, stop) = (Bar::new(), stopping::stop_on_signal()?);
        let tuned = job.run(&bar, &stop);
        bar.finish();
        let (choices, ops) = tuned?;
        let file = self.file(&choices)?;
        // Choices are kept even if a kernel was wrong: it is not among them.
        tapml::files::write(&file, choices.text()?.as_bytes())?;
        self.json.say(&describe_ops(&ops))?;
        output::note("choices", &file.display().to_string());
        // The exit code tells of a kernel that is wrong on this device.
        let failed = ops.iter().any(|op| !op.failed.is_empty());
        self.json.write(&Report {
            schema: 1,
            target: self.target.clone(),
            device: choices.device.clone(),
            driver: choices.driver.clone(),
            file: file.display().to_string(),
            ops,
        })?;
        Ok(if failed { Outcome::Fails } else { Outcome::Holds })
    }

    /// Where the choices go: the file that was named, or the cache, where other commands look.
    ///
    /// # Errors
    /// If no file was named, and no folder of the cache is known or can be made.
    fn file(&self, choices: &TuningCache) -> Result<PathBuf> {
        if let Some(out) = &self.out {
            return Ok(out.clone());
        }
        let file = cache_file(&choices.platform, &choices.device, &choices.driver);
        let file =
            file.ok_or_else(|| anyhow!("no folder for cached files: set TAPML_CACHE or give --out"))?;
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        Ok(file)
    }
}

/// A line for each operator with the times of its kernels.
/// Times are in microseconds.
fn describe_ops(ops: &[Tuned]) -> String {
    let mut rows =
        table(&["OP", "INPUTS", "NODES", "KERNEL", "TIMES", "FAILED"]).with_optional(&["INPUTS", "NODES"]);
    for op in ops {
        let times = op.seconds.iter().map(|(kernel, s)| format!("{kernel} {:.1} µs", s * 1e6));
        rows.add_row([
            op.op.clone(),
            op.inputs.join(" "),
            op.nodes.to_string(),
            op.kernel.clone(),
            times.collect::<Vec<_>>().join(", "),
            op.failed.join(", "),
        ]);
    }
    rows.to_string()
}
