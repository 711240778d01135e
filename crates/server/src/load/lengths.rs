//! How long the prompts and answers of a load are.

use std::fmt;
use std::str::FromStr;
use tapml_graph::{Error, Result};

/// Mean tokens of prompts and of answers in ShareGPT's conversations: Kwon et al., "Efficient Memory Management for Large
/// Language Model Serving with PagedAttention", 2023, figure 11.
const SHAREGPT: [f64; 2] = [161.31, 337.99];

/// The lengths of a load's requests, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadLengths {
    /// The same for each request.
    Fixed {
        /// Of the prompt.
        prompt: u32,
        /// Of the answer.
        answer: u32,
    },
    /// Drawn from exponential distributions with the published means of ShareGPT, at least 1.
    ShareGpt,
}

impl LoadLengths {
    /// Tokens of the next request's prompt and answer, at most so many together.
    pub(super) fn draw(self, random: &mut fastrand::Rng, most: u32) -> (u32, u32) {
        let (prompt, answer) = match self {
            LoadLengths::Fixed { prompt, answer } => (prompt, answer),
            LoadLengths::ShareGpt => {
                let [prompt, answer] = SHAREGPT.map(|mean| {
                    // The inverse of the distribution; the argument of the logarithm is above 0.
                    let drawn = -mean * (1.0 - random.f64()).ln();
                    drawn.clamp(1.0, 1e6) as u32
                });
                (prompt, answer)
            }
        };
        let answer = answer.min(most.saturating_sub(1)).max(1);
        (prompt.min(most.saturating_sub(answer)).max(1), answer)
    }
}

impl FromStr for LoadLengths {
    type Err = Error;

    /// `PROMPT+ANSWER`, such as `512+128`, or `sharegpt`.
    fn from_str(text: &str) -> Result<LoadLengths> {
        if text == "sharegpt" {
            return Ok(LoadLengths::ShareGpt);
        }
        let parts = text.split_once('+').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        match parts {
            Some((prompt @ 1.., answer @ 1..)) => Ok(LoadLengths::Fixed { prompt, answer }),
            _ => Err(Error::invalid(format!(
                "expected PROMPT+ANSWER in tokens, or `sharegpt`, found `{text}`"
            ))
            .with_hint("for example 512+128")),
        }
    }
}

impl fmt::Display for LoadLengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadLengths::Fixed { prompt, answer } => write!(f, "{prompt}+{answer}"),
            LoadLengths::ShareGpt => f.write_str("sharegpt"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_the_published_means_and_fit() {
        let mut random = fastrand::Rng::with_seed(7);
        let draws: Vec<(u32, u32)> =
            (0..20_000).map(|_| LoadLengths::ShareGpt.draw(&mut random, 1 << 20)).collect();
        let mean = |values: Vec<u32>| values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64;
        let prompts = mean(draws.iter().map(|d| d.0).collect());
        let answers = mean(draws.iter().map(|d| d.1).collect());
        // Five standard deviations of the mean; cutting to whole tokens takes half a token.
        assert!((prompts + 0.5 - SHAREGPT[0]).abs() < 5.0 * SHAREGPT[0] / 141.0, "{prompts}");
        assert!((answers + 0.5 - SHAREGPT[1]).abs() < 5.0 * SHAREGPT[1] / 141.0, "{answers}");
        for most in [2, 17, 300] {
            let (prompt, answer) = LoadLengths::ShareGpt.draw(&mut random, most);
            assert!(prompt >= 1 && answer >= 1 && prompt + answer <= most);
        }
    }

    #[test]
    fn lengths_are_read_as_they_are_written() {
        for text in ["512+128", "1+1", "sharegpt"] {
            assert_eq!(text.parse::<LoadLengths>().unwrap().to_string(), text);
        }
        for bad in ["", "5", "0+3", "3+0", "a+b", "-1+3"] {
            assert!(bad.parse::<LoadLengths>().unwrap_err().to_string().contains("PROMPT+ANSWER"), "{bad}");
        }
    }
}
