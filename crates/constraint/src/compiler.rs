//! Grammars against the vocabulary of a model, by the library `llguidance`. It bounds its own work: fuel for the lexer, items
//! and states of the parser.

use crate::grammar::Grammar;
use crate::lark::{self, SpecialTexts};
use crate::panics;
use crate::vocabulary::{TokenBytes, Vocabulary};
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use tapml_graph::{Error, Result};

/// States of the lexer of one text; each takes up to 2 KB.
const MAX_LEXER_STATES: usize = 25_000;

/// Turns grammars into masks for one vocabulary.
pub struct GrammarCompiler {
    factory: ParserFactory,
    special: SpecialTexts,
}

/// A grammar that is ready; several texts may be held to it.
#[derive(Clone)]
pub struct CompiledGrammar(Matcher);

impl GrammarCompiler {
    /// For texts of this vocabulary.
    ///
    /// # Errors
    /// If no token ends a text, or the vocabulary holds too little text.
    pub fn new(vocabulary: Vocabulary) -> Result<GrammarCompiler> {
        let Vocabulary { tokens: bytes, ends } = vocabulary;
        let vocab = bytes.len();
        let ends: Vec<u32> = ends.iter().copied().filter(|&end| (end as usize) < vocab).collect();
        let (Some(&end), Ok(vocab)) = (ends.first(), u32::try_from(vocab)) else {
            let text = "no token ends a text of this model, so that a form cannot be enforced";
            return Err(
                Error::unsupported(text).with_hint("name it in generation_config.json: `eos_token_id`")
            );
        };
        let special = (0..).zip(&bytes).filter_map(|(id, bytes)| match bytes {
            TokenBytes::Special(written) => Some((written.clone(), id)),
            _ => None,
        });
        let special = SpecialTexts::new(special.collect());
        let words: Vec<Vec<u8>> = bytes.into_iter().map(word).collect();
        let factory = panics::catch(|| {
            let trie = TokTrie::from(&TokRxInfo::new(vocab, end), &words).with_eos_tokens(&ends);
            let env: llguidance::toktrie::TokEnv = Arc::new(ApproximateTokEnv::new(trie));
            ParserFactory::new_simple(&env)
        });
        let failed = |text: String| Err(Error::invalid(format!("the vocabulary cannot be enforced: {text}")));
        let mut factory = match factory {
            Some(Ok(factory)) => factory,
            Some(Err(e)) => return failed(first_line(&e.to_string())),
            None => return failed("the library panicked".into()),
        };
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            max_lexer_states: MAX_LEXER_STATES,
            verbose_errors: false,
            ..ParserLimits::default()
        };
        Ok(GrammarCompiler { factory, special })
    }

    /// Makes a grammar ready.
    ///
    /// # Errors
    /// If it is wrong, takes too much, or has what cannot be enforced.
    pub fn compile(&self, grammar: &Grammar) -> Result<CompiledGrammar> {
        let text = lark::write(grammar, &self.special)?;
        let made = panics::catch(|| self.factory.create_parser(TopLevelGrammar::from_lark(text)));
        let mut matcher = match made {
            Some(Ok(parser)) => Matcher::new(Ok(parser)),
            Some(Err(e)) => return Err(grammar_error(&e.to_string())),
            None => return Err(grammar_error("the library panicked")),
        };
        // A grammar that no text fulfils is refused here and not after the first step.
        let mask = matcher.compute_mask_or_eos().map_err(|e| grammar_error(&e.to_string()))?;
        if mask.num_set() == 0 {
            return Err(grammar_error("no text of this model's tokens fulfils it"));
        }
        Ok(CompiledGrammar(matcher))
    }
}

/// As the library wants it: special tokens are none that text is made of.
fn word(bytes: TokenBytes) -> Vec<u8> {
    match bytes {
        TokenBytes::Text(bytes) => bytes,
        TokenBytes::Special(written) => [&[TokTrie::SPECIAL_TOKEN_MARKER], written.as_bytes()].concat(),
        TokenBytes::Unknown => Vec::new(),
    }
}

fn grammar_error(reason: &str) -> Error {
    Error::invalid(format!("the form of the answer cannot be enforced: {}", first_line(reason)))
        .with_hint("mend or simplify the schema or grammar")
}

/// Without the library's drawings of places.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(300).collect()
}

impl CompiledGrammar {
    /// A mask for one text.
    pub fn mask(&self) -> GrammarMask {
        GrammarMask(self.0.deep_clone())
    }
}

impl fmt::Debug for CompiledGrammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CompiledGrammar")
    }
}

/// Says of one text which tokens may follow.
pub struct GrammarMask(Matcher);

impl GrammarMask {
    /// Sets the bit of each allowed token: token `i` is bit `i % 32` of word `i / 32`.
    ///
    /// # Errors
    /// If no token is allowed, or to find that out takes too much.
    pub fn fill(&mut self, words: &mut [u32]) -> Result<()> {
        let mask = self.0.compute_mask_or_eos().map_err(|e| mask_error(&e.to_string()))?;
        words.iter_mut().zip(mask.as_slice()).for_each(|(word, allowed)| *word = *allowed);
        if words.iter().all(|word| *word == 0) {
            return Err(mask_error("no token continues the text"));
        }
        Ok(())
    }

    /// Takes the token that was chosen. `Break` if the text is complete and must end with it.
    ///
    /// # Errors
    /// If the token is not allowed, or following it takes too much.
    pub fn accept(&mut self, id: u32) -> Result<ControlFlow<()>> {
        self.0.consume_token(id).map_err(|e| mask_error(&e.to_string()))?;
        Ok(if self.0.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

fn mask_error(reason: &str) -> Error {
    Error::invalid(format!("the form of the answer can be enforced no further: {}", first_line(reason)))
        .with_hint("simplify the schema or grammar")
}
