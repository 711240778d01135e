//! Every architecture that leaves caches or states, served: several texts at once in chunks, with prefix hits and with
//! preemption, give the tokens that each text has alone.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod asking;
mod models;

use asking::Placed;
use models::{load, load_distinct};
use std::collections::BTreeMap;
use std::path::Path;
use tapml_engine::{
    BatchLimits, BatchRunner, DraftModel, Engine, EngineOptions, NgramOptions, PagedRunner, PlatformEncoder,
    Usage,
};
use tapml_exec::{CpuPlatform, Interface, Session};
use tapml_graph::{Model, Result};
use tapml_import::{Checkpoint, ImportOptions};

const LIMITS: BatchLimits = BatchLimits {
    page: 8,
    pages: 120,
    rows: 24,
    sequences: 4,
    context: 64,
    vocab: 0,
    states: 64,
    length_limit: None,
    window: None,
};
/// Pages for little more than one text.
const NARROW: BatchLimits = BatchLimits { pages: 11, states: 5, ..LIMITS };
const NEW_TOKENS: usize = 10;

fn name(folder: &Path) -> String {
    folder.file_name().unwrap().to_string_lossy().into_owned()
}

/// What a model says alone after a prompt: the most likely token each time.
fn text_alone(model: &Model, prompt: &[u32]) -> Vec<u32> {
    tokens_alone(model, prompt, NEW_TOKENS)
}

/// So many tokens that a model says alone.
fn tokens_alone(model: &Model, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut session = Session::new(&mut CpuPlatform::new(), model, LIMITS.context).unwrap();
    let mut logits = session.forward(prompt).unwrap();
    let mut tokens = Vec::new();
    while tokens.len() < count {
        let values = logits.to_f32();
        let last = &values[values.len() - logits.row_len()..];
        let greatest = last.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let token = last.iter().position(|&value| value == greatest).unwrap() as u32;
        tokens.push(token);
        logits = session.forward(&[token]).unwrap();
    }
    tokens
}

/// The answers to these prompts, all asked at once.
fn answers(engine: &Engine, prompts: &[Vec<u32>]) -> Vec<(Vec<u32>, Usage)> {
    let prompts: Vec<Placed> = prompts.iter().map(|ids| (ids.clone(), Vec::new())).collect();
    asking::answers(engine, &prompts.iter().collect::<Vec<_>>(), NEW_TOKENS)
}

fn start(model: &Model, limits: BatchLimits) -> Engine {
    let runner = PagedRunner::new(&mut CpuPlatform::new(), model, limits).unwrap();
    Engine::start(Box::new(runner), EngineOptions::default()).unwrap()
}

/// Tokens of a prompt that a second request for it finds.
fn sharable(prompt: &[u32]) -> usize {
    (prompt.len() - 1) / LIMITS.page * LIMITS.page
}

#[test]
fn served_texts_are_those_of_each_alone() {
    let models = load_distinct(tapml_testing::goldens());
    assert!(models.len() > 35, "{}", models.len());
    for (folder, model) in models {
        let name = name(&folder);
        let vocab = Interface::from_graph(model.graph()).unwrap().vocab().unwrap_or(60) as u32;
        let id = |at: u32, seed: u32| (seed * 7919 + at * 104_729 + at * at * 31) % vocab;
        let base: Vec<u32> = (0..37).map(|at| id(at, 1)).collect();
        let branch: Vec<u32> = base[..20].iter().copied().chain((0..9).map(|at| id(at, 2))).collect();
        let prompts = [base.clone(), branch, base[..29].to_vec(), (0..5).map(|at| id(at, 3)).collect()];
        let alone: Vec<Vec<u32>> = prompts.iter().map(|prompt| text_alone(&model, prompt)).collect();

        let engine = start(&model, LIMITS);
        for round in 0..2 {
            let found = answers(&engine, &prompts);
            for ((prompt, alone), (tokens, usage)) in prompts.iter().zip(&alone).zip(&found) {
                assert_eq!(tokens, alone, "{name}, round {round}, a prompt of {} tokens", prompt.len());
                // Of what was computed before, all full pages are found.
                assert!(round == 0 || usage.cached_tokens == sharable(prompt), "{name}: {usage:?}");
            }
        }
        // The next turn of a conversation begins with the answer before.
        let next: Vec<u32> = base.iter().chain(&alone[0]).copied().chain([id(5, 4)]).collect();
        let (tokens, usage) = answers(&engine, std::slice::from_ref(&next)).remove(0);
        assert_eq!(tokens, text_alone(&model, &next), "{name}, the next turn");
        let depends = model.graph().length_limit().is_some_and(|limit| next.len() > limit as usize);
        assert!(depends || usage.cached_tokens >= 40, "{name}, the next turn: {usage:?}");
        assert_eq!(engine.stats().pages_used, 0, "{name}");

        // With little memory texts give up what they have, and are computed anew.
        let engine = start(&model, NARROW);
        for (tokens, alone) in answers(&engine, &prompts).iter().zip(&alone) {
            assert_eq!(tokens.0, *alone, "{name}, with few pages");
        }
    }
}

/// Long texts at once in few pages, and how often one of them gave its pages up.
fn long_texts(name: &str, pages: usize) -> u64 {
    let model = load(&tapml_testing::golden(name));
    let prompt = |seed: u32| -> Vec<u32> { (0..20).map(|at| (seed * 13 + at * 7 + at * at) % 60).collect() };
    let prompts: Vec<Placed> = (1..4).map(|seed| (prompt(seed), Vec::new())).collect();
    let engine = start(&model, BatchLimits { pages, rows: 8, sequences: 3, ..LIMITS });
    let found = asking::answers(&engine, &prompts.iter().collect::<Vec<_>>(), 40);
    for ((prompt, _), (tokens, _)) in prompts.iter().zip(&found) {
        assert_eq!(*tokens, tokens_alone(&model, prompt, 40), "{name}, {pages} pages");
    }
    let stats = engine.stats();
    assert_eq!(stats.pages_used, 0, "{name}");
    stats.preemptions
}

/// Each text has 60 tokens, which are eight pages. Of a window of 7 tokens and steps of 8 rows it holds no more than four.
#[test]
fn pages_in_front_of_a_window_are_free_for_other_texts() {
    for name in ["mistral_tiny", "phi3_tiny", "starcoder2_tiny"] {
        assert_eq!(long_texts(name, 12), 0, "{name}");
        assert!(long_texts(name, 8) > 0, "{name}");
    }
    // Where one layer sees all, nothing comes back before a text ends.
    for name in ["llama_tiny_plain", "gemma2_tiny"] {
        assert!(long_texts(name, 12) > 0, "{name}");
    }
}

#[test]
fn a_small_model_with_a_window_guesses() {
    let model = load(&tapml_testing::golden("mistral_tiny"));
    let runner = || Box::new(PagedRunner::new(&mut CpuPlatform::new(), &model, LIMITS).unwrap());
    let draft = DraftModel { runner: runner(), tokens: 4, requests: 4, replace: None };
    let engine = Engine::start_with_draft(runner(), Some(draft), EngineOptions::default()).unwrap();
    let prompts: Vec<Vec<u32>> =
        (1..4).map(|seed| (0..20).map(|at| (seed * at + at * at) % 60).collect()).collect();
    let asked: Vec<Placed> = prompts.iter().map(|prompt| (prompt.clone(), Vec::new())).collect();
    let found = asking::answers(&engine, &asked.iter().collect::<Vec<_>>(), 40);
    for (prompt, (tokens, _)) in prompts.iter().zip(&found) {
        assert_eq!(*tokens, tokens_alone(&model, prompt, 40));
    }
    // The model guesses itself, so that only guesses behind a text's end are in vain.
    let stats = engine.stats();
    assert!(stats.accepted_tokens > 60 && stats.accepted_tokens * 4 >= stats.draft_tokens * 3, "{stats:?}");
}

/// What is served of a model.
fn served_as(model: &Model) -> Result<&'static str> {
    let mut platform = CpuPlatform::new();
    if !Interface::from_graph(model.graph())?.has_logits() {
        return PlatformEncoder::new(&mut platform, model, LIMITS.context).map(|_| "vectors");
    }
    let runner = PagedRunner::new(&mut platform, model, LIMITS)?;
    Ok(if runner.image_limits().is_some() { "text, images seen" } else { "text" })
}

/// The page of architectures is made of this list. The texts are checked above.
#[test]
fn every_architecture_is_served_as_the_list_says() {
    let mut served = BTreeMap::new();
    let folders = tapml_testing::goldens().into_iter().filter(|folder| folder.join("config.json").exists());
    for folder in folders {
        let checkpoint = Checkpoint::open_with(&folder, &ImportOptions::default()).unwrap();
        let found = match served_as(checkpoint.model()) {
            Ok(found) => found.to_string(),
            Err(error) => format!("refused: {error}"),
        };
        let before = served.insert(checkpoint.model_type(), found.clone());
        assert!(before.is_none_or(|before| before == found), "{}: {found}", name(&folder));
    }
    let lines: String = served.iter().map(|(kind, served)| format!("{kind}: {served}\n")).collect();
    tapml_testing::expect_file("crates/engine/tests/models/served.txt", &lines);
}

#[test]
fn recurrent_models_take_no_guesses() {
    let model = load(&tapml_testing::golden("rwkv7_tiny"));
    let runner = || Box::new(PagedRunner::new(&mut CpuPlatform::new(), &model, LIMITS).unwrap());
    let options = EngineOptions { ngram: Some(NgramOptions::default()), ..EngineOptions::default() };
    let error = Engine::start(runner(), options).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("cannot take guessed tokens back"), "{error}");
    let error = PagedRunner::new(&mut CpuPlatform::new(), &model, BatchLimits { states: 1, ..LIMITS });
    let error = error.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("at least 2 slots"), "{error}");
}
