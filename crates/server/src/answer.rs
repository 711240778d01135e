//! The text of one answer: tokens become whole characters, texts that end the answer are cut off, and log probabilities go
//! out together with the text they belong to.

use std::collections::VecDeque;
use tapml_engine::{Candidate, PromptToken, SampledToken, StopTexts, TextStream, Tokenizer};
use tapml_graph::Result;

/// Tokens at the end of a prompt that decide how its continuation is written.
const TAIL: usize = 8;

/// A token of an answer, as clients see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenText {
    /// Its number.
    pub id: u32,
    /// The text that it adds. That of a token in the middle of a character is empty; the token that completes it has it.
    pub text: String,
    /// Its log probability. The first token of a prompt has none.
    pub logprob: Option<f32>,
    /// The likeliest tokens in its place.
    pub top: Vec<CandidateText>,
    /// Characters of the answer before it.
    pub offset: usize,
}

/// A token that might stand in place of another one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CandidateText {
    /// Its number.
    pub id: u32,
    /// The text that it would add.
    pub text: String,
    /// Its log probability.
    pub logprob: f32,
}

/// A part of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerPiece {
    /// Its text.
    pub text: String,
    /// Its tokens, if they or their log probabilities are wanted.
    pub tokens: Vec<TokenText>,
}

impl AnswerPiece {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.tokens.is_empty()
    }
}

/// A token that waits for its text to be certain.
struct Pending {
    /// Bytes of the answer before it and with it.
    bytes: (usize, usize),
    token: TokenText,
}

/// See the module.
pub struct AnswerText<'t> {
    tokenizer: &'t Tokenizer,
    stream: TextStream<'t>,
    stops: StopTexts,
    /// Whether tokens are told.
    with_tokens: bool,
    /// Bytes and characters of what the tokens gave so far.
    made: (usize, usize),
    /// Bytes of what was told.
    written: usize,
    pending: VecDeque<Pending>,
}

impl<'t> AnswerText<'t> {
    /// The answer to a prompt, which ends at these texts. `stream` is one of the tokenizer's.
    ///
    /// # Errors
    /// If the tokenizer cannot decode.
    pub fn new(
        tokenizer: &'t Tokenizer,
        mut stream: TextStream<'t>,
        prompt: &[u32],
        stops: &[String],
        with_tokens: bool,
    ) -> Result<AnswerText<'t>> {
        // Some decoders treat the first token of a text in their own way, which this is not.
        for id in &prompt[prompt.len().saturating_sub(TAIL)..] {
            stream.push(*id)?;
        }
        let (made, pending) = ((0, 0), VecDeque::new());
        Ok(AnswerText {
            tokenizer,
            stream,
            stops: StopTexts::new(stops),
            with_tokens,
            made,
            written: 0,
            pending,
        })
    }

    /// Counts offsets from behind a text of so many characters.
    pub fn with_offset(mut self, characters: usize) -> AnswerText<'t> {
        self.made.1 = characters;
        self
    }

    /// Whether a text that ends the answer was found.
    pub fn is_stopped(&self) -> bool {
        self.stops.is_stopped()
    }

    /// The text that ended the answer.
    pub fn stop_text(&self) -> Option<&str> {
        self.stops.stop_text()
    }

    /// Adds a token; gives what is certain now.
    pub fn push(&mut self, token: &SampledToken) -> Result<AnswerPiece> {
        let top = if self.with_tokens { texts(&self.stream, token)? } else { Vec::new() };
        let text = self.stream.push(token.id)?;
        self.add(&text, token, top);
        let text = self.stops.push(&text);
        Ok(self.release(text))
    }

    /// Adds the token that ends the answer and is no part of its text.
    pub fn push_end(&mut self, token: &SampledToken) -> Result<()> {
        if self.with_tokens {
            let top = texts(&self.stream, token)?;
            let written = self.tokenizer.token(token.id).unwrap_or_default();
            self.add("", token, top);
            if let Some(last) = self.pending.back_mut() {
                last.token.text = written;
            }
        }
        Ok(())
    }

    /// The rest, when there are no more tokens.
    pub fn finish(mut self) -> Result<AnswerPiece> {
        let rest = self.stream.clone().finish()?;
        if let Some(last) = self.pending.back_mut().filter(|_| !rest.is_empty()) {
            last.token.text.push_str(&rest);
            last.bytes.1 += rest.len();
        }
        let mut text = self.stops.push(&rest);
        let stopped = self.stops.is_stopped();
        if !stopped {
            text.push_str(&self.stops.clone().finish());
        }
        let mut piece = self.release(text);
        if !stopped {
            piece.tokens.extend(self.pending.into_iter().map(|pending| pending.token));
        }
        Ok(piece)
    }

    fn add(&mut self, text: &str, token: &SampledToken, top: Vec<CandidateText>) {
        let (bytes, offset) = self.made;
        self.made = (bytes + text.len(), offset + text.chars().count());
        if self.with_tokens {
            let token = TokenText { id: token.id, text: text.into(), logprob: token.logprob, top, offset };
            self.pending.push_back(Pending { bytes: (bytes, self.made.0), token });
        }
    }

    /// A text with the tokens that begin in it, or end with it.
    fn release(&mut self, text: String) -> AnswerPiece {
        self.written += text.len();
        let written = self.written;
        let mut tokens = Vec::new();
        while self.pending.front().is_some_and(|p| p.bytes.0 < written || p.bytes.1 <= written) {
            tokens.extend(self.pending.pop_front().map(|pending| pending.token));
        }
        AnswerPiece { text, tokens }
    }
}

/// The texts of the likeliest tokens in place of one.
fn texts(stream: &TextStream<'_>, token: &SampledToken) -> Result<Vec<CandidateText>> {
    let text = |id| -> Result<String> {
        let mut stream = stream.clone();
        let text = stream.push(id)?;
        Ok(text + &stream.finish()?)
    };
    let candidate =
        |&Candidate { id, logprob }: &Candidate| Ok(CandidateText { id, text: text(id)?, logprob });
    token.top.iter().map(candidate).collect()
}

/// The tokens of a prompt, as clients see them.
pub fn prompt_texts(tokenizer: &Tokenizer, tokens: &[PromptToken]) -> Result<Vec<TokenText>> {
    let mut answer = AnswerText::new(tokenizer, tokenizer.stream(), &[], &[], true)?;
    let mut texts = Vec::new();
    for token in tokens {
        texts.extend(answer.push(token)?.tokens);
    }
    texts.extend(answer.finish()?.tokens);
    Ok(texts)
}
