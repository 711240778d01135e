//! `tapml kernel`: the built-in kernels, and the text of one as a file to start one's own from.
//!
//! Kernels are listed as a device with everything would run them. What is printed is a file that `--kernel OP=FILE`
//! takes.

use crate::Outcome;
use crate::output::{self, JsonArg, table};
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use tapml::device::{BindingKind, DeviceInfo, Language};
use tapml::graph::DType;
use tapml::kernels::{BuiltIn, any_device, settings};
use tapml::platform::{self, PlatformSpec};

/// List the built-in kernels, or print one as a file to start your own from, for --kernel OP=FILE.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tapml kernel linear/gemv_cuda --out mine.cu\n  tapml kernel rms_norm --out mine.wgsl\n  \
                  tapml check llama.suite --target emulator --op rms_norm --kernel rms_norm=mine.wgsl --watch"
)]
pub struct KernelCommand {
    /// A kernel of the list, such as `linear/gemv`, with a setting if it has some, such as `linear/portable@outputs=8`; an
    /// operator, such as `rms_norm`, means its portable kernel
    op: Option<String>,
    /// Dtype of the activations in the case that the head of the text tells of
    #[arg(long, value_enum, default_value_t = Dtype::F32, requires = "op")]
    dtype: Dtype,
    /// The device for which the kernel is chosen; one with WebGPU's default limits and f16 if not given
    #[arg(long, value_name = "PLATFORM", requires = "op")]
    target: Option<String>,
    /// Write the text to this file instead of standard output
    #[arg(long, value_name = "FILE", value_parser = output::writable(), requires = "op")]
    out: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Dtype {
    F32,
    F16,
}

/// What is written as JSON without a name.
#[derive(Serialize)]
struct ListReport {
    schema: u32,
    /// In the order of the kernel list.
    kernels: Vec<KernelReport>,
}

/// What is written as JSON for one kernel.
#[derive(Serialize)]
struct TextReport {
    schema: u32,
    /// Its fields stand beside the others.
    #[serde(flatten)]
    kernel: KernelReport,
    /// In the order of their numbers.
    bindings: Vec<BindingReport>,
    /// As the sample case sets them.
    constants: Vec<ConstantReport>,
    /// Invocations in x, y and z.
    workgroup: [u32; 3],
    /// Workgroups in x, y and z, as formulas.
    grid: Vec<String>,
    /// Heads of the declarations in front of the text.
    prelude: Vec<String>,
    /// Of a kernel in CUDA C++.
    headers: Vec<String>,
    /// The file.
    text: String,
}

/// What is told of each kernel.
#[derive(Serialize)]
struct KernelReport {
    /// The operator.
    op: String,
    /// Its name in the list.
    kernel: String,
    /// What `--kernel` calls it.
    choice: String,
    /// The files that its text was put together of.
    files: Vec<String>,
    /// How it adds up.
    accumulate: AccumulateReport,
    /// All launches of a node, this kernel's among them.
    launches: Vec<String>,
    /// Its settings besides the default.
    settings: Vec<String>,
    /// The language of its text.
    language: Language,
    /// What it needs that not every device has.
    needs: Vec<String>,
    /// The numbers of rows that it serves.
    rows: &'static str,
}

/// See [`tapml::kernels::Accumulate`].
#[derive(Serialize)]
struct AccumulateReport {
    dtype: DType,
    chain: String,
}

/// A binding of the kernel.
#[derive(Serialize)]
struct BindingReport {
    kind: BindingKind,
    name: String,
    /// What is bound, in words.
    of: String,
}

/// A constant that is set.
#[derive(Serialize)]
struct ConstantReport {
    name: String,
    value: f64,
}

impl KernelCommand {
    /// Lists all kernels, or prints one.
    ///
    /// # Errors
    /// If no kernel has the name, or the named device is not here.
    pub fn run(self) -> Result<Outcome> {
        match &self.op {
            Some(op) => self.print(op),
            None => self.list(),
        }
    }

    /// Writes the text to the file, or to standard output.
    fn print(&self, op: &str) -> Result<Outcome> {
        let dtype = match self.dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
        };
        let kernel = BuiltIn::find(op, dtype, &self.device()?)?;
        let text = kernel.text()?;
        match &self.out {
            Some(path) => tapml::files::write(path, text.as_bytes())?,
            // Printing ends the text with a line break of its own.
            None => self.json.say_whole(text.trim_end())?,
        }
        let desc = kernel.desc()?;
        let constant = |(name, value): &(String, f64)| ConstantReport { name: name.clone(), value: *value };
        self.json.write(&TextReport {
            schema: 1,
            kernel: facts(&kernel)?,
            bindings: kernel
                .bindings()?
                .into_iter()
                .map(|b| BindingReport { kind: b.kind, name: b.name, of: b.of })
                .collect(),
            constants: desc.constants.iter().map(constant).collect(),
            workgroup: desc.workgroup,
            grid: kernel.grid(),
            prelude: kernel.prelude()?,
            headers: kernel.headers()?,
            text,
        })?;
        Ok(Outcome::Holds)
    }

    /// The device whose kernels are meant; a named one has to be here.
    fn device(&self) -> Result<DeviceInfo> {
        match &self.target {
            Some(word) => Ok(platform::open_device(&PlatformSpec::parse(word)?)?.info().clone()),
            None => Ok(any_device()),
        }
    }

    /// Prints a line for each kernel.
    fn list(&self) -> Result<Outcome> {
        // The list is the same on all machines: it is not asked what runs here.
        let all = BuiltIn::all(&any_device())?;
        let report = ListReport { schema: 1, kernels: all.iter().map(facts).collect::<Result<_>>()? };
        let mut rows = table(&["KERNEL", "NEEDS", "ROWS", "LAUNCHES", "SUMS", "SETTINGS", "FILES"])
            .with_optional(&["FILES", "SETTINGS", "SUMS", "LAUNCHES"]);
        for kernel in &report.kernels {
            // A chain of zero means that the kernel adds nothing up.
            let sums = if kernel.accumulate.chain == "0" {
                "-".to_string()
            } else {
                kernel.accumulate.dtype.to_string()
            };
            let launches = kernel.launches.len().to_string();
            let (settings, files) = (kernel.settings.join(" "), kernel.files.join(" "));
            let (needs, count) = (kernel.needs.join(", "), kernel.rows.to_string());
            rows.add_row([kernel.kernel.clone(), needs, count, launches, sums, settings, files]);
        }
        let hint = "`tapml kernel NAME` prints one as a file to start your own from, whether or not a device that \
                    it needs is here";
        self.json.say(&format!("{rows}\n\n{hint}"))?;
        self.json.write(&report)?;
        Ok(Outcome::Holds)
    }
}

/// What is told of a kernel in both reports.
fn facts(kernel: &BuiltIn) -> Result<KernelReport> {
    let accumulate = &kernel.plan.accumulate;
    Ok(KernelReport {
        op: kernel.op.to_string(),
        kernel: kernel.kernel.clone(),
        choice: kernel.choice().to_string(),
        // A text that is put together names its files with this sign between them.
        files: kernel.desc()?.source.file.split('+').map(str::to_string).collect(),
        accumulate: AccumulateReport { dtype: accumulate.dtype, chain: accumulate.chain.to_string() },
        launches: kernel.plan.launches.iter().map(|launch| launch.desc.name.clone()).collect(),
        settings: settings(&kernel.kernel).map(|row| row.setting.to_string()).collect(),
        language: kernel.desc()?.source.language,
        needs: kernel.row().map(|row| row.needs.words()).unwrap_or_default(),
        rows: kernel.row().map_or("any number of rows", |row| row.rows.name()),
    })
}
