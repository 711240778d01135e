//! The vocabulary in the metadata of a GGUF file.
//!
//! Keys are those of `gguf-py/gguf/constants.py` of llama.cpp below `tokenizer.ggml`. Where a file leaves
//! something out, its kind of tokenizer decides as in llama.cpp.

use super::byte_level::ByteBpe;
use super::pieces::{Algorithm, Normalizer, Pieces};
use super::pre_tokenizer::PreTokenizer;
use super::{Opened, Token, TokenKind, word_piece};
use crate::special::SpecialTokens;
use crate::tokenizer::BoundedTokenizer;
use std::path::Path;
use tapml_graph::{Context, Error, Result};
use tapml_import::gguf::{Metadata, Model};

/// The advice for a file without a usable tokenizer.
const HINT: &str = "text needs the vocabulary: convert the model again with its tokenizer files beside the weights (llama.cpp's \
                    convert_hf_to_gguf.py stores them), or name the folder that it was converted from; `generate` and `logits` \
                    also take --ids";

/// Reads the tokenizer of a GGUF file.
pub fn open(path: &Path) -> Result<Opened> {
    let model = Model::open(path)?;
    VocabularyReader { metadata: model.metadata() }.read().context(|| path.display().to_string())
}

/// The special tokens where a file does not name them, as llama.cpp has them for each kind of tokenizer.
struct Defaults {
    /// Begins a text.
    bos: Option<u64>,
    /// Ends a text.
    eos: Option<u64>,
    /// Stands for what the vocabulary lacks.
    unknown: Option<u64>,
    /// BERT's end of a text.
    separator: Option<u64>,
    /// Whether texts begin with `bos`.
    add_bos: bool,
    /// Whether texts end with `eos`.
    add_eos: bool,
}

/// Nothing is known.
const NO_DEFAULTS: Defaults =
    Defaults { bos: None, eos: None, unknown: None, separator: None, add_bos: false, add_eos: false };

/// Reads keys of one file.
struct VocabularyReader<'a> {
    metadata: &'a Metadata,
}

impl<'a> VocabularyReader<'a> {
    /// Dispatches by `tokenizer.ggml.model`.
    fn read(&self) -> Result<Opened> {
        let kind = self.metadata.text(&key("model"))?;
        let missing = || {
            let text = format!("the file holds no vocabulary: metadata `{}` is missing", key("model"));
            Error::invalid(text).with_hint(HINT)
        };
        let kind = kind.ok_or_else(missing)?;
        let tokens = self.tokens()?;
        match kind {
            "llama" | "gemma4" => {
                let defaults =
                    Defaults { bos: Some(1), eos: Some(2), unknown: Some(0), add_bos: true, ..NO_DEFAULTS };
                self.pieces(tokens, Algorithm::Bpe, true, defaults)
            }
            "t5" => {
                let defaults = Defaults { eos: Some(1), unknown: Some(2), add_eos: true, ..NO_DEFAULTS };
                self.pieces(tokens, Algorithm::Unigram, true, defaults)
            }
            "gpt2" => self.byte_level(tokens),
            "bert" => self.word_piece(tokens),
            other => Err(Error::unsupported(format!("tokenizers of kind `{other}` are not supported"))
                .with_hint("supported: llama, t5, gpt2 and bert; for the others, give token ids")),
        }
    }

    /// Texts, scores and kinds, which must be equally many.
    fn tokens(&self) -> Result<Vec<Token>> {
        let texts = self.metadata.texts(&key("tokens"))?.unwrap_or_default();
        if texts.is_empty() {
            return Err(Error::invalid(format!(
                "the file holds no vocabulary: metadata `{}` lists no tokens",
                key("tokens")
            ))
            .with_hint(HINT));
        }
        let scores = self.metadata.numbers(&key("scores"))?;
        let kinds = self.metadata.wholes(&key("token_type"))?;
        for (name, found) in
            [("scores", scores.as_ref().map(Vec::len)), ("token_type", kinds.as_ref().map(Vec::len))]
        {
            if let Some(found) = found.filter(|&found| found != texts.len()) {
                let text =
                    format!("metadata `{}`: expected {} values, found {found}", key(name), texts.len());
                return Err(Error::invalid(text));
            }
        }
        let token = |(id, text): (usize, &&str)| Token {
            // A token without text would match everywhere.
            text: if text.is_empty() { format!("[EMPTY_{id}]") } else { text.to_string() },
            score: scores.as_ref().map_or(0.0, |scores| scores[id]),
            kind: kinds.as_ref().map_or(TokenKind::Normal, |kinds| TokenKind::from_number(kinds[id])),
        };
        Ok(texts.iter().enumerate().map(token).collect())
    }

    /// A tokenizer of SentencePiece.
    fn pieces(
        &self,
        mut tokens: Vec<Token>,
        algorithm: Algorithm,
        space_first: bool,
        defaults: Defaults,
    ) -> Result<Opened> {
        // Only these: other pieces have `▁` already.
        for token in &mut tokens {
            // Converters write runs of spaces that are always whole as spaces.
            if token.kind == TokenKind::UserDefined {
                token.text = token.text.replace(' ', super::pieces::SPACE);
            }
        }
        let flag = |name, default| Ok::<_, Error>(self.metadata.flag(&key(name))?.unwrap_or(default));
        let normalizer = Normalizer {
            table: self.metadata.bytes(&key("precompiled_charsmap"))?.unwrap_or_default().to_vec(),
            space_first: flag("add_space_prefix", space_first)?,
            single_spaces: flag("remove_extra_whitespaces", false)?,
        };
        let unknown = self.id("unknown_token_id", defaults.unknown, &tokens)?;
        let pieces = Pieces { tokens, algorithm, unknown, normalizer };
        self.open_tokenizer(pieces.tokenizer()?, &pieces.tokens, defaults)
    }

    /// Byte-level BPE with its merges.
    fn byte_level(&self, tokens: Vec<Token>) -> Result<Opened> {
        let name = self.metadata.text(&key("pre"))?.unwrap_or("default");
        let pre_tokenizer = PreTokenizer::find(name).ok_or_else(|| {
            Error::unsupported(format!("metadata `{}`: `{name}` is no known way to cut a text", key("pre")))
                .with_hint(format!("known are {}", PreTokenizer::names()))
        })?;
        let merges = self.metadata.texts(&key("merges"))?.unwrap_or_default();
        let tokenizer = ByteBpe { tokens: &tokens, merges: &merges, pre_tokenizer }.tokenizer()?;
        self.open_tokenizer(tokenizer, &tokens, Defaults { add_bos: pre_tokenizer.begins, ..NO_DEFAULTS })
    }

    /// BERT's tokenizer.
    fn word_piece(&self, tokens: Vec<Token>) -> Result<Opened> {
        let defaults = Defaults {
            bos: Some(101),
            separator: Some(102),
            unknown: Some(100),
            add_bos: true,
            add_eos: true,
            ..NO_DEFAULTS
        };
        let unknown = self.id("unknown_token_id", defaults.unknown, &tokens)?;
        // The name that BERT's own files have.
        let unknown = unknown.map_or("[UNK]", |id| tokens[id as usize].text.as_str());
        self.open_tokenizer(word_piece::tokenizer(&tokens, unknown)?, &tokens, defaults)
    }

    /// The tokenizer with its special tokens and template.
    fn open_tokenizer(
        &self,
        inner: BoundedTokenizer,
        tokens: &[Token],
        defaults: Defaults,
    ) -> Result<Opened> {
        let bos = self.id("bos_token_id", defaults.bos, tokens)?;
        // What BERT puts behind a text has a name of its own.
        // Spelled as the format has it.
        let separator = self.id("seperator_token_id", defaults.separator, tokens)?;
        let eos = self.id("eos_token_id", defaults.eos, tokens)?.or(separator);
        let text =
            |id: Option<u32>| id.and_then(|id| tokens.get(id as usize)).map(|token| token.text.clone());
        let flag = |name, default| Ok::<_, Error>(self.metadata.flag(&key(name))?.unwrap_or(default));
        let special = SpecialTokens {
            bos: text(bos),
            eos: text(eos),
            pad: text(self.id("padding_token_id", None, tokens)?),
            unk: text(self.id("unknown_token_id", defaults.unknown, tokens)?),
            add_bos: flag("add_bos_token", defaults.add_bos)?,
            add_eos: flag("add_eos_token", defaults.add_eos)?,
        };
        let template = self.metadata.text("tokenizer.chat_template")?.map(str::to_string);
        Ok(Opened { inner, special, bos, eos, template })
    }

    /// The id under a key, which must be one of a token; the default if the vocabulary has it.
    fn id(&self, name: &str, default: Option<u64>, tokens: &[Token]) -> Result<Option<u32>> {
        let key = key(name);
        let id = |value: u64| u32::try_from(value).ok().filter(|&id| (id as usize) < tokens.len());
        match self.metadata.whole(&key)? {
            None => Ok(default.and_then(id)),
            Some(value) => {
                let expected = format!("a token id below {}", tokens.len());
                id(value).map(Some).ok_or_else(|| self.metadata.expected_error(&key, &expected))
            }
        }
    }
}

/// A metadata key of tokenizers.
fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}
