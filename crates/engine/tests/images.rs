//! Models that see, served: chats with images give the tokens that a session gives, alone and beside others, with pages of the
//! prefix cache and without; pages of other images are never taken.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod asking;

use asking::{Placed, answers};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use tapml_engine::{
    BatchLimits, Chat, Engine, EngineOptions, GenerateOptions, Generator, PagedRunner, PlacedImage, Request,
    RequestOptions, SharedImage, Tokenizer, Vision, VisionError, user_message,
};
use tapml_exec::{CpuPlatform, Image, NOWHERE, Session};
use tapml_graph::Tensor;
use tapml_import::{Checkpoint, ImportOptions, LogitRows};

const MODELS: [&str; 3] = ["llava_tiny", "llava_siglip_tiny", "phi3_v_tiny"];
const NEW_TOKENS: usize = 8;

struct Seeing {
    folder: PathBuf,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    vision: Vision,
}

impl Seeing {
    fn open(name: &str) -> Seeing {
        let folder = tapml_testing::golden(name);
        let options = ImportOptions { logits: LogitRows::Last, ..ImportOptions::default() };
        let checkpoint = Checkpoint::open_with(&folder, &options).unwrap();
        let tokenizer = Tokenizer::open(&folder).unwrap();
        let vision = Vision::open(&checkpoint).unwrap().unwrap();
        Seeing { folder, checkpoint, tokenizer, vision }
    }

    fn limits(&self, pages: usize) -> BatchLimits {
        let context = self.checkpoint.context();
        let (page, rows, sequences, vocab) = (8, 24, 4, 0);
        let (length_limit, window) = (None, None);
        BatchLimits { page, pages, rows, sequences, context, vocab, states: 0, length_limit, window }
    }

    fn engine(&self, pages: usize, prefix_cache: bool) -> Engine {
        let platform = &mut CpuPlatform::new();
        let runner = PagedRunner::new(platform, self.checkpoint.model(), self.limits(pages)).unwrap();
        Engine::start(Box::new(runner), EngineOptions { prefix_cache, ..EngineOptions::default() }).unwrap()
    }

    fn file(&self) -> Vec<u8> {
        std::fs::read(self.folder.join("image.png")).unwrap()
    }

    /// What a session says to an image in a file and a question.
    fn text_alone(&self, question: &str) -> (Vec<u32>, Vec<u32>) {
        let message = user_message(self.checkpoint.image(), true, question);
        let chat = Chat::new(&[message]).unwrap();
        let text = self.tokenizer.chat_template().unwrap().render(&chat).unwrap();
        let ids = self.vision.encode(&self.tokenizer, &text, true).unwrap();
        let (ids, image) = self.vision.place_file(&ids, &self.folder.join("image.png")).unwrap();
        let tokens = self.generate(&ids, image);
        (ids, tokens)
    }

    fn generate(&self, ids: &[u32], image: Image) -> Vec<u32> {
        // In one run: rotary embeddings may depend on its length.
        let context = self.checkpoint.context();
        let session = Session::with_chunk(&mut CpuPlatform::new(), self.checkpoint.model(), context, context);
        let mut generator = Generator::new(session.unwrap());
        generator.look_at(Some(image)).unwrap();
        let options = GenerateOptions { max_tokens: NEW_TOKENS, ..GenerateOptions::default() };
        generator.generate(ids, &options, &mut |_| Ok(ControlFlow::Continue(()))).unwrap().ids
    }

    /// The prompt for parts of one message: texts, and `None` for each image.
    fn prompt(&self, parts: &[Option<&str>], files: &[Vec<u8>]) -> Placed {
        let part = |part: &Option<&str>| match part {
            Some(text) => serde_json::json!({ "type": "text", "text": text }),
            None => serde_json::json!({ "type": "image" }),
        };
        let parts: Vec<_> = parts.iter().map(part).collect();
        let messages = vec![serde_json::json!({ "role": "user", "content": parts })];
        let chat = Chat { messages, add_generation_prompt: true, ..Chat::default() };
        let chat = self.vision.prepare_chat(&chat, &self.tokenizer, true).unwrap();
        let text = self.tokenizer.chat_template().unwrap().render(&chat).unwrap();
        let ids = self.vision.encode_chat(&self.tokenizer, &text, files.len()).unwrap();
        self.vision.place_images(&ids, files, self.checkpoint.context()).unwrap()
    }
}

/// The same prompt with another picture, all of whose pixels are one value.
fn with_other_pixels((ids, images): &Placed, value: f32) -> Placed {
    let other = |placed: &PlacedImage| {
        let shape = placed.image.pixels().shape().to_vec();
        let pixels = Tensor::from_f32(shape.clone(), vec![value; shape.iter().product()]).unwrap();
        PlacedImage { image: Arc::new(SharedImage::new(pixels)), ..placed.clone() }
    };
    (ids.clone(), images.iter().map(other).collect())
}

/// A prompt's image as a session takes it: one picture, whose rows stand wherever one of the prompt's images does.
fn as_one((ids, images): &Placed) -> Image {
    let mut slots = vec![NOWHERE; ids.len()];
    for placed in images {
        slots[placed.tokens()].copy_from_slice(&placed.rows);
    }
    Image { pixels: images[0].image.pixels().clone(), slots }
}

#[test]
fn texts_with_images_are_those_of_a_session() {
    for name in MODELS {
        let model = Seeing::open(name);
        let question = "what is this";
        let (ids, alone) = model.text_alone(question);
        let prompt = model.prompt(&[None, Some(question)], &[model.file()]);
        assert_eq!(prompt.0, ids, "{name}: the prompt is that of a session");
        let other = with_other_pixels(&prompt, -0.7);
        let other_alone = model.generate(&other.0, as_one(&other));
        let blind = (ids[..3].to_vec(), Vec::new());
        let blind_alone =
            model.generate(&blind.0, Image { slots: vec![], pixels: prompt.1[0].image.pixels().clone() });
        for prefix_cache in [true, false] {
            // With few pages texts give up what they have, and are computed anew.
            for pages in [64, ids.len().div_ceil(8) + 5] {
                let pages = pages.max(model.checkpoint.context().div_ceil(8));
                let engine = model.engine(pages, prefix_cache);
                let (tokens, _) = answers(&engine, &[&prompt], NEW_TOKENS).remove(0);
                assert_eq!(tokens, alone, "{name}, {pages} pages");
                for round in 0..2 {
                    let found = answers(&engine, &[&other, &blind, &prompt, &other], NEW_TOKENS);
                    let expected = [&other_alone, &blind_alone, &alone, &other_alone];
                    for ((tokens, _), expected) in found.iter().zip(expected) {
                        assert_eq!(tokens, expected, "{name}, {pages} pages, round {round}");
                    }
                    let cached = found[2].1.cached_tokens;
                    let sharable = (ids.len() - 1) / 8 * 8;
                    assert!(prefix_cache || cached == 0, "{name}");
                    assert!(!prefix_cache || pages < 64 || cached == sharable, "{name}: {cached} tokens");
                    assert_eq!(found[2].1.prompt_tokens, ids.len());
                }
                assert_eq!(engine.stats().pages_used, 0, "{name}");
            }
        }
    }
}

#[test]
fn pages_of_another_image_are_not_taken() {
    let model = Seeing::open("llava_tiny");
    let prompt = model.prompt(&[None, Some("what is this")], &[model.file()]);
    let engine = model.engine(64, true);
    answers(&engine, &[&prompt], NEW_TOKENS);
    let (_, usage) = answers(&engine, &[&with_other_pixels(&prompt, 0.3)], NEW_TOKENS).remove(0);
    assert_eq!(usage.cached_tokens, 0, "the first page holds rows of the image");
    let (_, usage) = answers(&engine, &[&(prompt.0.clone(), Vec::new())], NEW_TOKENS).remove(0);
    assert_eq!(usage.cached_tokens, 0, "tokens that stand for no image");
    let (_, usage) = answers(&engine, &[&prompt], NEW_TOKENS).remove(0);
    assert_eq!(usage.cached_tokens, (prompt.0.len() - 1) / 8 * 8);
}

#[test]
fn several_images_stand_where_they_are_named() {
    for name in ["llava_tiny", "phi3_v_tiny"] {
        let model = Seeing::open(name);
        let file = model.file();
        let twice = model.prompt(&[Some("a"), None, Some("b"), None, Some("c")], &[file.clone(), file]);
        assert_eq!(twice.1.len(), 2, "{name}");
        let alone = model.generate(&twice.0, as_one(&twice));
        let mut mixed = twice.clone();
        mixed.1[1] = with_other_pixels(&twice, 0.9).1.remove(1);
        let mut swapped = mixed.clone();
        (swapped.1[0].image, swapped.1[1].image) = (mixed.1[1].image.clone(), mixed.1[0].image.clone());
        let engine = model.engine(64, true);
        let found = answers(&engine, &[&twice, &mixed, &swapped], NEW_TOKENS);
        assert_eq!(found[0].0, alone, "{name}");
        let apart = model.engine(64, false);
        for (prompt, (tokens, _)) in [&twice, &mixed, &swapped].into_iter().zip(&found) {
            assert_eq!(answers(&apart, &[prompt], NEW_TOKENS).remove(0).0, *tokens, "{name}");
        }
        let second = answers(&engine, &[&mixed], NEW_TOKENS).remove(0).1.cached_tokens;
        assert_eq!(second, (mixed.0.len() - 1) / 8 * 8, "{name}");
    }
}

#[test]
fn wrong_images_are_refused_before_anything_runs() {
    let model = Seeing::open("llava_tiny");
    let prompt = model.prompt(&[None, Some("what is this")], &[model.file()]);
    let engine = model.engine(64, true);
    let image = &prompt.1[0];
    let small = Arc::new(SharedImage::new(Tensor::from_f32(vec![3, 2, 2], vec![0.0; 12]).unwrap()));
    for (images, told) in [
        (vec![PlacedImage { image: small, ..image.clone() }], "must be f32[3, 28, 28]"),
        (vec![PlacedImage { start: prompt.0.len(), ..image.clone() }], "stands at the tokens"),
        (vec![PlacedImage { start: usize::MAX, ..image.clone() }], "stands at the tokens"),
        (vec![PlacedImage { rows: vec![16], ..image.clone() }], "has 16 rows"),
        (vec![PlacedImage { rows: vec![], ..image.clone() }], "stands at the tokens"),
        (vec![image.clone(), image.clone()], "image 1"),
    ] {
        let (ids, options) = (prompt.0.clone(), RequestOptions::default());
        let events = Box::new(|_| ControlFlow::Continue(()));
        let refused = engine.submit(Request { prompt: ids, images, options, mask: None, events });
        assert!(refused.unwrap_err().to_string().contains(told), "{told}");
    }
    let blind =
        Checkpoint::open_with(tapml_testing::model("llama_draft"), &ImportOptions::default()).unwrap();
    let runner = PagedRunner::new(&mut CpuPlatform::new(), blind.model(), model.limits(64)).unwrap();
    let engine = Engine::start(Box::new(runner), EngineOptions::default()).unwrap();
    let (prompt, images, options) = (vec![1; 40], vec![image.clone()], RequestOptions::default());
    let events = Box::new(|_| ControlFlow::Continue(()));
    let refused = engine.submit(Request { prompt, images, options, mask: None, events });
    assert!(refused.unwrap_err().to_string().contains("takes no images"));
}

#[test]
fn images_and_texts_of_strangers_are_refused() {
    let model = Seeing::open("llava_tiny");
    let ids = [0, 97, 5];
    let place = |files: &[Vec<u8>], most| model.vision.place_images(&ids, files, most);
    let file = model.file();
    for bytes in [vec![], b"GIF89a".to_vec(), file[..file.len() / 2].to_vec(), file[..20].to_vec()] {
        match place(&[bytes], 90) {
            Err(VisionError::Other(error)) => {
                assert!(
                    error.to_string().contains("image 1") && error.to_string().contains("could not read")
                );
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(place(std::slice::from_ref(&file), 17), Err(VisionError::TooLong(18))));
    assert_eq!(place(&[file], 18).unwrap().0.len(), 18);
    // A header alone that names more pixels than are read.
    let mut large = model.file();
    large[16..24].copy_from_slice(&[0, 0, 0x3f, 0xff, 0, 0, 0x3f, 0xff]);
    assert!(matches!(place(&[large], 90), Err(VisionError::Other(_))));
    let named = model.vision.encode_chat(&model.tokenizer, "<image> and <image>", 1).unwrap_err();
    assert!(named.to_string().contains("names 2"), "{named}");
    let unnamed = model.vision.encode_chat(&model.tokenizer, "the red house", 1).unwrap_err();
    assert!(unnamed.to_string().contains("names 0"), "{unnamed}");
}
