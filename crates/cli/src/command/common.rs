//! Flags that several commands share, and opening what they name.

use crate::output;
use anyhow::{Context, Result};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tapml::exec::{self, Image, Interface};
use tapml::graph::{DType, Model, Symbols, Tensor};
use tapml::import::{Checkpoint, ImportOptions, Rows};
use tapml::kernels::Overrides;
use tapml::migrate::Stop;
use tapml::platform::{self, Platform, PlatformSpec};

/// Dtype of activations on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Activation {
    #[default]
    F32,
    F16,
}

/// How a checkpoint becomes a graph.
#[derive(Args, Clone, Debug, Default)]
pub struct GraphArgs {
    /// Dtype of activations and caches
    #[arg(long, value_enum, default_value_t = Activation::F32)]
    pub activation: Activation,
    /// Keep the checkpoint's operators one by one instead of fusing neighbours
    #[arg(long)]
    pub no_fuse: bool,
}

impl GraphArgs {
    /// Opens the checkpoint; logits for these rows. Fails if a weight holds NaN or infinity.
    pub fn open(&self, path: &Path, logits: Rows) -> Result<(Checkpoint, Model)> {
        self.open_with(path, ImportOptions { logits, ..ImportOptions::default() })
    }

    /// As [`GraphArgs::open`] without a look at the values of weights: a file of any size opens at once.
    pub fn open_unread(&self, path: &Path) -> Result<(Checkpoint, Model)> {
        self.open_with(path, ImportOptions { check_finite: false, ..ImportOptions::default() })
    }

    fn open_with(&self, path: &Path, options: ImportOptions) -> Result<(Checkpoint, Model)> {
        let activation = match self.activation {
            Activation::F32 => DType::F32,
            Activation::F16 => DType::F16,
        };
        let checkpoint = Checkpoint::open_with(path, &ImportOptions { activation, ..options })?;
        checkpoint.notes().iter().for_each(|note| output::note("note", note));
        let model = match self.no_fuse {
            true => checkpoint.model().clone(),
            false => checkpoint.model().with_graph(tapml::graph::fuse(checkpoint.graph())?)?,
        };
        Ok((checkpoint, model))
    }
}

/// The platform under test and the user's kernels for it.
#[derive(Args, Clone, Debug)]
pub struct TargetArgs {
    /// Where to run: cpu, emulator, vulkan, metal, dx12; `:N` chooses a device, options follow `?`
    #[arg(long, value_name = "PLATFORM")]
    pub target: String,
    /// Use this source instead of the built-in kernel of an operator; may repeat
    #[arg(long, value_name = "OP=FILE")]
    pub kernel: Vec<String>,
}

impl TargetArgs {
    /// Opens the platform with the kernels.
    pub fn open(&self) -> Result<Box<dyn Platform>> {
        open_platform(&self.target, &self.kernel)
    }
}

/// Opens a platform by its word, with the user's kernels.
pub fn open_platform(word: &str, kernels: &[String]) -> Result<Box<dyn Platform>> {
    Ok(platform::open(&PlatformSpec::parse(word)?, overrides(kernels)?)?)
}

/// Reads the user's kernels, given as `OP=FILE`.
pub fn overrides(kernels: &[String]) -> Result<Overrides> {
    let mut overrides = Overrides::default();
    for kernel in kernels {
        overrides.add(kernel)?;
    }
    Ok(overrides)
}

/// Says which of the user's kernels, given as `OP=FILE`, none of the nodes runs; `used` are the names of those that do,
/// several joined by `+`.
pub fn note_unused<'a>(kernels: &[String], used: impl Iterator<Item = &'a str>) {
    let used: Vec<&str> = used.flat_map(|names| names.split('+')).collect();
    for (choice, file) in kernels.iter().filter_map(|kernel| kernel.split_once('=')) {
        let (op, variant) = choice.split_once('/').unwrap_or((choice, "portable"));
        let name = Path::new(file).file_name().map_or(file.into(), |name| name.to_string_lossy());
        if !used.contains(&format!("{op}/{name}").as_str()) {
            let others: Vec<&str> =
                used.iter().filter(|name| name.split('/').next() == Some(op)).copied().collect();
            let others =
                if others.is_empty() { String::new() } else { format!("; it is {}", others.join(", ")) };
            output::note("kernel", &format!("{file} was not used: no node ran `{op}/{variant}`{others}"));
        }
    }
}

/// Token ids from `1,2,3`.
pub fn parse_ids(text: &str) -> Result<Vec<u32>, String> {
    let parse = |part: &str| {
        part.trim().parse().map_err(|_| format!("`{part}` is no token id; expected ids like 0,17,42"))
    };
    text.split(',').map(parse).collect()
}

/// A folder that commands may create their own things in.
pub fn default_ledger(model: &Path, target: &str) -> PathBuf {
    let name = model.file_name().map_or_else(|| "model".into(), |n| n.to_string_lossy().into_owned());
    let safe: String = target.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    PathBuf::from(".tapml").join(format!("{name}-{safe}"))
}

/// A stop request that Ctrl-C and SIGTERM make; a second one ends the process at once.
pub fn stop_on_signal() -> Result<Stop> {
    static STOP: OnceLock<Stop> = OnceLock::new();
    if let Some(stop) = STOP.get() {
        return Ok(stop.clone());
    }
    let stop = STOP.get_or_init(Stop::new).clone();
    let handler = stop.clone();
    let mut asked = false;
    ctrlc::set_handler(move || {
        if std::mem::replace(&mut asked, true) {
            std::process::exit(130);
        }
        handler.request();
        output::note("stopping", "after the work at hand; again to stop at once");
    })
    .context("could not install the signal handler")?;
    Ok(stop)
}

/// Logits, and hidden states if wanted, of every position of a prompt, all in f32: `logits`, `hidden.0` to `hidden.L`. An
/// encoder gives its own results instead of logits.
pub fn teacher_forced(
    checkpoint: &Checkpoint,
    model: &Model,
    (ids, image): (&[u32], Option<&Image>),
    target: &str,
    hidden: bool,
) -> Result<BTreeMap<String, Tensor>> {
    let names: Vec<String> = if hidden { checkpoint.hidden_values() } else { Vec::new() };
    let outputs: Vec<String> = (0..names.len()).map(|i| format!("hidden.{i}")).collect();
    let pairs = outputs.iter().zip(&names).map(|(output, value)| (output.as_str(), value.as_str()));
    let model = model.with_graph(model.graph().with_outputs(pairs)?)?;
    let interface = Interface::of(model.graph())?;
    interface.check(ids)?;
    if let Some(image) = image {
        interface.check_image(image)?;
    }
    let mut platform = open_platform(target, &[])?;
    let symbols = Symbols::np(ids.len() as u64, 0);
    let mut loaded = exec::load(platform.as_mut(), &model, &symbols)?;
    let results = loaded.run(&symbols, &interface.inputs_at(ids, 0, image)?, None)?;
    let to_f32 = |(name, t): (String, Tensor)| -> Result<(String, Tensor)> {
        let values = t.to_f32().into_owned();
        Ok((name, Tensor::from_f32(t.shape().to_vec(), values)?))
    };
    results.into_iter().map(to_f32).collect::<Result<_>>().context("could not read the results")
}

/// Fails unless `prompt` tokens and `new` ones fit the context.
pub fn expect_context(prompt: usize, new: usize, context: usize) -> Result<()> {
    if prompt + new <= context && prompt > 0 {
        return Ok(());
    }
    let error = match prompt {
        0 => tapml::Error::invalid("the prompt is empty").with_hint("give some text, or --ids"),
        _ => tapml::Error::invalid(format!(
            "the prompt has {prompt} tokens and {new} follow, the model's context is {context}"
        ))
        .with_hint("shorten the prompt, or ask for fewer tokens"),
    };
    Err(error.into())
}
