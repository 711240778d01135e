//! Choice from a part of a row of logits: the most likely tokens, and sums that a device has added up over parts of the row.
//!
//! The sums are rounded, by [`SUM_ERROR`] at most. Each step works with the interval that the exact number lies in, and gives
//! up where the ends of the interval lead to different tokens. So a token that is chosen here is the one that
//! [`Sampler::sample`] chooses from the whole row.

use super::{Candidate, Sampler, Sampling, choose, greatest_of_top, unit};
use std::ops::Range;
use tapml_graph::Result;

/// How far a sum over a part may be from the exact one, relative to it.
///
/// Of up to 1024 terms `exp(scale · (x − greatest))`, 12 additions follow one another: 6·2⁻²². The exponential is right to two units
/// in the last place: 2⁻²². Its argument −a is rounded three times, by 1.25·2⁻²²·a at most in all. Weighed by the terms, a is below
/// 4.5 on average, whatever they are: 5.7·2⁻²². These are 12.7·2⁻²².
const SUM_ERROR: f64 = 14.0 / (1u64 << 22) as f64;
/// The longest part that this holds for.
const LONGEST_PART: usize = 1024;
/// What rounding of f64 may add to a sum over a row, relative to it.
const ROUNDING: f64 = 1e-11;
/// The least temperature whose inverse a sum is multiplied by.
const LEAST_TEMPERATURE: f32 = 1e-6;

/// What is known of a row of logits.
pub(crate) struct PartialRow<'a> {
    /// The most likely tokens in falling order of their logits, of equal ones the one of least id first.
    pub tokens: &'a [u32],
    /// Their logits.
    pub logits: &'a [f32],
    /// The greatest logit of each part of the row.
    pub maxima: &'a [f32],
    /// The sum over each part of `exp((logit − greatest) / temperature)`.
    pub sums: &'a [f32],
    /// Logits of each part but the last.
    pub part: usize,
    /// Logits of the row.
    pub vocab: usize,
}

/// Gives a range of the row's logits.
type ReadRow<'a> = dyn FnMut(Range<usize>) -> Result<Vec<f32>> + 'a;

/// The tokens of a row that are known, as weights relative to the greatest.
struct Known<'a> {
    row: &'a PartialRow<'a>,
    /// The greatest logit.
    best: f64,
    temperature: f64,
    /// In falling order.
    weights: Vec<Candidate>,
    /// The greatest weight that a token may have that is not among them.
    bound: f64,
}

/// A number, and how far it may be from the exact one.
#[derive(Clone, Copy, Default)]
struct Interval {
    value: f64,
    error: f64,
}

impl Sampler {
    /// The temperature for the sums of [`Sampler::sample_partial`], if a part of a row may be enough.
    pub(crate) fn partial_temperature(&self) -> Option<f32> {
        let Sampling { temperature, logit_bias, .. } = &self.sampling;
        let plain = logit_bias.is_empty() && !self.sampling.penalises();
        Some(*temperature).filter(|&temperature| plain && temperature >= LEAST_TEMPERATURE)
    }

    /// As [`Sampler::sample`] where the row is known in part, and more of it can be read; `None` if all of it is needed, with
    /// nothing drawn.
    pub(crate) fn sample_partial(&mut self, row: &PartialRow, read: &mut ReadRow) -> Result<Option<u32>> {
        greatest_of_top(row.tokens)?;
        let Some(known) = Known::new(row, f64::from(self.sampling.temperature)) else { return Ok(None) };
        let Sampling { top_k, top_p, min_p, .. } = self.sampling;
        let mut random = self.random.clone();
        let chosen = if top_k.is_some() || top_p.is_some_and(|p| p < 1.0) || min_p.is_some_and(|p| p > 0.0) {
            known.cut(&self.sampling).map(|mut kept| {
                kept.retain(|candidate| candidate.1 > 0.0);
                kept.sort_unstable_by_key(|candidate| candidate.0);
                choose(&kept, unit(&mut random))
            })
        } else {
            known.choose_of_all(unit(&mut random), read)?
        };
        if chosen.is_some() {
            self.random = random;
        }
        Ok(chosen)
    }
}

impl<'a> Known<'a> {
    /// `None` if a number is not finite.
    fn new(row: &'a PartialRow, temperature: f64) -> Option<Known<'a>> {
        let best = f64::from(*row.logits.first()?);
        let weight = |logit: f32| libm::exp((f64::from(logit) - best) / temperature);
        let weights: Vec<Candidate> =
            row.tokens.iter().zip(row.logits).map(|(&id, &logit)| (id, weight(logit))).collect();
        let bound = if row.tokens.len() < row.vocab { weights.last()?.1 } else { -1.0 };
        let finite = weights.iter().all(|candidate| candidate.1.is_finite());
        let parts = [row.maxima.len(), row.sums.len()] == [row.vocab.div_ceil(row.part.max(1)); 2];
        let fits = finite && parts && row.part <= LONGEST_PART;
        fits.then_some(Known { row, best, temperature, weights, bound })
    }

    /// The sum over a part.
    fn sum(&self, part: usize) -> Interval {
        let (most, sum) = (f64::from(self.row.maxima[part]), f64::from(self.row.sums[part]));
        let value = sum * libm::exp((most - self.best) / self.temperature);
        Interval { value, error: value * (SUM_ERROR + ROUNDING) }
    }

    /// The tokens that the cuts leave, if that is certain.
    fn cut(&self, sampling: &Sampling) -> Option<Vec<Candidate>> {
        let all = self.weights.len() == self.row.vocab;
        // Tokens that are not known may be as likely as the last ones.
        let certain = self.weights.iter().take_while(|candidate| candidate.1 > self.bound).count();
        let mut certain = &self.weights[..certain];
        let mut total = (0..self.row.sums.len()).map(|part| self.sum(part)).fold(Interval::default(), add);
        let mut limited = all;
        if let Some(k) = sampling.top_k.filter(|&k| k < self.row.vocab) {
            certain = certain.get(..k)?;
            total = Interval { value: certain.iter().map(|c| c.1).sum(), error: 0.0 };
            limited = true;
        }
        total.error += total.value * ROUNDING;
        // Of each cut: how many tokens it leaves at least and at most.
        let share = sampling.top_p.filter(|&p| p < 1.0).map(f64::from);
        let by_share = share.map_or([usize::MAX; 2], |share| {
            let first = |sum: f64| count_reaching(certain, share * sum);
            let most = first(total.value + total.error);
            [first(total.value - total.error), if most > certain.len() { usize::MAX } else { most }]
        });
        let by_weight = sampling.min_p.map(f64::from).map_or([usize::MAX; 2], |least| {
            let above = |least: f64| certain.iter().take_while(|c| c.1 >= least).count();
            let most = above(least * (1.0 - ROUNDING));
            let open = most == certain.len() && !limited && self.bound >= least * (1.0 - ROUNDING);
            [above(least * (1.0 + ROUNDING)), if open { usize::MAX } else { most }]
        });
        let most = if limited { certain.len() } else { usize::MAX };
        let [fewest, most] = [0, 1].map(|end| by_share[end].min(by_weight[end]).min(most));
        (fewest == most).then(|| certain.get(..most).map(<[Candidate]>::to_vec)).flatten()
    }

    /// The token in whose place of the cumulative distribution, in the order of ids, a number of 0 to 1 lies.
    fn choose_of_all(&self, unit: f64, read: &mut ReadRow) -> Result<Option<u32>> {
        let sums: Vec<Interval> = (0..self.row.sums.len()).map(|part| self.sum(part)).collect();
        let total = sums.iter().copied().fold(Interval::default(), add);
        let target = unit * total.value;
        let mut before = Interval::default();
        let mut found = None;
        for (part, &sum) in sums.iter().enumerate() {
            if target < before.value + sum.value {
                found = Some((part, sum));
                break;
            }
            before = add(before, sum);
        }
        let Some((part, sum)) = found else { return Ok(None) };
        let place = Place { unit, before, after: total.error - before.error, total: total.value };
        let first = part * self.row.part;
        let mut here: Vec<Candidate> =
            self.weights.iter().copied().filter(|c| c.0 as usize / self.row.part == part).collect();
        here.sort_unstable_by_key(|candidate| candidate.0);
        let known: f64 = here.iter().map(|candidate| candidate.1).sum();
        // Others of the part may lie before each of the known ones, or behind it.
        let others = (sum.value - known).max(0.0) + sum.error;
        if let Some(id) = place.find(&here, others) {
            return Ok(Some(id));
        }
        let logits = read(first..self.row.vocab.min(first + self.row.part))?;
        let weight = |logit: &f32| libm::exp((f64::from(*logit) - self.best) / self.temperature);
        let here: Vec<Candidate> = (first as u32..).zip(logits.iter().map(weight)).collect();
        let exact: f64 = here.iter().map(|candidate| candidate.1).sum();
        let total = total.value - sum.value + exact;
        Ok(Place { after: (place.after - sum.error).max(0.0), total, ..place }.find(&here, 0.0))
    }
}

/// A place in the cumulative distribution.
#[derive(Clone, Copy)]
struct Place {
    /// The share of all that lies before it.
    unit: f64,
    /// The sum over the parts before the one that it lies in.
    before: Interval,
    /// The error of the sums over all other parts that are not exact.
    after: f64,
    /// The sum over all parts.
    total: f64,
}

impl Place {
    /// The token, of some of its part in the order of ids, in whose interval the place lies for certain, where all others of the
    /// part have this weight at most.
    fn find(&self, part: &[Candidate], others: f64) -> Option<u32> {
        let target = self.unit * self.total;
        // Errors before an edge move the edge, and all errors move the place by its share.
        let slack = (1.0 - self.unit) * self.before.error + self.unit * self.after + self.total * ROUNDING;
        let mut edge = self.before.value;
        for &(id, weight) in part {
            let (lower, upper) = (edge, edge + weight);
            let behind = target >= lower + others + slack;
            if behind && target < upper - slack {
                return Some(id);
            }
            edge = upper;
        }
        None
    }
}

fn add(a: Interval, b: Interval) -> Interval {
    Interval { value: a.value + b.value, error: a.error + b.error }
}

/// How many of the candidates together reach a sum; one more than there are if all of them do not.
fn count_reaching(candidates: &[Candidate], least: f64) -> usize {
    let mut sum = 0.0;
    let before = candidates.iter().take_while(|candidate| {
        let missing = sum < least;
        sum += candidate.1;
        missing
    });
    let count = before.count();
    if count == candidates.len() && sum < least { count + 1 } else { count }
}
