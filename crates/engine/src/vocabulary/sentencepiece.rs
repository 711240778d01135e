//! SentencePiece's own files, `tokenizer.model`: one protocol-buffer message.
//! Format: <https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto>.
//!
//! Only what decides how texts are cut is read; training settings are skipped. Fields that are left out
//! have the format's defaults.

use super::pieces::{Algorithm, Normalizer, Pieces};
use super::{Opened, Token, TokenKind};
use crate::special::SpecialTokens;
use prost::Message;
use std::path::Path;
use tapml_graph::{Context, Error, Result};

/// The file in a model folder.
pub const FILE: &str = "tokenizer.model";
/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 64 << 20;
/// Numbers of the algorithms that are supported.
/// `TrainerSpec.ModelType`.
const UNIGRAM: i32 = 1;
const BPE: i32 = 2;

/// `ModelProto`, as far as it matters for cutting texts.
#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(message, repeated, tag = "1")]
    pieces: Vec<Piece>,
    #[prost(message, optional, tag = "2")]
    trainer: Option<TrainerSpec>,
    #[prost(message, optional, tag = "3")]
    normalizer: Option<NormalizerSpec>,
}

/// `ModelProto.SentencePiece`.
#[derive(Clone, PartialEq, Message)]
struct Piece {
    /// In UTF-8, `▁` for a space.
    #[prost(string, tag = "1")]
    text: String,
    /// A logarithm of a probability, or for BPE the rank with its sign turned.
    #[prost(float, tag = "2")]
    score: f32,
    /// `SentencePiece.Type`.
    #[prost(int32, optional, tag = "3")]
    kind: Option<i32>,
}

/// `TrainerSpec`, as far as it is read.
#[derive(Clone, PartialEq, Message)]
struct TrainerSpec {
    #[prost(int32, optional, tag = "3")]
    model_type: Option<i32>,
    #[prost(bool, tag = "24")]
    treat_whitespace_as_suffix: bool,
    #[prost(int32, optional, tag = "40")]
    unk_id: Option<i32>,
    #[prost(int32, optional, tag = "41")]
    bos_id: Option<i32>,
    #[prost(int32, optional, tag = "42")]
    eos_id: Option<i32>,
    #[prost(int32, optional, tag = "43")]
    pad_id: Option<i32>,
}

/// `NormalizerSpec`, as far as it is read.
#[derive(Clone, PartialEq, Message)]
struct NormalizerSpec {
    #[prost(bytes = "vec", tag = "2")]
    table: Vec<u8>,
    #[prost(bool, optional, tag = "3")]
    add_dummy_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4")]
    remove_extra_whitespaces: Option<bool>,
    #[prost(bool, optional, tag = "5")]
    escape_whitespaces: Option<bool>,
}

/// Reads `tokenizer.model` of a model folder. `tokenizer_config.json` and `special_tokens_map.json` beside it go before
/// what the file says of special tokens.
pub fn open(dir: &Path) -> Result<Opened> {
    let path = dir.join(FILE);
    let context = || path.display().to_string();
    let bytes = tapml_files::read(&path, MAX_FILE, "a SentencePiece model")?;
    let proto = ModelProto::decode(bytes.as_slice()).map_err(|e| {
        Error::invalid(format!("{} is no SentencePiece model: {e}", path.display()))
            .with_hint("take the file that came with the weights")
    })?;
    let pieces = pieces(&proto).context(context)?;
    let own = own_special(&proto, &pieces);
    let given = SpecialTokens::read_or(dir, &own)?;
    let inner = pieces.tokenizer().context(context)?;
    let id = |text: &Option<String>| text.as_ref().and_then(|t| inner.token_to_id(t));
    let (bos, eos) = (id(&given.bos), id(&given.eos));
    Ok(Opened { inner, special: given, bos, eos, template: None })
}

/// The model as `pieces` takes it.
///
/// # Errors
/// If the algorithm or a way of writing spaces is not supported.
fn pieces(proto: &ModelProto) -> Result<Pieces> {
    let trainer = proto.trainer.clone().unwrap_or_default();
    let unsupported = |text: &str| {
        Error::unsupported(text.to_string())
            .with_hint("convert it to tokenizer.json with Hugging Face Transformers")
    };
    let algorithm = match trainer.model_type.unwrap_or(UNIGRAM) {
        UNIGRAM => Algorithm::Unigram,
        BPE => Algorithm::Bpe,
        _ => return Err(unsupported("only the algorithms BPE and unigram are supported")),
    };
    if trainer.treat_whitespace_as_suffix {
        return Err(unsupported("spaces at the end of pieces instead of their beginning are not supported"));
    }
    let spec = proto.normalizer.clone().unwrap_or_default();
    if spec.escape_whitespaces == Some(false) {
        return Err(unsupported("spaces that are not written as `▁` are not supported"));
    }
    let tokens: Vec<Token> = proto.pieces.iter().map(token).collect();
    // It would match everywhere.
    if let Some(id) = tokens.iter().position(|token| token.text.is_empty()) {
        return Err(Error::invalid(format!("piece {id} has no text")));
    }
    let unknown = tokens.iter().position(|token| token.kind == TokenKind::Unknown);
    // Texts hold signs that no piece covers.
    let unknown = unknown.ok_or_else(|| Error::invalid("no piece stands for unknown text"))?;
    let normalizer = Normalizer {
        table: spec.table.clone(),
        space_first: spec.add_dummy_prefix.unwrap_or(true),
        single_spaces: spec.remove_extra_whitespaces.unwrap_or(true),
    };
    Ok(Pieces { tokens, algorithm, unknown: u32::try_from(unknown).ok(), normalizer })
}

/// A kind that is left out is an ordinary piece.
fn token(piece: &Piece) -> Token {
    let kind = TokenKind::from_number(u64::try_from(piece.kind.unwrap_or(1)).unwrap_or(1));
    Token { text: piece.text.clone(), score: f64::from(piece.score), kind }
}

/// The special tokens by the ids that the file gives; the defaults are those of the format. Whether texts begin with
/// one is no matter of the file: models whose tokenizer is such a file begin with it unless they say otherwise.
fn own_special(proto: &ModelProto, pieces: &Pieces) -> SpecialTokens {
    let trainer = proto.trainer.clone().unwrap_or_default();
    let text = |id: Option<i32>, default: i32| {
        let token = usize::try_from(id.unwrap_or(default)).ok().and_then(|id| pieces.tokens.get(id))?;
        matches!(token.kind, TokenKind::Control | TokenKind::Unknown).then(|| token.text.clone())
    };
    let bos = text(trainer.bos_id, 1);
    SpecialTokens {
        add_bos: bos.is_some(),
        bos,
        eos: text(trainer.eos_id, 2),
        // The format pads with nothing unless a file says otherwise.
        pad: text(trainer.pad_id, -1),
        unk: text(trainer.unk_id, 0),
        add_eos: false,
    }
}
