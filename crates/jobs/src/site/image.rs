//! What a site of a model that sees says of images: how a picture becomes pixels, and which tokens stand for it.

use serde::Serialize;
use tapml_engine::{ImageProcessor, Tokenizer, Vision};
use tapml_exec::{PIXELS, SLOTS};
use tapml_graph::{Error, Graph, Result, Symbols};
use tapml_import::{Checkpoint, Layout};

/// `image` of the manifest.
#[derive(Serialize)]
pub(super) struct ImageSettings {
    processor: ImageProcessor,
    /// Of the encoder's input: `f32[channels, height, width]`.
    pixels: Vec<usize>,
    /// The token that stands for one row of an image, and its written form.
    token: u32,
    text: String,
    /// Rows that an image becomes.
    rows: u32,
    /// Whether the chat template reads contents that are lists of parts.
    parts: bool,
    limits: ImageLimits,
    inputs: InputNames,
}

/// What is refused.
#[derive(Serialize)]
struct ImageLimits {
    /// Most pixels of an image in all, and along a side.
    pixels: u64,
    side: u32,
    /// Most pixels along a side of what the encoder takes.
    kept: u32,
}

/// Names of inputs: of the encoder, then of the model's own program.
#[derive(Serialize)]
struct InputNames {
    pixels: &'static str,
    rows: String,
    slots: &'static str,
}

impl ImageSettings {
    /// Of a model with this encoder.
    ///
    /// # Errors
    /// If images are cut in parts, or the checkpoint has no image processor.
    pub(super) fn read(
        checkpoint: &Checkpoint,
        tokenizer: &Tokenizer,
        encoder: &Graph,
    ) -> Result<ImageSettings> {
        let bug = |text: &str| Error::bug(format!("the encoder of images: {text}"));
        let vision = Vision::open(checkpoint)?.ok_or_else(|| bug("no image tokens"))?;
        let tokens = vision.tokens();
        let Layout::Whole { rows } = tokens.layout else {
            return Err(Error::unsupported("a site takes images whole, and this model cuts them in parts")
                .with_hint("`tapml serve` and `tapml chat` run models that cut images in parts"));
        };
        let input = encoder.inputs().next().ok_or_else(|| bug("no input"))?.1;
        let output = encoder.outputs().first().ok_or_else(|| bug("no output"))?;
        let text = tokenizer.token(tokens.id).ok_or_else(|| {
            Error::invalid(format!("the tokenizer does not know the image token, {}", tokens.id))
                .with_hint("use the tokenizer that belongs to the checkpoint")
        })?;
        Ok(ImageSettings {
            processor: vision.processor().clone(),
            pixels: input.ty.sizes(&Symbols::new())?,
            token: tokens.id,
            text,
            rows,
            parts: tokenizer.chat_template().is_some_and(|template| template.takes_parts()),
            limits: ImageLimits {
                pixels: Vision::MOST_PIXELS,
                side: Vision::MOST_SIDE,
                kept: Vision::MOST_KEPT,
            },
            inputs: InputNames { pixels: PIXELS, rows: output.name.clone(), slots: SLOTS },
        })
    }
}
