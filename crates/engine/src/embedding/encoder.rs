//! An encoder of texts on a platform. A device that was lost is opened again, with the model on it.

use crate::reopen::{Reopener, lost_error, sizes_error};
use tapml_exec::{Interface, Loaded, Platform};
use tapml_graph::{Context, Dim, Error, ErrorKind, Model, Result, Symbol, Symbols};

/// Name of the output with the last hidden states.
const HIDDEN: &str = "hidden";

/// The sizes of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderLimits {
    /// Most tokens of one text.
    pub context: usize,
    /// Ids lie below this.
    pub vocab: usize,
    /// Columns of the hidden states.
    pub width: usize,
}

impl EncoderLimits {
    /// The sizes of an encoder of texts of at most `context` tokens.
    ///
    /// # Errors
    /// [`tapml_graph::ErrorKind::Unsupported`] if the model is no such encoder: without token ids, or without the output
    /// `hidden` of `[n, width]`.
    pub fn from_model(model: &Model, context: usize) -> Result<EncoderLimits> {
        let graph = model.graph();
        let interface = Interface::from_graph(graph)?;
        let refusal = |what: &str| {
            Error::unsupported(format!("the model is an encoder {what}"))
                .with_hint("only encoders of texts, such as BERT, give embeddings")
        };
        if interface.ids().is_none() || interface.sees() {
            return Err(refusal("of arrays, and takes no text"));
        }
        let vocab = interface.vocab().and_then(|vocab| usize::try_from(vocab).ok());
        let vocab = vocab.ok_or_else(|| refusal("without a table of embeddings"))?;
        let hidden = graph.outputs().iter().find(|output| output.name == HIDDEN);
        let width = hidden.and_then(|hidden| match graph.value(hidden.value).ty.shape.as_slice() {
            [rows, width] if *rows == Dim::symbol(Symbol::N) => usize::try_from(width.as_const()?).ok(),
            _ => None,
        });
        let width = width.ok_or_else(|| refusal("without hidden states for each token"))?;
        Ok(EncoderLimits { context, vocab, width })
    }
}

/// What gives the hidden states of a text.
pub trait TextEncoder: Send {
    /// Its sizes.
    fn limits(&self) -> EncoderLimits;

    /// The last hidden states of a text of 1 to `context` ids: `ids.len()·width` numbers, row after row.
    ///
    /// # Errors
    /// After an error [`TextEncoder::reset`] makes the encoder usable again.
    fn encode(&mut self, ids: &[u32]) -> Result<Vec<f32>>;

    /// Makes it ready again after an error; opens a device that was lost again.
    fn reset(&mut self) -> Result<()>;

    /// How often a device that was lost was opened again.
    fn reopened_count(&self) -> u64 {
        0
    }
}

/// An encoder on a platform.
pub struct PlatformEncoder {
    /// `None` while its device is lost.
    loaded: Option<Box<dyn Loaded>>,
    interface: Interface,
    limits: EncoderLimits,
    reopener: Reopener<PlatformEncoder>,
}

impl PlatformEncoder {
    /// Loads the model for texts of at most `context` tokens.
    ///
    /// # Errors
    /// As [`EncoderLimits::from_model`], and as [`Platform::load`].
    pub fn new(platform: &mut dyn Platform, model: &Model, context: usize) -> Result<PlatformEncoder> {
        let limits = EncoderLimits::from_model(model, context)?;
        let interface = Interface::from_graph(model.graph())?;
        let loaded = Some(tapml_exec::load(platform, model, &Symbols::np(context as u64, 0))?);
        Ok(PlatformEncoder { loaded, interface, limits, reopener: Reopener::default() })
    }

    /// An encoder that opens its device again after a loss: `open` opens the platform anew and loads the same model on it.
    pub fn with_reopening(
        self,
        open: impl FnMut() -> Result<PlatformEncoder> + Send + 'static,
    ) -> PlatformEncoder {
        PlatformEncoder { reopener: Reopener::new(open), ..self }
    }
}

impl TextEncoder for PlatformEncoder {
    fn limits(&self) -> EncoderLimits {
        self.limits
    }

    fn encode(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        self.interface.check(ids)?;
        if ids.len() > self.limits.context {
            let (most, found) = (self.limits.context, ids.len());
            return Err(Error::invalid(format!("a text of {found} tokens, and place for {most}")));
        }
        let loaded = self.loaded.as_mut().ok_or_else(lost_error)?;
        let symbols = self.interface.symbols(ids.len(), 0);
        let outputs = loaded.run(&symbols, &self.interface.inputs(ids)?, None);
        let outputs = outputs.inspect_err(|error| self.reopener.note(error));
        let outputs = outputs.context(|| format!("a text of {} tokens", ids.len()))?;
        let hidden = outputs.get(HIDDEN).ok_or_else(|| Error::bug("the platform gave no `hidden`"))?;
        Ok(hidden.to_f32().into_owned())
    }

    fn reset(&mut self) -> Result<()> {
        let reset = self.loaded.as_mut().map_or_else(|| Err(lost_error()), |loaded| loaded.reset());
        let Err(lost) = reset else { return Ok(()) };
        if lost.kind() != ErrorKind::DeviceLost {
            return Err(lost);
        }
        // What the lost device held is freed before the new one takes its memory.
        self.loaded = None;
        let fresh = self.reopener.reopen(lost)?;
        if fresh.limits != self.limits {
            return Err(sizes_error(self.limits, fresh.limits));
        }
        self.loaded = fresh.loaded;
        Ok(())
    }

    fn reopened_count(&self) -> u64 {
        self.reopener.count()
    }
}
