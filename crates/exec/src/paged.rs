//! A language model whose steps hold rows of several texts, with caches in pages: what an engine that serves many requests
//! runs on.
//!
//! A row's results depend on its own text alone, not on the rows beside it: every run takes the same kernels, and these add
//! up in the same order whatever else a run holds. Nothing here knows which page belongs to whom.

use crate::image::NOWHERE;
use crate::interface::{Interface, LOGITS};
use crate::trace::LoadOptions;
use crate::{Loaded, Observer, Platform};
use std::collections::{HashMap, HashSet};
use std::mem::take;
use std::ops::Range;
use tapml_graph::paged::{
    IMAGE_ROWS, IMAGE_SLOTS, LENGTHS, PAGES, POSITIONS, PageLayout, SCALES, SLOTS, STATES, TEXTS, WANTED,
};
use tapml_graph::{Context, Error, Graph, Model, Result, Symbol, Symbols, Tensor};
use tapml_graph::{PART_MAXIMA, PART_SUMS, TOP_LOGITS, TOP_TOKENS};
use tapml_kernels::OutputRows;

/// The sizes that a paged session is loaded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagedLimits {
    /// Pages, and how texts use them.
    pub layout: PageLayout,
    /// Most rows of one step.
    pub rows: usize,
    /// Most rows of one step whose logits are wanted.
    pub wanted: usize,
}

/// One step. All lists down to the lengths have one entry for each row. What the model does not need may be left empty.
#[derive(Clone, Debug, Default)]
pub struct PagedStep {
    /// Tokens.
    pub ids: Vec<u32>,
    /// Where each stands in its text.
    pub positions: Vec<u32>,
    /// Which text it belongs to; a number beyond the layout's texts for a row of none.
    pub texts: Vec<u32>,
    /// The row of the caches that keeps its keys and values: page times rows of a page, and the row in it.
    pub slots: Vec<u32>,
    /// How long its text is, tokens, where rotary embeddings depend on it.
    pub lengths: Vec<u32>,
    /// For each text, its pages in the order of positions, as many as the layout has; unused entries are 0.
    pub pages: Vec<u32>,
    /// For each text that has rows, the slot that its state lies in and the one that it goes to, of a model with recurrences; a
    /// number beyond the layout's slots for a text that begins. No slot that one text writes is another's.
    pub states: Vec<u32>,
    /// Rows whose logits are wanted.
    pub wanted: Vec<u32>,
    /// For each wanted row the factor of its logits before their exponentials are added up, one over the temperature; 0 for a row
    /// without sums. Empty if none has any.
    pub scales: Vec<f32>,
    /// Which of the wanted rows are given with all their logits, in ranges of `wanted`. Of the others the most likely tokens
    /// are enough.
    pub full: Vec<Range<usize>>,
    /// For each row which of `image_rows` takes the place of its token, or [`NOWHERE`]; empty if none does.
    pub image_slots: Vec<u32>,
    /// Rows of images, `[1, hidden]` each, as [`ImageEncoder`](crate::ImageEncoder) gives them; at most as many as rows.
    pub image_rows: Vec<Tensor>,
}

/// What a step gives.
#[derive(Clone, Debug, Default)]
pub struct PagedLogits {
    /// For each range of [`PagedStep::full`], all logits of its rows: `f32[rows, vocab]`.
    pub full: Vec<Tensor>,
    /// The greatest logits of every wanted row, in falling order: `f32[wanted, k]`, where `k` is [`PagedSession::top`].
    pub top_logits: Vec<f32>,
    /// Their tokens: `u32[wanted, k]`, and 2³²−1 in a row with logits that are not finite.
    pub top_tokens: Vec<u32>,
    /// The greatest logit of each part of [`tapml_graph::LOGITS_PART`] logits of every wanted row: `f32[wanted, parts]`, where
    /// `parts` is [`PagedSession::parts`]. Empty if no row has a scale.
    pub part_maxima: Vec<f32>,
    /// The sums over these parts of `exp(scale · (logit − greatest))`; zeros in rows without a scale.
    pub part_sums: Vec<f32>,
}

/// A language model on a platform, with its pages.
pub struct PagedSession {
    /// The graph, with its pages.
    loaded: Box<dyn Loaded>,
    /// Name of the input for ids, and the vocabulary.
    interface: Interface,
    /// Names of the graph's inputs.
    inputs: Vec<String>,
    limits: PagedLimits,
    /// Numbers in a row of logits.
    vocab: usize,
    /// Most likely tokens that are given of each row.
    top: usize,
    /// Parts of each row whose sums are given.
    parts: usize,
    /// All logits of the last step, where the platform gives them with the run alone.
    kept: Option<Tensor>,
    /// Rows of no image, as many as a step has at most, of a model that sees.
    blank: Option<Tensor>,
    /// Set by a failed step: pages are undefined until a reset.
    broken: bool,
}

impl PagedSession {
    /// Loads the model for steps of these sizes.
    ///
    /// # Errors
    /// As [`tapml_graph::Graph::to_paged`], and as [`Platform::load`].
    pub fn new(platform: &mut dyn Platform, model: &Model, limits: PagedLimits) -> Result<PagedSession> {
        PagedSession::load(platform, model, limits, false)
    }

    /// As [`PagedSession::new`], for steps with an observer; see [`LoadOptions::observable`].
    ///
    /// # Errors
    /// As [`PagedSession::new`].
    pub fn observable(
        platform: &mut dyn Platform,
        model: &Model,
        limits: PagedLimits,
    ) -> Result<PagedSession> {
        PagedSession::load(platform, model, limits, true)
    }

    fn load(
        platform: &mut dyn Platform,
        model: &Model,
        limits: PagedLimits,
        observable: bool,
    ) -> Result<PagedSession> {
        let interface = Interface::from_graph(model.graph())?;
        interface.expect_logits()?;
        if limits.rows == 0 || limits.wanted == 0 {
            return Err(Error::invalid(format!("a step needs at least one row, found {limits:?}")));
        }
        let model = model.with_graph(model.graph().to_paged(limits.layout)?)?;
        let columns = |name: &str| {
            let output = model.graph().outputs().iter().find(|output| output.name == name)?;
            model.graph().value(output.value).ty.shape.get(1)?.as_const()
        };
        let vocab = columns(LOGITS)
            .ok_or_else(|| Error::unsupported("`logits` have no constant number of columns"))?;
        let [top, parts] = [TOP_LOGITS, PART_SUMS].map(|name| columns(name).unwrap_or(0) as usize);
        // `p` stays 0: what is cached lies in pages, and the layout says how many there are.
        let capacity = Symbols::np(limits.rows as u64, 0).with_symbol(Symbol::S, limits.wanted as u64);
        let options = LoadOptions { row_invariant: true, observable, ..LoadOptions::default() };
        let loaded = platform.load_with(&model, &capacity, &options)?;
        let inputs = input_names(model.graph());
        let blank = blank_rows(model.graph(), limits.rows)?;
        let vocab = vocab as usize;
        let (kept, broken) = (None, false);
        Ok(PagedSession { loaded, interface, inputs, limits, vocab, top, parts, kept, blank, broken })
    }

    /// The sizes it was loaded for.
    pub fn limits(&self) -> PagedLimits {
        self.limits
    }

    /// Numbers in a row of logits.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// How many of the most likely tokens are given of each wanted row; 0 if none are, so that all logits must be asked for.
    pub fn top(&self) -> usize {
        self.top
    }

    /// Of how many parts of each wanted row the sums of exponentials are given; 0 if none are.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// These logits of a wanted row of the last step, whatever the step was asked for.
    ///
    /// # Errors
    /// If there was no step since the last reset, if it failed, and for a row or logits that it does not have.
    pub fn read_logits(&mut self, row: usize, columns: Range<usize>) -> Result<Vec<f32>> {
        if self.broken {
            return Err(Error::invalid("the last step failed, so that there are no logits"));
        }
        if self.loaded.keeps_outputs() {
            return Ok(self.loaded.read_row(LOGITS, row, columns)?.to_f32().into_owned());
        }
        let row = self.kept.as_ref().and_then(|logits| logits.rows(row, 1));
        let logits = row.as_ref().map(Tensor::to_f32);
        let found = logits.as_ref().and_then(|logits| logits.get(columns.clone()));
        found.map(<[f32]>::to_vec).ok_or_else(|| {
            Error::invalid(format!("logits {columns:?} of a row that the last step does not have"))
        })
    }

    /// Whether the model keeps rows of texts in pages; without, it leaves but states.
    pub fn takes_pages(&self) -> bool {
        self.inputs.iter().any(|name| name == PAGES)
    }

    /// Computes the rows and keeps their keys and values; gives the logits of the wanted rows.
    ///
    /// # Errors
    /// A step beyond the limits is refused before anything runs. After any other error the session must be
    /// [`reset`](PagedSession::reset).
    pub fn run(&mut self, step: PagedStep) -> Result<PagedLogits> {
        self.run_observed(step, None)
    }

    /// As [`PagedSession::run`] before an observer.
    ///
    /// # Errors
    /// As [`PagedSession::run`], those of the observer among them.
    pub fn run_observed(
        &mut self,
        mut step: PagedStep,
        observer: Option<&mut dyn Observer>,
    ) -> Result<PagedLogits> {
        if self.broken {
            return Err(Error::invalid("an earlier step failed, so that the pages are undefined")
                .with_hint("reset the session and compute the texts again"));
        }
        self.check(&step)?;
        let (rows, wanted) = (step.ids.len(), step.wanted.len());
        let PageLayout { texts: texts_most, blocks, .. } = self.limits.layout;
        let name = self.interface.ids().unwrap_or_default().to_string();
        let vector = |values: Vec<u32>| Tensor::from_u32(vec![values.len()], values);
        let matrix =
            |columns: u32, values| Tensor::from_u32(vec![texts_most as usize, columns as usize], values);
        let summed = self.parts > 0 && step.scales.iter().any(|&scale| scale > 0.0);
        let mut inputs = HashMap::from([(name, vector(take(&mut step.ids))?)]);
        // Which of these a graph takes depends on its operators: rotary embeddings, caches, recurrences,
        // images.
        for given in &self.inputs {
            let tensor = match given.as_str() {
                POSITIONS => vector(take(&mut step.positions))?,
                TEXTS => vector(take(&mut step.texts))?,
                SLOTS => vector(take(&mut step.slots))?,
                LENGTHS => vector(take(&mut step.lengths))?,
                PAGES => matrix(blocks, take(&mut step.pages))?,
                STATES => matrix(2, take(&mut step.states))?,
                WANTED => vector(take(&mut step.wanted))?,
                SCALES if step.scales.is_empty() => Tensor::from_f32(vec![wanted], vec![0.0; wanted])?,
                SCALES => Tensor::from_f32(vec![wanted], take(&mut step.scales))?,
                IMAGE_SLOTS if step.image_slots.is_empty() => vector(vec![NOWHERE; rows])?,
                IMAGE_SLOTS => vector(take(&mut step.image_slots))?,
                IMAGE_ROWS => self.image_rows(take(&mut step.image_rows), rows)?,
                _ => continue,
            };
            inputs.insert(given.clone(), tensor);
        }
        let symbols = Symbols::np(rows as u64, 0).with_symbol(Symbol::S, wanted as u64);
        let top = [TOP_LOGITS, TOP_TOKENS].into_iter().filter(|_| self.top > 0).map(OutputRows::whole);
        let sums = [PART_MAXIMA, PART_SUMS].into_iter().filter(|_| summed).map(OutputRows::whole);
        let kept = Some(OutputRows::whole(LOGITS)).filter(|_| !self.loaded.keeps_outputs());
        let full = step.full.into_iter().map(|rows| OutputRows { name: LOGITS, rows: Some(rows) });
        let asked: Vec<OutputRows<'_>> = top.chain(sums).chain(kept).chain(full).collect();
        // Set before the run and taken back behind it, so that no error on the way leaves it out.
        (self.broken, self.kept) = (true, None);
        let outputs = self.loaded.run_rows(&symbols, &inputs, &asked, observer);
        let outputs = outputs.context(|| format!("step of {rows} rows, {wanted} of them with logits"))?;
        self.broken = false;
        let mut given = PagedLogits::default();
        for (OutputRows { name, rows }, tensor) in asked.into_iter().zip(outputs) {
            match name {
                TOP_LOGITS => given.top_logits = tensor.to_f32().into_owned(),
                TOP_TOKENS => given.top_tokens = tensor.to_u32()?,
                PART_MAXIMA => given.part_maxima = tensor.to_f32().into_owned(),
                PART_SUMS => given.part_sums = tensor.to_f32().into_owned(),
                _ if rows.is_none() => self.kept = Some(tensor),
                _ => given.full.push(tensor),
            }
        }
        Ok(given)
    }

    /// Forgets what the pages hold.
    pub fn reset(&mut self) -> Result<()> {
        self.kept = None;
        self.loaded.reset()?;
        self.broken = false;
        Ok(())
    }

    /// Fails on what a kernel would read or write outside of its buffers for.
    fn check(&self, step: &PagedStep) -> Result<()> {
        self.interface.check(&step.ids)?;
        let PagedLimits { layout: PageLayout { page, pages, texts, blocks, .. }, rows, wanted } = self.limits;
        let count = step.ids.len();
        let lengths = [step.positions.len(), step.texts.len(), step.slots.len()];
        if count > rows || step.wanted.len() > wanted || lengths != [count; 3] {
            let asked = (count, lengths, step.wanted.len());
            return Err(Error::invalid(format!(
                "a step of up to {rows} rows, {wanted} wanted: found {asked:?}"
            )));
        }
        if let Some(row) = step.wanted.iter().find(|&&row| row as usize >= count) {
            return Err(Error::invalid(format!("row {row} is wanted of a step of {count}")));
        }
        if !step.scales.is_empty() && step.scales.len() != step.wanted.len() {
            let (wanted, found) = (step.wanted.len(), step.scales.len());
            return Err(Error::invalid(format!("a step of {wanted} wanted rows with {found} scales")));
        }
        let beyond = |range: &Range<usize>| range.start > range.end || range.end > step.wanted.len();
        if step.full.iter().any(beyond) {
            let found = &step.full;
            return Err(Error::invalid(format!(
                "ranges of {} wanted rows, found {found:?}",
                step.wanted.len()
            )));
        }
        let has = |name: &str| self.inputs.iter().any(|given| given == name);
        if has(LENGTHS) && step.lengths.len() != count {
            let found = step.lengths.len();
            return Err(Error::invalid(format!("a step of {count} rows with {found} lengths of texts")));
        }
        if has(STATES) {
            self.check_states(step)?;
        }
        self.check_images(step)?;
        if !has(PAGES) {
            return Ok(());
        }
        if step.pages.len() != texts as usize * blocks as usize
            || step.pages.iter().any(|&number| number >= pages)
        {
            return Err(Error::invalid(format!("expected {texts} lists of {blocks} pages below {pages}")));
        }
        // Rows of no text are not looked up.
        let behind = |(&position, &text): (&u32, &u32)| text < texts && position / page >= blocks;
        if step.positions.iter().zip(&step.texts).any(behind) {
            return Err(Error::invalid("a position lies behind the pages of its text"));
        }
        Ok(())
    }

    /// These rows of images and blank ones behind them, `count` in all.
    fn image_rows(&self, mut rows: Vec<Tensor>, count: usize) -> Result<Tensor> {
        let rest = count.saturating_sub(rows.len());
        let blank = self.blank.as_ref().and_then(|blank| blank.rows(0, rest));
        let blank = blank.ok_or_else(|| Error::bug("more blank rows than a step has"))?;
        if rows.is_empty() {
            return Ok(blank);
        }
        rows.push(blank);
        Tensor::concat_rows(&rows)
    }

    /// Fails unless the rows of images fit the model and the slots lie within them.
    fn check_images(&self, step: &PagedStep) -> Result<()> {
        let PagedStep { ids, image_slots: slots, image_rows: rows, .. } = step;
        if slots.is_empty() && rows.is_empty() {
            return Ok(());
        }
        let Some(blank) = &self.blank else {
            return Err(Error::unsupported("the model takes no images").with_hint("leave them away"));
        };
        let wrong = |row: &&Tensor| row.dtype() != blank.dtype() || row.shape() != [1, blank.row_len()];
        if let Some(row) = rows.iter().find(wrong) {
            let (expected, width, found) = (blank.dtype(), blank.row_len(), row.dtype());
            let shape = row.shape();
            return Err(Error::invalid(format!(
                "a row of an image must be {expected}[1, {width}], found {found}{shape:?}"
            )));
        }
        let outside = |slot: &u32| *slot != NOWHERE && *slot as usize >= rows.len();
        if slots.len() != ids.len() || rows.len() > ids.len() || slots.iter().any(outside) {
            let (ids, slots, rows) = (ids.len(), slots.len(), rows.len());
            return Err(Error::invalid(format!(
                "a step of {ids} rows with {slots} slots for {rows} rows of images"
            )));
        }
        Ok(())
    }

    /// Fails unless each text has its slots, and none that another one writes.
    fn check_states(&self, step: &PagedStep) -> Result<()> {
        let PageLayout { texts, states, .. } = self.limits.layout;
        if step.states.len() != 2 * texts as usize {
            let found = step.states.len();
            return Err(Error::invalid(format!(
                "expected two slots for each of {texts} texts, found {found}"
            )));
        }
        let with_rows: HashSet<u32> = step.texts.iter().copied().collect();
        let each = (0..texts).zip(step.states.chunks_exact(2));
        let used: Vec<&[u32]> =
            each.filter(|(text, _)| with_rows.contains(text)).map(|(_, slots)| slots).collect();
        let mut users: HashMap<u32, usize> = HashMap::new();
        for slots in &used {
            *users.entry(slots[0]).or_default() += 1;
            // A text that updates its state in place is one user of the slot, not two.
            if slots[1] != slots[0] {
                *users.entry(slots[1]).or_default() += 1;
            }
        }
        match used.iter().find(|slots| slots[1] < states && users.get(&slots[1]).is_some_and(|&n| n > 1)) {
            Some(slots) => {
                Err(Error::invalid(format!("two texts use slot {}, and one writes to it", slots[1])))
            }
            None => Ok(()),
        }
    }
}

/// Zeros for the rows of images of a step, if the graph takes any.
fn blank_rows(graph: &Graph, rows: usize) -> Result<Option<Tensor>> {
    let input = graph.inputs().find(|(_, input)| input.name == IMAGE_ROWS);
    let Some(ty) = input.map(|(_, input)| &input.ty) else { return Ok(None) };
    let shape = ty.sizes(&Symbols::np(rows as u64, 0))?;
    let zeros = vec![0.0; shape.iter().product()];
    Tensor::from_f64(ty.dtype, shape, &zeros).map(Some)
}

/// Names of a graph's inputs.
fn input_names(graph: &Graph) -> Vec<String> {
    graph.inputs().map(|(_, input)| input.name.clone()).collect()
}
