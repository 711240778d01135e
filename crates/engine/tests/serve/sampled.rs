//! Tokens that are drawn from the most likely ones and from sums: those that the whole row would give, and its distribution.

use super::*;
use model::{expected_text, logits_after};
use tapml_engine::Sampling;

const VOCAB: usize = LIMITS.vocab;

/// Ways to draw that the most likely tokens and the sums serve.
fn ways() -> Vec<Sampling> {
    let hot = |temperature| Sampling { temperature, ..Sampling::default() };
    vec![
        hot(1.0),
        hot(0.05),
        hot(3.0),
        Sampling { top_p: Some(0.5), ..hot(0.7) },
        Sampling { top_p: Some(0.95), ..hot(0.3) },
        Sampling { min_p: Some(0.2), ..hot(1.0) },
        Sampling { top_p: Some(0.8), min_p: Some(0.1), ..hot(0.5) },
        Sampling { top_k: Some(4), ..hot(1.0) },
        Sampling { top_k: Some(40), ..hot(1.0) },
        Sampling { top_k: Some(4), top_p: Some(0.6), ..hot(1.0) },
    ]
}

/// Ways whose logits depend on the text, or are not the model's.
fn penalty_ways() -> Vec<Sampling> {
    let hot = |temperature| Sampling { temperature, ..Sampling::default() };
    let one = |temperature| Sampling { repetition_penalty: Some(1.4), ..hot(temperature) };
    let more = |temperature| Sampling {
        frequency_penalty: Some(0.6),
        presence_penalty: Some(0.3),
        ..hot(temperature)
    };
    let all = |temperature| Sampling { logit_bias: vec![(5, -2.0)], ..more(temperature) };
    let cut = |sampling| Sampling { top_p: Some(0.8), ..sampling };
    let few = |sampling| Sampling { top_k: Some(3), ..sampling };
    let raised = |temperature| Sampling {
        logit_bias: vec![(5, 2.0)],
        repetition_penalty: Some(0.8),
        ..hot(temperature)
    };
    let few_raised = |temperature| Sampling { logit_bias: vec![(5, 2.0), (9, 1.0)], ..more(temperature) };
    let each = |temperature| {
        [one(temperature), more(temperature), all(temperature), raised(temperature), few_raised(temperature)]
    };
    let mut ways: Vec<Sampling> = [0.0, 0.05, 0.3, 1.0].into_iter().flat_map(each).collect();
    ways.extend([cut(one(0.1)), cut(more(0.5)), few(more(1.0)), few(all(0.5))]);
    ways.push(Sampling { min_p: Some(0.1), ..more(0.5) });
    ways
}

#[test]
fn a_part_of_a_row_gives_the_token_of_the_whole_row() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    for (number, way) in ways().into_iter().chain(penalty_ways()).enumerate() {
        let asked: Vec<(Vec<u32>, RequestOptions, Asked)> = (0..24)
            .map(|seed| {
                let sampling = Sampling { seed, ..way.clone() };
                let options = RequestOptions { max_tokens: 30, sampling, ..RequestOptions::default() };
                let prompt = prompt(5, seed + 100 * number as u64);
                let asked = ask(&engine, &prompt, options.clone());
                (prompt, options, asked)
            })
            .collect();
        for (prompt, options, asked) in asked {
            assert_eq!(asked.answer().ids(), expected_text(&prompt, &options, &LIMITS), "{way:?}");
        }
    }
    let stats = assert_clean(&engine, &watch);
    let reads = watch.lock().unwrap().reads.clone();
    // Of tokens that are all but equally likely, many lie behind the first ones; parts are read more often than rows.
    let (rows, parts): (Vec<usize>, Vec<usize>) = reads.iter().partition(|&&columns| columns == VOCAB);
    println!("{} tokens, {} reads of parts, {} of rows", stats.generated_tokens, parts.len(), rows.len());
    assert!(!parts.is_empty() && !rows.is_empty(), "every way is taken");
}

#[test]
fn a_peaked_row_is_never_read() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    let cold = Sampling { temperature: 0.02, top_p: Some(0.9), seed: 3, ..Sampling::default() };
    let greedy =
        Sampling { repetition_penalty: Some(1.01), presence_penalty: Some(0.1), ..Sampling::default() };
    let penalised = Sampling { presence_penalty: Some(0.01), ..cold.clone() };
    for sampling in [cold, greedy, penalised] {
        let options = RequestOptions { max_tokens: 100, sampling, ..RequestOptions::default() };
        assert_eq!(ask(&engine, &prompt(3, 3), options.clone()).answer().ids().len(), 100);
    }
    let reads = watch.lock().unwrap().reads.clone();
    assert!(reads.is_empty(), "{reads:?}");
    assert_clean(&engine, &watch);
}

#[test]
fn logits_that_cannot_be_read_are_computed_again() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    watch.lock().unwrap().read_failures = vec![1, 20, 60];
    let options = |seed| RequestOptions {
        max_tokens: 24,
        sampling: Sampling { temperature: 2.0, seed, ..Sampling::default() },
        ..RequestOptions::default()
    };
    let asked: Vec<Asked> = (0..8).map(|n| ask(&engine, &prompt(7, n), options(n))).collect();
    for (asked, n) in asked.into_iter().zip(0..) {
        assert_eq!(asked.answer().ids(), expected_text(&prompt(7, n), &options(n), &LIMITS));
    }
    let stats = assert_clean(&engine, &watch);
    assert_eq!((stats.failed_steps, watch.lock().unwrap().resets), (3, 3));
}

/// How often each token of a small vocabulary is drawn, against the softmax of the model's logits with its cuts, worked out
/// in another way.
#[test]
fn draws_of_a_part_have_the_distribution_of_the_whole_row() {
    const DRAWS: u64 = 40_000;
    let limits = BatchLimits { sequences: 64, rows: 512, pages: 1024, ..LIMITS };
    for way in ways() {
        let prompt = [7, 1, 3];
        let logits = logits_after(&prompt, VOCAB);
        let temperature = f64::from(way.temperature);
        let mut order: Vec<usize> = (0..VOCAB).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        order.truncate(way.top_k.unwrap_or(VOCAB));
        let weight = |id: usize| (f64::from(logits[id] - logits[order[0]]) / temperature).exp();
        let total: f64 = order.iter().map(|&id| weight(id)).sum();
        let mut sum = 0.0;
        let mut kept: Vec<usize> = Vec::new();
        for &id in &order {
            let is_likely = way.min_p.is_none_or(|least| weight(id) >= f64::from(least));
            if is_likely && way.top_p.is_none_or(|share| sum < f64::from(share) * total) {
                kept.push(id);
            }
            sum += weight(id);
        }
        let total: f64 = kept.iter().map(|&id| weight(id)).sum();
        let mut expected = vec![0.0; VOCAB];
        kept.iter().for_each(|&id| expected[id] = DRAWS as f64 * weight(id) / total);
        let (engine, watch) = start(limits, EngineOptions::default());
        let mut counts = vec![0.0; VOCAB];
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..DRAWS / 500 {
            let ask = |_| {
                let sampling = Sampling { seed: random.u64(..), ..way.clone() };
                ask(&engine, &prompt, RequestOptions { max_tokens: 1, sampling, ..RequestOptions::default() })
            };
            let asked: Vec<Asked> = (0..500).map(ask).collect();
            asked.into_iter().for_each(|asked| counts[asked.answer().ids()[0] as usize] += 1.0);
        }
        assert_clean(&engine, &watch);
        println!("{way:?}");
        assert_distribution(&counts, &expected);
    }
}
