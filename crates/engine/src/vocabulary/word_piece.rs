//! WordPiece, as in BERT: words at spaces and punctuation, then the longest pieces from the left.
//!
//! The model prefers the longest piece that fits.

use super::{Token, TokenKind, add_whole_tokens, check_count, library_error};
use crate::tokenizer::{BoundedTokenizer, catch_panics};
use tapml_graph::Result;
use tokenizers::decoders::wordpiece::WordPiece as Decoder;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;

/// What marks a piece within a word.
const WITHIN: &str = "##";
/// What marks a piece that begins a word, in GGUF files, which leave the other mark out.
const BEGINS: char = '▁';

/// The tokenizer of a GGUF vocabulary, whose unknown words become `unknown`.
pub fn tokenizer(tokens: &[Token], unknown: &str) -> Result<BoundedTokenizer> {
    check_count(tokens)?;
    let tokens: Vec<Token> = tokens.iter().map(mark_token).collect();
    let ordinary = || tokens.iter().filter(|token| token.kind == TokenKind::Normal);
    // Files do not say whether case counts: it does if a token has some.
    let lowercase = !ordinary().any(|token| token.text.chars().any(char::is_uppercase));
    catch_panics(|| {
        let vocab = (0u32..).zip(&tokens).map(|(id, token)| (token.text.clone(), id));
        let vocab: tokenizers::models::bpe::Vocab = vocab.collect();
        let model = WordPiece::builder().vocab(vocab).unk_token(unknown.into());
        let mut tokenizer =
            BoundedTokenizer::new(model.continuing_subword_prefix(WITHIN.into()).build()?.into());
        tokenizer.with_normalizer(Some(BertNormalizer::new(true, true, None, lowercase)))?;
        tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
        tokenizer.with_decoder(Some(Decoder::new(WITHIN.into(), true)));
        add_whole_tokens(&mut tokenizer, &tokens, |_| false)?;
        Ok(tokenizer)
    })
    .map_err(|e| library_error(&e))
}

/// The token as BERT's own vocabulary writes it.
fn mark_token(token: &Token) -> Token {
    let text = match (token.kind, token.text.strip_prefix(BEGINS)) {
        (TokenKind::Normal, Some(begins)) => begins.to_string(),
        (TokenKind::Normal, None) if !is_bracketed(&token.text) => format!("{WITHIN}{}", token.text),
        _ => token.text.clone(),
    };
    Token { text, ..token.clone() }
}

/// Whether the text is like `[SEP]`.
fn is_bracketed(text: &str) -> bool {
    text.starts_with('[') && text.ends_with(']')
}
