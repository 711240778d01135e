//! Choice from a part of a row of logits: the most likely tokens, and sums that a device has added up over parts of the row.
//!
//! The sums are rounded, by [`SUM_ERROR`] at most, and hold tokens that a penalty or a bias makes less likely as the model gave
//! them. Each step works with the interval that the exact number lies in, and gives up where the ends of the interval lead to
//! different tokens. So a token that is chosen here is the one that [`Sampler::sample`] chooses from the whole row.

use super::{Candidate, Sampler, Sampling, choose, greatest_of_top, reduce_likelihood, unit};
use std::collections::{BTreeMap, BTreeSet};
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
/// Most logits of a row that are read one by one. More of them take longer than the row.
const MOST_READS: usize = 8;

/// What is known of a row of logits.
pub(crate) struct PartialRow<'a> {
    /// The most likely tokens in falling order of their logits, of equal ones the one of least id first.
    pub tokens: &'a [u32],
    /// Their logits.
    pub logits: &'a [f32],
    /// The greatest logit of each part of the row; none for a greedy choice.
    pub maxima: &'a [f32],
    /// The sum over each part of `exp((logit − greatest) / temperature)`.
    pub sums: &'a [f32],
    /// Logits of each part but the last.
    pub part: usize,
    /// Logits of the row.
    pub vocab: usize,
}

impl PartialRow<'_> {
    /// The logarithm of the sum of `exp(logit)` over the row, from sums at temperature 1, to 3.4·10⁻⁶. `None` if there are no sums,
    /// or none that are finite.
    pub(crate) fn log_sum(&self) -> Option<f64> {
        let most = f64::from(self.maxima.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let terms = self.maxima.iter().zip(self.sums);
        let sum: f64 = terms.map(|(&max, &sum)| f64::from(sum) * libm::exp(f64::from(max) - most)).sum();
        Some(most + libm::log(sum)).filter(|sum| sum.is_finite())
    }

    /// The tokens without whose logits nothing can be chosen: those that are more likely than the model says, and the few that may be
    /// chosen at all, in the order of ids. `None` if these are too many.
    fn tokens_to_read(&self, raised: impl Iterator<Item = u32>, excluded: &Exclusions) -> Option<Vec<u32>> {
        let is_unknown = |id: &u32| (*id as usize) < self.vocab && !self.tokens.contains(id);
        let allowed: Option<Vec<u32>> =
            excluded.allowed_ids().map(|ids| ids.filter(is_unknown).take(MOST_READS + 1).collect());
        let few = |ids: &Vec<u32>| ids.len() <= MOST_READS;
        let raised = || {
            let ids: BTreeSet<u32> = raised.filter(|id| is_unknown(id) && !excluded.contains(*id)).collect();
            ids.into_iter().collect()
        };
        allowed.filter(few).or_else(|| Some(raised()).filter(few))
    }
}

/// Tokens that are never chosen.
#[derive(Clone, Copy, Default)]
pub(crate) struct Exclusions<'a> {
    /// Some of them.
    pub ids: &'a [u32],
    /// A bit for each token that may be chosen, token `i` as bit `i % 32` of word `i / 32`; all may if `None`.
    pub allowed: Option<&'a [u32]>,
}

impl<'a> Exclusions<'a> {
    pub(super) fn contains(&self, id: u32) -> bool {
        let is_allowed = |words: &[u32]| words.get(id as usize / 32).is_some_and(|w| w >> (id % 32) & 1 == 1);
        self.ids.contains(&id) || !self.allowed.is_none_or(is_allowed)
    }

    /// Tokens that the bits allow, if there are bits.
    fn allowed_ids(&self) -> Option<impl Iterator<Item = u32> + 'a> {
        let ids = |(word, first): (&u32, u32)| {
            let word = *word;
            (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first * 32 + bit)
        };
        self.allowed.map(|words| words.iter().zip(0u32..).filter(|(word, _)| **word != 0).flat_map(ids))
    }
}

/// Gives a range of the row's logits.
type ReadRow<'a> = dyn FnMut(Range<usize>) -> Result<Vec<f32>> + 'a;

/// What a token's logit becomes before a choice.
type LogitChange<'a> = dyn Fn(u32, f32) -> f64 + 'a;

/// A token whose logit is known.
#[derive(Clone, Copy)]
struct KnownToken {
    id: u32,
    /// As the model gave it.
    given: f64,
    /// As it is chosen by.
    logit: f64,
}

/// The tokens of a row that are known.
struct KnownTokens<'a> {
    row: &'a PartialRow<'a>,
    change: &'a LogitChange<'a>,
    excluded: Exclusions<'a>,
    /// Tokens that are less likely than the model says, and not known.
    lowered: Vec<u32>,
    /// In falling order of their logits, of equal ones the one of least id first.
    tokens: Vec<KnownToken>,
    /// The greatest logit that a token may have that is not among them.
    bound: f64,
}

/// The known tokens as weights relative to the greatest.
struct Weighed<'a> {
    known: &'a KnownTokens<'a>,
    temperature: f64,
    /// In the order of the known tokens.
    weights: Vec<Candidate>,
    parts: Vec<Part>,
}

/// The weight of a part of the row.
#[derive(Clone, Copy, Default)]
struct Part {
    sum: Interval,
    /// What the known tokens weigh.
    known: f64,
    /// The most that tokens weigh which are not known.
    others: f64,
    /// Whether some of them are less likely than the sum says.
    lowered: bool,
}

impl Part {
    /// Takes note that its others weigh what the sum says, or anything less.
    fn lower(&mut self) {
        if !std::mem::replace(&mut self.lowered, true) {
            let most = self.sum.value + self.sum.error;
            self.sum = Interval { value: most - self.others / 2.0, error: self.others / 2.0 };
        }
    }
}

/// A number, and how far it may be from the exact one.
#[derive(Clone, Copy, Default)]
struct Interval {
    value: f64,
    error: f64,
}

impl Sampler {
    /// The temperature for the sums of [`Sampler::sample_partial`], 0 for a greedy choice; `None` if a part of a row is not enough,
    /// as where many tokens become more likely.
    pub(crate) fn partial_temperature(&self) -> Option<f32> {
        let Sampling { temperature, repetition_penalty, presence_penalty, frequency_penalty, .. } =
            self.sampling;
        let lowers = repetition_penalty.is_none_or(|penalty| penalty >= 1.0)
            && [presence_penalty, frequency_penalty].iter().all(|penalty| penalty.is_none_or(|p| p >= 0.0));
        let serves = temperature == 0.0 || temperature >= LEAST_TEMPERATURE;
        (lowers && serves && self.raised_tokens().count() <= MOST_READS).then_some(temperature)
    }

    /// The tokens that the bias makes more likely.
    fn raised_tokens(&self) -> impl Iterator<Item = u32> + '_ {
        self.sampling.logit_bias.iter().filter(|(_, bias)| *bias > 0.0).map(|(id, _)| *id)
    }

    /// The tokens whose logits are not taken as they are.
    fn changed_tokens(&self, history: &[u32], excluded: &Exclusions) -> BTreeSet<u32> {
        let mut tokens: BTreeSet<u32> = self.sampling.logit_bias.iter().map(|&(id, _)| id).collect();
        tokens.extend(self.chosen.keys().chain(excluded.ids));
        if self.sampling.repetition_penalty.is_some() {
            tokens.extend(history);
        }
        tokens
    }

    /// The logit that a token is chosen by.
    fn changed_logit(&self, id: u32, mut logit: f32, seen: &BTreeSet<u32>) -> f64 {
        let bias = self.sampling.logit_bias.iter().filter(|&&(token, _)| token == id);
        bias.for_each(|(_, bias)| logit += bias);
        let penalty = self.sampling.repetition_penalty.filter(|_| seen.contains(&id));
        let logit = penalty
            .map_or(f64::from(logit), |penalty| reduce_likelihood(f64::from(logit), f64::from(penalty)));
        self.chosen.get(&id).map_or(logit, |&count| logit - self.taken_off(count))
    }

    /// As [`Sampler::sample`] where the row is known in part, and more of it can be read; `None` if all of it is needed, with
    /// nothing drawn. Needs that [`Sampler::partial_temperature`] is there.
    pub(crate) fn sample_partial(
        &mut self,
        row: &PartialRow,
        history: &[u32],
        excluded: Exclusions,
        read: &mut ReadRow,
    ) -> Result<Option<u32>> {
        greatest_of_top(row.tokens)?;
        let mut changed = self.changed_tokens(history, &excluded);
        let seen = self.sampling.repetition_penalty.map(|_| history.iter().copied().collect());
        let seen: BTreeSet<u32> = seen.unwrap_or_default();
        let change = |id: u32, logit: f32| {
            if excluded.contains(id) { f64::NEG_INFINITY } else { self.changed_logit(id, logit, &seen) }
        };
        let Some(more) = row.tokens_to_read(self.raised_tokens(), &excluded) else { return Ok(None) };
        let mut given: BTreeMap<u32, f32> =
            row.tokens.iter().copied().zip(row.logits.iter().copied()).collect();
        // Each read may be a round trip to another machine, so that neighbours are read together.
        for near in more.chunk_by(|a, b| (b - a) as usize <= LONGEST_PART) {
            let Some((first, last)) = near.first().zip(near.last()) else { continue };
            let logits = read(*first as usize..*last as usize + 1)?;
            let logit = |&id: &u32| Some((id, *logits.get((id - first) as usize)?));
            given.extend(near.iter().filter_map(logit));
        }
        changed.retain(|id| (*id as usize) < row.vocab && !given.contains_key(id));
        let lowered = changed.into_iter().collect();
        let known = KnownTokens { row, change: &change, excluded, lowered, tokens: Vec::new(), bound: 0.0 };
        let Some(known) = known.with_logits(given) else { return Ok(None) };
        let mut random = self.random.clone();
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.sampling;
        let cuts = top_k.is_some() || top_p.is_some_and(|p| p < 1.0) || min_p.is_some_and(|p| p > 0.0);
        let chosen = if temperature == 0.0 {
            known.greatest()
        } else {
            match Weighed::new(&known, f64::from(temperature)) {
                None => None,
                Some(weighed) if cuts => weighed.cut(&self.sampling).map(|mut kept| {
                    kept.retain(|candidate| candidate.1 > 0.0);
                    kept.sort_unstable_by_key(|candidate| candidate.0);
                    choose(&kept, unit(&mut random))
                }),
                Some(weighed) => weighed.choose_of_all(unit(&mut random), read)?,
            }
        };
        if let Some(id) = chosen {
            self.random = random;
            self.count(id);
        }
        Ok(chosen)
    }
}

impl<'a> KnownTokens<'a> {
    /// The same with these logits. `None` if no token may be chosen, or lists do not fit each other.
    fn with_logits(self, given: BTreeMap<u32, f32>) -> Option<KnownTokens<'a>> {
        let KnownTokens { row, change, excluded, .. } = self;
        let parts = row.vocab.div_ceil(row.part.max(1));
        let summed = [row.maxima.len(), row.sums.len()];
        let fits = summed == [parts; 2] && row.part <= LONGEST_PART;
        if !fits && summed != [0; 2] {
            return None;
        }
        let is_unknown = |id: u32| (id as usize) < row.vocab && !given.contains_key(&id);
        let open = match excluded.allowed_ids() {
            Some(mut ids) => ids.any(is_unknown),
            None => given.len() < row.vocab,
        };
        let bound = if open { f64::from(*row.logits.last()?) } else { f64::NEG_INFINITY };
        let known =
            |(id, logit): (u32, f32)| KnownToken { id, given: f64::from(logit), logit: change(id, logit) };
        let mut tokens: Vec<KnownToken> = given.into_iter().map(known).collect();
        // Stable: of equal ones the one of least id stays first.
        tokens.sort_by(|a, b| b.logit.total_cmp(&a.logit));
        let some = tokens.first()?.logit > f64::NEG_INFINITY;
        some.then_some(KnownTokens { tokens, bound, ..self })
    }

    /// Takes off the parts what tokens weigh that these bits exclude.
    fn exclude_tokens(&self, parts: &mut [Part], words: &[u32]) {
        let size = self.row.part.max(1);
        let bits = Exclusions { ids: &[], allowed: Some(words) };
        let mut known = vec![0; parts.len()];
        for token in self.tokens.iter().filter(|token| !bits.contains(token.id)) {
            known.get_mut(token.id as usize / size).into_iter().for_each(|count| *count += 1);
        }
        for ((index, part), known) in parts.iter_mut().enumerate().zip(known) {
            let ids = index * size..self.row.vocab.min((index + 1) * size);
            match count_bits(words, ids.clone()) {
                allowed if allowed == ids.len() => {}
                allowed if allowed == known => {
                    let sum = Interval { value: part.known, error: part.known * ROUNDING };
                    *part = Part { sum, others: 0.0, ..*part };
                }
                _ => part.lower(),
            }
        }
    }

    /// The greedy choice, if it is certain: tokens that are not known may be as likely as the bound.
    fn greatest(&self) -> Option<u32> {
        let most = self.tokens.first().map(|first| first.logit).filter(|&most| most > self.bound)?;
        self.tokens.iter().take_while(|token| token.logit == most).map(|token| token.id).min()
    }
}

impl<'a> Weighed<'a> {
    /// `None` if a number is not finite.
    fn new(known: &'a KnownTokens<'a>, temperature: f64) -> Option<Weighed<'a>> {
        let row = known.row;
        let best = known.tokens.first()?.logit;
        let weight = |logit: f64| libm::exp((logit - best) / temperature);
        let weights: Vec<Candidate> =
            known.tokens.iter().map(|token| (token.id, weight(token.logit))).collect();
        let sums = row.maxima.iter().zip(row.sums).map(|(&most, &sum)| {
            let value = f64::from(sum) * weight(f64::from(most));
            Interval { value, error: value * (SUM_ERROR + ROUNDING) }
        });
        let mut parts: Vec<Part> =
            sums.map(|sum| Part { sum, others: sum.value, ..Part::default() }).collect();
        if !parts.is_empty() {
            for (token, (_, weight_now)) in known.tokens.iter().zip(&weights) {
                let part = parts.get_mut(token.id as usize / row.part.max(1))?;
                let weight_given = weight(token.given);
                part.others -= weight_given;
                part.known += weight_now;
                part.sum.value += weight_now - weight_given;
            }
        }
        for part in &mut parts {
            // Below zero by rounding alone.
            part.sum.value -= part.others.min(0.0);
            part.others = part.others.max(0.0) + part.sum.error;
        }
        if let Some(words) = known.excluded.allowed {
            known.exclude_tokens(&mut parts, words);
        }
        for &id in &known.lowered {
            parts.get_mut(id as usize / row.part.max(1)).into_iter().for_each(Part::lower);
        }
        let finite = parts.iter().all(|part| part.sum.value.is_finite() && part.sum.error.is_finite());
        finite.then_some(Weighed { known, temperature, weights, parts })
    }

    fn weight(&self, logit: f64) -> f64 {
        let best = self.known.tokens.first().map_or(0.0, |first| first.logit);
        libm::exp((logit - best) / self.temperature)
    }

    /// The tokens that the cuts leave, if that is certain.
    fn cut(&self, sampling: &Sampling) -> Option<Vec<Candidate>> {
        let KnownTokens { row, bound, tokens, .. } = self.known;
        // Tokens that are not known may be as likely as the last ones.
        let certain = tokens.iter().take_while(|token| token.logit > *bound).count();
        let mut certain = &self.weights[..certain];
        if self.parts.is_empty() && sampling.top_k.is_none_or(|k| k >= row.vocab) {
            return None;
        }
        let mut total = self.parts.iter().map(|part| part.sum).fold(Interval::default(), add);
        let mut limited = *bound == f64::NEG_INFINITY;
        if let Some(k) = sampling.top_k.filter(|&k| k < row.vocab) {
            // Fewer than that many may be chosen at all.
            let k = if limited { k.min(certain.len()) } else { k };
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
            let others = self.weight(*bound) >= least * (1.0 - ROUNDING);
            let open = most == certain.len() && !limited && others;
            [above(least * (1.0 + ROUNDING)), if open { usize::MAX } else { most }]
        });
        let most = if limited { certain.len() } else { usize::MAX };
        let [fewest, most] = [0, 1].map(|end| by_share[end].min(by_weight[end]).min(most));
        (fewest == most).then(|| certain.get(..most).map(<[Candidate]>::to_vec)).flatten()
    }

    /// The token in whose place of the cumulative distribution, in the order of ids, a number of 0 to 1 lies.
    fn choose_of_all(&self, unit: f64, read: &mut ReadRow) -> Result<Option<u32>> {
        let row = self.known.row;
        let total = self.parts.iter().map(|part| part.sum).fold(Interval::default(), add);
        let target = unit * total.value;
        let mut before = Interval::default();
        let mut found = None;
        for (index, part) in self.parts.iter().enumerate() {
            if target < before.value + part.sum.value {
                found = Some((index, part));
                break;
            }
            before = add(before, part.sum);
        }
        let Some((index, &Part { sum, others, .. })) = found else { return Ok(None) };
        let place = Place { unit, before, after: total.error - before.error, total: total.value };
        let first = index * row.part;
        let mut here: Vec<Candidate> =
            self.weights.iter().copied().filter(|c| c.0 as usize / row.part == index).collect();
        here.sort_unstable_by_key(|candidate| candidate.0);
        // Others of the part may lie before each of the known ones, or behind it.
        if let Some(id) = place.find(&here, others) {
            return Ok(Some(id));
        }
        let logits = read(first..row.vocab.min(first + row.part))?;
        let here =
            (first as u32..).zip(logits).map(|(id, logit)| (id, self.weight((self.known.change)(id, logit))));
        let here: Vec<Candidate> = here.collect();
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

/// How many of these bits are set.
fn count_bits(words: &[u32], bits: Range<usize>) -> usize {
    let words = words.iter().enumerate().take(bits.end.div_ceil(32)).skip(bits.start / 32);
    let within = |(index, word): (usize, &u32)| {
        let first = index * 32;
        let above = bits.start.saturating_sub(first).min(31);
        let below = (first + 32).saturating_sub(bits.end).min(31);
        (word >> above << above << below >> below).count_ones() as usize
    };
    words.map(within).sum()
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
