//! Prompts with an image: which tokens stand for it.

use crate::image::ImageProcessor;
use crate::tokenizer::Tokenizer;
use std::path::Path;
use tapml_exec::{Image, NOWHERE};
use tapml_graph::{Error, Result, Tensor};
use tapml_import::{Checkpoint, ImageTokens};

/// What a model that sees needs to take an image.
#[derive(Clone, Debug)]
pub struct Vision {
    processor: ImageProcessor,
    tokens: ImageTokens,
}

impl Vision {
    /// The image processor and image tokens of a checkpoint; `None` if the model takes no images.
    pub fn open(checkpoint: &Checkpoint) -> Result<Option<Vision>> {
        let Some(tokens) = checkpoint.image() else { return Ok(None) };
        Ok(Some(Vision { processor: ImageProcessor::open(checkpoint.dir())?, tokens }))
    }

    /// The image processor.
    pub fn processor(&self) -> &ImageProcessor {
        &self.processor
    }

    /// A text that names an image: itself if it holds the tokenizer's image token, else with the token on a line before
    /// it.
    pub fn mark(&self, tokenizer: &Tokenizer, text: &str) -> Result<String> {
        let token = tokenizer.token(self.tokens.id).ok_or_else(|| {
            Error::invalid(format!("the tokenizer does not know the image token, {}", self.tokens.id))
                .with_hint("use the tokenizer that belongs to the checkpoint")
        })?;
        Ok(if text.contains(&token) { text.to_string() } else { format!("{token}\n{text}") })
    }

    /// The ids of a prompt with one token for each row of its image, and the image in their places. The ids name the
    /// image by one token, or by as many as it has rows.
    pub fn place(&self, ids: &[u32], pixels: Tensor) -> Result<(Vec<u32>, Image)> {
        let (ids, slots) = place(ids, self.tokens)?;
        Ok((ids, Image { pixels, slots }))
    }

    /// [`Vision::place`] for the image in a file.
    pub fn place_file(&self, ids: &[u32], path: &Path) -> Result<(Vec<u32>, Image)> {
        self.place(ids, self.processor.file(path)?)
    }
}

fn place(ids: &[u32], ImageTokens { id, count }: ImageTokens) -> Result<(Vec<u32>, Vec<u32>)> {
    let first = ids.iter().position(|&other| other == id);
    let found = ids.iter().filter(|&&other| other == id).count();
    let first = first.ok_or_else(|| {
        Error::invalid(format!("the prompt has an image, but not the token {id} that stands for it"))
    })?;
    let together = ids[first..].iter().take_while(|&&other| other == id).count() == found;
    if !together || (found != 1 && found != count as usize) {
        return Err(Error::unsupported(format!(
            "the prompt names an image by token {id} {found} times; expected once, or {count} times in a row"
        ))
        .with_hint("a prompt holds one image"));
    }
    let (before, after) = (&ids[..first], &ids[first + found..]);
    let rows = count as usize;
    let slots = [vec![NOWHERE; before.len()], (0..count).collect(), vec![NOWHERE; after.len()]].concat();
    Ok(([before, &vec![id; rows], after].concat(), slots))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_becomes_one_for_each_row() {
        let tokens = ImageTokens { id: 9, count: 3 };
        let expected = (vec![1, 9, 9, 9, 2], vec![NOWHERE, 0, 1, 2, NOWHERE]);
        assert_eq!(place(&[1, 9, 2], tokens).unwrap(), expected);
        assert_eq!(place(&[1, 9, 9, 9, 2], tokens).unwrap(), expected);
        for (ids, text) in [
            (&[1, 2][..], "not the token 9"),
            (&[9, 9], "2 times"),
            (&[9, 1, 9], "2 times"),
            (&[9, 9, 1, 9], "3 times"),
        ] {
            let error = place(ids, tokens).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
