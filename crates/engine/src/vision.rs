//! Prompts with an image: which tokens stand for it.
//!
//! Slots say for each position which row of the encoder's result takes its place; see `tapml_exec::Image`.
//! A prompt of a session holds one image, a request to an engine any number.

use crate::chat::{Chat, Message};
use crate::image::{ImageProcessor, Pixels};
use crate::serve::{PlacedImage, SharedImage};
use crate::tokenizer::Tokenizer;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use tapml_exec::{Image, NOWHERE};
use tapml_graph::{Error, Result};
use tapml_import::{Checkpoint, ImageTokens, Layout};

/// What stands for an image in texts for models that see crops; the text before and behind it is tokenised on its own.
const MARK: &str = "<|image_1|>";

/// Why a prompt with images cannot be made.
#[derive(Clone, Debug)]
pub enum VisionError {
    /// It has so many tokens, more than there may be.
    TooLong(usize),
    /// Something else.
    Other(Error),
}

impl From<Error> for VisionError {
    fn from(error: Error) -> VisionError {
        VisionError::Other(error)
    }
}

/// What a model that sees needs to take an image.
#[derive(Clone, Debug)]
pub struct Vision {
    /// From file to pixels.
    processor: ImageProcessor,
    /// How a prompt names its image.
    tokens: ImageTokens,
}

impl Vision {
    /// Most pixels of an image in a request. Its samples take three bytes each while it is brought to the model's size.
    pub const MOST_PIXELS: u64 = 1 << 25;
    /// Most pixels along a side of an image.
    pub const MOST_SIDE: u32 = crate::image::MAX_SIDE;
    /// Most pixels along a side of what the encoder takes.
    pub const MOST_KEPT: u32 = *crate::image::SIZES.end();

    /// The image processor and image tokens of a checkpoint; `None` if the model takes no images.
    pub fn open(checkpoint: &Checkpoint) -> Result<Option<Vision>> {
        let Some(tokens) = checkpoint.image() else { return Ok(None) };
        Ok(Some(Vision { processor: ImageProcessor::open(checkpoint.dir(), tokens.layout)?, tokens }))
    }

    /// How a prompt names its image.
    pub fn tokens(&self) -> ImageTokens {
        self.tokens
    }

    /// The image processor.
    pub fn processor(&self) -> &ImageProcessor {
        &self.processor
    }

    /// The ids of a text with an image, which is named by one token where the text says so, else on a line before it.
    /// `rendered` texts have their special tokens already, except that processors of models that see crops add them.
    pub fn encode(&self, tokenizer: &Tokenizer, text: &str, rendered: bool) -> Result<Vec<u32>> {
        let token = self.token(tokenizer)?;
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

    /// A chat whose messages name their images, parts of the type `image` without content, as the model's template expects.
    /// `parts` says whether the template takes lists of parts.
    pub fn prepare_chat(&self, chat: &Chat, tokenizer: &Tokenizer, parts: bool) -> Result<Chat> {
        let mut chat = chat.clone();
        let whole = matches!(self.tokens.layout, Layout::Whole { .. });
        // Where an image is cut in crops, texts name it by its number and the token is put in behind.
        let token = if whole { self.token(tokenizer)? } else { String::new() };
        let mut number = 0;
        for content in chat.messages.iter_mut().filter_map(|message| message.get_mut("content")) {
            match content {
                // A template that goes over lists would go over the characters of a text.
                Value::String(text) if whole && parts => {
                    *content = json!([{ "type": "text", "text": text }]);
                }
                Value::Array(list) if !(whole && parts) => {
                    let lines = list.iter().map(|part| match part["type"].as_str() {
                        Some("image") if whole => token.clone(),
                        Some("image") => {
                            number += 1;
                            format!("<|image_{number}|>")
                        }
                        _ => part["text"].as_str().unwrap_or_default().to_string(),
                    });
                    *content = lines.collect::<Vec<String>>().join("\n").into();
                }
                _ => {}
            }
        }
        Ok(chat)
    }

    /// The ids of a rendered chat that names each of `count` images once.
    ///
    /// # Errors
    /// If it names another number of images: the template leaves images out, or a text is written like the name of one.
    pub fn encode_chat(&self, tokenizer: &Tokenizer, text: &str, count: usize) -> Result<Vec<u32>> {
        let id = self.tokens.id;
        let ids = match self.tokens.layout {
            Layout::Crops { .. } if count > 0 => {
                let mut ids = Vec::new();
                let mut rest = text;
                for number in 1..=count {
                    let mark = format!("<|image_{number}|>");
                    let Some((before, after)) = rest.split_once(&mark) else { break };
                    // Each text gets the special tokens of its own, as the authors' processor does.
                    ids.extend(tokenizer.encode(before)?);
                    ids.push(id);
                    rest = after;
                }
                ids.extend(tokenizer.encode(rest)?);
                ids
            }
            _ => tokenizer.encode_plain(text)?,
        };
        let found = ids.iter().filter(|&&other| other == id).count();
        // A user may write the token into a text, and each one found takes a place of an image.
        if count > 0 && found != count {
            let token = tokenizer.token(id).unwrap_or_default();
            let text = format!("the chat has {count} images, and its prompt names {found} (by `{token}`)");
            return Err(Error::invalid(text).with_hint(format!(
                "leave `{token}` out of the texts; a chat template that leaves images out cannot be used with them"
            )));
        }
        Ok(ids)
    }

    /// The ids of a prompt with one token for each row of its images, and the images in their places. `ids` names each of
    /// them by one token, in order; `images` are PNG, JPEG or WebP files of up to 33 million pixels.
    ///
    /// # Errors
    /// If an image cannot be read, or there are more than `most` ids, which is told before further images are read.
    pub fn place_images(
        &self,
        ids: &[u32],
        images: &[Vec<u8>],
        most: usize,
    ) -> std::result::Result<(Vec<u32>, Vec<PlacedImage>), VisionError> {
        let (mut all, mut placed) = (Vec::new(), Vec::new());
        let mut files = images.iter().enumerate();
        for (at, &id) in ids.iter().enumerate() {
            let file = if id == self.tokens.id { files.next() } else { None };
            let Some((number, bytes)) = file else {
                all.push(id);
                continue;
            };
            let named = |error: Error| error.context(format!("image {}", number + 1));
            let pixels = self.processor.bytes_within(bytes, Vision::MOST_PIXELS).map_err(named)?;
            let rows = self.tokens.rows(pixels.parts).map_err(named)?;
            let start = all.len();
            all.resize(start + rows.len(), id);
            // What is placed so far with the ids behind: further images only make it longer.
            let length = all.len() + ids.len() - at - 1;
            if length > most {
                return Err(VisionError::TooLong(length));
            }
            placed.push(PlacedImage { start, rows, image: Arc::new(SharedImage::new(pixels.values)) });
        }
        Ok((all, placed))
    }

    /// The written form of the token that stands for an image.
    fn token(&self, tokenizer: &Tokenizer) -> Result<String> {
        tokenizer.token(self.tokens.id).ok_or_else(|| {
            Error::invalid(format!("the tokenizer does not know the image token, {}", self.tokens.id))
                .with_hint("use the tokenizer that belongs to the checkpoint")
        })
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
