//! Prompts with an image: which tokens stand for it.
//!
//! Slots say for each position which row of the encoder's result takes its place; see `tapml_exec::Image`.
//! A prompt holds one image.

use crate::chat::Message;
use crate::image::{ImageProcessor, Pixels};
use crate::tokenizer::Tokenizer;
use std::path::Path;
use tapml_exec::{Image, NOWHERE};
use tapml_graph::{Error, Result};
use tapml_import::{Checkpoint, ImageTokens, Layout};

/// What stands for an image in texts for models that see crops; the text before and behind it is tokenised on its own.
const MARK: &str = "<|image_1|>";

/// What a model that sees needs to take an image.
#[derive(Clone, Debug)]
pub struct Vision {
    /// From file to pixels.
    processor: ImageProcessor,
    /// How a prompt names its image.
    tokens: ImageTokens,
}

impl Vision {
    /// The image processor and image tokens of a checkpoint; `None` if the model takes no images.
    pub fn open(checkpoint: &Checkpoint) -> Result<Option<Vision>> {
        let Some(tokens) = checkpoint.image() else { return Ok(None) };
        Ok(Some(Vision { processor: ImageProcessor::open(checkpoint.dir(), tokens.layout)?, tokens }))
    }

    /// The image processor.
    pub fn processor(&self) -> &ImageProcessor {
        &self.processor
    }

    /// The ids of a text with an image, which is named by one token where the text says so, else on a line before it.
    /// `rendered` texts have their special tokens already, except that processors of models that see crops add them.
    pub fn encode(&self, tokenizer: &Tokenizer, text: &str, rendered: bool) -> Result<Vec<u32>> {
        let token = tokenizer.token(self.tokens.id).ok_or_else(|| {
            Error::invalid(format!("the tokenizer does not know the image token, {}", self.tokens.id))
                .with_hint("use the tokenizer that belongs to the checkpoint")
        })?;
        if let Layout::Crops { .. } = self.tokens.layout {
            let (before, after) =
                text.split_once(MARK).or_else(|| text.split_once(&token)).unwrap_or(("", text));
            // Both halves get the special tokens of a text, as the authors' processor does.
            let [before, after] = [tokenizer.encode(before)?, tokenizer.encode(after)?];
            return Ok([before, vec![self.tokens.id], after].concat());
        }
        let text = if text.contains(&token) { text.to_string() } else { format!("{token}\n{text}") };
        if rendered { tokenizer.encode_plain(&text) } else { tokenizer.encode(&text) }
    }

    /// The ids of a prompt with one token for each row of its image, and the image in their places. The ids name the
    /// image by one token, or by as many as it has rows.
    pub fn place(&self, ids: &[u32], pixels: Pixels) -> Result<(Vec<u32>, Image)> {
        let (ids, slots) = place(ids, self.tokens.id, &self.tokens.rows(pixels.parts)?)?;
        Ok((ids, Image { pixels: pixels.values, slots }))
    }

    /// [`Vision::place`] for the image in a file.
    pub fn place_file(&self, ids: &[u32], path: &Path) -> Result<(Vec<u32>, Image)> {
        self.place(ids, self.processor.file(path)?)
    }
}

/// A user's message, with an image or without, for a model with these image tokens.
pub fn user_message(tokens: Option<ImageTokens>, image: bool, text: &str) -> Message {
    match tokens.map(|tokens| tokens.layout) {
        Some(Layout::Whole { .. }) => Message::with_image("user", image, text),
        Some(Layout::Crops { .. }) if image && !text.contains(MARK) => {
            Message::new("user", format!("{MARK}\n{text}"))
        }
        _ => Message::new("user", text),
    }
}

/// The ids with one token for each row, and the slots.
fn place(ids: &[u32], id: u32, rows: &[u32]) -> Result<(Vec<u32>, Vec<u32>)> {
    let first = ids.iter().position(|&other| other == id);
    let found = ids.iter().filter(|&&other| other == id).count();
    let first = first.ok_or_else(|| {
        Error::invalid(format!("the prompt has an image, but not the token {id} that stands for it"))
    })?;
    let together = ids[first..].iter().take_while(|&&other| other == id).count() == found;
    if !together || (found != 1 && found != rows.len()) {
        let count = rows.len();
        return Err(Error::unsupported(format!(
            "the prompt names an image by token {id} {found} times; expected once, or {count} times in a row"
        ))
        .with_hint("a prompt holds one image"));
    }
    let (before, after) = (&ids[..first], &ids[first + found..]);
    let slots = [&vec![NOWHERE; before.len()], rows, &vec![NOWHERE; after.len()]].concat();
    Ok(([before, &vec![id; rows.len()], after].concat(), slots))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_becomes_one_for_each_row() {
        let rows = [2, 0, 1];
        let expected = (vec![1, 9, 9, 9, 2], vec![NOWHERE, 2, 0, 1, NOWHERE]);
        assert_eq!(place(&[1, 9, 2], 9, &rows).unwrap(), expected);
        assert_eq!(place(&[1, 9, 9, 9, 2], 9, &rows).unwrap(), expected);
        for (ids, text) in [
            (&[1, 2][..], "not the token 9"),
            (&[9, 9], "2 times"),
            (&[9, 1, 9], "2 times"),
            (&[9, 9, 1, 9], "3 times"),
        ] {
            let error = place(ids, 9, &rows).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
