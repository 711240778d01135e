//! Flags that several commands share, and opening what they name.
//!
//! Flags are plain data; what they mean is done in the library, so that other front ends do the same.

use crate::output;
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};
use tapml::engine::Sampling;
use tapml::graph::{DType, Graph, Model};
use tapml::import::quantize::{FORMS_HELP, Scheme};
use tapml::import::{Checkpoint, LogitRows};
use tapml::jobs;
use tapml::kernels::Overrides;
use tapml::model::GraphOptions;
use tapml::onnx::Inputs;
use tapml::platform::Platform;
use tapml::serve::ServeOptions;

/// Dtype of activations on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ActivationArg {
    #[default]
    F32,
    F16,
}

/// How a checkpoint becomes a graph.
#[derive(Args, Clone, Debug, Default)]
pub struct GraphArgs {
    /// Dtype of activations and caches
    #[arg(long, value_enum, default_value_t = ActivationArg::F32)]
    pub activation: ActivationArg,
    /// Keep the checkpoint's operators one by one instead of fusing neighbours
    #[arg(long)]
    pub no_fuse: bool,
    /// How weights are quantised, if they are.
    #[arg(long, value_name = "SCHEME", help = format!("Quantise the weights: {FORMS_HELP}"))]
    pub quantize: Option<Scheme>,
    /// Keep caches in pages of this many rows, as a server does: the operators of pages take the places of `append` and
    /// `attention`
    #[arg(long, value_name = "ROWS")]
    pub paged: Option<u32>,
    /// Share the model out among so many ranks, each on a device of its own: `cuda` stands for `cuda:0,cuda:1` then
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub tensor_parallel: Option<u32>,
}

/// Where guessed tokens come from.
#[derive(Args, Clone, Debug)]
pub struct GuessArgs {
    /// Small model of the same vocabulary that guesses the next tokens; texts stay the same
    #[arg(long, value_name = "MODEL")]
    pub draft: Option<PathBuf>,
    /// Most tokens that the small model guesses at once
    #[arg(long, value_name = "N", default_value_t = 4, requires = "draft")]
    pub draft_tokens: usize,
    /// Quantise the small model's weights in this way; as the model's if not given
    #[arg(long, value_name = "SCHEME", requires = "draft")]
    pub draft_quantize: Option<Scheme>,
    /// Guess at most so many tokens from what followed the last ones before; texts stay the same
    #[arg(long, value_name = "N", conflicts_with = "draft")]
    pub ngram: Option<usize>,
}

/// How a model is loaded to serve by what these flags say of its graph and its guesses; the rest is as usual.
pub fn serve_options(graph: &GraphArgs, guess: &GuessArgs) -> ServeOptions {
    let (graph, defaults) = (graph.options(), ServeOptions::default());
    ServeOptions {
        // What serves has pages in any case; the flag says of how many rows.
        page: graph.paged.map_or(defaults.page, |rows| rows as usize),
        graph: GraphOptions { paged: None, ..graph },
        draft: guess.draft.clone(),
        draft_tokens: guess.draft_tokens,
        draft_quantize: guess.draft_quantize,
        ..defaults
    }
}

/// How tokens are chosen.
#[derive(Args, Clone, Debug)]
pub struct SamplingArgs {
    /// 0 always takes the most likely token
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    pub temperature: f32,
    /// Only the K most likely tokens
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Only the most likely tokens that together reach this probability
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f32>,
    /// Only tokens at least this many times as likely as the most likely one
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub min_p: Option<f32>,
    /// Makes tokens that are in the text already less likely if above 1
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub repetition_penalty: Option<f32>,
    /// Makes the choices: equal seeds give equal text
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// End when this text appears; may repeat
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
}

impl SamplingArgs {
    /// The same as plain data, without the texts that end an answer.
    pub fn options(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            seed: self.seed,
            ..Sampling::default()
        }
    }
}

impl GraphArgs {
    /// The same as plain data.
    pub fn options(&self) -> GraphOptions {
        let activation = match self.activation {
            ActivationArg::F32 => DType::F32,
            ActivationArg::F16 => DType::F16,
        };
        GraphOptions {
            activation,
            fuse: !self.no_fuse,
            quantize: self.quantize,
            paged: self.paged,
            tensor_parallel: self.tensor_parallel,
        }
    }

    /// The same with the ranks of a target, and the words of its platforms.
    pub fn for_target(&self, target: &str) -> Result<(GraphArgs, String)> {
        let (options, words) = self.options().for_target(target)?;
        Ok((GraphArgs { tensor_parallel: options.tensor_parallel, ..self.clone() }, words))
    }

    /// Opens the checkpoint; logits for these rows. Fails if a weight holds NaN or infinity.
    pub fn open(&self, path: &Path, logits: LogitRows) -> Result<(Checkpoint, Model)> {
        note_checkpoint(self.options().open(path, logits)?)
    }

    /// The model of a folder's configuration with random weights.
    pub fn open_random(&self, path: &Path, logits: LogitRows) -> Result<Model> {
        Ok(self.options().random(path, logits)?.1)
    }

    /// As [`GraphArgs::open`] without a look at the values of weights: a file of any size opens at once.
    pub fn open_unread(&self, path: &Path) -> Result<(Checkpoint, Model)> {
        note_checkpoint(self.options().open_unread(path)?)
    }
}

/// Tells what a reader of the checkpoint should know.
fn note_checkpoint((checkpoint, model): (Checkpoint, Model)) -> Result<(Checkpoint, Model)> {
    checkpoint.notes().iter().for_each(|note| output::note("note", note));
    Ok((checkpoint, model))
}

/// Arrays for the inputs of an ONNX model.
#[derive(Args, Clone, Debug, Default)]
pub struct InputArgs {
    /// File for an input of an ONNX model: an array (.npy, .pb), an image (.png, .jpg, .webp), sound (.wav), a text that becomes
    /// ids (.txt) or numbers (.csv); options stand behind a `?`, as in x=photo.png?mean=0.5&std=0.5; may repeat
    #[arg(long, value_name = "NAME=FILE")]
    pub input: Vec<String>,
    /// Folder with NAME.npy or another such file for each input, or with a folder of these for each of several runs
    #[arg(long, value_name = "DIR")]
    pub inputs: Option<PathBuf>,
}

impl InputArgs {
    /// The same as plain data.
    pub fn data(&self) -> Inputs {
        Inputs { files: self.input.clone(), folder: self.inputs.clone() }
    }
}

/// The platform under test and the user's kernels for it.
#[derive(Args, Clone, Debug)]
pub struct TargetArgs {
    /// Where to run: cpu, emulator, cuda, vulkan, metal, dx12, hip, opencl; `:N` chooses a device, options follow `?`, ranks have
    /// commas between them
    #[arg(long, value_name = "PLATFORM")]
    pub target: String,
    /// Use this source instead of the built-in kernel of an operator; may repeat
    #[arg(long, value_name = "OP=FILE")]
    pub kernel: Vec<String>,
}

impl TargetArgs {
    /// Opens the platform with the kernels of a graph.
    pub fn open_for(&self, graph: &Graph) -> Result<Box<dyn Platform>> {
        Ok(jobs::open_platform_for(&self.target, &self.kernel, graph)?)
    }
}

/// Opens a platform by its word, with the user's kernels.
pub fn open_platform(word: &str, kernels: &[String]) -> Result<Box<dyn Platform>> {
    Ok(jobs::open_platform(word, kernels)?)
}

/// Reads the user's kernels, given as `OP=FILE`.
pub fn overrides(kernels: &[String]) -> Result<Overrides> {
    Ok(jobs::overrides(kernels)?)
}

/// Says which of the user's kernels, given as `OP=FILE`, none of the nodes runs, and whether there is one; `used` are the
/// names of those that do, several joined by `+`.
pub fn note_unused<'a>(kernels: &[String], used: impl Iterator<Item = &'a str>) -> bool {
    let used: Vec<&str> = used.flat_map(|names| names.split('+')).collect();
    let mut unused = false;
    for (choice, file) in kernels.iter().filter_map(|kernel| Overrides::split(kernel)) {
        let (op, variant) = choice.split_once('/').unwrap_or((choice, "portable"));
        // Reports name a user's kernel by its operator and the file's name.
        let name = Path::new(file).file_name().map_or(file.into(), |name| name.to_string_lossy());
        if !used.contains(&format!("{op}/{name}").as_str()) {
            // What ran in its place may tell why.
            let others: Vec<&str> =
                used.iter().filter(|name| name.split('/').next() == Some(op)).copied().collect();
            let others =
                if others.is_empty() { String::new() } else { format!("; it is {}", others.join(", ")) };
            output::note("kernel", &format!("{file} was not used: no node ran `{op}/{variant}`{others}"));
            unused = true;
        }
    }
    unused
}

/// Token ids from `1,2,3`.
///
/// # Errors
/// Names the part that is no number; spaces around ids are allowed.
pub fn parse_ids(text: &str) -> Result<Vec<u32>, String> {
    let parse = |part: &str| {
        part.trim().parse().map_err(|_| format!("`{part}` is no token id; expected ids like 0,17,42"))
    };
    text.split(',').map(parse).collect()
}
