//! Tokenizers of SentencePiece: pieces of text in which `▁` stands for the space, found by merging pairs (BPE) or as the
//! likeliest sequence (unigram), with single bytes as the last resort.

use super::{Token, TokenKind, add_whole_tokens, check_count, library_error};
use crate::tokenizer::{BoundedTokenizer, catch_panics, check_table};
use std::collections::HashMap;
use tapml_graph::{Error, Result};
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::ModelWrapper;
use tokenizers::models::bpe::BPE;
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{NormalizerWrapper, Precompiled, Prepend, Replace, Sequence};

/// The space within pieces.
pub const SPACE: &str = "▁";
/// The longest piece that is merged from others, in bytes; longer ones would take too long to cut in every way.
const LONGEST: usize = 512;

/// How a text is cut into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Of all pairs of neighbours that make a piece, the best is merged, again and again.
    Bpe,
    /// The sequence of pieces whose scores have the greatest sum.
    Unigram,
}

/// A SentencePiece model.
#[derive(Clone, Debug)]
pub struct Pieces {
    /// The pieces by id.
    pub tokens: Vec<Token>,
    /// How a text is cut.
    pub algorithm: Algorithm,
    /// The id of what stands for unknown text.
    pub unknown: Option<u32>,
    /// What is done to a text first.
    pub normalizer: Normalizer,
}

/// What is done to a text before it is cut (`NormalizerSpec`).
#[derive(Clone, Debug, Default)]
pub struct Normalizer {
    /// Compiled table of characters and what replaces them; none if empty.
    pub table: Vec<u8>,
    /// Whether a text gets a space in front.
    pub space_first: bool,
    /// Whether spaces at both ends go away and runs of spaces become one.
    pub single_spaces: bool,
}

impl Pieces {
    /// The tokenizer.
    pub fn tokenizer(&self) -> Result<BoundedTokenizer> {
        check_count(&self.tokens)?;
        // Only a vocabulary with bytes can fall back on them.
        let byte_fallback = self.tokens.iter().any(|token| token.kind == TokenKind::Byte);
        let model = match self.algorithm {
            Algorithm::Bpe => self.bpe(byte_fallback)?,
            Algorithm::Unigram => self.unigram(byte_fallback)?,
        };
        self.normalizer.check()?;
        catch_panics(|| {
            let mut tokenizer = BoundedTokenizer::new(model);
            tokenizer.with_normalizer(Some(self.normalizer.build()?))?;
            tokenizer.with_decoder(Some(self.decoder()?));
            // Runs of spaces are found in the text after spaces became `▁`.
            add_whole_tokens(&mut tokenizer, &self.tokens, |text| text.contains(SPACE))?;
            Ok(tokenizer)
        })
        .map_err(|e| library_error(&e))
    }

    /// Merges follow from the scores; files hold none.
    fn bpe(&self, byte_fallback: bool) -> Result<ModelWrapper> {
        let vocab: Vec<(String, u32)> =
            (0u32..).zip(&self.tokens).map(|(id, t)| (t.text.clone(), id)).collect();
        let vocab = vocab.into_iter().collect::<tokenizers::models::bpe::Vocab>();
        let mut builder = BPE::builder().vocab_and_merges(vocab, merges(&self.tokens)?);
        // Neighbours that are unknown become one token, as in SentencePiece.
        builder = builder.fuse_unk(true).byte_fallback(byte_fallback);
        if let Some(unknown) = self.unknown.and_then(|id| self.tokens.get(id as usize)) {
            builder = builder.unk_token(unknown.text.clone());
        }
        catch_panics(|| builder.build()).map(ModelWrapper::BPE).map_err(|e| library_error(&e))
    }

    /// Scores are logarithms of probabilities.
    fn unigram(&self, byte_fallback: bool) -> Result<ModelWrapper> {
        // Scores are added up and compared, and NaN compares with nothing.
        if let Some(token) = self.tokens.iter().find(|token| !token.score.is_finite()) {
            return Err(Error::invalid(format!("token `{}` has the score {}", token.text, token.score)));
        }
        let vocab = self.tokens.iter().map(|token| (token.text.clone(), token.score)).collect();
        let unknown = self.unknown.map(|id| id as usize);
        catch_panics(|| Unigram::from(vocab, unknown, byte_fallback))
            .map(ModelWrapper::Unigram)
            .map_err(|e| library_error(&e))
    }

    /// Bytes become characters, `▁` becomes a space, and the space that was put in front goes away.
    fn decoder(&self) -> tokenizers::Result<Decoders> {
        let space = Replace::new(SPACE, " ")?;
        let mut decoders = vec![space.into(), ByteFallback::new().into(), Fuse::new().into()];
        if self.normalizer.space_first {
            decoders.push(Strip::new(' ', 1, 0).into());
        }
        Ok(Decoders::new(decoders))
    }
}

impl Normalizer {
    /// The library believes what the table says of its size.
    fn check(&self) -> Result<()> {
        if self.table.is_empty() { Ok(()) } else { check_table(&self.table).map_err(Error::invalid) }
    }

    /// In the order of SentencePiece: table, spaces, prefix, `▁`.
    fn build(&self) -> tokenizers::Result<Sequence> {
        let mut steps: Vec<NormalizerWrapper> = Vec::new();
        if !self.table.is_empty() {
            steps.push(Precompiled::from(&self.table)?.into());
        }
        if self.single_spaces {
            steps.push(Replace::new(ReplacePattern::Regex("^ +| +$".into()), "")?.into());
            steps.push(Replace::new(ReplacePattern::Regex(" {2,}".into()), " ")?.into());
        }
        if self.space_first {
            steps.push(Prepend::new(SPACE.into()).into());
        }
        steps.push(Replace::new(" ", SPACE)?.into());
        Ok(Sequence::new(steps))
    }
}

/// The pairs that make pieces, best first: by the score of what they make, then the longer left half, then the longer
/// right half. That is the order in which Transformers converts such a vocabulary.
fn merges(tokens: &[Token]) -> Result<Vec<(String, String)>> {
    let normal = tokens.iter().filter(|token| token.kind == TokenKind::Normal);
    let ids: HashMap<&str, usize> = normal.clone().enumerate().map(|(i, t)| (t.text.as_str(), i)).collect();
    let mut merges: Vec<(f64, &str, &str)> = Vec::new();
    for token in normal {
        let text = token.text.as_str();
        if text.len() > LONGEST {
            let text =
                format!("a token has {} bytes, at most {LONGEST} are supported for merged ones", text.len());
            return Err(Error::unsupported(text));
        }
        // Every cut: any two pieces that make this one may be neighbours.
        let halves = text.char_indices().skip(1).map(|(cut, _)| text.split_at(cut));
        let known = halves.filter(|(left, right)| ids.contains_key(left) && ids.contains_key(right));
        merges.extend(known.map(|(left, right)| (token.score, left, right)));
    }
    let characters = |text: &str| text.chars().count();
    let order = |&(score, left, right): &(f64, &str, &str)| (score, characters(left), characters(right));
    merges.sort_by(|a, b| {
        let (a, b) = (order(a), order(b));
        b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(b.2.cmp(&a.2))
    });
    Ok(merges.into_iter().map(|(_, left, right)| (left.to_string(), right.to_string())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str, score: f64, kind: TokenKind) -> Token {
        Token { text: text.into(), score, kind }
    }

    #[test]
    fn pairs_of_better_pieces_come_first() {
        let normal = |text, score| token(text, score, TokenKind::Normal);
        let tokens = [
            normal("a", -9.0),
            normal("b", -9.0),
            normal("ab", -2.0),
            normal("aab", -1.0),
            normal("aa", -3.0),
            token("ba", 0.0, TokenKind::UserDefined),
        ];
        let found: Vec<String> = merges(&tokens).unwrap().iter().map(|(l, r)| format!("{l}+{r}")).collect();
        assert_eq!(found, ["aa+b", "a+ab", "a+b", "a+a"]);
        let long = [normal(&"a".repeat(LONGEST + 1), 0.0)];
        assert!(merges(&long).is_err());
    }

    #[test]
    fn a_table_that_claims_more_than_it_has_is_refused() {
        for table in [vec![1], vec![255, 255, 255, 127, 0], vec![2, 0, 0, 0, 0, 0]] {
            let error = Normalizer { table, ..Normalizer::default() }.check().unwrap_err();
            assert!(error.to_string().contains("table of characters"), "{error}");
        }
        assert!(Normalizer { table: vec![4, 0, 0, 0, 9, 9, 9, 9], ..Normalizer::default() }.check().is_ok());
    }
}
