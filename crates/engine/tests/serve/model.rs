//! A model whose logits are a hash of everything that it reads through the page table of a sequence: a wrong page, an old one or
//! a wrong position changes the text.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use tapml_engine::{Batch, BatchLimits, BatchRunner, LogitDetail, SampledToken, Sampler, SequenceRows};
use tapml_engine::{PartSums, StepLogits, TopRows, WantedLogits};
use tapml_engine::{RequestOptions, Sampling};
use tapml_graph::{Error, Result};

/// What a test sees and sets of the model while the engine has it.
#[derive(Default)]
pub struct Watch {
    /// Broken promises of the engine.
    pub violations: Vec<String>,
    /// Rows of each step, by sequence.
    pub steps: Vec<Vec<usize>>,
    /// Steps to come that fail.
    pub failures: Vec<usize>,
    /// Logits of each read behind a step.
    pub reads: Vec<usize>,
    /// Reads to come that fail.
    pub read_failures: Vec<usize>,
    /// A step fails that has this token.
    pub poison: Option<u32>,
    /// A step panics that has this token.
    pub panic: Option<u32>,
    /// Resets fail.
    pub lost: bool,
    pub resets: usize,
    /// Steps wait while it is set.
    pub hold: bool,
}

pub type Watched = Arc<Mutex<Watch>>;

/// See the module.
pub struct HashModel {
    limits: BatchLimits,
    /// A token and its position, for each place of each page.
    store: Vec<(u32, usize)>,
    /// The logits of the last step's wanted rows, by sequence.
    last: Vec<Vec<f32>>,
    broken: bool,
    watch: Watched,
    /// One row of so many says something else, if not 0.
    noise: u64,
}

pub const LIMITS: BatchLimits = BatchLimits {
    page: 4,
    pages: 256,
    rows: 48,
    sequences: 16,
    context: 200,
    vocab: 61,
    states: 0,
    length_limit: None,
    window: None,
};

impl HashModel {
    pub fn new(limits: BatchLimits) -> (Box<HashModel>, Watched) {
        let watch = Watched::default();
        let store = vec![(u32::MAX, 0); limits.page * limits.pages];
        let model =
            HashModel { limits, store, last: Vec::new(), broken: false, watch: Arc::clone(&watch), noise: 0 };
        (Box::new(model), watch)
    }

    /// A model that says something else than [`HashModel::new`] in one row of `noise`.
    pub fn new_noisy(limits: BatchLimits, noise: u64) -> (Box<HashModel>, Watched) {
        let (mut model, watch) = HashModel::new(limits);
        model.noise = noise;
        (model, watch)
    }

    fn check(&self, batch: &Batch) -> Option<String> {
        let BatchLimits { page, pages, rows, sequences, context, .. } = self.limits;
        let bad = |s: &SequenceRows| {
            let end = s.start + s.ids.len();
            s.ids.is_empty()
                || end > context
                || s.pages.len() != end.div_ceil(page)
                || s.pages.iter().any(|p| *p as usize >= pages)
        };
        if self.broken
            || batch.rows() > rows
            || batch.sequences.len() > sequences
            || batch.sequences.is_empty()
        {
            return Some(format!("broken: {}, {} rows", self.broken, batch.rows()));
        }
        if let Some(bad) = batch.sequences.iter().find(|s| bad(s)) {
            return Some(format!("{bad:?}"));
        }
        for (i, writer) in batch.sequences.iter().enumerate() {
            let written = &writer.pages[writer.start / page..];
            let others = batch.sequences.iter().enumerate().filter(|(j, _)| *j != i);
            if others.flat_map(|(_, other)| &other.pages).any(|p| written.contains(p)) {
                return Some(format!("sequence {i} writes to a page of another one: {batch:?}"));
            }
        }
        None
    }

    fn fails(&mut self, batch: &Batch) -> bool {
        let mut watch = self.watch.lock().unwrap();
        watch.steps.push(batch.sequences.iter().map(|s| s.ids.len()).collect());
        let step = watch.steps.len();
        let has = |token: Option<u32>| {
            token.is_some_and(|token| batch.sequences.iter().any(|s| s.ids.contains(&token)))
        };
        if has(watch.panic) {
            self.broken = true;
            drop(watch);
            panic!("the device is on fire");
        }
        watch.failures.contains(&step) || has(watch.poison)
    }
}

impl BatchRunner for HashModel {
    fn limits(&self) -> BatchLimits {
        self.limits
    }

    fn step(&mut self, batch: &Batch) -> Result<Vec<StepLogits>> {
        while self.watch.lock().unwrap().hold {
            std::thread::yield_now();
        }
        if let Some(violation) = self.check(batch) {
            self.watch.lock().unwrap().violations.push(violation.clone());
            return Err(Error::bug(violation));
        }
        if self.fails(batch) {
            self.broken = true;
            self.store.fill((7, 7));
            return Err(Error::invalid("the plug was pulled"));
        }
        let page = self.limits.page;
        let place = |s: &SequenceRows, at: usize| s.pages[at / page] as usize * page + at % page;
        for s in &batch.sequences {
            for (at, id) in (s.start..).zip(&s.ids) {
                self.store[place(s, at)] = (*id, at);
            }
        }
        let read = |s: &SequenceRows| {
            let mut hash = SEED;
            let mut logits = Vec::new();
            for at in 0..s.start + s.ids.len() {
                let (id, position) = self.store[place(s, at)];
                hash = mix(mix(hash, u64::from(id)), position as u64);
                let last = at + 1 == s.start + s.ids.len();
                let wanted = match s.wanted {
                    WantedLogits::Nothing => false,
                    WantedLogits::Last => last,
                    WantedLogits::All => at >= s.start,
                };
                if wanted {
                    let other = self.noise > 0 && (hash >> 7).is_multiple_of(self.noise);
                    logits.extend(row(hash ^ u64::from(other), self.limits.vocab));
                }
            }
            logits
        };
        self.last = batch.sequences.iter().map(read).collect();
        let detailed = |(logits, sequence): (&Vec<f32>, &SequenceRows)| {
            logits_of_detail(logits.clone(), sequence.detail, self.limits.vocab)
        };
        Ok(self.last.iter().zip(&batch.sequences).map(detailed).collect())
    }

    fn read_logits(&mut self, sequence: usize, row: usize, columns: Range<usize>) -> Result<Vec<f32>> {
        let mut watch = self.watch.lock().unwrap();
        watch.reads.push(columns.len());
        let count = watch.reads.len();
        if watch.read_failures.contains(&count) {
            self.broken = true;
            return Err(Error::invalid("the plug was pulled"));
        }
        let start = row * self.limits.vocab;
        Ok(self.last[sequence][start + columns.start..start + columns.end].to_vec())
    }

    fn reset(&mut self) -> Result<()> {
        let mut watch = self.watch.lock().unwrap();
        watch.resets += 1;
        if watch.lost {
            return Err(Error::invalid("the device is gone"));
        }
        self.broken = false;
        Ok(())
    }
}

/// What was asked for of these logits: some of the greatest, and sums over parts.
fn logits_of_detail(logits: Vec<f32>, detail: LogitDetail, vocab: usize) -> StepLogits {
    let (count, temperature) = match detail {
        LogitDetail::Full => return StepLogits::Full(logits),
        LogitDetail::Top(count) => (count.min(vocab), None),
        LogitDetail::Sums { temperature } => (MOST.min(vocab), Some(temperature)),
    };
    let mut top = TopRows { count, tokens: Vec::new(), logits: Vec::new(), sums: None };
    for row in logits.chunks(vocab) {
        let mut order: Vec<u32> = (0..vocab as u32).collect();
        order.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]));
        top.tokens.extend(&order[..count]);
        top.logits.extend(order[..count].iter().map(|&id| row[id as usize]));
    }
    top.sums = temperature.map(|temperature| {
        let mut sums = PartSums { part: PART, maxima: Vec::new(), sums: Vec::new() };
        for part in logits.chunks(vocab).flat_map(|row| row.chunks(PART)) {
            let most = part.iter().copied().fold(f32::MIN, f32::max);
            sums.maxima.push(most);
            sums.sums.push(part.iter().map(|logit| ((logit - most) / temperature).exp()).sum());
        }
        sums
    });
    StepLogits::Top(top)
}

/// Most likely tokens that are given with sums.
const MOST: usize = 5;
/// Logits of a part.
const PART: usize = 8;

const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(hash: u64, value: u64) -> u64 {
    let mut h = (hash ^ value.wrapping_add(1)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    h ^= h >> 29;
    h = h.wrapping_mul(0x94D0_49BB_1331_11EB);
    h ^ (h >> 32)
}

/// The logits of a row, from −4 to 4.
fn row(hash: u64, vocab: usize) -> Vec<f32> {
    (0..vocab as u64).map(|id| (mix(hash, id) >> 40) as f32 / (1 << 21) as f32 - 4.0).collect()
}

/// The logits after a text.
pub fn logits_after(text: &[u32], vocab: usize) -> Vec<f32> {
    let hash = text.iter().zip(0u64..).fold(SEED, |hash, (id, at)| mix(mix(hash, u64::from(*id)), at));
    row(hash, vocab)
}

/// What the model says after a prompt, worked out without an engine.
pub fn expected_text(prompt: &[u32], options: &RequestOptions, limits: &BatchLimits) -> Vec<u32> {
    let mut sampler = Sampler::new(options.sampling.clone()).unwrap();
    let mut text = prompt.to_vec();
    while text.len() - prompt.len() < options.max_tokens && text.len() <= limits.context {
        let id = sampler.sample(&logits_after(&text, limits.vocab), &text).unwrap();
        text.push(id);
        if options.stop_ids.contains(&id) {
            break;
        }
    }
    text.split_off(prompt.len())
}

/// Greedy for even numbers, else at random: with penalties, with cuts, or as the temperature says.
pub fn sampling(number: u64) -> Sampling {
    if number.is_multiple_of(2) {
        return Sampling::default();
    }
    let hot = Sampling { temperature: 0.8, seed: number, ..Sampling::default() };
    match number % 6 {
        1 => {
            Sampling { top_p: Some(0.9), frequency_penalty: Some(0.5), repetition_penalty: Some(1.1), ..hot }
        }
        3 => Sampling { top_p: Some(0.7), min_p: Some(0.02), ..hot },
        _ => hot,
    }
}

/// The ids of tokens.
pub fn ids(tokens: &[SampledToken]) -> Vec<u32> {
    tokens.iter().map(|token| token.id).collect()
}
