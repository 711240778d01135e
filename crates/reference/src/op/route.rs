//! `route`, evaluated, and how near other choices are.
//!
//! A choice is discrete: a rounding of a logit may exchange two experts. So [`Near`] looks for every other choice that a small
//! disturbance could make, and how far the weights would jump.

use super::{InputRows, Route, rows};
use crate::eval::{Evaluate, Jump};
use crate::real::Real;
use crate::value::{Value, reserve};
use std::cmp::Ordering;
use tapml_graph::op::{GroupScore, Scores};
use tapml_graph::{Result, Symbols};

/// Relative disturbances from here on are no rounding, in no dtype that anything is accumulated in: choices farther away
/// are not looked at.
const FAR: f64 = 0.125;

impl Evaluate for Route {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (logits, bias) = parts(inputs)?;
        let k = self.k as usize;
        let (mut experts, mut weights) = (reserve(logits.rows, k)?, reserve(logits.rows, k)?);
        for logits in logits.iter() {
            let row = RouterRow::new(self, logits, bias);
            let chosen = row.choose(&row.best_groups());
            weights.extend(row.weights(&chosen));
            experts.extend(chosen.iter().map(|&e| e as u32));
        }
        let shape = vec![logits.rows, k];
        Ok(vec![Value::indices(shape.clone(), experts)?, Value::float(shape, weights)?])
    }

    fn jumps(&self, inputs: &[Value<f64>], amplitude: f64) -> Result<Option<Vec<Jump>>> {
        let (logits, bias) = parts(inputs)?;
        let k = self.k as usize;
        let (mut experts, mut weights) = (reserve(logits.rows, k)?, reserve(logits.rows, k)?);
        for logits in logits.iter() {
            let near = Near::new(RouterRow::new(self, logits, bias), amplitude);
            experts.extend(near.experts);
            weights.extend(near.weights);
        }
        Ok(Some(vec![Jump::Indices(experts), Jump::Numbers(weights)]))
    }
}

/// Logits and bias.
type RouterInputs<'a, T> = (InputRows<'a, T>, Option<&'a [T]>);

/// The inputs of the operator.
fn parts<T: Real>(inputs: &[Value<T>]) -> Result<RouterInputs<'_, T>> {
    let bias = if inputs.len() > 1 { Some(rows(inputs, 1)?.values) } else { None };
    Ok((rows(inputs, 0)?, bias))
}

/// One row: what its experts are worth.
struct RouterRow<'a, T> {
    /// The attributes.
    op: &'a Route,
    /// A logit for each expert.
    logits: &'a [T],
    /// What is added to what experts are compared by, and to no weight.
    bias: Option<&'a [T]>,
    /// What weights are made of.
    scores: Vec<T>,
    /// What experts are compared by.
    keys: Vec<T>,
}

impl<'a, T: Real> RouterRow<'a, T> {
    /// The scores and keys of one row.
    fn new(op: &'a Route, logits: &'a [T], bias: Option<&'a [T]>) -> RouterRow<'a, T> {
        let scores = match op.scores {
            Scores::Softmax => softmax(logits.to_vec()),
            Scores::Sigmoid => logits.iter().map(|&l| T::ONE / (T::ONE + (-l).exp())).collect(),
            Scores::SoftmaxOfTop => logits.to_vec(),
        };
        let mut keys = if op.by_logits(bias.is_some()) { logits.to_vec() } else { scores.clone() };
        for (key, &bias) in keys.iter_mut().zip(bias.unwrap_or_default()) {
            *key += bias;
        }
        // A NaN loses every comparison, so that the order is total.
        let is_nan = |v: &T| v.partial_cmp(v).is_none();
        keys.iter_mut().filter(|key| is_nan(key)).for_each(|key| *key = T::NEG_INFINITY);
        RouterRow { op, logits, bias, scores, keys }
    }

    /// The experts of a group.
    fn group(&self, group: usize) -> std::ops::Range<usize> {
        let size = self.keys.len() / self.op.groups.map_or(1, |g| g.count as usize).max(1);
        group * size..(group + 1) * size
    }

    /// The experts that decide what a group is worth, the best first.
    fn deciders(&self, group: usize) -> Vec<usize> {
        let mut experts = best_first(self.group(group), &self.keys);
        experts.truncate(match self.op.groups.map(|g| g.by) {
            Some(GroupScore::Top2Sum) => 2,
            _ => 1,
        });
        experts
    }

    /// What each group is worth.
    fn group_keys(&self) -> Vec<T> {
        let groups = 0..self.op.groups.map_or(1, |g| g.count as usize);
        let sum = |experts: Vec<usize>| experts.into_iter().map(|e| self.keys[e]).reduce(|a, b| a + b);
        groups.map(|g| sum(self.deciders(g)).unwrap_or(T::NEG_INFINITY)).collect()
    }

    /// The groups whose experts can be chosen.
    fn best_groups(&self) -> Vec<usize> {
        let keys = self.group_keys();
        let mut groups = best_first(0..keys.len(), &keys);
        groups.truncate(self.op.groups.map_or(1, |g| g.selected as usize));
        groups
    }

    /// The best experts of these groups.
    fn choose(&self, groups: &[usize]) -> Vec<usize> {
        let mut experts = best_first(groups.iter().flat_map(|&g| self.group(g)), &self.keys);
        experts.truncate(self.op.k as usize);
        experts
    }

    /// The weights of these experts.
    fn weights(&self, chosen: &[usize]) -> Vec<T> {
        let mut weights: Vec<T> = chosen.iter().map(|&e| self.scores[e]).collect();
        if self.op.scores == Scores::SoftmaxOfTop {
            weights = softmax(weights);
        }
        let mut factor = T::from_f64(f64::from(self.op.scale));
        if self.op.normalize {
            let sum = weights.iter().fold(T::ZERO, |sum, &w| sum + w);
            // Scores of sigmoids may all be 0.
            factor = factor / (sum + T::from_f64(1e-20));
        }
        weights.iter_mut().for_each(|w| *w = *w * factor);
        weights
    }
}

/// Indices by descending key; of equal ones the lower index comes first.
fn best_first<T: Real>(indices: impl IntoIterator<Item = usize>, keys: &[T]) -> Vec<usize> {
    let mut order: Vec<usize> = indices.into_iter().collect();
    // Keys hold no NaN, so that every pair has an order.
    let compare = |a: usize, b: usize| keys[b].partial_cmp(&keys[a]).unwrap_or(Ordering::Equal);
    order.sort_unstable_by(|&a, &b| compare(a, b).then(a.cmp(&b)));
    order
}

/// `exp(v − m) / Σ exp(v − m)` with the largest value as `m`.
fn softmax<T: Real>(mut values: Vec<T>) -> Vec<T> {
    let largest = values.iter().fold(T::NEG_INFINITY, |max, &v| max.max(v));
    values.iter_mut().for_each(|v| *v = (*v - largest).exp());
    let sum = values.iter().fold(T::ZERO, |sum, &v| sum + v);
    values.iter_mut().for_each(|v| *v = *v / sum);
    values
}

/// The choices near that of one row.
struct Near<'a> {
    /// The row.
    row: RouterRow<'a, f64>,
    /// The relative disturbance that is judged.
    amplitude: f64,
    /// How far each key moves for a relative disturbance of 1: of the logits, and of its own roundings.
    reach: Vec<f64>,
    /// The choice itself, best first.
    chosen: Vec<usize>,
    /// The weights of the chosen ones.
    exact: Vec<f64>,
    /// See [`Jump`].
    experts: Vec<f64>,
    weights: Vec<f64>,
}

impl<'a> Near<'a> {
    /// Looks at all choices near that of the row.
    fn new(row: RouterRow<'a, f64>, amplitude: f64) -> Near<'a> {
        let groups = row.best_groups();
        let chosen = row.choose(&groups);
        let none = vec![0.0; chosen.len()];
        let (reach, exact) = (reach(&row), row.weights(&chosen));
        let mut near = Near { row, amplitude, reach, chosen, exact, experts: none.clone(), weights: none };
        near.other_experts(&groups);
        near.other_groups(&groups);
        near
    }

    /// Choices in which two experts change places.
    ///
    /// A rival takes the place of a chosen expert; if it is chosen itself, both change their places.
    fn other_experts(&mut self, groups: &[usize]) {
        // Only experts of the chosen groups compete for a slot here.
        let rivals: Vec<usize> = groups.iter().flat_map(|&g| self.row.group(g)).collect();
        for slot in 0..self.chosen.len() {
            let own = self.chosen[slot];
            for &rival in &rivals {
                // Two chosen experts may change their slots, which is looked at once for each pair.
                let later = self.chosen.iter().position(|&e| e == rival);
                if later.is_some_and(|later| later <= slot) || self.equal(own, rival) {
                    continue;
                }
                let keys = &self.row.keys;
                let r = (keys[own] - keys[rival]) / (self.reach[own] + self.reach[rival]);
                self.widen(r, |near| {
                    let mut other = near.chosen.clone();
                    other[slot] = rival;
                    if let Some(later) = later {
                        other[later] = own;
                    }
                    other
                });
            }
        }
    }

    /// Choices in which a group that was left out takes the place of another.
    ///
    /// The rest of the choice then follows from the experts of the new groups.
    fn other_groups(&mut self, groups: &[usize]) {
        let keys = self.row.group_keys();
        // A group's key is a sum over its deciders, and so is how far it moves.
        let reach = |g: usize| self.row.deciders(g).into_iter().map(|e| self.reach[e]).sum::<f64>();
        let reach: Vec<f64> = (0..keys.len()).map(reach).collect();
        for (place, &own) in groups.iter().enumerate() {
            for rival in (0..keys.len()).filter(|g| !groups.contains(g)) {
                let r = (keys[own] - keys[rival]) / (reach[own] + reach[rival]);
                self.widen(r, |near| {
                    let mut other = groups.to_vec();
                    other[place] = rival;
                    near.row.choose(&other)
                });
            }
        }
    }

    /// Whether both have the same logit and bias, so that every computation compares them alike: the order of equal
    /// experts is fixed.
    fn equal(&self, a: usize, b: usize) -> bool {
        let RouterRow { logits, bias, .. } = self.row;
        logits[a] == logits[b] && bias.is_none_or(|bias| bias[a] == bias[b])
    }

    /// Takes into account that the choice may be `other` from a disturbance of `r` on.
    fn widen(&mut self, r: f64, other: impl FnOnce(&Self) -> Vec<usize>) {
        // NaN, where neither can move or a key is not finite, is no near choice.
        if !(0.0..=FAR).contains(&r) {
            return;
        }
        let share = (self.amplitude / r).min(1.0);
        let other = other(self);
        let weights = self.row.weights(&other);
        for slot in 0..self.chosen.len() {
            if self.chosen[slot] != other[slot] {
                self.experts[slot] = self.experts[slot].max(share);
            }
            let change = (weights[slot] - self.exact[slot]).abs();
            self.weights[slot] = self.weights[slot].max(change * share);
        }
    }
}

/// See [`Near::reach`].
fn reach(row: &RouterRow<'_, f64>) -> Vec<f64> {
    let RouterRow { op, logits, bias, scores, keys } = row;
    let mean = || scores.iter().zip(*logits).map(|(p, l)| p * l.abs()).sum::<f64>();
    let scores: Vec<f64> = match op.scores {
        _ if op.by_logits(bias.is_some()) => return logits.iter().map(|l| l.abs()).collect(),
        Scores::Softmax => {
            let mean = mean();
            scores.iter().zip(*logits).map(|(p, l)| p * (l.abs() + mean) + p).collect()
        }
        Scores::Sigmoid => scores.iter().zip(*logits).map(|(s, l)| s * (1.0 - s) * l.abs() + s).collect(),
        Scores::SoftmaxOfTop => logits.iter().map(|l| l.abs()).collect(),
    };
    scores.iter().zip(keys).map(|(s, key)| s + key.abs()).collect()
}
