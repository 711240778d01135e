//! The search: delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002) along
//! every axis of a call, until no single index of any axis can go.
//!
//! The index of the worst element is kept where an axis leads to it, since that element is most likely to stay wrong.

use crate::axes::axes;
use crate::axis::Axis;
use crate::body::ForeignBody;
use crate::specimen::Specimen;
use crate::trial::{Failure, TrialOutcome, Trials};
use std::collections::HashSet;
use tapml_graph::Result;

/// Calls that are tried at once: of equal sizes they share one kernel and one submission.
/// The first that fails is taken, so later ones of a batch may be run in vain.
const BATCH: usize = 8;

/// Where the worst element of the outputs is.
///
/// The position is given along each dimension of the output.
#[derive(Clone, Debug)]
struct Focus {
    /// Which output.
    output: usize,
    /// Position along each of its dimensions.
    at: Vec<usize>,
}

impl Focus {
    /// `None` if the call could not be run, so that no element is known.
    fn from_failure(specimen: &Specimen, failure: &Failure) -> Option<Focus> {
        let Failure::Wrong(wrong) = failure else { return None };
        let worst = wrong.judgement.worst;
        let shape = specimen.call.output_types.get(worst.output)?.sizes(&specimen.call.symbols).ok()?;
        let mut rest = worst.index;
        let mut at: Vec<usize> = shape
            .iter()
            .rev()
            .map(|&size| {
                let position = rest % size.max(1);
                rest /= size.max(1);
                position
            })
            .collect();
        at.reverse();
        Some(Focus { output: worst.output, at })
    }

    /// The index along the axis; `None` if the axis does not run through this output.
    fn index(&self, axis: &Axis) -> Option<usize> {
        let places = axis.outputs.iter().filter(|p| p.tensor == self.output);
        places.filter_map(|p| p.index(axis.len, *self.at.get(p.dim)?)).next()
    }

    /// Where the element is when only `kept` remains.
    fn move_to(mut self, axis: &Axis, kept: &[usize]) -> Option<Focus> {
        for place in axis.outputs.iter().filter(|p| p.tensor == self.output) {
            let at = self.at.get_mut(place.dim)?;
            *at = place.moved_position(axis.len, kept, *at)?;
        }
        Some(self)
    }
}

/// The index along an axis of the element that is most wrong, if the axis leads to it.
pub fn worst_index(specimen: &Specimen, failure: &Failure, axis: &Axis) -> Option<usize> {
    Focus::from_failure(specimen, failure)?.index(axis)
}

/// The smallest failing call so far.
pub struct Search<'a, 'p> {
    trials: &'a mut Trials<'p>,
    /// The call.
    pub best: Specimen,
    /// How it fails.
    pub failure: Failure,
    /// Whether no single step makes it smaller.
    pub minimal: bool,
}

impl<'a, 'p> Search<'a, 'p> {
    /// A search that begins with this failing call.
    pub fn new(trials: &'a mut Trials<'p>, best: Specimen, failure: Failure) -> Search<'a, 'p> {
        Search { trials, best, failure, minimal: false }
    }

    /// Searches until nothing can go any more, or time is up.
    ///
    /// # Errors
    ///
    /// A platform that can run nothing any more. The best call so far stays.
    pub fn run(&mut self) -> Result<()> {
        for only_focused in [false, true] {
            // Many failures show in a single element; then one step does most of the work.
            let jump = self.leap(only_focused)?;
            if self.first_failing(vec![jump])?.is_some() {
                break;
            }
        }
        // Another round, since what went along one axis may let others go.
        while self.round()? {}
        self.minimal = !self.trials.is_expired();
        Ok(())
    }

    /// Every axis once; whether anything went.
    fn round(&mut self) -> Result<bool> {
        let (mut tried, mut smaller) = (HashSet::new(), false);
        while !self.trials.is_expired() {
            let focus = Focus::from_failure(&self.best, &self.failure);
            // Axes change with the call, so they are found anew after each.
            let mut left = axes(&self.best, self.trials.oracles())?;
            left.retain(|a| !tried.contains(&a.name));
            // Axes that lead to the worst element first; of these the one with the most elements.
            left.sort_by_cached_key(|a| {
                let focused = focus.as_ref().and_then(|f| f.index(a)).is_some();
                (!focused, std::cmp::Reverse(self.elements_along(a)))
            });
            let Some(axis) = left.into_iter().next() else { break };
            smaller |= self.shrink(&axis, focus.and_then(|f| f.index(&axis)))?;
            tried.insert(axis.name);
        }
        Ok(smaller)
    }

    /// Takes the call with changed operators of others in the place of the best if they accept it and it still fails; whether it
    /// does.
    pub fn attempt(&mut self, change: impl FnOnce(ForeignBody) -> Option<ForeignBody>) -> Result<bool> {
        if self.trials.is_expired() {
            return Ok(false);
        }
        let changed = self.best.body().and_then(change);
        let changed =
            changed.and_then(|body| self.best.clone().inferred_as(body, self.trials.oracles()).ok());
        Ok(self.first_failing(changed.into_iter().collect())?.is_some())
    }

    /// Elements of all inputs that the axis runs through.
    fn elements_along(&self, axis: &Axis) -> usize {
        axis.inputs.iter().map(|p| self.best.call.inputs[p.tensor].len()).sum()
    }

    /// The call with one index left of every axis: that of the worst element, or the first. With `only_focused`, axes
    /// that do not lead to the worst element stay whole.
    fn leap(&self, only_focused: bool) -> Result<Specimen> {
        let mut now = self.best.clone();
        let mut focus = Focus::from_failure(&self.best, &self.failure);
        let mut stuck = HashSet::new();
        loop {
            let index = |axis: &Axis| focus.as_ref().and_then(|f| f.index(axis));
            let mut left =
                axes(&now, self.trials.oracles())?.into_iter().filter(|a| !stuck.contains(&a.name));
            let Some(axis) = left.find(|a| !only_focused || index(a).is_some()) else { return Ok(now) };
            let kept: Vec<usize> = match index(&axis) {
                Some(k) => vec![k],
                None => (0..axis.least).collect(),
            };
            match now.cut(&axis, &kept, self.trials.oracles()) {
                Ok(cut) => {
                    focus = focus.and_then(|f| f.move_to(&axis, &kept));
                    now = cut;
                }
                // The operator refuses one index along this axis: it stays whole.
                Err(_) => drop(stuck.insert(axis.name)),
            }
        }
    }

    /// Makes the call as small along one axis as it gets; whether anything went.
    fn shrink(&mut self, axis: &Axis, focus: Option<usize>) -> Result<bool> {
        let whole = self.best.clone();
        let mut kept: Vec<usize> = (0..axis.len).collect();
        for windows in windows(axis, focus) {
            if let Some(at) = self.first_kept(&whole, axis, &windows)? {
                kept.clone_from(&windows[at]);
                break;
            }
        }
        // Halves first, then ever smaller runs; at single indices until no more can go.
        let mut chunk = kept.len().div_ceil(2);
        while chunk > 0 && kept.len() > axis.least && !self.trials.is_expired() {
            let removed = self.pass(&whole, axis, &mut kept, chunk)?;
            // Single indices are tried again as long as one could go.
            if chunk > 1 || !removed {
                chunk /= 2;
            }
        }
        Ok(kept.len() < axis.len)
    }

    /// Tries to remove each run of `chunk` indices; whether one could go.
    fn pass(&mut self, whole: &Specimen, axis: &Axis, kept: &mut Vec<usize>, chunk: usize) -> Result<bool> {
        let (mut at, mut removed) = (0, false);
        while at < kept.len() && !self.trials.is_expired() {
            let starts: Vec<usize> = (at..kept.len()).step_by(chunk).take(BATCH).collect();
            let without = |start: usize| {
                let rest = kept.iter().enumerate().filter(|(i, _)| !(start..start + chunk).contains(i));
                rest.map(|(_, &k)| k).collect::<Vec<usize>>()
            };
            let mut candidates: Vec<Vec<usize>> = starts.iter().map(|&s| without(s)).collect();
            // Too few indices would remain.
            candidates.retain(|c| c.len() >= axis.least);
            match self.first_kept(whole, axis, &candidates)? {
                Some(first) => {
                    // What follows has moved to this place.
                    at = starts[first];
                    *kept = candidates.swap_remove(first);
                    removed = true;
                }
                None => at += BATCH * chunk,
            }
        }
        Ok(removed)
    }

    /// The first of these choices of indices with which the call still fails. It becomes the best.
    fn first_kept(&mut self, whole: &Specimen, axis: &Axis, kept: &[Vec<usize>]) -> Result<Option<usize>> {
        let (mut at, mut calls) = (Vec::new(), Vec::new());
        for (i, kept) in kept.iter().enumerate() {
            // What the operator refuses is no candidate.
            // Cut from the whole, so that positions stay those of the axis.
            if let Ok(call) = whole.cut(axis, kept, self.trials.oracles()) {
                at.push(i);
                calls.push(call);
            }
        }
        Ok(self.first_failing(calls)?.map(|first| at[first]))
    }

    /// The first of these calls that still fails. It becomes the best.
    fn first_failing(&mut self, mut calls: Vec<Specimen>) -> Result<Option<usize>> {
        let outcomes = self.trials.run(&calls)?;
        for (i, outcome) in outcomes.into_iter().enumerate() {
            if let TrialOutcome::Fails(failure) = outcome {
                (self.best, self.failure) = (calls.swap_remove(i), failure);
                return Ok(Some(i));
            }
        }
        Ok(None)
    }
}

/// Runs of few indices to try before delta debugging, in growing sizes: around the worst element, or else at both ends.
/// Every list holds windows of one size.
fn windows(axis: &Axis, focus: Option<usize>) -> Vec<Vec<Vec<usize>>> {
    let sizes = std::iter::successors(Some(1usize), |s| Some(s * 2)).take_while(|&s| s < axis.len);
    let sizes = (0..axis.least.max(1)).chain(sizes).filter(|&s| s >= axis.least);
    let window = |size: usize| {
        let last = axis.len - size;
        // The wrong element last or first in the window, and the beginning of the axis.
        let starts = match focus {
            Some(k) => [(k + 1).saturating_sub(size).min(last), k.min(last), 0],
            None => [0, last, 0],
        };
        let mut unique: Vec<usize> = Vec::new();
        starts.into_iter().for_each(|s| {
            if !unique.contains(&s) {
                unique.push(s)
            }
        });
        unique.into_iter().map(|s| (s..s + size).collect()).collect()
    };
    sizes.map(window).collect()
}
