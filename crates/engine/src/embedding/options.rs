//! What a checkpoint's files say of the vectors of texts: those of sentence-transformers beside the weights, and
//! `config.json`.

use super::pooling::{PoolingMode, normalize};
use serde::Deserialize;
use std::borrow::Cow;
use std::path::{Component, Path};
use tapml_graph::{Error, Result};
use tapml_import::{Config, Section, is_present};

/// Larger lists of modules are none.
const MAX_MODULES: u64 = 1 << 20;
/// Longest text that is put before every input, bytes.
const MAX_PREFIX: usize = 1 << 12;
/// Tokens that a file may allow for one text.
const TOKENS: std::ops::RangeInclusive<u32> = 1..=1 << 24;

/// How hidden states become a vector, and which texts are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddingOptions {
    /// At least one; the vectors of several stand one behind the other.
    pub pooling: Vec<PoolingMode>,
    /// Whether vectors are brought to the length 1.
    pub normalize: bool,
    /// Most tokens of a text that the checkpoint allows, if it says so.
    pub max_tokens: Option<usize>,
    /// Whether texts are turned to lower case before they are cut into tokens.
    pub lowercase: bool,
    /// The text that is put before every text.
    pub prefix: String,
    /// Whether vectors may be cut to fewer numbers (Kusupati et al., "Matryoshka Representation Learning", 2022).
    pub matryoshka: bool,
    /// The only sizes that vectors may be cut to; any if empty.
    pub sizes: Vec<usize>,
}

impl Default for EmbeddingOptions {
    /// As sentence-transformers takes a checkpoint that says nothing: the mean of all rows.
    fn default() -> EmbeddingOptions {
        EmbeddingOptions {
            pooling: vec![PoolingMode::Mean],
            normalize: false,
            max_tokens: None,
            lowercase: false,
            prefix: String::new(),
            matryoshka: false,
            sizes: Vec::new(),
        }
    }
}

/// An entry of `modules.json`.
#[derive(Deserialize)]
struct ModuleEntry {
    /// Name of a class of Python, with its packages.
    #[serde(rename = "type")]
    class: String,
    /// A folder beside the file; empty for the same folder.
    #[serde(default)]
    path: String,
}

impl EmbeddingOptions {
    /// Reads `modules.json` and what it names, `sentence_bert_config.json` and `config_sentence_transformers.json` of a model
    /// folder, and `is_matryoshka` and `matryoshka_dimensions` of its configuration. What is not there has its default.
    ///
    /// # Errors
    /// If a file is damaged, or asks for a step that is not served.
    pub fn open(dir: &Path, config: &Config) -> Result<EmbeddingOptions> {
        let mut options = EmbeddingOptions::default();
        if is_present(&dir.join("modules.json"))? {
            options.read_modules(dir)?;
        }
        if let Some(config) = Config::read_if_present(&dir.join("sentence_bert_config.json"))? {
            let json = config.root();
            options.max_tokens = json.optional_size("max_seq_length", TOKENS)?.map(|size| size as usize);
            options.lowercase = json.flag_or("do_lower_case", false)?;
        }
        if let Some(config) = Config::read_if_present(&dir.join("config_sentence_transformers.json"))? {
            options.read_prefix(&config.root())?;
        }
        let json = config.root();
        options.matryoshka = json.flag_or("is_matryoshka", json.get("matryoshka_dimensions").is_some())?;
        if let Some(sizes) = json.get("matryoshka_dimensions") {
            let sizes =
                sizes.as_array().map(|sizes| sizes.iter().map(|size| usize::try_from(size.as_u64()?).ok()));
            let sizes = sizes.and_then(Iterator::collect);
            options.sizes = sizes
                .ok_or_else(|| json.expected_error("matryoshka_dimensions", "a list of whole numbers"))?;
        }
        Ok(options)
    }

    /// `modules.json`: what follows the encoder.
    fn read_modules(&mut self, dir: &Path) -> Result<()> {
        let path = dir.join("modules.json");
        let bytes = tapml_files::read(&path, MAX_MODULES, "JSON")?;
        let modules: Vec<ModuleEntry> = serde_json::from_slice(&bytes)
            .map_err(|e| Error::invalid(format!("{} is no list of modules: {e}", path.display())))?;
        for module in modules {
            match module.class.rsplit('.').next().unwrap_or_default() {
                // The encoder itself, which is read from this folder.
                "Transformer" => {}
                "Pooling" => self.read_pooling(&dir.join(subfolder(&path, &module.path)?))?,
                "Normalize" => self.normalize = true,
                other => {
                    let text = format!("{}: the module `{other}` is not supported", path.display());
                    return Err(Error::unsupported(text).with_hint(
                        "supported: Transformer, Pooling and Normalize of sentence-transformers",
                    ));
                }
            }
        }
        Ok(())
    }

    fn read_pooling(&mut self, dir: &Path) -> Result<()> {
        let config = Config::read(&dir.join("config.json"))?;
        let json = config.root();
        // The prefix would have to be left out of the rows.
        if !json.flag_or("include_prompt", true)? {
            return Err(
                json.unsupported("include_prompt", "pooling without the rows of the prompt is not supported")
            );
        }
        let names: Vec<&str> = match json.get("pooling_mode").map(|value| value.is_string()) {
            Some(true) => vec![json.text("pooling_mode")?],
            Some(false) => json.texts("pooling_mode")?,
            None => Vec::new(),
        };
        let known = |name: &&str| PoolingMode::ALL.iter().any(|mode| mode.name() == *name);
        let mut pooling = Vec::new();
        for mode in PoolingMode::ALL {
            if names.contains(&mode.name()) || json.flag_or(mode.key(), false)? {
                pooling.push(mode);
            }
        }
        if pooling.is_empty() || !names.iter().all(known) {
            let names: Vec<&str> = PoolingMode::ALL.iter().map(|mode| mode.name()).collect();
            let text = format!("expected one of {}", names.join(", "));
            return Err(json.unsupported("pooling_mode", &text));
        }
        self.pooling = pooling;
        Ok(())
    }

    /// The prompt that sentence-transformers puts before every text if nobody names another.
    fn read_prefix(&mut self, json: &Section<'_>) -> Result<()> {
        let (Some(_), Some(prompts)) = (json.get("default_prompt_name"), json.section("prompts")?) else {
            return Ok(());
        };
        let prefix = prompts.text(json.text("default_prompt_name")?)?;
        if prefix.len() > MAX_PREFIX {
            return Err(json.unsupported("prompts", &format!("a prompt of more than {MAX_PREFIX} bytes")));
        }
        self.prefix = prefix.to_string();
        Ok(())
    }

    /// The text that is cut into tokens for this one.
    pub fn prepare<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let text = match self.prefix.as_str() {
            "" => Cow::Borrowed(text),
            prefix => Cow::Owned(format!("{prefix}{text}")),
        };
        if self.lowercase { Cow::Owned(text.to_lowercase()) } else { text }
    }

    /// Numbers of a vector, for hidden states of `width` columns.
    pub fn size(&self, width: usize) -> usize {
        width * self.pooling.len()
    }

    /// The vector of `[rows, width]` hidden states, cut to `size` numbers if it is given.
    ///
    /// # Errors
    /// If there are no rows, or a number of the vector is none.
    pub(super) fn vector(&self, states: &[f32], width: usize, size: Option<usize>) -> Result<Vec<f32>> {
        if width == 0 || states.is_empty() || !states.len().is_multiple_of(width) {
            return Err(Error::bug(format!("{} values of rows of {width}", states.len())));
        }
        let mut vector: Vec<f64> = self.pooling.iter().flat_map(|mode| mode.pool(states, width)).collect();
        if self.normalize {
            vector = normalize(vector);
        }
        if let Some(size) = size.filter(|size| *size < vector.len()) {
            vector.truncate(size);
            if self.normalize {
                vector = normalize(vector);
            }
        }
        let vector: Vec<f32> = vector.into_iter().map(|value| value as f32).collect();
        if vector.iter().all(|value| value.is_finite()) {
            return Ok(vector);
        }
        Err(Error::invalid("the model gave a vector with NaN or infinity")
            .with_hint("the model computed wrongly; `tapml diagnose` finds the operator"))
    }
}

/// The folder that a module names.
fn subfolder<'p>(file: &Path, path: &'p str) -> Result<&'p Path> {
    let path = Path::new(path);
    // A stranger's file must not name a place outside of its folder.
    if path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Ok(path);
    }
    let text = format!("{}: the module `{}` lies outside of the folder", file.display(), path.display());
    Err(Error::invalid(text))
}
