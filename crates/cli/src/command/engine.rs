//! Flags of the commands that answer by the engine of many requests, and what these tell of a model that is ready.

use super::common::{GraphArgs, GuessArgs, serve_options};
use crate::output;
use crate::progress::Bar;
use clap::Args;
use std::path::{Path, PathBuf};
use tapml::engine::{EngineOptions, NgramOptions};
use tapml::platform;
use tapml::serve::{ServeOptions, Serving};
use tapml::server::ServedOptions;

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CheckArg {
    On,
    Off,
}

/// How a model is loaded to answer.
#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// Where to run; the fastest device present if not given, else cpu
    #[arg(long, value_name = "PLATFORM")]
    pub target: Option<String>,
    /// Use this source instead of the built-in kernel of an operator; may repeat
    #[arg(long, value_name = "OP=FILE")]
    pub kernel: Vec<String>,
    #[command(flatten)]
    pub graph: GraphArgs,
    /// Chat template (Jinja) in place of the model's own
    #[arg(long, value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
    /// Most tokens of a prompt and its answer; the model's if not given
    #[arg(long, value_name = "N")]
    pub context: Option<usize>,
    /// Bytes that the cache of keys and values may have
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub memory: u64,
    /// Pages of this cache; as many as --memory holds if not given
    #[arg(long, value_name = "N")]
    pub pages: Option<usize>,
    /// Most tokens of one step, those of prompts included
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub max_rows: usize,
    /// Compute every prompt whole, even if another one began alike
    #[arg(long)]
    pub no_prefix_cache: bool,
    /// Whether the kernels are checked on recorded calls before the first answer
    #[arg(long, value_enum, default_value_t = CheckArg::On)]
    pub check: CheckArg,
    #[command(flatten)]
    pub guess: GuessArgs,
}

impl EngineArgs {
    /// The work of loading a model, without what only one command has.
    pub fn job(&self, model: &Path) -> ServeOptions {
        ServeOptions {
            model: model.to_path_buf(),
            target: self.target.clone().unwrap_or_else(|| platform::fastest().to_string()),
            kernels: self.kernel.clone(),
            context: self.context,
            pages: self.pages,
            memory: self.memory,
            rows: self.max_rows,
            check: self.check == CheckArg::On,
            ..serve_options(&self.graph, &self.guess)
        }
    }

    /// How the model answers, without what only one command has.
    pub fn served_options(&self) -> ServedOptions {
        let engine = EngineOptions {
            prefix_cache: !self.no_prefix_cache,
            ngram: self.guess.ngram.map(|tokens| NgramOptions { tokens, ..NgramOptions::default() }),
            ..EngineOptions::default()
        };
        ServedOptions { chat_template: self.chat_template.clone(), engine, ..ServedOptions::default() }
    }
}

/// Tells what the check of the kernels gave, if there was one; gives the calls.
pub fn note_check(serving: &Serving, bar: &Bar) -> Option<u64> {
    let report = serving.checked.as_ref()?;
    let (calls, ops) = (report.cases, report.ops.len());
    let text = format!("{calls} calls of {ops} operators, by the kernels that serve: none is wrong");
    bar.suspend(|| output::note("checked", &text));
    Some(calls)
}
