//! What generation needs of a running model.
//!
//! Tests run the loop on runners without a model.

use tapml_exec::{Image, Session};
use tapml_graph::{Error, Result};

/// A language model with its cache.
pub trait Runner {
    /// Forgets all tokens.
    fn reset(&mut self) -> Result<()>;

    /// Feeds tokens behind those fed so far; gives the logits after the last of them: `[vocab]`.
    fn forward(&mut self, ids: &[u32]) -> Result<Vec<f32>>;

    /// `count` tokens chosen greedily behind those fed so far, of which `first` is the next; all but the last of them are fed
    /// then, too. `None` if the runner does not do this by itself, and nothing was fed.
    fn generate_greedily(&mut self, first: u32, count: usize) -> Result<Option<Vec<u32>>> {
        let _ = (first, count);
        Ok(None)
    }

    /// Most tokens that fit between two resets.
    fn context(&self) -> usize;

    /// Tokens fed since the last reset.
    fn position(&self) -> usize;

    /// Forgets all tokens, and takes this image for those that follow, also after later resets; `None` for no image.
    fn look_at(&mut self, image: Option<Image>) -> Result<()> {
        match image {
            None => self.reset(),
            Some(_) => Err(Error::unsupported("the model takes no images")),
        }
    }
}

impl Runner for Session {
    fn reset(&mut self) -> Result<()> {
        Session::reset(self)
    }

    fn forward(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        let logits = Session::forward(self, ids)?;
        // A graph may compute logits of all positions; only the last ones choose the next token.
        let rows = logits.shape().first().copied().unwrap_or(0);
        let last = rows.checked_sub(1).and_then(|last| logits.rows(last, 1));
        let last = last.ok_or_else(|| Error::bug("a forward pass gave no logits"))?;
        Ok(last.to_f32().into_owned())
    }

    fn generate_greedily(&mut self, first: u32, count: usize) -> Result<Option<Vec<u32>>> {
        Session::generate_greedily(self, first, count)
    }

    fn context(&self) -> usize {
        Session::context(self)
    }

    fn position(&self) -> usize {
        Session::position(self)
    }

    fn look_at(&mut self, image: Option<Image>) -> Result<()> {
        Session::look_at(self, image)
    }
}

impl<R: Runner + ?Sized> Runner for &mut R {
    fn reset(&mut self) -> Result<()> {
        (**self).reset()
    }

    fn forward(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        (**self).forward(ids)
    }

    fn generate_greedily(&mut self, first: u32, count: usize) -> Result<Option<Vec<u32>>> {
        (**self).generate_greedily(first, count)
    }

    fn context(&self) -> usize {
        (**self).context()
    }

    fn position(&self) -> usize {
        (**self).position()
    }

    fn look_at(&mut self, image: Option<Image>) -> Result<()> {
        (**self).look_at(image)
    }
}
