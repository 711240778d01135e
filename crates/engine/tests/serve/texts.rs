//! The text of a request does not depend on who else is served, nor on pages, chunks and preemptions.

use super::*;
use model::expected_text;
use tapml_engine::SubmitError;

const TOKENS: usize = 24;

/// Serves prompts at once and asserts that each text is that of the model alone.
pub fn assert_answers(engine: &Engine, limits: &BatchLimits, prompts: &[Vec<u32>]) {
    let asked: Vec<Asked> =
        prompts.iter().zip(0..).map(|(prompt, n)| ask(engine, prompt, request_options(TOKENS, n))).collect();
    for ((asked, prompt), n) in asked.into_iter().zip(prompts).zip(0..) {
        let answer = asked.answer();
        assert_eq!(answer.ids(), expected_text(prompt, &request_options(TOKENS, n), limits), "request {n}");
        assert_eq!(answer.finish(), Finish::Length);
        let usage = answer.usage();
        assert_eq!((usage.prompt_tokens, usage.new_tokens), (prompt.len(), TOKENS));
    }
}

fn assert_texts(limits: BatchLimits, options: EngineOptions, prompts: &[Vec<u32>]) -> EngineStats {
    let (engine, watch) = start(limits, options);
    assert_answers(&engine, &limits, prompts);
    assert_clean(&engine, &watch)
}

pub fn prompts(count: u64) -> Vec<Vec<u32>> {
    (0..count).map(|n| prompt(1 + (n as usize * 37) % 100, n)).collect()
}

#[test]
fn a_request_alone_says_what_the_model_says() {
    for n in 0..6 {
        assert_texts(LIMITS, EngineOptions::default(), &[prompt(1 + 17 * n, n as u64)]);
    }
}

#[test]
fn sixty_four_at_once_say_what_each_says_alone() {
    let stats = assert_texts(LIMITS, EngineOptions::default(), &prompts(64));
    assert_eq!(stats.generated_tokens, 64 * TOKENS as u64);
    assert!(stats.steps < 64 * TOKENS as u64 / 4, "few steps are shared: {stats:?}");
}

#[test]
fn chunks_do_not_change_the_text() {
    for rows in [1, 2, 3, 7, 16, 500] {
        let limits = BatchLimits { rows, ..LIMITS };
        assert_texts(limits, EngineOptions::default(), &prompts(12));
        let options = EngineOptions { prompt_rows: Some(5), ..EngineOptions::default() };
        assert_texts(limits, options, &prompts(12));
    }
}

#[test]
fn preemptions_do_not_change_the_text() {
    for pages in [31, 40, 60, 100] {
        let limits = BatchLimits { pages, ..LIMITS };
        let stats = assert_texts(limits, EngineOptions::default(), &prompts(40));
        assert!(stats.preemptions > 0, "{pages} pages are enough");
        let options = EngineOptions { prefix_cache: false, ..EngineOptions::default() };
        assert_texts(limits, options, &prompts(40));
    }
}

#[test]
fn shared_prefixes_do_not_change_the_text_and_are_computed_once() {
    // All begin with the same 80 tokens; the first one ends there.
    let begin = prompt(80, 1);
    let prompts: Vec<Vec<u32>> =
        (0..30).map(|n| [begin.clone(), prompt(n as usize % 7, n)].concat()).collect();
    for pages in [31, 64, 256] {
        let limits = BatchLimits { pages, ..LIMITS };
        let stats = assert_texts(limits, EngineOptions::default(), &prompts);
        if pages == 256 {
            // Twenty pages, of which the prompt of 80 tokens computes the last one itself.
            let least = 29 * 76;
            assert!(stats.prefix_hits >= least, "{stats:?}");
            assert_eq!(stats.prefix_queries, prompts.iter().map(Vec::len).sum::<usize>() as u64);
        }
        let off = EngineOptions { prefix_cache: false, ..EngineOptions::default() };
        assert_eq!(assert_texts(limits, off, &prompts).prefix_hits, 0);
    }
}

#[test]
fn several_answers_to_one_prompt_share_its_pages() {
    let (engine, watch) = start(LIMITS, EngineOptions { queue: 8, ..EngineOptions::default() });
    let prompt = prompt(90, 2);
    let all = |count: u64| (0..count).map(|n| request(&prompt, request_options(12, 2 * n + 1), None)).unzip();
    let (requests, events): (Vec<Request>, Vec<Receiver<RequestEvent>>) = all(8);
    let handles = engine.submit_all(requests).unwrap();
    for ((handle, events), n) in handles.into_iter().zip(events).zip(0..) {
        let answer = Asked { handle, events }.answer();
        assert_eq!(answer.ids(), expected_text(&prompt, &request_options(12, 2 * n + 1), &LIMITS));
        assert_eq!(answer.usage().cached_tokens, if n == 0 { 0 } else { 88 });
    }
    let stats = assert_clean(&engine, &watch);
    let (requests, events): (Vec<Request>, Vec<Receiver<RequestEvent>>) = all(9);
    assert!(matches!(engine.submit_all(requests), Err(SubmitError::QueueFull(_))));
    assert!(events.iter().all(|events| events.recv().is_err()), "a refused request is told something");
    assert_eq!(engine.stats(), stats);
}

#[test]
fn a_conversation_goes_on_from_the_pages_of_its_answer() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    let first = prompt(10, 5);
    let answer = ask(&engine, &first, request_options(30, 0)).answer();
    assert_eq!(answer.usage().cached_tokens, 0);
    let second = [first, answer.ids(), prompt(3, 6)].concat();
    let again = ask(&engine, &second, request_options(8, 0)).answer();
    // The last token of the answer was never computed.
    assert_eq!(again.usage().cached_tokens, 36);
    assert_eq!(again.ids(), expected_text(&second, &request_options(8, 0), &LIMITS));
    // Another salt shares nothing.
    let salted = RequestOptions { cache_salt: Some("b".into()), ..request_options(8, 0) };
    let other = ask(&engine, &second, salted).answer();
    assert_eq!((other.usage().cached_tokens, other.ids()), (0, again.ids()));
    assert_clean(&engine, &watch);
}

#[test]
fn long_service_in_few_pages_keeps_texts_right() {
    let mut random = fastrand::Rng::with_seed(3);
    let limits = BatchLimits { pages: 70, sequences: 9, ..LIMITS };
    let (engine, watch) = start(limits, EngineOptions::default());
    let stems: Vec<Vec<u32>> = (0..4).map(|n| prompt(40, n)).collect();
    for _ in 0..20 {
        let prompts: Vec<Vec<u32>> = (0..16)
            .map(|_| {
                [&stems[random.usize(0..4)][..random.usize(1..40)], &prompt(random.usize(0..20), 9)].concat()
            })
            .collect();
        let asked: Vec<Asked> = prompts
            .iter()
            .zip(0..)
            .map(|(p, n)| ask(&engine, p, request_options(1 + n as usize * 3, n)))
            .collect();
        for ((asked, prompt), n) in asked.into_iter().zip(&prompts).zip(0..) {
            let expected = expected_text(prompt, &request_options(1 + n as usize * 3, n), &limits);
            assert_eq!(asked.answer().ids(), expected);
        }
    }
    let stats = assert_clean(&engine, &watch);
    assert!(stats.preemptions > 0 && stats.prefix_hits > 0, "{stats:?}");
}
