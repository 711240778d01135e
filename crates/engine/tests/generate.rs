//! Generation on the CPU platform and on a runner of known logits.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tapml_engine::{Finish, GenerateOptions, Generator, Runner, Sampling, Tokenizer, generate_text};
use tapml_exec::{CpuPlatform, Session};
use tapml_graph::{Error, Result};
use tapml_import::safetensors::File;
use tapml_import::{Checkpoint, ImportOptions, LogitRows};
use tapml_testing::golden;

/// Counts up: after a text that ends in `id`, the token `id + 1` is the most likely.
struct Counter {
    fed: Vec<u32>,
    calls: Vec<usize>,
    context: usize,
    fail_at: Option<usize>,
}

impl Counter {
    fn new(context: usize) -> Counter {
        Counter { fed: vec![99], calls: Vec::new(), context, fail_at: None }
    }
}

impl Runner for Counter {
    fn reset(&mut self) -> Result<()> {
        self.fed.clear();
        Ok(())
    }

    fn forward(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        self.calls.push(ids.len());
        self.fed.extend_from_slice(ids);
        if self.fail_at == Some(self.calls.len()) {
            return Err(Error::invalid("the plug was pulled"));
        }
        assert!(self.fed.len() <= self.context, "the context overflows");
        let next = self.fed.last().unwrap() + 1;
        Ok((0..100).map(|id| if id == next { 1.0 } else { 0.0 }).collect())
    }

    fn context(&self) -> usize {
        self.context
    }

    fn position(&self) -> usize {
        self.fed.len()
    }
}

fn options(max_tokens: usize) -> GenerateOptions {
    GenerateOptions { max_tokens, ..GenerateOptions::default() }
}

fn go_on(_: u32) -> Result<ControlFlow<()>> {
    Ok(ControlFlow::Continue(()))
}

#[test]
fn ends_by_length_stop_token_context_and_wish() {
    let mut generator = Generator::new(Counter::new(10));
    let result = generator.generate(&[5, 6], &options(3), &mut go_on).unwrap();
    assert_eq!((result.ids.as_slice(), result.finish), (&[7, 8, 9][..], Finish::Length));
    assert_eq!((result.prompt_tokens, result.cached_tokens), (2, 0));

    let stop = GenerateOptions { stop_ids: vec![8], ..options(9) };
    let result = generator.generate(&[6], &stop, &mut go_on).unwrap();
    assert_eq!((result.ids.as_slice(), result.finish), (&[7, 8][..], Finish::Stop));

    // The tenth position is fed, and one more token comes out behind it.
    let result = generator.generate(&[1; 8], &options(50), &mut go_on).unwrap();
    assert_eq!((result.ids.as_slice(), result.finish), (&[2, 3, 4][..], Finish::Context));

    let mut seen = Vec::new();
    let mut twice = |id| {
        seen.push(id);
        Ok(if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    let result = generator.generate(&[40], &options(9), &mut twice).unwrap();
    assert_eq!((result.ids.as_slice(), result.finish), (&[41, 42][..], Finish::Cancelled));
    assert_eq!(seen, [41, 42]);
    assert!(generator.generate(&[1], &options(0), &mut go_on).unwrap().ids.is_empty());
}

#[test]
fn a_prompt_that_goes_on_feeds_only_what_is_new() {
    let mut generator = Generator::new(Counter::new(50));
    generator.generate(&[5, 6], &options(3), &mut go_on).unwrap();
    // Fed so far: 5 6 7 8. The last token, 9, was never fed.
    let result = generator.generate(&[5, 6, 7, 8, 9, 20], &options(1), &mut go_on).unwrap();
    assert_eq!((result.cached_tokens, result.ids.as_slice()), (4, &[21][..]));
    assert_eq!(generator.runner().calls, [2, 1, 1, 2]);
    let other = generator.generate(&[5, 7], &options(1), &mut go_on).unwrap();
    assert_eq!((other.cached_tokens, other.ids[0]), (0, 8));
    // The same prompt again: its last token must be fed to get logits, so that nothing can be kept.
    assert_eq!(generator.generate(&[5, 7], &options(1), &mut go_on).unwrap().cached_tokens, 0);
}

#[test]
fn bad_prompts_and_options_are_refused_before_anything_runs() {
    let mut generator = Generator::new(Counter::new(4));
    let error = generator.generate(&[], &options(1), &mut go_on).unwrap_err();
    assert!(error.to_string().contains("no tokens"));
    let error = generator.generate(&[1; 5], &options(1), &mut go_on).unwrap_err();
    assert_eq!(error.to_string(), "the prompt has 5 tokens, the context holds 4");
    assert!(error.hint().is_some());
    let sampling = Sampling { temperature: -1.0, ..Sampling::default() };
    assert!(generator.generate(&[1], &GenerateOptions { sampling, ..options(1) }, &mut go_on).is_err());
    assert!(generator.runner().calls.is_empty());
}

#[test]
fn after_a_failure_the_cache_is_not_trusted() {
    let mut generator = Generator::new(Counter { fail_at: Some(2), ..Counter::new(9) });
    let error = generator.generate(&[5], &options(3), &mut go_on).unwrap_err();
    assert!(error.to_string().contains("plug"));
    let result = generator.generate(&[5, 6], &options(1), &mut go_on).unwrap();
    assert_eq!((result.cached_tokens, result.ids.as_slice()), (0, &[7][..]));
    let error =
        generator.generate(&[5, 6, 7], &options(1), &mut |_| Err(Error::invalid("no more"))).unwrap_err();
    assert_eq!(error.to_string(), "no more");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn draft() -> (Tokenizer, Generator<Session>) {
    let dir = root().join("models/llama_draft");
    let options = ImportOptions { logits: LogitRows::Last, ..ImportOptions::default() };
    let checkpoint = Checkpoint::open_with(&dir, &options).unwrap();
    let session = Session::new(&mut CpuPlatform::new(), checkpoint.model(), checkpoint.context()).unwrap();
    (Tokenizer::open(&dir).unwrap(), Generator::new(session))
}

#[test]
fn greedy_text_is_that_of_transformers_and_streams_in_pieces() {
    let golden = File::open(&golden("llama_draft").join("golden.safetensors")).unwrap();
    let prompts: Vec<String> = serde_json::from_str(&golden.metadata()["prompts"]).unwrap();
    let (tokenizer, mut generator) = draft();
    for (i, prompt) in prompts.iter().enumerate() {
        let expected = golden.tensor(&format!("p{i}.greedy_ids")).unwrap().to_f64();
        let ids = tokenizer.encode(prompt).unwrap();
        let mut pieces = Vec::new();
        let mut on_text = |piece: &str| {
            pieces.push(piece.to_string());
            ControlFlow::Continue(())
        };
        let options = options(expected.len());
        let result = generate_text(&mut generator, &tokenizer, &ids, &options, &[], &mut on_text).unwrap();
        let found: Vec<f64> = result.generation.ids.iter().map(|&id| f64::from(id)).collect();
        assert_eq!(found, expected, "{prompt}");
        assert_eq!(result.text, tokenizer.decode(&result.generation.ids).unwrap());
        assert_eq!(result.text, pieces.concat());
        assert!(pieces.len() > 20, "{pieces:?}");
    }
}

#[test]
fn seeds_decide_what_is_sampled() {
    let (tokenizer, mut generator) = draft();
    let ids = tokenizer.encode("The old man").unwrap();
    let mut draw = |seed| {
        let sampling =
            Sampling { temperature: 1.0, top_k: Some(50), top_p: Some(0.95), seed, ..Sampling::default() };
        generator.generate(&ids, &GenerateOptions { sampling, ..options(16) }, &mut go_on).unwrap().ids
    };
    assert_eq!(draw(3), draw(3));
    assert_ne!(draw(3), draw(4));
}

#[test]
fn stop_texts_cut_the_text_and_end_the_generation() {
    let (tokenizer, mut generator) = draft();
    let ids = tokenizer.encode("The old man").unwrap();
    let mut quiet = |_: &str| ControlFlow::Continue(());
    let whole = generate_text(&mut generator, &tokenizer, &ids, &options(24), &[], &mut quiet).unwrap();
    let words: Vec<&str> = whole.text.split(' ').filter(|w| w.len() > 2).collect();
    let stops = [words[2].to_string()];
    let cut = generate_text(&mut generator, &tokenizer, &ids, &options(24), &stops, &mut quiet).unwrap();
    assert_eq!(cut.text, whole.text[..whole.text.find(&stops[0]).unwrap()]);
    assert_eq!(cut.generation.finish, Finish::Stop);
    assert!(cut.generation.ids.len() < whole.generation.ids.len());

    let mut end = |_: &str| ControlFlow::Break(());
    let none = generate_text(&mut generator, &tokenizer, &ids, &options(24), &[], &mut end).unwrap();
    assert_eq!(none.generation.finish, Finish::Cancelled);
    assert_eq!(none.generation.ids.len(), 1);
}

#[test]
fn a_prompt_longer_than_the_context_is_refused() {
    let (_, mut generator) = draft();
    let error = generator.generate(&[5; 513], &options(1), &mut go_on).unwrap_err();
    assert_eq!(error.to_string(), "the prompt has 513 tokens, the context holds 512");
}
