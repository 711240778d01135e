//! What the engine needs of a running model: one step over rows of several sequences, whose caches lie in pages.
//!
//! A page holds the keys and values of [`BatchLimits::page`] consecutive positions of one sequence, for all layers. The
//! engine says which page holds which positions; the runner neither gives pages out nor takes them back.
//! Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023, section 4.

use super::images::{ImageLimits, PlacedImage};
use std::ops::Range;
use tapml_graph::{Error, Result};

/// The sizes that a runner was loaded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Positions in one page.
    pub page: usize,
    /// Pages in all; their numbers are `0..pages`.
    pub pages: usize,
    /// Most rows of one step, over all its sequences.
    pub rows: usize,
    /// Most sequences of one step.
    pub sequences: usize,
    /// Most tokens of one sequence.
    pub context: usize,
    /// Logits of one row.
    pub vocab: usize,
    /// Slots for states of recurrences; 0 of a model that has none. A sequence that runs takes up to two of them.
    pub states: usize,
    /// The longest prompt whose rows do not depend on its length; any if `None`.
    pub length_limit: Option<usize>,
    /// How many keys a row sees at most, its own among them, whichever layer it is; all before it if `None`.
    pub window: Option<usize>,
}

/// Stands for the slot of a state that there is none of.
pub const NO_SLOT: u32 = u32::MAX;

impl BatchLimits {
    /// The limits with a context that the pages can hold. Fails if one of them is 0.
    pub(super) fn usable(self) -> Result<BatchLimits> {
        let BatchLimits { page, pages, rows, sequences, context, vocab, states, .. } = self;
        // A sequence reads one slot for states and writes another, so that one serves nobody.
        if [page, pages, rows, sequences, context, vocab].contains(&0) || states == 1 {
            return Err(Error::invalid(format!("a runner must have place for something, found {self:?}")));
        }
        Ok(BatchLimits { context: context.min(page.saturating_mul(pages)), ..self })
    }

    /// The first page of a sequence that its rows from `position` on read.
    pub(super) fn first_block(self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window) / self.page)
    }
}

/// The rows of a sequence whose logits a step gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedLogits {
    /// None: a part of a prompt.
    Nothing,
    /// Those of the last row.
    Last,
    /// Those of all its rows: a prompt whose probabilities are asked for, or tokens of a draft.
    All,
}

/// How much of the logits of a row is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LogitDetail {
    /// All of them.
    Full,
    /// So many of the greatest are enough; a runner may give all.
    Top(usize),
    /// Some of the greatest are enough, with the sums that a softmax at this temperature divides by; a runner may give all.
    Sums {
        /// Above 0.
        temperature: f32,
    },
}

/// The logits of the wanted rows of one sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum StepLogits {
    /// Row after row, [`BatchLimits::vocab`] numbers each.
    Full(Vec<f32>),
    /// The greatest of each row.
    Top(TopRows),
}

impl StepLogits {
    /// How many rows these are.
    pub fn rows(&self, vocab: usize) -> usize {
        match self {
            StepLogits::Full(logits) => logits.len() / vocab.max(1),
            StepLogits::Top(top) => top.tokens.len() / top.count.max(1),
        }
    }

    /// Bytes that they take.
    pub(super) fn bytes(&self) -> usize {
        let numbers = match self {
            StepLogits::Full(logits) => logits.len(),
            StepLogits::Top(top) => {
                let sums = top.sums.as_ref().map_or(0, |sums| sums.maxima.len() + sums.sums.len());
                top.tokens.len() + top.logits.len() + sums
            }
        };
        numbers * size_of::<f32>()
    }

    /// Whether they have so many rows, in full.
    pub(super) fn has_rows(&self, rows: usize, vocab: usize) -> bool {
        match self {
            StepLogits::Full(logits) => logits.len() == rows * vocab,
            StepLogits::Top(top) => {
                let sums = top.sums.as_ref().map_or([0; 2], |sums| [sums.maxima.len(), sums.sums.len()]);
                let parts = top.sums.as_ref().map_or(0, |sums| vocab.div_ceil(sums.part.max(1)));
                [top.tokens.len(), top.logits.len()] == [rows * top.count; 2] && sums == [rows * parts; 2]
            }
        }
    }
}

/// The most likely tokens of rows, row after row.
#[derive(Clone, Debug, PartialEq)]
pub struct TopRows {
    /// Tokens of each row.
    pub count: usize,
    /// Tokens in the order of falling logits; 2³²−1 in a row with logits that are not finite.
    pub tokens: Vec<u32>,
    /// Their logits.
    pub logits: Vec<f32>,
    /// Sums over the rows, where they were asked for.
    pub sums: Option<PartSums>,
}

/// What a softmax over rows divides by, part by part, row after row.
#[derive(Clone, Debug, PartialEq)]
pub struct PartSums {
    /// Logits of each part of a row but the last, which may have fewer.
    pub part: usize,
    /// The greatest logit of each part.
    pub maxima: Vec<f32>,
    /// The sum over each part of `exp((logit − greatest) / temperature)`, with the rounding of `f32`.
    pub sums: Vec<f32>,
}

/// The part of one sequence that a step computes.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceRows {
    /// The tokens, at positions `start..start + ids.len()`; at least one.
    pub ids: Vec<u32>,
    /// Tokens of the sequence before them; their keys and values lie in `pages`.
    pub start: usize,
    /// The sequence's pages in order: entry `i` holds positions `i·page..(i + 1)·page`. They reach to the last of `ids`. Of
    /// those in front of [`BatchLimits::window`] nothing is read, and any page stands for them.
    pub pages: Vec<u32>,
    /// The slot that the state before these rows lies in, [`NO_SLOT`] if they are the first, and the one that the state after
    /// them goes to. Of a model without recurrences both are [`NO_SLOT`].
    pub states: [u32; 2],
    /// Tokens of the prompt that the sequence began with.
    pub prompt: usize,
    /// The rows whose logits are wanted.
    pub wanted: WantedLogits,
    /// How much of them.
    pub detail: LogitDetail,
    /// Images that tokens of these rows stand for.
    pub images: Vec<PlacedImage>,
}

impl SequenceRows {
    /// How many rows' logits are wanted.
    pub fn wanted_rows(&self) -> usize {
        match self.wanted {
            WantedLogits::Nothing => 0,
            WantedLogits::Last => 1,
            WantedLogits::All => self.ids.len(),
        }
    }
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Each sequence at most once. No page that a step writes is in another sequence's list, and no slot that it writes is
    /// another sequence's.
    pub sequences: Vec<SequenceRows>,
}

impl Batch {
    /// SequenceLogits of the step.
    pub fn rows(&self) -> usize {
        self.sequences.iter().map(|sequence| sequence.ids.len()).sum()
    }
}

/// A language model with its cache in pages.
pub trait BatchRunner: Send {
    /// What it was loaded for.
    fn limits(&self) -> BatchLimits;

    /// Computes the rows of all sequences and writes their keys and values into their pages. Gives for each sequence the
    /// logits that it wants, row after row.
    ///
    /// # Errors
    /// If a batch breaks the limits, nothing has run. After any other error all pages are undefined, and
    /// [`BatchRunner::reset`] makes the runner usable again.
    fn step(&mut self, batch: &Batch) -> Result<Vec<StepLogits>>;

    /// Logits of the last step, which succeeded: these of a wanted row of a sequence of its batch, whatever detail was asked for.
    /// Both are counted from 0. Only runners that give [`StepLogits::Top`] are asked.
    ///
    /// # Errors
    /// As [`BatchRunner::step`].
    fn read_logits(&mut self, sequence: usize, row: usize, columns: Range<usize>) -> Result<Vec<f32>> {
        Err(Error::bug(format!("logits {columns:?} of row {row} of sequence {sequence}, and all were given")))
    }

    /// What images must be like; `None` if the model sees none.
    fn image_limits(&self) -> Option<ImageLimits> {
        None
    }

    /// Forgets all pages; opens a device that was lost again.
    fn reset(&mut self) -> Result<()>;

    /// How often a device that was lost was opened again.
    fn reopened_count(&self) -> u64 {
        0
    }
}
