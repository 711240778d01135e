//! Speculative decoding does not change texts, and saves steps where guesses are right.

use super::*;
use model::{HashModel, expected_text, logits_after};
use tapml_engine::{DraftModel, NgramOptions, Sampling};
use texts::{assert_answers, prompts};

/// Serves prompts with a small model beside; asserts the texts.
fn assert_drafted(limits: BatchLimits, draft: DraftModel, options: EngineOptions, count: u64) -> EngineStats {
    let (model, watch) = HashModel::new(limits);
    let engine = Engine::start_with_draft(model, Some(draft), options).unwrap();
    assert_answers(&engine, &limits, &prompts(count));
    assert_clean(&engine, &watch)
}

#[test]
fn n_grams_do_not_change_the_text() {
    for (vocab, pages, sequences) in [(2, 256, 4), (3, 256, 16), (3, 40, 16), (5, 256, 1)] {
        let limits = BatchLimits { vocab, pages, sequences, ..LIMITS };
        let prompts: Vec<Vec<u32>> =
            prompts(24).into_iter().map(|p| p.into_iter().map(|id| id % vocab as u32).collect()).collect();
        for tokens in [1, 4, 50] {
            let ngram = Some(NgramOptions { tokens, requests: 12 });
            let (engine, watch) = start(limits, EngineOptions { ngram, ..EngineOptions::default() });
            assert_answers(&engine, &limits, &prompts);
            let stats = assert_clean(&engine, &watch);
            assert!(stats.accepted_tokens > 0 && stats.accepted_tokens < stats.draft_tokens, "{stats:?}");
        }
    }
}

#[test]
fn n_grams_end_with_the_context_and_save_steps() {
    // The text says one token nine times of ten.
    let logit_bias = vec![(3, 7.0)];
    let sampling = Sampling { logit_bias, ..Sampling::default() };
    let options = RequestOptions { max_tokens: 500, sampling, ..RequestOptions::default() };
    let steps = |ngram: Option<NgramOptions>| {
        let (engine, watch) = start(LIMITS, EngineOptions { ngram, ..EngineOptions::default() });
        let answer = ask(&engine, &prompt(20, 1), options.clone()).answer();
        assert_eq!(answer.finish(), Finish::Context);
        assert_eq!(answer.ids(), expected_text(&prompt(20, 1), &options, &LIMITS));
        assert_clean(&engine, &watch).steps
    };
    let (plain, drafted) = (steps(None), steps(Some(NgramOptions::default())));
    assert!(drafted * 2 < plain, "{drafted} steps with drafts, {plain} without");
}

#[test]
fn a_small_model_does_not_change_the_text() {
    let small = BatchLimits { page: 8, pages: 90, rows: 30, sequences: 5, context: 90, ..LIMITS };
    for (limits, noise) in [(LIMITS, 0), (LIMITS, 4), (LIMITS, 1), (BatchLimits { pages: 40, ..LIMITS }, 3)] {
        for draft_limits in [LIMITS, small, BatchLimits { pages: 12, ..small }] {
            let (runner, draft_watch) = HashModel::new_noisy(draft_limits, noise);
            let draft = DraftModel { runner, tokens: 4, requests: 16, replace: None };
            let stats = assert_drafted(limits, draft, EngineOptions::default(), 24);
            assert_eq!(draft_watch.lock().unwrap().violations, Vec::<String>::new());
            if noise == 1 {
                assert!(stats.accepted_tokens * 10 < stats.draft_tokens, "{stats:?}");
            } else {
                assert!(stats.accepted_tokens * 5 > stats.draft_tokens, "{stats:?}");
            }
        }
    }
}

#[test]
fn a_right_small_model_saves_steps() {
    let (runner, _) = HashModel::new(LIMITS);
    let draft = DraftModel { runner, tokens: 4, requests: 16, replace: None };
    let (model, watch) = HashModel::new(LIMITS);
    let engine = Engine::start_with_draft(model, Some(draft), EngineOptions::default()).unwrap();
    let answer = ask(&engine, &prompt(20, 1), request_options(100, 0)).answer();
    assert_eq!(answer.ids(), expected_text(&prompt(20, 1), &request_options(100, 0), &LIMITS));
    let stats = assert_clean(&engine, &watch);
    // The prompt, and then five tokens a step.
    assert!(stats.steps <= 22 && stats.accepted_tokens == stats.draft_tokens, "{stats:?}");
}

#[test]
fn a_small_model_that_fails_is_done_without() {
    for lost in [false, true] {
        let (runner, draft_watch) = HashModel::new(LIMITS);
        draft_watch.lock().unwrap().failures = (3..1000).collect();
        draft_watch.lock().unwrap().lost = lost;
        let draft = DraftModel { runner, tokens: 4, requests: 16, replace: None };
        let stats = assert_drafted(LIMITS, draft, EngineOptions::default(), 24);
        assert_eq!(stats.failed, 0);
        let steps = draft_watch.lock().unwrap().steps.len();
        assert!(steps <= if lost { 3 } else { 6 }, "{steps} steps");
    }
}

#[test]
fn a_small_model_of_another_vocabulary_is_refused() {
    let (runner, _) = HashModel::new(BatchLimits { vocab: 60, ..LIMITS });
    let draft = DraftModel { runner, tokens: 4, requests: 16, replace: None };
    let error = Engine::start_with_draft(HashModel::new(LIMITS).0, Some(draft), EngineOptions::default());
    assert!(error.unwrap_err().to_string().contains("60 tokens"));
}

/// How often each text of three tokens is drawn after a prompt, with guesses that are often wrong. The expected probabilities
/// are those of the model's logits.
#[test]
fn guesses_do_not_change_the_distribution_over_a_million_draws() {
    const TEXTS: u64 = 340_000;
    let limits = BatchLimits { vocab: 4, sequences: 64, rows: 512, pages: 1024, ..LIMITS };
    // Every pair of tokens stands in it, so that there always is a guess.
    let prompt = [0, 0, 1, 0, 2, 0, 3, 1, 1, 2, 1, 3, 2, 2, 3, 3, 0];
    let mut expected = [0.0f64; 64];
    for (code, expected) in expected.iter_mut().enumerate() {
        let tokens = [code / 16, code / 4 % 4, code % 4].map(|token| token as u32);
        *expected = TEXTS as f64;
        let mut text = prompt.to_vec();
        for token in tokens {
            let logits = logits_after(&text, limits.vocab);
            let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
            *expected *= f64::from(logits[token as usize]).exp() / sum;
            text.push(token);
        }
    }
    let ngram = Some(NgramOptions { tokens: 2, requests: 64 });
    let (engine, watch) = start(limits, EngineOptions { ngram, ..EngineOptions::default() });
    let mut counts = [0.0f64; 64];
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..TEXTS / 1000 {
        let ask = |_| {
            let seed = random.u64(..);
            let sampling = Sampling { temperature: 1.0, seed, ..Sampling::default() };
            ask(&engine, &prompt, RequestOptions { max_tokens: 3, sampling, ..RequestOptions::default() })
        };
        let asked: Vec<Asked> = (0..1000).map(ask).collect();
        for asked in asked {
            let ids = asked.answer().ids();
            counts[ids.iter().fold(0, |code, id| code * 4 + *id as usize)] += 1.0;
        }
    }
    let stats = assert_clean(&engine, &watch);
    let wrong = stats.draft_tokens - stats.accepted_tokens;
    assert!(stats.accepted_tokens > TEXTS / 10 && wrong > TEXTS / 10, "{stats:?}");
    println!("{stats:?}");
    assert_distribution(&counts, &expected);
}
