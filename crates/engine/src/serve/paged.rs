//! A batch runner over a paged session.

use super::batch::{Batch, BatchLimits, BatchRunner, SequenceRows, WantedLogits};
use tapml_exec::{PagedLimits, PagedSession, PagedStep, Platform};
use tapml_graph::paged::PageLayout;
use tapml_graph::{Error, Model, Result};

/// A language model on a platform, whose steps hold rows of several sequences.
pub struct PagedRunner {
    session: PagedSession,
    limits: BatchLimits,
}

impl PagedRunner {
    /// Loads the model for steps of these sizes; the vocabulary follows from the model, whatever `limits` say of it.
    ///
    /// # Errors
    /// [`tapml_graph::ErrorKind::Unsupported`] if rows of several texts cannot share a step of this model, and as
    /// [`Platform::load`].
    pub fn new(platform: &mut dyn Platform, model: &Model, limits: BatchLimits) -> Result<PagedRunner> {
        let BatchLimits { page, pages, rows, sequences, context, .. } = limits;
        let size = |name: &str, value: usize| {
            let small = u32::try_from(value).ok().filter(|&value| value > 0);
            small.ok_or_else(|| {
                Error::invalid(format!("`{name}` must be from 1 to {}, found {value}", u32::MAX))
            })
        };
        let layout = PageLayout {
            page: size("page", page)?,
            pages: size("pages", pages)?,
            texts: size("sequences", sequences)?,
            blocks: size("context", context.div_ceil(page.max(1)))?,
            wanted: None,
        };
        // Every row may be wanted: of prompts whose probabilities are asked for, and of tokens of a draft.
        let session = PagedSession::new(platform, model, PagedLimits { layout, rows, wanted: rows })?;
        let limits = BatchLimits { vocab: session.vocab(), ..limits };
        Ok(PagedRunner { session, limits })
    }

    /// The step of a batch, row by row.
    fn rows(&self, batch: &Batch) -> Result<PagedStep> {
        let BatchLimits { page, sequences, .. } = self.limits;
        let blocks = self.limits.context.div_ceil(page);
        if batch.sequences.len() > sequences {
            let found = batch.sequences.len();
            return Err(Error::invalid(format!("a step takes {sequences} sequences, found {found}")));
        }
        let mut step = PagedStep { pages: vec![0; sequences * blocks], ..PagedStep::default() };
        for (text, sequence) in batch.sequences.iter().enumerate() {
            let SequenceRows { ids, start, pages, wanted } = sequence;
            let end = start.saturating_add(ids.len());
            if ids.is_empty() || end > self.limits.context || pages.len() != end.div_ceil(page) {
                let (rows, found) = (ids.len(), pages.len());
                return Err(Error::invalid(format!(
                    "{rows} rows from position {start} on in {found} pages of {page}"
                )));
            }
            step.pages[text * blocks..text * blocks + pages.len()].copy_from_slice(pages);
            let first = step.ids.len();
            for (position, &id) in (*start..end).zip(ids) {
                step.ids.push(id);
                step.positions.push(position as u32);
                step.texts.push(text as u32);
                step.slots.push(pages[position / page] * page as u32 + (position % page) as u32);
            }
            let wanted = match wanted {
                WantedLogits::Nothing => step.ids.len()..step.ids.len(),
                WantedLogits::Last => step.ids.len() - 1..step.ids.len(),
                WantedLogits::All => first..step.ids.len(),
            };
            step.wanted.extend(wanted.map(|row| row as u32));
        }
        Ok(step)
    }
}

impl BatchRunner for PagedRunner {
    fn limits(&self) -> BatchLimits {
        self.limits
    }

    fn step(&mut self, batch: &Batch) -> Result<Vec<Vec<f32>>> {
        let logits = self.session.run(self.rows(batch)?)?;
        let logits = logits.to_f32();
        let mut rest = &logits[..];
        let mut parts = Vec::with_capacity(batch.sequences.len());
        for sequence in &batch.sequences {
            let count = match sequence.wanted {
                WantedLogits::Nothing => 0,
                WantedLogits::Last => 1,
                WantedLogits::All => sequence.ids.len(),
            };
            let split = rest.split_at_checked(count * self.limits.vocab);
            let (part, behind) = split.ok_or_else(|| Error::bug("a step gave too few logits"))?;
            parts.push(part.to_vec());
            rest = behind;
        }
        Ok(parts)
    }

    fn reset(&mut self) -> Result<()> {
        self.session.reset()
    }
}
