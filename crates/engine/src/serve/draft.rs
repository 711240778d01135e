//! Guesses of the next tokens of a text, so that one step can check several of them.
//!
//! "Prompt lookup" guesses from the text itself: what followed the last tokens where they stood before may follow again, as in
//! answers that quote their prompt. Where guesses fail, fewer are made, and then none for a while.

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

/// How many tokens of a text are guessed at once.
#[derive(Clone, Debug)]
pub struct DraftPace {
    /// Right tokens of a guess, averaged with more weight on the last ones.
    gain: f32,
    /// Guesses in a row after which the gain was too small.
    failures: u32,
    /// Calls to come that guess nothing.
    pause: usize,
}

impl Default for DraftPace {
    fn default() -> DraftPace {
        DraftPace { gain: 2.0, failures: 0, pause: 0 }
    }
}

impl DraftPace {
    /// How many tokens to guess now: twice as many as were right of late, so that the number can grow.
    pub fn next_length(&mut self) -> usize {
        if self.pause > 0 {
            self.pause -= 1;
            return 0;
        }
        ((self.gain * 2.0).ceil() as usize).max(1)
    }

    /// Takes note of how many of the guessed tokens were right.
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
}

/// Guesses at most `most` tokens that follow the text, from what followed its last tokens before.
pub fn guess_from_text(text: &[u32], most: usize) -> Vec<u32> {
    let text = &text[text.len().saturating_sub(WINDOW)..];
    let Some(at) = NGRAMS.iter().find_map(|n| find_again(text, *n)) else { return Vec::new() };
    let mut guess: Vec<u32> = Vec::new();
    // Where the text ends the guess goes on: a text that repeats itself does so once more.
    for place in at..at + most {
        let next = text.get(place).or_else(|| guess.get(place - text.len()));
        guess.extend(next.copied());
    }
    guess
}

/// Where that stands which followed the last `n` tokens where they stood last before.
fn find_again(text: &[u32], n: usize) -> Option<usize> {
    let last = &text[text.len().checked_sub(n)?..];
    let before = &text[..text.len() - 1];
    let at = before.windows(n).rposition(|window| window == last)?;
    Some(at + n)
}
