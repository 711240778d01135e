//! A batch runner over a paged session. A device that was lost is opened again, with the model on it.

use super::batch::{
    Batch, BatchLimits, BatchRunner, LogitDetail, NO_SLOT, PartSums, SequenceRows, StepLogits, TopRows,
};
use super::images::ImageLimits;
use crate::reopen::{Reopener, lost_error, sizes_error};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;
use tapml_exec::{
    ImageEncoder, NOWHERE, Observer, PagedLimits, PagedLogits, PagedSession, PagedStep, Platform, StepSampler,
};
use tapml_graph::paged::PageLayout;
use tapml_graph::{Error, ErrorKind, LOGITS_PART, Model, Result, Tensor};

/// A language model on a platform, whose steps hold rows of several sequences.
pub struct PagedRunner {
    /// `None` while its device is lost.
    session: Option<PagedSession>,
    /// The encoder of a model that sees; `None` while its device is lost.
    encoder: Option<ImageEncoder>,
    images: Option<ImageLimits>,
    limits: BatchLimits,
    /// Whether the model keeps rows of texts in pages.
    takes_pages: bool,
    /// The wanted rows of each sequence of the last step, counted over all of them.
    wanted: Vec<Range<usize>>,
    reopener: Reopener<PagedRunner>,
    /// Who looks at some steps.
    sampler: Option<Box<dyn StepSampler>>,
}

impl PagedRunner {
    /// Loads the model for steps of these sizes; the vocabulary follows from the model, whatever `limits` say of it.
    ///
    /// # Errors
    /// [`tapml_graph::ErrorKind::Unsupported`] if rows of several texts cannot share a step of this model, and as
    /// [`Platform::load`].
    pub fn new(platform: &mut dyn Platform, model: &Model, limits: BatchLimits) -> Result<PagedRunner> {
        PagedRunner::load(platform, model, limits, false)
    }

    /// As [`PagedRunner::new`] for a runner some of whose steps are looked at; see [`PagedRunner::set_sampler`].
    ///
    /// # Errors
    /// As [`PagedRunner::new`].
    pub fn observable(
        platform: &mut dyn Platform,
        model: &Model,
        limits: BatchLimits,
    ) -> Result<PagedRunner> {
        PagedRunner::load(platform, model, limits, true)
    }

    fn load(
        platform: &mut dyn Platform,
        model: &Model,
        limits: BatchLimits,
        observable: bool,
    ) -> Result<PagedRunner> {
        let recurrent = model.graph().is_recurrent();
        if recurrent && limits.states < 2 {
            let found = limits.states;
            return Err(Error::invalid(format!(
                "a model with recurrences needs at least 2 slots for states, found {found}"
            )));
        }
        let length_limit = model.graph().length_limit().map(|limit| limit as usize);
        let window = model.graph().attention_window().map(|window| window as usize);
        let limits =
            BatchLimits { length_limit, window, states: if recurrent { limits.states } else { 0 }, ..limits };
        let layout = PagedRunner::layout(limits)?;
        let rows = limits.rows;
        // Every row may be wanted: of prompts whose probabilities are asked for, and of tokens of a draft.
        let sizes = PagedLimits { layout, rows, wanted: rows };
        let open = if observable { PagedSession::observable } else { PagedSession::new };
        let session = open(platform, model, sizes)?;
        let open = if observable { ImageEncoder::observable } else { ImageEncoder::new };
        let encoder = open(platform, model)?;
        let images = encoder
            .as_ref()
            .map(|encoder| ImageLimits { pixels: encoder.pixels().to_vec(), rows: encoder.rows() });
        let limits = BatchLimits { vocab: session.vocab(), ..limits };
        let takes_pages = session.takes_pages();
        let reopener = Reopener::default();
        let session = Some(session);
        let (wanted, sampler) = (Vec::new(), None);
        Ok(PagedRunner { session, encoder, images, limits, takes_pages, wanted, reopener, sampler })
    }

    /// How the pages of a runner of these sizes lie.
    ///
    /// # Errors
    /// If a size is 0 or too large.
    pub fn layout(limits: BatchLimits) -> Result<PageLayout> {
        let BatchLimits { page, pages, sequences, context, states, .. } = limits;
        let size = |name: &str, value: usize| {
            let small = u32::try_from(value).ok().filter(|&value| value > 0);
            small.ok_or_else(|| {
                Error::invalid(format!("`{name}` must be from 1 to {}, found {value}", u32::MAX))
            })
        };
        Ok(PageLayout {
            page: size("page", page)?,
            pages: size("pages", pages)?,
            texts: size("sequences", sequences)?,
            blocks: size("context", context.div_ceil(page.max(1)))?,
            wanted: None,
            // None where there is no recurrence.
            states: if states == 0 { 0 } else { size("states", states)? },
        })
    }

    /// Shows steps of a runner that [`PagedRunner::observable`] gave to those whom the sampler names.
    pub fn set_sampler(&mut self, sampler: impl StepSampler + 'static) {
        self.sampler = Some(Box::new(sampler));
    }

    /// A runner that opens its device again after a loss: `open` opens the platform anew and loads the same model on it.
    pub fn with_reopening(self, open: impl FnMut() -> Result<PagedRunner> + Send + 'static) -> PagedRunner {
        PagedRunner { reopener: Reopener::new(open), ..self }
    }

    /// Opens the device that was lost again.
    fn reopen(&mut self, lost: Error) -> Result<()> {
        // What the lost device held is freed before the new one takes its memory.
        (self.session, self.encoder) = (None, None);
        let fresh = self.reopener.reopen(lost)?;
        if fresh.limits != self.limits {
            return Err(sizes_error(self.limits, fresh.limits));
        }
        (self.session, self.encoder) = (fresh.session, fresh.encoder);
        Ok(())
    }

    /// The step of a batch, row by row.
    fn rows(&self, batch: &Batch) -> Result<PagedStep> {
        let BatchLimits { page, sequences, .. } = self.limits;
        let blocks = self.limits.context.div_ceil(page);
        if batch.sequences.len() > sequences {
            let found = batch.sequences.len();
            return Err(Error::invalid(format!("a step takes {sequences} sequences, found {found}")));
        }
        let mut step = PagedStep {
            // A model without caches has no use for what may be many numbers.
            pages: if self.takes_pages { vec![0; sequences * blocks] } else { Vec::new() },
            states: vec![NO_SLOT; 2 * sequences],
            ..PagedStep::default()
        };
        for (text, sequence) in batch.sequences.iter().enumerate() {
            let SequenceRows { ids, start, pages, states, prompt, .. } = sequence;
            let end = start.saturating_add(ids.len());
            if ids.is_empty() || end > self.limits.context || pages.len() != end.div_ceil(page) {
                let (rows, found) = (ids.len(), pages.len());
                return Err(Error::invalid(format!(
                    "{rows} rows from position {start} on in {found} pages of {page}"
                )));
            }
            if self.takes_pages {
                step.pages[text * blocks..text * blocks + pages.len()].copy_from_slice(pages);
            }
            step.states[2 * text..2 * text + 2].copy_from_slice(states);
            for (position, &id) in (*start..end).zip(ids) {
                step.ids.push(id);
                step.positions.push(position as u32);
                step.texts.push(text as u32);
                // As of a prompt in one step, and single tokens behind it: so it does not depend on how a text is cut.
                step.lengths.push((*prompt).max(position + 1) as u32);
                step.slots.push(pages[position / page] * page as u32 + (position % page) as u32);
            }
            let wanted = step.ids.len() - sequence.wanted_rows()..step.ids.len();
            step.wanted.extend(wanted.map(|row| row as u32));
            let scale = match sequence.detail {
                LogitDetail::Sums { temperature } if temperature > 0.0 => temperature.recip(),
                _ => 0.0,
            };
            step.scales.resize(step.wanted.len(), scale);
        }
        Ok(step)
    }
}

/// Puts the rows of images in the places of the step's tokens. An image is encoded when the first of its tokens is computed.
fn place_images(
    encoder: &mut ImageEncoder,
    batch: &Batch,
    step: &mut PagedStep,
    mut observer: Option<&mut dyn Observer>,
) -> Result<()> {
    step.image_slots = vec![NOWHERE; step.ids.len()];
    let mut before = 0;
    for SequenceRows { start, ids, images, .. } in &batch.sequences {
        for placed in images {
            let observer = observer.as_mut().map(|observer| &mut **observer as &mut dyn Observer);
            let rows = placed.image.encoded_rows(|pixels| encoder.encode(pixels, observer))?;
            for position in placed.tokens_within(&(*start..start + ids.len())) {
                let row = placed.rows[position - placed.start] as usize;
                let row = rows.rows(row, 1).ok_or_else(|| Error::invalid("a row behind an image's last"))?;
                step.image_slots[before + position - start] = step.image_rows.len() as u32;
                step.image_rows.push(row);
            }
        }
        before += ids.len();
    }
    Ok(())
}

/// Where the logits of each sequence are found in what a step gives.
struct LogitLayout {
    /// Ranges of the wanted rows that are read in full.
    full: Vec<Range<usize>>,
    /// The wanted rows of each sequence.
    wanted: Vec<Range<usize>>,
    /// One for each sequence.
    places: Vec<LogitPlace>,
}

/// The rows of one sequence.
enum LogitPlace {
    /// Of all wanted rows.
    Top { rows: Range<usize> },
    /// Of one of the ranges that are read in full.
    Full { part: usize, rows: Range<usize> },
}

impl LogitLayout {
    /// `top` most likely tokens are given of each row, and the sums of so many parts.
    fn new(batch: &Batch, top: usize, parts: usize) -> LogitLayout {
        let mut layout = LogitLayout { full: Vec::new(), wanted: Vec::new(), places: Vec::new() };
        let mut end = 0;
        for sequence in &batch.sequences {
            let start = end;
            end += sequence.wanted_rows();
            let is_enough = match sequence.detail {
                LogitDetail::Full => false,
                LogitDetail::Top(count) => count <= top,
                LogitDetail::Sums { .. } => top > 0 && parts > 0,
            };
            let place = if is_enough || start == end {
                LogitPlace::Top { rows: start..end }
            } else {
                layout.full_rows(start..end)
            };
            layout.places.push(place);
            layout.wanted.push(start..end);
        }
        layout
    }

    /// Rows that are read in full; those that follow one another are read as one.
    fn full_rows(&mut self, rows: Range<usize>) -> LogitPlace {
        let last = self.full.last_mut().filter(|last| last.end == rows.start);
        let length = rows.len();
        let before = match last {
            Some(last) => {
                last.end = rows.end;
                rows.start - last.start
            }
            None => {
                self.full.push(rows);
                0
            }
        };
        LogitPlace::Full { part: self.full.len() - 1, rows: before..before + length }
    }
}

impl BatchRunner for PagedRunner {
    fn limits(&self) -> BatchLimits {
        self.limits
    }

    fn step(&mut self, batch: &Batch) -> Result<Vec<StepLogits>> {
        let mut step = self.rows(batch)?;
        let mut images = batch.sequences.iter().flat_map(|sequence| &sequence.images).peekable();
        let sees_images = images.peek().is_some();
        let encodes = images.any(|placed| !placed.image.is_encoded());
        let mut observer = self.sampler.as_mut().and_then(|sampler| sampler.begin_step(encodes));
        if sees_images {
            let encoder = match &mut self.encoder {
                Some(encoder) => encoder,
                None if self.images.is_some() => return Err(lost_error()),
                None => return Err(Error::unsupported("the model takes no images")),
            };
            let seen = observer.as_mut().map(|observer| &mut **observer as &mut dyn Observer);
            let placed = place_images(encoder, batch, &mut step, seen);
            placed.inspect_err(|error| self.reopener.note(error))?;
        }
        let session = self.session.as_mut().ok_or_else(lost_error)?;
        let vocab = self.limits.vocab;
        let (count, parts) = (session.top(), session.parts());
        let layout = LogitLayout::new(batch, count, parts);
        self.wanted = layout.wanted;
        step.full = layout.full;
        // A device elsewhere opens again by itself; only its pages are gone.
        let given = session.run_observed(step, observer).inspect_err(|error| self.reopener.note(error))?;
        let PagedLogits { full, top_logits, top_tokens, part_maxima, part_sums } = given;
        let full: Vec<Cow<'_, [f32]>> = full.iter().map(Tensor::to_f32).collect();
        let sums = |rows: &Range<usize>| {
            let range = rows.start * parts..rows.end * parts;
            let (maxima, sums) = (part_maxima.get(range.clone())?.to_vec(), part_sums.get(range)?.to_vec());
            Some(PartSums { part: LOGITS_PART as usize, maxima, sums })
        };
        let logits = |(place, sequence): (LogitPlace, &SequenceRows)| match place {
            LogitPlace::Top { rows } => {
                let summed = matches!(sequence.detail, LogitDetail::Sums { .. }) && !rows.is_empty();
                let sums = if summed { Some(sums(&rows)?) } else { None };
                let range = rows.start * count..rows.end * count;
                let tokens = top_tokens.get(range.clone())?.to_vec();
                Some(StepLogits::Top(TopRows {
                    count,
                    tokens,
                    logits: top_logits.get(range)?.to_vec(),
                    sums,
                }))
            }
            LogitPlace::Full { part, rows: Range { start, end } } => {
                let logits = full.get(part)?.get(start * vocab..end * vocab)?;
                Some(StepLogits::Full(logits.to_vec()))
            }
        };
        // Those of many texts are tens of megabytes, which threads copy together.
        let places = layout.places.into_par_iter().zip(&batch.sequences);
        let all: Option<Vec<StepLogits>> = places.map(logits).collect();
        all.ok_or_else(|| Error::bug("a step gave too few logits"))
    }

    fn read_logits(&mut self, sequence: usize, row: usize, columns: Range<usize>) -> Result<Vec<f32>> {
        let rows = self.wanted.get(sequence).filter(|rows| row < rows.len());
        let missing = || Error::invalid(format!("the last step had no row {row} of sequence {sequence}"));
        let row = rows.ok_or_else(missing)?.start + row;
        let session = self.session.as_mut().ok_or_else(lost_error)?;
        session.read_logits(row, columns).inspect_err(|error| self.reopener.note(error))
    }

    fn image_limits(&self) -> Option<ImageLimits> {
        self.images.clone()
    }

    fn reset(&mut self) -> Result<()> {
        let encoder = self.encoder.as_mut().map_or(Ok(()), ImageEncoder::reset);
        let reset = self.session.as_mut().map_or_else(|| Err(lost_error()), PagedSession::reset);
        let reset = reset.and(encoder);
        match reset {
            Err(lost) if lost.kind() == ErrorKind::DeviceLost => self.reopen(lost),
            done => done,
        }
    }

    fn reopened_count(&self) -> u64 {
        self.reopener.count()
    }
}
