//! Text to token ids and back, as the checkpoint's `tokenizer.json` says, or the vocabulary that it has instead.
//!
//! The library `tokenizers` does the work; it is written for files that are trusted. So files are looked at
//! before (`shape`), steps are bounded (`bounded`), and panics are caught.

mod bounded;
mod byte_steps;
mod bytes;
mod shape;

pub(crate) use bounded::{BoundedTokenizer, catch_panics};
pub(crate) use shape::check_table;

use crate::chat::ChatTemplate;
use crate::special::SpecialTokens;
use crate::stream::{Decode, TextStream};
use crate::vocabulary::{self, Opened, World};
use std::path::{Path, PathBuf};
use tapml_graph::{Error, Result};
use tapml_import::{gguf, is_present};
use tokenizers::models::ModelWrapper;

/// The file in a model folder.
const FILE: &str = "tokenizer.json";
/// The largest `tokenizer.json` that is read, in bytes: four times the largest that models have.
const MAX_FILE: u64 = 128 << 20;
/// The longest text that is cut into tokens at once, in bytes.
const MAX_TEXT: usize = 64 << 20;
/// The longest word that WordPiece may be asked to look at, in characters: its work grows with the square.
const MAX_WORD: usize = 1000;

/// A checkpoint's tokenizer.
pub struct Tokenizer {
    /// The file that it was read from, for messages.
    path: PathBuf,
    /// What cuts texts.
    inner: TokenizerKind,
    special: SpecialTokens,
    bos: Option<u32>,
    eos: Option<u32>,
    template: Option<ChatTemplate>,
}

/// How text is cut into tokens.
enum TokenizerKind {
    /// As a `tokenizer.json` says, or what was made into one.
    Json(Box<BoundedTokenizer>),
    /// By the vocabulary of RWKV's World models.
    World(World),
}

impl Tokenizer {
    /// Reads `tokenizer.json` of a model folder, else `tokenizer.model`, else the vocabulary of an RWKV World model
    /// (`rwkv_vocab_v20230424.txt`), and `tokenizer_config.json`, `special_tokens_map.json` and `chat_template.jinja`
    /// where they exist; or the metadata of a GGUF file.
    ///
    /// # Errors
    /// If there is no vocabulary, or one that is damaged, too large or of a kind that is not supported.
    pub fn open(path: impl AsRef<Path>) -> Result<Tokenizer> {
        let path = path.as_ref();
        if gguf::is_gguf(path) {
            return Tokenizer::from_opened(path, vocabulary::open_gguf(path)?);
        }
        if is_present(&path.join(FILE))? {
            return Tokenizer::open_json(path);
        }
        let own = path.join(vocabulary::SENTENCEPIECE);
        if is_present(&own)? {
            let opened = vocabulary::open_sentencepiece(path)?;
            let template = ChatTemplate::read(path, &opened.special)?;
            return Ok(Tokenizer { template, ..Tokenizer::from_opened(&own, opened)? });
        }
        match World::find(path)? {
            Some(world) => Tokenizer::open_world(path, world),
            None => Tokenizer::open_json(path),
        }
    }

    /// A tokenizer for a model that has none: id 7 is the word `t7`. Enough for measuring a server with weights of no meaning.
    ///
    /// # Errors
    /// If the vocabulary is larger than those that are read from files.
    pub fn with_numbers(vocab: usize) -> Result<Tokenizer> {
        let path = PathBuf::from("words of numbers");
        // As many words as the largest file holds, before memory is taken for them.
        if vocab > MAX_FILE as usize / 16 {
            return Err(Error::unsupported(format!("a vocabulary of {vocab} ids")));
        }
        let words: serde_json::Map<_, _> = (0..vocab).map(|id| (format!("t{id}"), id.into())).collect();
        let json = serde_json::json!({
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"},
        });
        let inner = parse(json.to_string().into_bytes())
            .map_err(|e| Error::bug(format!("words of numbers are no tokenizer: {e}")))?;
        let inner = TokenizerKind::Json(Box::new(inner));
        let special = SpecialTokens::default();
        Ok(Tokenizer { path, inner, special, bos: None, eos: None, template: None })
    }

    /// A tokenizer from another file than `tokenizer.json`.
    fn from_opened(path: &Path, opened: Opened) -> Result<Tokenizer> {
        let Opened { inner, special, bos, eos, template } = opened;
        let file = path.display().to_string();
        let template =
            template.map(|source| ChatTemplate::from_source(&file, &source, &special)).transpose()?;
        let inner = TokenizerKind::Json(Box::new(inner));
        Ok(Tokenizer { path: path.to_path_buf(), inner, special, bos, eos, template })
    }

    /// The vocabulary of a World model, which ends every text with the same token and begins none.
    fn open_world(dir: &Path, path: PathBuf) -> Result<Tokenizer> {
        let special = SpecialTokens::read(dir)?;
        let world = World::open(&path, &special)?;
        let id = |text: &Option<String>| text.as_ref().and_then(|text| world.id(text));
        let (bos, eos) = (id(&special.bos), id(&special.eos).or(Some(World::END)));
        let template = ChatTemplate::read(dir, &special)?;
        Ok(Tokenizer { path, inner: TokenizerKind::World(world), special, bos, eos, template })
    }

    /// `tokenizer.json`, with its special tokens and template.
    fn open_json(dir: &Path) -> Result<Tokenizer> {
        let path = dir.join(FILE);
        let inner = read(&path)?;
        let special = SpecialTokens::read(dir)?;
        let id = |text: &Option<String>| text.as_ref().and_then(|t| inner.token_to_id(t));
        let (bos, eos) = (id(&special.bos), id(&special.eos));
        let template = ChatTemplate::read(dir, &special)?;
        Ok(Tokenizer { path, inner: TokenizerKind::Json(Box::new(inner)), special, bos, eos, template })
    }

    /// The tokenizer in the form of a `tokenizer.json`, whatever file it was read from. A World vocabulary has `"type": "World"` as its
    /// model: `tokens` are pairs of an id and the bytes as characters up to U+00FF, `ends` the texts that end a text.
    ///
    /// # Errors
    /// If the library cannot write it.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        let bytes = match &self.inner {
            TokenizerKind::Json(inner) => serde_json::to_vec(inner.as_ref()),
            TokenizerKind::World(world) => serde_json::to_vec(&world.to_json()),
        };
        bytes.map_err(|e| Error::invalid(format!("{}: this tokenizer has no JSON: {e}", self.path.display())))
    }

    /// The ids of a text, with the special tokens that the checkpoint puts around it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = self.ids(text, true)?;
        // A post-processor may have put it there already.
        if let Some(bos) = self.bos.filter(|bos| self.special.add_bos && ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        if let Some(eos) = self.eos.filter(|eos| self.special.add_eos && ids.last() != Some(eos)) {
            ids.push(eos);
        }
        Ok(ids)
    }

    /// The ids of a text that has its special tokens written out, such as a rendered chat.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>> {
        self.ids(text, false)
    }

    /// The text of ids, without special tokens. Bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, true).map_err(|e| self.library_error("decode token ids", &e))
    }

    /// Decodes ids one after another; see [`TextStream`].
    pub fn stream(&self) -> TextStream<'_> {
        TextStream::new(self)
    }

    /// As [`Tokenizer::stream`], special tokens included as they are written.
    pub fn stream_with_special(&self) -> TextStream<'_> {
        TextStream::new(&self.inner)
    }

    /// The id of a token that is written exactly like this.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        match &self.inner {
            TokenizerKind::Json(inner) => inner.token_to_id(token),
            TokenizerKind::World(world) => world.id(token),
        }
    }

    /// The written form of a token.
    pub fn token(&self, id: u32) -> Option<String> {
        match &self.inner {
            TokenizerKind::Json(inner) => inner.id_to_token(id),
            TokenizerKind::World(world) => world.token(id),
        }
    }

    /// Number of tokens, added ones included.
    pub fn vocab(&self) -> usize {
        match &self.inner {
            TokenizerKind::Json(inner) => inner.get_vocab_size(true),
            TokenizerKind::World(world) => world.len(),
        }
    }

    /// The id that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The id that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Texts of the special tokens.
    pub fn special(&self) -> &SpecialTokens {
        &self.special
    }

    /// The chat template, if the checkpoint has one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// `special` lets the post-processor add its tokens.
    fn ids(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let inner = match &self.inner {
            TokenizerKind::Json(inner) => inner,
            TokenizerKind::World(world) => return Ok(world.encode(text)),
        };
        if text.len() > MAX_TEXT {
            let found = format!("expected a text of at most {MAX_TEXT} bytes, found {}", text.len());
            return Err(Error::invalid(found).with_hint("give it in parts"));
        }
        let encoding = catch_panics(|| bounded::work_within(text.len(), || inner.encode_fast(text, special)));
        let encoding = encoding.map_err(|e| self.library_error("encode the text", &e))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// An error of the library, with the file.
    fn library_error(&self, doing: &str, error: &tokenizers::Error) -> Error {
        Error::invalid(format!("{}: could not {doing}: {error}", self.path.display()))
            .with_hint("take the tokenizer that came with the weights")
    }
}

impl TokenizerKind {
    /// The text of ids, without special tokens if they are to be skipped.
    fn decode(&self, ids: &[u32], skip_special: bool) -> tokenizers::Result<String> {
        match self {
            TokenizerKind::Json(inner) => catch_panics(|| inner.decode(ids, skip_special)),
            TokenizerKind::World(world) => Ok(world.decode(ids)),
        }
    }
}

/// With special tokens.
impl Decode for TokenizerKind {
    fn decode(&self, ids: &[u32]) -> Result<String> {
        let text = TokenizerKind::decode(self, ids, false);
        text.map_err(|e| Error::invalid(format!("could not decode token ids: {e}")))
    }
}

impl Decode for Tokenizer {
    fn decode(&self, ids: &[u32]) -> Result<String> {
        Tokenizer::decode(self, ids)
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("path", &self.path)
            .field("vocab", &self.vocab())
            .finish_non_exhaustive()
    }
}

/// A `tokenizer.json` of bounded size.
fn read(path: &Path) -> Result<BoundedTokenizer> {
    if std::fs::metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
        let hint = "text needs the checkpoint's tokenizer.json, tokenizer.model or rwkv_vocab_*.txt: copy it into the folder, \
                    or let `tokenizer.save_pretrained(FOLDER)` write it; `generate` and `logits` also take --ids";
        return Err(Error::invalid(format!("{} is missing", path.display())).with_hint(hint));
    }
    let bytes = tapml_files::read(path, MAX_FILE, "a tokenizer")?;
    parse(bytes).map_err(|e| {
        Error::invalid(format!("{} is no valid tokenizer: {e}", path.display()))
            .with_hint("take the file that came with the weights, in the format of Hugging Face tokenizers")
    })
}

/// Checks the shape, then lets the library build it.
fn parse(bytes: Vec<u8>) -> tokenizers::Result<BoundedTokenizer> {
    shape::check(&bytes)?;
    catch_panics(|| {
        let mut tokenizer: BoundedTokenizer =
            bounded::work_within(bytes.len(), || Ok(serde_json::from_slice(&bytes)?))?;
        if let ModelWrapper::WordPiece(model) = tokenizer.get_model()
            && model.max_input_chars_per_word > MAX_WORD
        {
            return Err(format!("`max_input_chars_per_word` is above {MAX_WORD}").into());
        }
        // A file may ask for cutting or filling up to a training length, which is wrong for prompts.
        tokenizer.with_padding(None).with_truncation(None)?;
        Ok(tokenizer)
    })
}
