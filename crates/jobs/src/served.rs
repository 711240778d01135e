//! A model that is ready, as the server of OpenAI's API takes it.

use crate::serve::{LoadedModel, Serving};
use std::path::{Path, PathBuf};
use tapml_engine::{
    BatchRunner, ChatTemplate, EmbeddingModel, Engine, EngineOptions, TextEncoder, Tokenizer, Vision,
};
use tapml_graph::{Context, Error, Result};
use tapml_server::{ServedKind, ServedModel};

/// The largest file of a chat template, bytes.
const MAX_TEMPLATE: u64 = 4 << 20;

/// The texts of a chat one behind the other, each message of the user on a line of its own.
const PLAIN: &str = "{% for m in messages %}{% if m.role == 'user' and not loop.first %}{{ '\\n' }}{% endif %}{{ m.content }}{% endfor %}";

/// How a model is told and answers.
#[derive(Clone, Debug, Default)]
pub struct ServedOptions {
    /// What clients may call it; the name of its folder if there is none.
    pub names: Vec<String>,
    /// A chat template in place of the checkpoint's.
    pub chat_template: Option<PathBuf>,
    /// Whether chats with a model without a template are texts that go on, in place of errors.
    pub plain: bool,
    /// Whether a last message of the assistant is gone on with, as llama-server does.
    pub prefill: bool,
    /// How its engine works.
    pub engine: EngineOptions,
}

impl ServedOptions {
    /// Looks at what can be told before a model is loaded, which may take minutes.
    ///
    /// # Errors
    /// If a size of the engine is 0, or the chat template cannot be read.
    pub fn check(&self) -> Result<()> {
        self.engine.check()?;
        self.chat_template.as_deref().map_or(Ok(()), |path| read_source(path).map(drop))
    }

    /// Starts the engine.
    ///
    /// # Errors
    /// If the checkpoint has no tokenizer, or the chat template is none.
    pub fn start(self, serving: Serving) -> Result<ServedModel> {
        let ServedOptions { mut names, chat_template, plain, prefill, engine } = self;
        let dir = serving.checkpoint.dir();
        let vocab = match &serving.model {
            LoadedModel::Generator { runner, .. } => runner.limits().vocab,
            LoadedModel::Encoder { encoder, .. } => encoder.limits().vocab,
        };
        let tokenizer = if serving.random { Tokenizer::with_numbers(vocab)? } else { Tokenizer::open(dir)? };
        let template = chat_template.as_deref().map(|path| read_template(path, &tokenizer)).transpose()?;
        let template = match template {
            None if plain && tokenizer.chat_template().is_none() => Some(plain_template(&tokenizer)?),
            template => template,
        };
        if names.is_empty() {
            names.push(folder_name(dir));
        }
        let vision = vision(&serving);
        let stop_ids = serving.checkpoint.eos().to_vec();
        let (kind, shadow) = match serving.model {
            LoadedModel::Generator { runner, draft, shadow } => {
                (ServedKind::Generator(Engine::start_with_draft(runner, draft, engine)?), shadow)
            }
            LoadedModel::Encoder { .. } if template.is_some() || prefill || engine.ngram.is_some() => {
                let text = "the model is an encoder, which answers no chats and generates no text";
                return Err(Error::unsupported(text)
                    .with_hint("leave `--chat-template`, `--prefill-assistant` and `--ngram` out"));
            }
            LoadedModel::Encoder { encoder, options } => {
                (ServedKind::Encoder(EmbeddingModel::start(encoder, options)?), None)
            }
        };
        Ok(ServedModel { names, tokenizer, template, stop_ids, prefill, vision, kind, shadow })
    }
}

/// What makes pixels of images, of a language model that sees. One whose images cannot be prepared serves texts.
fn vision(serving: &Serving) -> Option<Vision> {
    let LoadedModel::Generator { runner, .. } = &serving.model else { return None };
    runner.image_limits().filter(|_| !serving.random)?;
    Vision::open(&serving.checkpoint).unwrap_or_else(|error| {
        log::warn!("images are refused: {error}");
        None
    })
}

/// The last part of a path, also of one such as `.`.
fn folder_name(dir: &Path) -> String {
    let whole = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    whole.file_name().map_or("model".into(), |name| name.to_string_lossy().into_owned())
}

fn read_source(path: &Path) -> Result<String> {
    tapml_files::read_text(path, MAX_TEMPLATE, "a chat template")
}

/// Begins as the tokenizer begins texts.
fn plain_template(tokenizer: &Tokenizer) -> Result<ChatTemplate> {
    let begins =
        tokenizer.bos().is_some_and(|bos| tokenizer.encode("").is_ok_and(|ids| ids.first() == Some(&bos)));
    let source = if begins { format!("{{{{ bos_token }}}}{PLAIN}") } else { PLAIN.to_string() };
    ChatTemplate::new(&source, tokenizer.special())
}

fn read_template(path: &Path, tokenizer: &Tokenizer) -> Result<ChatTemplate> {
    let source = read_source(path)?;
    ChatTemplate::new(&source, tokenizer.special()).context(|| path.display().to_string())
}
