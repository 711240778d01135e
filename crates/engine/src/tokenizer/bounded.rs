//! The steps of a tokenizer of a stranger, bounded. Steps may each make a text longer, and a sequence of steps that double it
//! takes all memory; so every single step is looked at.
//!
//! Sequences are taken apart here, because the library would run them in one piece. Growth is counted per
//! text and thread.

use super::byte_steps::ByteSteps;
use std::cell::Cell;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::ModelWrapper;
use tokenizers::normalizers::{NormalizerWrapper, Replace};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{
    Decoder, Encoding, NormalizedString, Normalizer, OffsetReferential, OffsetType, PostProcessor,
    PreTokenizedString, PreTokenizer, Result, TokenizerImpl,
};

/// A tokenizer of the library with bounded steps.
pub type BoundedTokenizer = TokenizerImpl<
    ModelWrapper,
    Bounded<NormalizerWrapper>,
    Bounded<PreTokenizerWrapper>,
    Bounded<PostProcessorWrapper>,
    Bounded<DecoderWrapper>,
>;

/// Bytes that any text may grow by; beyond them four times its own.
const GROWTH: usize = 1 << 20;
/// Tokens that a post-processor may put around a text.
const ADDED: usize = 1024;

thread_local! {
    /// Bytes that the text under way may still grow by.
    static LEFT: Cell<usize> = const { Cell::new(GROWTH) };
    // Stays until the next text: the library may drop an error.
    static EXCEEDED: Cell<bool> = const { Cell::new(false) };
}

/// Begins to work on a text of so many bytes in this thread.
pub fn begin(bytes: usize) {
    LEFT.set(GROWTH.max(bytes.saturating_mul(4)));
    EXCEEDED.set(false);
}

/// Works on a text of so many bytes, which may grow within bounds.
pub fn work_within<T>(bytes: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
    begin(bytes);
    let done = work()?;
    // The library goes on with the text as it was when a normalizer fails.
    if EXCEEDED.get() { Err(too_long()) } else { Ok(done) }
}

/// Runs the tokenizer library, which panics on some damaged files; a panic becomes an error.
pub fn catch_panics<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    // Counters of an earlier call must not count here.
    begin(0);
    let damaged = || Err("the tokenizer library panicked, so that the file must be damaged".into());
    tapml_constraint::panics::catch(run).unwrap_or_else(damaged)
}

/// The same for every step.
fn too_long() -> tokenizers::Error {
    "a step makes the text too long: by more than 1 MiB and four times its length".into()
}

/// A step of a tokenizer: one or a sequence of them.
#[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
#[serde(transparent)]
pub struct Bounded<T>(T);

impl<T: Into<NormalizerWrapper>> From<T> for Bounded<NormalizerWrapper> {
    fn from(step: T) -> Self {
        Bounded(step.into())
    }
}

impl<T: Into<PreTokenizerWrapper>> From<T> for Bounded<PreTokenizerWrapper> {
    fn from(step: T) -> Self {
        Bounded(step.into())
    }
}

impl<T: Into<DecoderWrapper>> From<T> for Bounded<DecoderWrapper> {
    fn from(step: T) -> Self {
        Bounded(step.into())
    }
}

/// Takes bytes off what is left; notes if there are not as many.
fn grow(bytes: usize) -> Result<()> {
    let left = LEFT.get().checked_sub(bytes);
    EXCEEDED.set(EXCEEDED.get() || left.is_none());
    left.map(|left| LEFT.set(left)).ok_or_else(too_long)
}

/// Fails if a replacement could take more than is left.
fn check_replace(replace: &Replace, texts: &mut dyn Iterator<Item = &str>) -> Result<()> {
    let pattern = serde_json::to_value(replace)?;
    let pattern = pattern.pointer("/pattern/String").and_then(|p| p.as_str()).filter(|p| !p.is_empty());
    // A pattern that is no plain text may match at every byte.
    let matches: usize = texts.map(|text| pattern.map_or(text.len() + 1, |p| text.matches(p).count())).sum();
    // Tried only: what a replacement takes away is not known yet, and is counted afterwards.
    let left = LEFT.get();
    grow(matches.saturating_mul(replace.content.len()))?;
    LEFT.set(left);
    Ok(())
}

impl Normalizer for Bounded<NormalizerWrapper> {
    fn normalize(&self, text: &mut NormalizedString) -> Result<()> {
        let normalized = normalize(&self.0, text);
        if normalized.is_err() {
            // What grew is not cut into tokens.
            text.clear();
        }
        normalized
    }
}

/// One step, or each step of a sequence.
fn normalize(step: &NormalizerWrapper, text: &mut NormalizedString) -> Result<()> {
    match step {
        NormalizerWrapper::Sequence(steps) => {
            return steps.as_ref().iter().try_for_each(|step| normalize(step, text));
        }
        NormalizerWrapper::Replace(replace) => check_replace(replace, &mut std::iter::once(text.get()))?,
        _ => {}
    }
    // Steps other than replacements grow a text within bounds of their own, so that a look afterwards
    // suffices.
    let before = text.get().len();
    step.normalize(text)?;
    grow(text.get().len().saturating_sub(before))
}

impl PreTokenizer for Bounded<PreTokenizerWrapper> {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> Result<()> {
        pre_tokenize(&self.0, text)
    }
}

/// One step, or each step of a sequence.
fn pre_tokenize(step: &PreTokenizerWrapper, text: &mut PreTokenizedString) -> Result<()> {
    if let PreTokenizerWrapper::Sequence(steps) = step {
        return steps.as_ref().iter().try_for_each(|step| pre_tokenize(step, text));
    }
    let before = len(text);
    step.pre_tokenize(text)?;
    grow(len(text).saturating_sub(before))
}

/// Bytes of all pieces.
fn len(text: &PreTokenizedString) -> usize {
    let parts = text.get_splits(OffsetReferential::Normalized, OffsetType::None);
    parts.iter().map(|(part, ..)| part.len()).sum()
}

impl PostProcessor for Bounded<PostProcessorWrapper> {
    fn added_tokens(&self, pair: bool) -> usize {
        self.0.added_tokens(pair)
    }

    fn process_encodings(&self, parts: Vec<Encoding>, special: bool) -> Result<Vec<Encoding>> {
        let mut added = 0;
        check_processor(&self.0, &mut added)?;
        self.0.process_encodings(parts, special)
    }
}

/// Looks at every template of a sequence.
fn check_processor(step: &PostProcessorWrapper, added: &mut usize) -> Result<()> {
    match step {
        PostProcessorWrapper::Sequence(steps) => {
            steps.as_ref().iter().try_for_each(|step| check_processor(step, added))
        }
        PostProcessorWrapper::Template(template) => check_template(template, added),
        _ => Ok(()),
    }
}

/// Fails if a template repeats its text or adds many tokens.
fn check_template(template: &TemplateProcessing, added: &mut usize) -> Result<()> {
    let pieces = serde_json::to_value(&template.single)?;
    let tokens = serde_json::to_value(template.get_special_tokens())?;
    let mut texts = 0;
    for piece in pieces.as_array().into_iter().flatten() {
        let token = piece.pointer("/SpecialToken/id").and_then(|id| id.as_str());
        let ids = token.and_then(|token| tokens.get(token)).and_then(|token| token.get("ids"));
        *added += ids.and_then(|ids| ids.as_array()).map_or(1, Vec::len);
        texts += usize::from(token.is_none());
        if texts > 1 || *added > ADDED {
            return Err(
                format!("the post-processor repeats the text or adds more than {ADDED} tokens").into()
            );
        }
    }
    Ok(())
}

impl Bounded<DecoderWrapper> {
    /// The steps that make bytes.
    pub fn byte_steps(&self) -> ByteSteps {
        ByteSteps::of_decoder(&self.0)
    }
}

impl Decoder for Bounded<DecoderWrapper> {
    fn decode_chain(&self, tokens: Vec<String>) -> Result<Vec<String>> {
        begin(tokens.iter().map(String::len).sum());
        decode(&self.0, tokens)
    }
}

/// One step, or each step of a sequence.
fn decode(step: &DecoderWrapper, tokens: Vec<String>) -> Result<Vec<String>> {
    match step {
        DecoderWrapper::Sequence(steps) => {
            return steps.get_decoders().iter().try_fold(tokens, |tokens, step| decode(step, tokens));
        }
        DecoderWrapper::Replace(replace) => check_replace(replace, &mut tokens.iter().map(String::as_str))?,
        _ => {}
    }
    let before: usize = tokens.iter().map(String::len).sum();
    let decoded = step.decode_chain(tokens)?;
    grow(decoded.iter().map(String::len).sum::<usize>().saturating_sub(before))?;
    Ok(decoded)
}
