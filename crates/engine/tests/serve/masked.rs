//! Masks and log probabilities of rows of which a part is known: what the whole row would give.

use super::*;
use model::logits_after;
use tapml_engine::{Sampler, Sampling};

const VOCAB: usize = LIMITS.vocab;

/// Which tokens a mask allows behind so many new ones.
type Allows = fn(usize, u32) -> bool;

/// Half of the tokens, a few that change, all but a few, one, and a part of the row.
const MASKS: [Allows; 5] = [
    |taken, id| id as usize % 2 == taken % 2,
    |taken, id| id as usize % (VOCAB / 5) == taken % (VOCAB / 5),
    |taken, id| !(id as usize + taken).is_multiple_of(11),
    |taken, id| id as usize == 3 + taken,
    |taken, id| (8..24).contains(&id) || id as usize == taken,
];

/// Allows tokens by their number and the number of those before.
struct Rule {
    allows: Allows,
    taken: usize,
}

impl TokenMask for Rule {
    fn fill(&mut self, words: &mut [u32]) -> tapml_graph::Result<()> {
        let allowed = (0..VOCAB as u32).filter(|id| (self.allows)(self.taken, *id));
        allowed.for_each(|id| words[id as usize / 32] |= 1 << (id % 32));
        Ok(())
    }

    fn accept(&mut self, id: u32) -> tapml_graph::Result<ControlFlow<()>> {
        assert!((self.allows)(self.taken, id));
        self.taken += 1;
        Ok(ControlFlow::Continue(()))
    }
}

/// What the model says after a prompt where a mask has its say, worked out from whole rows.
fn expected_ids(prompt: &[u32], options: &RequestOptions, allows: Allows) -> Vec<u32> {
    let mut sampler = Sampler::new(options.sampling.clone()).unwrap();
    let mut text = prompt.to_vec();
    for taken in 0..options.max_tokens {
        let mut logits = logits_after(&text, VOCAB);
        let excluded = logits.iter_mut().zip(0..).filter(|(_, id)| !allows(taken, *id));
        excluded.for_each(|(logit, _)| *logit = f32::NEG_INFINITY);
        text.push(sampler.sample(&logits, &text).unwrap());
    }
    text.split_off(prompt.len())
}

fn ways() -> Vec<Sampling> {
    let hot = |temperature| Sampling { temperature, ..Sampling::default() };
    let counted = |temperature| Sampling { frequency_penalty: Some(0.6), ..hot(temperature) };
    vec![
        hot(0.0),
        hot(0.05),
        hot(1.0),
        counted(0.0),
        counted(0.3),
        Sampling { repetition_penalty: Some(1.3), ..hot(0.2) },
        Sampling { top_p: Some(0.8), ..hot(0.2) },
        Sampling { top_k: Some(40), ..hot(0.5) },
        Sampling { top_k: Some(4), min_p: Some(0.1), ..hot(0.5) },
        Sampling { logit_bias: vec![(5, 2.0), (11, 1.5), (50, -1.0)], ..hot(0.0) },
        Sampling { logit_bias: vec![(5, 2.0), (11, 1.5), (50, -1.0)], ..counted(0.3) },
        Sampling { logit_bias: vec![(5, 8.0), (11, 7.0)], top_p: Some(0.9), ..hot(1.0) },
    ]
}

#[test]
fn a_mask_over_a_part_of_a_row_gives_the_token_of_the_whole_row() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    for (number, (way, allows)) in ways().iter().flat_map(|way| MASKS.map(|m| (way, m))).enumerate() {
        let asked: Vec<(Vec<u32>, RequestOptions, Asked)> = (0..8)
            .map(|seed| {
                let sampling = Sampling { seed, ..way.clone() };
                let options = RequestOptions { max_tokens: 20, sampling, ..RequestOptions::default() };
                let prompt = prompt(5, seed + 100 * number as u64);
                let mask = Box::new(Rule { allows, taken: 0 });
                let (request, events) = request(&prompt, options.clone(), Some(mask));
                (prompt, options, Asked { handle: engine.submit(request).unwrap(), events })
            })
            .collect();
        for (prompt, options, asked) in asked {
            let expected = expected_ids(&prompt, &options, allows);
            assert_eq!(asked.answer().ids(), expected, "{way:?}, mask {}", number % MASKS.len());
        }
    }
    let stats = assert_clean(&engine, &watch);
    let reads = watch.lock().unwrap().reads.clone();
    let rows = reads.iter().filter(|columns| **columns == VOCAB).count();
    println!("{} tokens, {} reads of parts, {rows} of rows", stats.generated_tokens, reads.len() - rows);
    assert!(reads.len() > rows && rows > 0 && rows * 3 < stats.generated_tokens as usize, "{rows}");
}

#[test]
fn a_token_that_must_follow_takes_one_logit_at_most() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    for temperature in [0.0, 1.0] {
        let sampling = Sampling { temperature, seed: 5, ..Sampling::default() };
        let options = RequestOptions { max_tokens: 20, sampling, ..RequestOptions::default() };
        let mask = Box::new(Rule { allows: MASKS[3], taken: 0 });
        let (request, events) = request(&prompt(5, 1), options, Some(mask));
        let answer = Asked { handle: engine.submit(request).unwrap(), events }.answer();
        assert_eq!(answer.ids(), (3..23).collect::<Vec<u32>>());
    }
    let reads = watch.lock().unwrap().reads.clone();
    assert!(reads.len() <= 40 && reads.iter().all(|columns| *columns == 1), "{reads:?}");
    assert_clean(&engine, &watch);
}

#[test]
fn log_probabilities_of_a_part_of_a_row_are_those_of_the_whole_row() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    let hot = |temperature| Sampling { temperature, seed: 9, ..Sampling::default() };
    let counted = |temperature| Sampling { frequency_penalty: Some(0.6), ..hot(temperature) };
    let all = |_: usize, _: u32| true;
    for sampling in [hot(0.0), hot(1.0), counted(0.0), counted(1.0)] {
        for allows in [all as Allows, MASKS[2]] {
            let options =
                RequestOptions { max_tokens: 30, sampling: sampling.clone(), ..RequestOptions::default() };
            let mut text = prompt(5, 2);
            let expected = expected_ids(&text, &options, allows);
            let mask: Box<dyn TokenMask> = Box::new(Rule { allows, taken: 0 });
            let mask = Some(mask).filter(|_| allows as usize != all as Allows as usize);
            let (request, events) = request(&text, RequestOptions { logprobs: Some(3), ..options }, mask);
            let answer = Asked { handle: engine.submit(request).unwrap(), events }.answer();
            assert_eq!(answer.ids(), expected, "{sampling:?}");
            for token in &answer.tokens {
                options::assert_logprobs(token, &logits_after(&text, VOCAB), 3);
                text.push(token.id);
            }
        }
    }
    let stats = assert_clean(&engine, &watch);
    let reads = watch.lock().unwrap().reads.clone();
    let rows = reads.iter().filter(|columns| **columns == VOCAB).count();
    println!("{} tokens, {rows} reads of rows", stats.generated_tokens);
    assert!(rows * 3 < stats.generated_tokens as usize, "{rows}");
}
