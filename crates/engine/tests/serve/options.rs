//! Options of requests: stop tokens, log probabilities, masks, prompts without new tokens.

use super::*;
use model::{expected_text, logits_after};
use std::collections::BTreeSet;
use tapml_engine::Sampling;

/// The plain definition.
fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
    logits.iter().map(|l| f64::from(*l) - sum.ln()).collect()
}

/// Asserts a token's log probabilities after a text.
pub fn assert_logprobs(token: &SampledToken, logits: &[f32], count: usize) {
    let all = log_softmax(logits);
    assert!((f64::from(token.logprob.unwrap()) - all[token.id as usize]).abs() < 1e-6);
    assert_eq!(token.top.len(), count);
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|a, b| all[*b].total_cmp(&all[*a]));
    for (found, id) in token.top.iter().zip(order) {
        assert_eq!(found.id as usize, id);
        assert!((f64::from(found.logprob) - all[id]).abs() < 1e-6);
    }
}

#[test]
fn stop_tokens_end_the_text_but_not_before_the_least_length() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    let prompt = prompt(9, 1);
    let free = expected_text(&prompt, &request_options(40, 0), &LIMITS);
    let options =
        |min_tokens| RequestOptions { stop_ids: vec![free[5], 99], min_tokens, ..request_options(40, 0) };
    let first = free.iter().position(|id| *id == free[5]).unwrap();
    let answer = ask(&engine, &prompt, options(0)).answer();
    assert_eq!((answer.ids(), answer.finish()), (free[..=first].to_vec(), Finish::Stop));
    let answer = ask(&engine, &prompt, options(20)).answer();
    assert!(!answer.ids()[..20].contains(&free[5]));
    assert_eq!(answer.ids()[..first], free[..first]);
    assert_ne!(answer.ids()[first], free[first]);
    assert_clean(&engine, &watch);
}

#[test]
fn log_probabilities_are_those_of_the_biased_logits() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    let sampling =
        Sampling { temperature: 0.5, top_k: Some(3), logit_bias: vec![(4, 2.5)], ..Sampling::default() };
    let options = RequestOptions { logprobs: Some(5), sampling, ..request_options(20, 0) };
    let mut text = prompt(9, 1);
    let answer = ask(&engine, &text, options).answer();
    for token in &answer.tokens {
        let mut logits = logits_after(&text, LIMITS.vocab);
        logits[4] += 2.5;
        assert_logprobs(token, &logits, 5);
        text.push(token.id);
    }
    assert_clean(&engine, &watch);
}

#[test]
fn log_probabilities_of_the_prompt_are_told_once_whatever_happens() {
    for (pages, rows, failures) in [(256, 48, vec![]), (256, 7, vec![2]), (30, 20, vec![]), (30, 20, vec![4])]
    {
        let limits = BatchLimits { pages, rows, ..LIMITS };
        let (engine, watch) = start(limits, EngineOptions::default());
        watch.lock().unwrap().failures = failures;
        let prompts: Vec<Vec<u32>> = (0..12).map(|n| prompt(1 + 9 * n, 3)).collect();
        let options = |n: usize| RequestOptions {
            prompt_logprobs: Some(n % 3),
            ..request_options(n % 4 * 5, n as u64)
        };
        let asked: Vec<Asked> =
            prompts.iter().enumerate().map(|(n, p)| ask(&engine, p, options(n))).collect();
        for ((n, asked), prompt) in asked.into_iter().enumerate().zip(&prompts) {
            let answer = asked.answer();
            let told = answer.prompt.as_ref().unwrap();
            assert_eq!(&model::ids(told), prompt);
            assert_eq!((told[0].logprob, told[0].top.len()), (None, 0));
            for (at, token) in told.iter().enumerate().skip(1) {
                assert_logprobs(token, &logits_after(&prompt[..at], limits.vocab), n % 3);
            }
            assert_eq!(answer.ids(), expected_text(prompt, &options(n), &limits));
            assert_eq!(answer.finish(), Finish::Length);
        }
        assert_clean(&engine, &watch);
    }
}

#[test]
fn no_new_tokens_compute_the_prompt_alone() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    for length in [1, 48, 100, 200] {
        let answer = ask(&engine, &prompt(length, 2), request_options(0, 0)).answer();
        assert_eq!((answer.finish(), answer.tokens.len()), (Finish::Length, 0));
    }
    assert_clean(&engine, &watch);
}

/// Allows tokens of the parity of the text's length, and ends after some.
struct Parity {
    taken: usize,
    ends: usize,
    fails: bool,
}

impl TokenMask for Parity {
    fn fill(&mut self, words: &mut [u32]) -> tapml_graph::Result<()> {
        assert!(words.iter().all(|word| *word == 0));
        if self.fails && self.taken == 3 {
            return Err(Error::invalid("nothing is allowed"));
        }
        words.fill(if self.taken.is_multiple_of(2) { 0x5555_5555 } else { 0xAAAA_AAAA });
        Ok(())
    }

    fn accept(&mut self, id: u32) -> tapml_graph::Result<ControlFlow<()>> {
        assert_eq!(id as usize % 2, self.taken % 2);
        self.taken += 1;
        Ok(if self.taken == self.ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

#[test]
fn masks_restrict_and_end_the_text_also_over_failed_steps() {
    let (engine, watch) = start(BatchLimits { pages: 40, ..LIMITS }, EngineOptions::default());
    watch.lock().unwrap().failures = vec![2, 11];
    let asked: Vec<Asked> = (0..20u64)
        .map(|n| {
            let mask = Parity { taken: 0, ends: 10, fails: n == 7 };
            let (request, events) = request(&prompt(20, n), request_options(40, n), Some(Box::new(mask)));
            Asked { handle: engine.submit(request).unwrap(), events }
        })
        .collect();
    for (n, asked) in asked.into_iter().enumerate() {
        let answer = asked.answer();
        if n == 7 {
            assert!(answer.end.unwrap_err().to_string().contains("nothing is allowed"));
            continue;
        }
        assert_eq!((answer.finish(), answer.tokens.len()), (Finish::Stop, 10));
        let mut text = prompt(20, n as u64);
        for (at, token) in answer.tokens.iter().enumerate() {
            assert_eq!(token.id as usize % 2, at % 2);
            if n % 2 == 0 {
                let logits = logits_after(&text, LIMITS.vocab);
                let allowed = (0..LIMITS.vocab).filter(|id| id % 2 == at % 2);
                let best = allowed.max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
                assert_eq!(token.id as usize, best);
            }
            text.push(token.id);
        }
    }
    assert_clean(&engine, &watch);
}

#[test]
fn seeds_decide_and_not_the_company() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    let hot = |seed| RequestOptions {
        sampling: Sampling { temperature: 1.5, seed, ..Sampling::default() },
        ..request_options(30, 0)
    };
    let asked: Vec<Asked> = (0..16).map(|seed| ask(&engine, &prompt(20, 1), hot(seed % 8))).collect();
    let texts: Vec<Vec<u32>> = asked.into_iter().map(|asked| asked.answer().ids()).collect();
    assert_eq!(texts[..8], texts[8..]);
    assert_eq!(texts.iter().collect::<BTreeSet<_>>().len(), 8);
    assert_clean(&engine, &watch);
}
