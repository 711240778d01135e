//! Generation of text: a tokenizer around the loop over tokens.
//!
//! Two filters stand between tokens and the receiver: whole characters (`stream`), then stop texts
//! (`stop`).

use crate::generate::{Finish, GenerateOptions, Generation, Generator};
use crate::runner::Runner;
use crate::stop::StopTexts;
use crate::tokenizer::Tokenizer;
use std::ops::ControlFlow;
use tapml_graph::Result;

/// Generated text.
#[derive(Clone, Debug)]
pub struct GeneratedText {
    /// The new text, without special tokens and without the stop text.
    pub text: String,
    /// The new tokens and how they came.
    pub generation: Generation,
}

/// Generates text after the ids of a prompt. `on_text` gets each piece as soon as it is certain (whole characters, and
/// nothing that may become one of the texts `stops`) and may end the generation.
pub fn generate_text<R: Runner>(
    generator: &mut Generator<R>,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    options: &GenerateOptions,
    stops: &[String],
    on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<GeneratedText> {
    let mut stream = tokenizer.stream();
    let mut filter = StopTexts::new(stops);
    let mut text = String::new();
    let mut send = |piece: String| {
        text.push_str(&piece);
        if piece.is_empty() { ControlFlow::Continue(()) } else { on_text(&piece) }
    };
    let mut cancelled = false;
    let mut on_token = |id| {
        let piece = filter.push(&stream.push(id)?);
        cancelled = send(piece).is_break();
        Ok(if cancelled || filter.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    let mut generation = generator.generate(prompt, options, &mut on_token)?;
    if filter.is_stopped() && !cancelled {
        generation.finish = Finish::Stop;
    }
    // What was held back is certain at the end.
    if !cancelled {
        let rest = filter.push(&stream.finish()?);
        // The generation is over, so that a wish to end it changes nothing.
        let _ = send(rest);
        let _ = send(filter.finish());
    }
    Ok(GeneratedText { text, generation })
}
