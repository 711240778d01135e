//! Chooses the next token from logits: greedily, or at random from a distribution that is cut to its likely part.
//!
//! All arithmetic is in f64 and by `libm`, and the generator is PCG: results do not depend on the machine.
//! Sums run in a fixed order.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, BTreeSet};
use tapml_graph::{Error, Result};

mod partial;
pub(crate) use partial::{Exclusions, PartialRow};

/// How the next token is chosen. The default is greedy.
///
/// The steps are those of vLLM and of Transformers, in their order: logit bias, repetition penalty, frequency and presence
/// penalty, temperature, top-k, top-p, min-p, choice. The two differ in where min-p stands; here it is Transformers'.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits. 0 always takes the most likely token.
    pub temperature: f32,
    /// Only the `k` most likely tokens.
    pub top_k: Option<usize>,
    /// Only the most likely tokens that together reach this probability. Holtzman et al. 2020, section 3.1.
    pub top_p: Option<f32>,
    /// Only tokens at least this many times as likely as the most likely one. Nguyen et al. 2024, section 3.
    pub min_p: Option<f32>,
    /// Makes tokens that are in the text already less likely if above 1. Keskar et al. 2019, section 4.1.
    pub repetition_penalty: Option<f32>,
    /// Taken off the logit of each token that was chosen already; tokens of the prompt do not count. OpenAI's.
    pub presence_penalty: Option<f32>,
    /// Likewise, times how often the token was chosen.
    pub frequency_penalty: Option<f32>,
    /// Added to the logits of these tokens, from −100 to 100.
    pub logit_bias: Vec<(u32, f32)>,
    /// Makes the choices: equal seeds and logits give equal tokens on every machine.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            temperature: 0.0,
            top_k: None,
            top_p: None,
            min_p: None,
            repetition_penalty: None,
            presence_penalty: None,
            frequency_penalty: None,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

impl Sampling {
    /// Whether the most likely token is taken as it is, so that a device can choose it.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0 && self.logit_bias.is_empty() && !self.penalises()
    }

    /// Whether a token's logit depends on the text.
    fn penalises(&self) -> bool {
        self.repetition_penalty.is_some() || self.counts()
    }

    /// Whether it depends on how often the token was chosen.
    fn counts(&self) -> bool {
        self.presence_penalty.is_some() || self.frequency_penalty.is_some()
    }

    /// Fails if a value lies outside its range.
    pub fn check(&self) -> Result<()> {
        let bad = |name: &str, range: &str, found: f32| {
            Err(Error::invalid(format!("`{name}` must be {range}, found {found}")))
        };
        let share = |v: f32| (0.0..=1.0).contains(&v);
        match self {
            s if !(0.0..=1e4).contains(&s.temperature) => {
                bad("temperature", "from 0 to 10000", s.temperature)
            }
            Sampling { top_k: Some(0), .. } => bad("top_k", "at least 1", 0.0),
            Sampling { top_p: Some(p), .. } if !share(*p) || *p == 0.0 => {
                bad("top_p", "above 0 and at most 1", *p)
            }
            Sampling { min_p: Some(p), .. } if !share(*p) => bad("min_p", "from 0 to 1", *p),
            Sampling { repetition_penalty: Some(p), .. } if !(0.01..=100.0).contains(p) => {
                bad("repetition_penalty", "from 0.01 to 100", *p)
            }
            Sampling { presence_penalty: Some(p), .. } if !(-2.0..=2.0).contains(p) => {
                bad("presence_penalty", "from -2 to 2", *p)
            }
            Sampling { frequency_penalty: Some(p), .. } if !(-2.0..=2.0).contains(p) => {
                bad("frequency_penalty", "from -2 to 2", *p)
            }
            s => match s.logit_bias.iter().find(|(_, bias)| !(-100.0..=100.0).contains(bias)) {
                Some((_, found)) => bad("logit_bias", "from -100 to 100", *found),
                None => Ok(()),
            },
        }
    }
}

/// Chooses tokens one after another.
#[derive(Clone, Debug)]
pub struct Sampler {
    /// Checked.
    sampling: Sampling,
    /// One draw for each token that is not chosen greedily.
    random: Pcg64,
    /// How often each token was chosen, where that counts.
    chosen: BTreeMap<u32, u32>,
}

/// A token that may be chosen: its id, and its logit or, later, its probability.
type Candidate = (u32, f64);

impl Sampler {
    /// A sampler. Fails if a value lies outside its range.
    pub fn new(sampling: Sampling) -> Result<Sampler> {
        sampling.check()?;
        let random = Pcg64::seed_from_u64(sampling.seed);
        Ok(Sampler { sampling, random, chosen: BTreeMap::new() })
    }

    /// The next token after the text `history`. Of equally likely tokens, greedy choice takes the one of least id.
    /// Fails on a logit that is NaN or +infinity; −infinity means never.
    pub fn sample(&mut self, logits: &[f32], history: &[u32]) -> Result<u32> {
        if self.sampling.logit_bias.is_empty() {
            return self.sample_biased(logits, history);
        }
        let mut logits = logits.to_vec();
        self.add_bias(&mut logits);
        self.sample_biased(&logits, history)
    }

    /// Adds the logit bias. Tokens that the model does not have are passed over.
    pub(crate) fn add_bias(&self, logits: &mut [f32]) {
        for &(id, bias) in &self.sampling.logit_bias {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit += bias;
            }
        }
    }

    /// As [`Sampler::sample`], where the bias is in the logits already.
    pub(crate) fn sample_biased(&mut self, logits: &[f32], history: &[u32]) -> Result<u32> {
        check_logits(logits)?;
        let id = if self.sampling.temperature == 0.0 && !self.sampling.penalises() {
            greatest(logits)?
        } else {
            let candidates = self.candidates(logits, history)?;
            if self.sampling.temperature == 0.0 { candidates[0].0 } else { self.choose(&candidates) }
        };
        self.count(id);
        Ok(id)
    }

    /// Notes that a token was chosen, where that counts.
    fn count(&mut self, id: u32) {
        if self.sampling.counts() {
            *self.chosen.entry(id).or_default() += 1;
        }
    }

    /// What frequency and presence penalty take off the logit of a token that was chosen so often.
    fn taken_off(&self, count: u32) -> f64 {
        let presence = f64::from(self.sampling.presence_penalty.unwrap_or(0.0));
        let frequency = f64::from(self.sampling.frequency_penalty.unwrap_or(0.0));
        frequency * f64::from(count) + presence
    }

    /// How many of the most likely tokens decide; `None` if any token may.
    pub(crate) fn top_needed(&self) -> Option<usize> {
        let Sampling { temperature, top_k, logit_bias, .. } = &self.sampling;
        let needed = if *temperature == 0.0 { Some(1) } else { *top_k };
        needed.filter(|_| logit_bias.is_empty() && !self.sampling.penalises())
    }

    /// As [`Sampler::sample`] of a row of which only the most likely tokens are known: at least as many as [`Sampler::top_needed`] says,
    /// beside those that are excluded.
    pub(crate) fn sample_top(&mut self, row: &PartialRow, excluded: Exclusions) -> Result<u32> {
        greatest_of_top(row.tokens)?;
        let likely = row.tokens.iter().zip(row.logits).map(|(&id, &logit)| (id, f64::from(logit)));
        let mut candidates: Vec<Candidate> =
            likely.filter(|(id, logit)| *logit > f64::NEG_INFINITY && !excluded.contains(*id)).collect();
        let best = *candidates.first().ok_or_else(no_candidate_error)?;
        if self.sampling.temperature == 0.0 {
            return Ok(best.0);
        }
        self.cut_to_likely(&mut candidates, best.1);
        Ok(self.choose(&candidates))
    }

    /// The tokens that may be chosen with their probabilities, in the order of ids; at least one. Greedy choice leaves one.
    fn candidates(&self, logits: &[f32], history: &[u32]) -> Result<Vec<Candidate>> {
        let mut candidates: Vec<Candidate> = logits
            .iter()
            .zip(0..)
            .map(|(&l, id)| (id, f64::from(l)))
            .filter(|c| c.1 > f64::NEG_INFINITY)
            .collect();
        // Before the greedy choice: a penalty changes which token is the greatest.
        if let Some(penalty) = self.sampling.repetition_penalty {
            penalise(&mut candidates, history, f64::from(penalty));
        }
        if !self.chosen.is_empty() {
            self.penalise_chosen(&mut candidates);
        }
        let best = candidates.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a });
        let best = best.ok_or_else(no_candidate_error)?;
        if self.sampling.temperature == 0.0 {
            return Ok(vec![(best.0, 1.0)]);
        }
        self.cut_to_likely(&mut candidates, best.1);
        Ok(candidates)
    }

    /// Frequency and presence penalty, as OpenAI defines them.
    fn penalise_chosen(&self, candidates: &mut [Candidate]) {
        for (id, &count) in &self.chosen {
            // Candidates are in the order of ids.
            if let Ok(at) = candidates.binary_search_by_key(id, |c| c.0) {
                candidates[at].1 -= self.taken_off(count);
            }
        }
    }

    /// Cuts the candidates to the likely ones and turns their logits into probabilities. They end in the order of ids,
    /// so that the choice does not depend on how they were sorted.
    fn cut_to_likely(&self, candidates: &mut Vec<Candidate>, best: f64) {
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.sampling;
        if let Some(k) = top_k.filter(|&k| k < candidates.len()) {
            // A selection, not a sort: vocabularies are large.
            candidates.select_nth_unstable_by(k - 1, by_value);
            candidates.truncate(k);
        }
        for candidate in candidates.iter_mut() {
            // The greatest logit is taken off first, so that nothing overflows.
            candidate.1 = libm::exp((candidate.1 - best) / f64::from(temperature));
        }
        normalise(candidates);
        if let Some(p) = top_p.filter(|&p| p < 1.0) {
            keep_top(candidates, f64::from(p));
        }
        if let Some(p) = min_p {
            let most = candidates.iter().fold(0.0, |most, c| c.1.max(most));
            candidates.retain(|c| c.1 >= f64::from(p) * most);
        }
        candidates.sort_unstable_by_key(|c| c.0);
    }

    /// One of the candidates.
    fn choose(&mut self, candidates: &[Candidate]) -> u32 {
        choose(candidates, unit(&mut self.random))
    }
}

/// A number of 0 to 1, 1 excluded: the upper 53 bits.
fn unit(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 * (-53f64).exp2()
}

/// Inverse of the cumulative distribution at a uniform number.
fn choose(candidates: &[Candidate], unit: f64) -> u32 {
    let total: f64 = candidates.iter().map(|c| c.1).sum();
    let mut left = unit * total;
    let chosen = candidates.iter().filter(|c| c.1 > 0.0).find(|c| {
        left -= c.1;
        left < 0.0
    });
    // Rounding may leave a little at the end, which then falls to the last candidate.
    chosen.or(candidates.last()).map_or(0, |c| c.0)
}

/// Fails on a logit that is NaN or +infinity.
pub(crate) fn check_logits(logits: &[f32]) -> Result<()> {
    let wrong = |l: f32| l.is_nan() || l == f32::INFINITY;
    // Without an early end, which is faster: there are many logits, and they are right.
    let found = logits.iter().fold(false, |found, &l| found | wrong(l));
    let Some(bad) = found.then(|| logits.iter().position(|&l| wrong(l))).flatten() else { return Ok(()) };
    let value = logits[bad];
    Err(Error::invalid(format!("the logit of token {bad} is {value}, expected a finite number"))
        .with_hint("the model computed wrongly; `tapml diagnose` finds the operator"))
}

/// The token of the greatest logit, of several the one of least id.
pub(crate) fn greatest(logits: &[f32]) -> Result<u32> {
    // The greatest logit first, in lanes, which is faster: there are many logits.
    let mut lanes = [f32::NEG_INFINITY; 16];
    for chunk in logits.chunks(lanes.len()) {
        for (lane, logit) in lanes.iter_mut().zip(chunk) {
            *lane = if *logit > *lane { *logit } else { *lane };
        }
    }
    let most = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let found = logits.iter().position(|logit| *logit == most);
    found.filter(|_| most > f32::NEG_INFINITY).map(|id| id as u32).ok_or_else(no_candidate_error)
}

/// The first of the most likely tokens of a row.
pub(crate) fn greatest_of_top(tokens: &[u32]) -> Result<u32> {
    let first = tokens.first().copied().filter(|&first| first != u32::MAX);
    first.ok_or_else(|| {
        Error::invalid("some logits are not finite, or no token has a logit above -infinity")
            .with_hint("the model computed wrongly; `tapml diagnose` finds the operator")
    })
}

fn no_candidate_error() -> Error {
    Error::invalid("no token has a logit above -infinity")
}

/// Largest first, least id first among equals.
fn by_value(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

/// Makes the probabilities add up to 1.
fn normalise(candidates: &mut [Candidate]) {
    let total: f64 = candidates.iter().map(|c| c.1).sum();
    candidates.iter_mut().for_each(|c| c.1 /= total);
}

/// Keeps the fewest most likely candidates that together reach `share`, at least one.
fn keep_top(candidates: &mut Vec<Candidate>, share: f64) {
    // Candidates below this do not reach `1 − share` together, so that none of them is needed: less to sort.
    let needless = (1.0 - share) / candidates.len() as f64;
    candidates.retain(|c| c.1 >= needless);
    candidates.sort_unstable_by(by_value);
    let mut sum = 0.0;
    let kept = candidates.iter().take_while(|c| {
        let needed = sum < share;
        sum += c.1;
        needed
    });
    let kept = kept.count();
    candidates.truncate(kept);
    normalise(candidates);
}

/// A positive logit is divided and a negative one multiplied, so that both become less likely.
fn reduce_likelihood(logit: f64, penalty: f64) -> f64 {
    if logit > 0.0 { logit / penalty } else { logit * penalty }
}

/// Changes the candidates that stand in the history.
fn penalise(candidates: &mut [Candidate], history: &[u32], penalty: f64) {
    let seen: BTreeSet<u32> = history.iter().copied().collect();
    for candidate in candidates.iter_mut().filter(|c| seen.contains(&c.0)) {
        candidate.1 = reduce_likelihood(candidate.1, penalty);
    }
}

#[cfg(test)]
mod tests;
