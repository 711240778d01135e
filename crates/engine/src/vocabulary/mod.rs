//! Vocabularies as files other than `tokenizer.json` hold them, and the tokenizers that follow from them: those that the
//! `tokenizer.json` of the same model describes.

mod byte_level;
mod gguf;
mod pieces;
mod pre_tokenizer;
mod sentencepiece;
mod word_piece;
mod world;
mod world_line;

pub use gguf::open as open_gguf;
pub use sentencepiece::{FILE as SENTENCEPIECE, open as open_sentencepiece};
pub use world::World;

use crate::special::SpecialTokens;
use crate::tokenizer::BoundedTokenizer;
use tapml_graph::{Error, Result};
use tokenizers::AddedToken;

/// The most tokens of a vocabulary.
const MOST_TOKENS: usize = 1 << 24;

/// What a file without `tokenizer.json` says.
pub struct Opened {
    /// The tokenizer.
    pub inner: BoundedTokenizer,
    /// Texts of the special tokens, and whether they are put around a text.
    pub special: SpecialTokens,
    /// The id that begins a text.
    pub bos: Option<u32>,
    /// The id that ends a text.
    pub eos: Option<u32>,
    /// Source of the chat template.
    pub template: Option<String>,
}

/// What a token is for; the numbers are those of SentencePiece (`ModelProto.SentencePiece.Type`), which GGUF took over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// Stands for what the vocabulary lacks.
    Unknown,
    /// Steers the model and is no text.
    Control,
    /// A text that is always one token.
    UserDefined,
    /// Not used.
    Unused,
    /// A single byte, written as `<0x41>`.
    Byte,
}

impl TokenKind {
    /// The kind of this number; unknown numbers count as ordinary pieces, as in llama.cpp.
    fn from_number(number: u64) -> TokenKind {
        match number {
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            _ => TokenKind::Normal,
        }
    }
}

/// One token; its place in the list is its id.
#[derive(Clone, Debug)]
pub struct Token {
    /// How it is written in the vocabulary.
    pub text: String,
    /// Its logarithmic probability, or how early it is merged: higher is better.
    pub score: f64,
    /// What it is for.
    pub kind: TokenKind,
}

/// Fails unless there is a token and each can have an id.
fn check_count(tokens: &[Token]) -> Result<()> {
    match tokens.len() {
        1..=MOST_TOKENS => Ok(()),
        count => Err(Error::invalid(format!("expected 1 to {MOST_TOKENS} tokens, found {count}"))),
    }
}

/// Registers the tokens that are cut out of a text before all else: special ones, and those that are always whole.
/// `normalized` says which of the latter are looked for after the normalizer ran.
fn add_whole_tokens(
    tokenizer: &mut BoundedTokenizer,
    tokens: &[Token],
    normalized: impl Fn(&str) -> bool,
) -> tokenizers::Result<()> {
    let of = |kinds: &'static [TokenKind]| tokens.iter().filter(move |token| kinds.contains(&token.kind));
    let added =
        |token: &Token| AddedToken::from(token.text.clone(), false).normalized(normalized(&token.text));
    let special = of(&[TokenKind::Unknown, TokenKind::Control]);
    tokenizer.add_special_tokens(special.map(|token| AddedToken::from(token.text.clone(), true)))?;
    tokenizer.add_tokens(of(&[TokenKind::UserDefined]).map(added))?;
    Ok(())
}

/// An error of the tokenizer library about a vocabulary.
fn library_error(error: &tokenizers::Error) -> Error {
    Error::invalid(format!("the vocabulary makes no tokenizer: {error}"))
        .with_hint("the file is damaged, or of a kind of tokenizer that is not supported")
}
