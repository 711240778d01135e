//! Byte-level BPE: a text is cut by a pattern, its bytes are written as visible characters, and pairs are merged in the
//! order of a list. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.2.

use super::pre_tokenizer::PreTokenizer;
use super::{Token, add_whole_tokens, check_count, library_error};
use crate::tokenizer::{BoundedTokenizer, catch_panics};
use tapml_graph::{Error, Result};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

/// A vocabulary with its merges.
pub struct ByteBpe<'a> {
    /// The tokens by id.
    pub tokens: &'a [Token],
    /// Pairs with a space between, best first.
    pub merges: &'a [&'a str],
    /// How a text is cut first.
    pub pre_tokenizer: &'static PreTokenizer,
}

impl ByteBpe<'_> {
    /// The tokenizer.
    pub fn tokenizer(&self) -> Result<BoundedTokenizer> {
        check_count(self.tokens)?;
        let vocab: Vocab = (0u32..).zip(self.tokens).map(|(id, token)| (token.text.clone(), id)).collect();
        let merges = self.merges.iter().map(|merge| pair(merge, &vocab)).collect::<Result<_>>()?;
        catch_panics(|| {
            let model = BPE::builder().vocab_and_merges(vocab, merges);
            let model = model.ignore_merges(self.pre_tokenizer.whole_words).build()?;
            let mut tokenizer = BoundedTokenizer::new(model.into());
            tokenizer.with_normalizer(self.pre_tokenizer.normalizer())?;
            tokenizer.with_pre_tokenizer(Some(self.pre_tokenizer.build()?));
            tokenizer.with_decoder(Some(ByteLevel::new(false, true, true)));
            add_whole_tokens(&mut tokenizer, self.tokens, |_| false)?;
            Ok(tokenizer)
        })
        .map_err(|e| library_error(&e))
    }
}

/// The halves of a merge, which must be tokens and make one.
fn pair(merge: &str, vocab: &Vocab) -> Result<(String, String)> {
    // The first character belongs to the left half even if it is a space.
    let first = merge.chars().next().map_or(0, char::len_utf8);
    let cut = merge.get(first..).and_then(|rest| rest.find(' ')).map(|at| at + first);
    let halves = cut.map(|cut| (&merge[..cut], &merge[cut + 1..]));
    let known = halves.filter(|(left, right)| {
        vocab.contains_key(*left)
            && vocab.contains_key(*right)
            && vocab.contains_key(&format!("{left}{right}"))
    });
    known.map(|(left, right)| (left.to_string(), right.to_string())).ok_or_else(|| {
        let shown: String = merge.chars().take(60).collect();
        Error::invalid(format!("the merge `{shown}` is no pair of tokens that make a token"))
            .with_hint("the file is damaged; convert the model again")
    })
}
