//! The encoder of a model that sees, apart from the language model: it runs once for an image, whoever asks about it.

use crate::{LoadOptions, Loaded, Observer, Platform};
use std::collections::HashMap;
use tapml_graph::{Context, DType, Error, Model, Result, Symbols, Tensor};

/// The encoder of images on a platform.
pub struct ImageEncoder {
    loaded: Box<dyn Loaded>,
    /// Name of the input.
    input: String,
    /// Name of the output.
    output: String,
    pixels: Vec<usize>,
    rows: usize,
}

impl ImageEncoder {
    /// Loads the part of the model that encodes images; `None` if the model sees none.
    ///
    /// # Errors
    /// As [`tapml_graph::Graph::image_encoder`], and as [`Platform::load`].
    pub fn new(platform: &mut dyn Platform, model: &Model) -> Result<Option<ImageEncoder>> {
        ImageEncoder::load(platform, model, false)
    }

    /// As [`ImageEncoder::new`], for images with an observer; see [`LoadOptions::observable`].
    ///
    /// # Errors
    /// As [`ImageEncoder::new`].
    pub fn observable(platform: &mut dyn Platform, model: &Model) -> Result<Option<ImageEncoder>> {
        ImageEncoder::load(platform, model, true)
    }

    fn load(platform: &mut dyn Platform, model: &Model, observable: bool) -> Result<Option<ImageEncoder>> {
        let Some(graph) = model.graph().image_encoder()? else { return Ok(None) };
        let (input, output) = (graph.inputs().next(), graph.outputs().first());
        let (Some((_, input)), Some(output)) = (input, output) else {
            return Err(Error::bug("an encoder without input or output"));
        };
        let pixels = input.ty.sizes(&Symbols::new())?;
        let rows = graph.value(output.value).ty.sizes(&Symbols::new())?;
        let (input, output) = (input.name.clone(), output.name.clone());
        // Sizes are constants.
        let options = LoadOptions { observable, ..LoadOptions::default() };
        let loaded = platform.load_with(&model.with_graph(graph)?, &Symbols::np(1, 0), &options);
        let loaded = loaded.context(|| "the encoder of images".to_string())?;
        let rows = rows.first().copied().unwrap_or(0);
        Ok(Some(ImageEncoder { loaded, input, output, pixels, rows }))
    }

    /// The shape of an image's pixels, which are `f32`.
    pub fn pixels(&self) -> &[usize] {
        &self.pixels
    }

    /// Rows that an image becomes.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The rows of an image: `[rows, hidden]`. The observer sees the encoder's nodes.
    ///
    /// # Errors
    /// If the pixels are of another shape, and as [`Loaded::run`].
    pub fn encode(&mut self, pixels: &Tensor, observer: Option<&mut dyn Observer>) -> Result<Tensor> {
        if pixels.dtype() != DType::F32 || pixels.shape() != self.pixels {
            let (dtype, shape) = (pixels.dtype(), pixels.shape());
            let text = format!("the image must be f32{:?}, found {dtype}{shape:?}", self.pixels);
            return Err(Error::invalid(text));
        }
        let inputs = HashMap::from([(self.input.clone(), pixels.clone())]);
        let outputs = self.loaded.run(&Symbols::np(1, 0), &inputs, observer);
        let mut outputs = outputs.context(|| "the encoder of images".to_string())?;
        outputs.remove(&self.output).ok_or_else(|| Error::bug("the platform gave no rows of an image"))
    }

    /// Makes it usable again after a failed run.
    pub fn reset(&mut self) -> Result<()> {
        self.loaded.reset()
    }
}
