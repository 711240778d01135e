//! A whole graph on one platform, fed with token ids: what generation, logits and benchmarks run on.
//!
//! Longer inputs are cut into chunks, whose results are joined. Positions count over all of them.

use crate::image::Image;
use crate::interface::{Interface, LOGITS};
use crate::platform::CHUNK;
use crate::{Loaded, Platform, cached_encoder};
use tapml_graph::{Context, Error, Model, Result, Symbols, Tensor};

/// A language model on a platform, with its position in the context.
pub struct Session {
    /// The graph, with its states.
    loaded: Box<dyn Loaded>,
    /// Names of inputs and the vocabulary.
    interface: Interface,
    /// For the tokens that follow.
    image: Option<Image>,
    /// Tokens in the states.
    position: usize,
    /// Most tokens between two resets.
    context: usize,
    /// Most tokens of one run.
    chunk: usize,
    /// Set by a failed step: states are undefined until a reset.
    broken: bool,
}

impl Session {
    /// Loads the model for up to `context` tokens. Runs take at most [`Platform::chunk`] tokens each; [`CHUNK`] if the graph
    /// computes logits of all of them.
    pub fn new(platform: &mut dyn Platform, model: &Model, context: usize) -> Result<Session> {
        let chunk = usual_chunk(platform, model)?;
        Session::with_chunk(platform, model, context, chunk)
    }

    /// As [`Session::new`], for greedy generation: the program that a device runs chooses the next token itself, which
    /// [`Session::generate_greedily`] needs. Runs take at most `chunk` tokens; as many as [`Session::new`] takes if absent.
    pub fn greedy(
        platform: &mut dyn Platform,
        model: &Model,
        context: usize,
        chunk: Option<usize>,
    ) -> Result<Session> {
        let chunk = chunk.map_or_else(|| usual_chunk(platform, model), Ok)?;
        Session::load(platform, model, (context, chunk), cached_encoder::load_greedy)
    }

    /// As [`Session::new`], with runs of at most `chunk` tokens: larger ones prefill faster and need more memory.
    pub fn with_chunk(
        platform: &mut dyn Platform,
        model: &Model,
        context: usize,
        chunk: usize,
    ) -> Result<Session> {
        Session::load(platform, model, (context, chunk), cached_encoder::load)
    }

    /// Checks the interface and loads for these sizes.
    fn load(
        platform: &mut dyn Platform,
        model: &Model,
        (context, chunk): (usize, usize),
        load: cached_encoder::Load,
    ) -> Result<Session> {
        let interface = Interface::from_graph(model.graph())?;
        interface.expect_logits()?;
        if context == 0 || chunk == 0 {
            return Err(Error::invalid(format!("context {context} and chunk {chunk} must be at least 1")));
        }
        // Room for more would never be used.
        let chunk = chunk.min(context);
        let loaded = load(platform, model, &capacity(context, chunk))?;
        Ok(Session { loaded, interface, image: None, position: 0, context, chunk, broken: false })
    }

    /// Feeds tokens behind those fed so far. The result is `logits`: `[ids.len(), vocab]`, or `[1, vocab]` if the
    /// graph computes the last position only.
    ///
    /// Ids outside the vocabulary and more tokens than the context holds are refused before anything runs. After any
    /// other failure the session must be [`reset`](Session::reset).
    pub fn forward(&mut self, ids: &[u32]) -> Result<Tensor> {
        if self.broken {
            return Err(session_broken());
        }
        // Refused before anything runs, so that the session stays whole.
        self.interface.check(ids)?;
        fits(ids.len(), self.position, self.context)?;
        let mut parts = Vec::new();
        for chunk in ids.chunks(self.chunk) {
            parts.push(self.step(chunk).inspect_err(|_| self.broken = true)?);
        }
        match parts.pop() {
            // Only the last chunk's row is that of the last token.
            Some(last) if self.interface.last_only() || parts.is_empty() => Ok(last),
            Some(last) => {
                parts.push(last);
                Tensor::concat_rows(&parts)
            }
            None => Err(Error::bug("a forward pass of no chunks")),
        }
    }

    /// Generates `count` tokens greedily behind those fed so far, of which `first` is the next: as if each token were fed by
    /// [`Session::forward`] and the index of its greatest logit taken as the next. A platform that can do so stays with its
    /// device meanwhile; `None` if it cannot, or if the session is no [`Session::greedy`] one, and nothing has run.
    ///
    /// Fails as [`Session::forward`] does.
    pub fn generate_greedily(&mut self, first: u32, count: usize) -> Result<Option<Vec<u32>>> {
        if self.broken {
            return Err(session_broken());
        }
        self.interface.check(&[first])?;
        fits(count, self.position, self.context)?;
        // Slots differ from step to step, which the device's own loop does not know.
        if self.image.is_some() {
            return Ok(None);
        }
        let at = (self.position as u64, first);
        let tokens = self.loaded.generate_greedily(at, count as u64).inspect_err(|_| self.broken = true)?;
        // Each token that was given stands for one that was fed.
        self.position += tokens.as_ref().map_or(0, Vec::len);
        Ok(tokens)
    }

    /// Forgets all tokens, and takes this image for those that follow, also after later resets; `None` for no image.
    /// Fails if the model takes no such image.
    pub fn look_at(&mut self, image: Option<Image>) -> Result<()> {
        if let Some(image) = &image {
            self.interface.check_image(image)?;
        }
        // Rows of another image are in the states.
        self.reset()?;
        self.image = image;
        Ok(())
    }

    /// Forgets all tokens.
    pub fn reset(&mut self) -> Result<()> {
        self.loaded.reset()?;
        (self.position, self.broken) = (0, false);
        Ok(())
    }

    /// Tokens fed since the last reset.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Most tokens that fit between two resets.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Rows of the embedding table, if the graph has one.
    pub fn vocab(&self) -> Option<u64> {
        self.interface.vocab()
    }

    /// One run of at most a chunk.
    fn step(&mut self, ids: &[u32]) -> Result<Tensor> {
        let symbols = self.interface.symbols(ids.len(), self.position);
        let inputs = self.interface.inputs_at(ids, self.position, self.image.as_ref())?;
        let mut outputs = self
            .loaded
            .run(&symbols, &inputs, None)
            .context(|| format!("step of {} tokens at position {}", ids.len(), self.position))?;
        self.position += ids.len();
        outputs.remove(LOGITS).ok_or_else(|| Error::bug("the platform gave no `logits`"))
    }
}

/// Tokens that one run of a prompt takes at most.
fn usual_chunk(platform: &dyn Platform, model: &Model) -> Result<usize> {
    let last_only = Interface::from_graph(model.graph())?.last_only();
    Ok(if last_only { platform.chunk() } else { CHUNK })
}

fn session_broken() -> Error {
    Error::invalid("an earlier step failed, so that the session's state is undefined")
        .with_hint("reset the session and feed the tokens again")
}

/// Fails if `new` tokens do not fit behind `position` old ones.
pub(crate) fn fits(new: usize, position: usize, context: usize) -> Result<()> {
    if position.checked_add(new).is_some_and(|end| end <= context) {
        return Ok(());
    }
    Err(Error::invalid(format!("{new} tokens after {position} do not fit into a context of {context}"))
        .with_hint("shorten the prompt, ask for fewer tokens, or load the model with a larger context"))
}

/// The largest sizes of runs of at most `chunk` tokens within `context`.
pub(crate) fn capacity(context: usize, chunk: usize) -> Symbols {
    // The last token has `context − 1` before it.
    Symbols::np(chunk as u64, context as u64 - 1)
}
