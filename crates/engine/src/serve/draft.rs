//! Guesses the next tokens of a text from the text itself, so that one step can check several of them.
//!
//! "Prompt lookup": what followed the last tokens where they stood before may follow again, as in answers that quote their
//! prompt. Where guesses fail, fewer are made, and then none for a while.

#[cfg(test)]
mod tests;

/// Speculative decoding with n-grams of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NgramOptions {
    /// At most this many tokens are guessed at once.
    pub tokens: usize,
    /// Only while at most this many requests run: the more run, the dearer are rows in vain.
    pub requests: usize,
}

impl Default for NgramOptions {
    fn default() -> NgramOptions {
        NgramOptions { tokens: 8, requests: 8 }
    }
}

/// Lengths of the tokens that are looked for; the longest first.
const NGRAMS: [usize; 2] = [3, 2];

/// Only so many tokens are looked through.
const WINDOW: usize = 1 << 14;

/// Of the last guess in the average.
const WEIGHT: f32 = 0.25;

/// Fewer right tokens in a guess do not pay.
const LEAST_GAIN: f32 = 0.25;

/// After failures in a row, no guesses are made for at most this many tokens.
const LONGEST_PAUSE: usize = 64;

/// See the module.
#[derive(Clone, Debug)]
pub struct Drafter {
    /// Most tokens that are ever guessed.
    most: usize,
    /// Right tokens of a guess, averaged with more weight on the last ones.
    gain: f32,
    /// Guesses in a row after which the gain was too small.
    failures: u32,
    /// Calls to come that guess nothing.
    pause: usize,
}

impl Drafter {
    pub fn new(options: &NgramOptions) -> Drafter {
        Drafter { most: options.tokens, gain: 2.0, failures: 0, pause: 0 }
    }

    /// Guesses at most `most` tokens that follow the text.
    pub fn propose(&mut self, text: &[u32], most: usize) -> Vec<u32> {
        if self.pause > 0 {
            self.pause -= 1;
            return Vec::new();
        }
        let text = &text[text.len().saturating_sub(WINDOW)..];
        let Some(at) = NGRAMS.iter().find_map(|n| find_again(text, *n)) else { return Vec::new() };
        let mut guess: Vec<u32> = Vec::new();
        // Where the text ends the guess goes on: a text that repeats itself does so once more.
        for place in at..at + self.length().min(most) {
            let next = text.get(place).or_else(|| guess.get(place - text.len()));
            guess.extend(next.copied());
        }
        guess
    }

    /// Says how many of the guessed tokens were right.
    pub fn note(&mut self, guessed: usize, right: usize) {
        if guessed == 0 {
            return;
        }
        self.gain += (right as f32 - self.gain) * WEIGHT;
        if self.gain >= LEAST_GAIN {
            self.failures = 0;
        } else {
            self.failures = (self.failures + 1).min(LONGEST_PAUSE.ilog2());
            self.pause = 1 << self.failures;
        }
    }

    /// Tokens to guess next: twice as many as were right of late, so that the number can grow.
    fn length(&self) -> usize {
        ((self.gain * 2.0).ceil() as usize).clamp(1, self.most.max(1))
    }
}

/// Where that stands which followed the last `n` tokens where they stood last before.
fn find_again(text: &[u32], n: usize) -> Option<usize> {
    let last = &text[text.len().checked_sub(n)?..];
    let before = &text[..text.len() - 1];
    let at = before.windows(n).rposition(|window| window == last)?;
    Some(at + n)
}
