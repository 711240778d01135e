//! What tests of the engine share: several prompts, asked at once.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tapml_engine::{Engine, PlacedImage, Request, RequestEvent, RequestHandle, RequestOptions, Usage};

/// A prompt with its images.
pub type Placed = (Vec<u32>, Vec<PlacedImage>);

fn ask(
    engine: &Engine,
    (prompt, images): &Placed,
    max_tokens: usize,
) -> (RequestHandle, Receiver<RequestEvent>) {
    let (sender, events) = channel();
    let tell = move |event| match sender.send(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    let options = RequestOptions { max_tokens, ..RequestOptions::default() };
    let (prompt, images) = (prompt.clone(), images.clone());
    let request = Request { prompt, images, options, mask: None, events: Box::new(tell) };
    (engine.submit(request).unwrap(), events)
}

/// The answers to these prompts, all asked at once.
pub fn answers(engine: &Engine, prompts: &[&Placed], max_tokens: usize) -> Vec<(Vec<u32>, Usage)> {
    let asked: Vec<_> = prompts.iter().map(|prompt| ask(engine, prompt, max_tokens)).collect();
    let answer = |(_handle, events): (_, Receiver<RequestEvent>)| {
        let mut tokens = Vec::new();
        loop {
            match events.recv_timeout(Duration::from_secs(120)).unwrap() {
                RequestEvent::Token(token) => tokens.push(token.id),
                RequestEvent::Finished(_, usage) => return (tokens, usage),
                RequestEvent::Failed(error) => panic!("{error}"),
                RequestEvent::Prompt(_) => panic!("no log probabilities were asked for"),
            }
        }
    };
    asked.into_iter().map(answer).collect()
}
