//! With which sizes a call of an operator of others fails: each axis of the whole call is made shorter, the others stay.
//!
//! A rule says what was tried, not why. Conditions are those of loops over vectors and tiles: bounds and divisors.

use crate::axes::axes;
use crate::axis::Axis;
use crate::search::worst_index;
use crate::specimen::Specimen;
use crate::trial::{Failure, TrialOutcome, Trials};
use serde::{Deserialize, Serialize};
use std::fmt;
use tapml_graph::Result;

/// Sizes of an axis that are tried: all up to this one, and its own.
/// Small sizes show tails and tiles; each is a call to run.
const MOST: usize = 16;
/// Sizes of each of two axes that are tried together.
/// Pairs are 64 calls at most.
const MOST_OF_TWO: usize = 8;
/// Pairs of axes that are tried.
/// Calls of many axes have more pairs than time allows.
const PAIRS: usize = 6;
/// Sizes of which a rule must say something.
/// Fewer sizes fit too many conditions.
const MIN_SIZES: usize = 4;
/// Sizes of vectors and tiles, by which sizes may have to divide.
const DIVISORS: std::ops::RangeInclusive<usize> = 2..=8;

/// What sizes of an axis do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeRule {
    /// The sizes of inputs that change together, such as `size 1 of input 0`.
    pub axis: String,
    /// When the call fails, such as `it is no multiple of 4`.
    pub fails: String,
    /// The sizes that were tried; empty for a rule of two axes.
    pub tried: Vec<usize>,
    /// Those that fail.
    pub failing: Vec<usize>,
    /// Of a rule of two axes: the sizes of both that were tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried_pairs: Vec<(usize, usize)>,
    /// Those that fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing_pairs: Vec<(usize, usize)>,
}

/// What is found along each axis of a failing call, and along two at a time where neither alone tells, as far as time allows;
/// nothing where every size fails.
///
/// # Errors
///
/// A platform that can run nothing any more, or axes that cannot be found.
pub(crate) fn size_rules(
    trials: &mut Trials<'_>,
    whole: &Specimen,
    failure: &Failure,
) -> Result<Vec<SizeRule>> {
    let mut rules = Vec::new();
    if whole.body().is_none() {
        return Ok(rules);
    }
    let mut silent: Vec<Axis> = Vec::new();
    for axis in axes(whole, trials.oracles())? {
        if trials.is_expired() {
            return Ok(rules);
        }
        let of_size = |&size: &usize| Some((size, shorten(trials, whole, failure, &axis, size)?));
        let (sizes, specimens): (Vec<usize>, Vec<Specimen>) =
            sizes_of(&axis, MOST).iter().filter_map(of_size).unzip();
        let known = known_results(trials, sizes, &specimens)?;
        match of_axis(&axis, &known) {
            Some(rule) => rules.push(rule),
            // Every size fails, or too few ran: another axis may hide what this one does.
            None => silent.push(axis),
        }
    }
    rules.extend(of_pairs(trials, whole, failure, &silent)?);
    Ok(rules)
}

/// The first rule of two axes of which every size fails alone: one of them is enough, so that it hides the other.
fn of_pairs(
    trials: &mut Trials<'_>,
    whole: &Specimen,
    failure: &Failure,
    axes: &[Axis],
) -> Result<Option<SizeRule>> {
    let pairs = axes.iter().enumerate().flat_map(|(i, a)| axes[i + 1..].iter().map(move |b| (a, b)));
    // Each size of both is combined, since either may be the one that hides.
    for (a, b) in pairs.take(PAIRS) {
        if trials.is_expired() {
            break;
        }
        let (of_a, of_b) = (sizes_of(a, MOST_OF_TWO), sizes_of(b, MOST_OF_TWO));
        let all = of_a.iter().flat_map(|&first| of_b.iter().map(move |&second| (first, second)));
        let cut = |(first, second): (usize, usize)| {
            let shorter = shorten(trials, whole, failure, a, first)?;
            // The axis of the shorter call has another name if its members changed.
            let axis = self::axes(&shorter, trials.oracles())
                .ok()?
                .into_iter()
                .find(|axis| axis_name(axis) == axis_name(b));
            Some(((first, second), shorten(trials, &shorter, failure, &axis?, second)?))
        };
        let (sizes, specimens): (Vec<(usize, usize)>, Vec<Specimen>) = all.filter_map(cut).unzip();
        let known = known_results(trials, sizes, &specimens)?;
        if let Some((first, second)) = find_either(&known) {
            return Ok(Some(SizeRule {
                axis: format!("{}, and {}", axis_name(a), axis_name(b)),
                fails: format!("the first is {first}, or the second is {second}"),
                tried_pairs: known.iter().map(|(pair, _)| *pair).collect(),
                failing_pairs: known.iter().filter(|k| k.1).map(|(pair, _)| *pair).collect(),
                ..SizeRule::default()
            }));
        }
    }
    Ok(None)
}

/// Sizes of an axis that are tried, its own last.
fn sizes_of(axis: &Axis, most: usize) -> Vec<usize> {
    (axis.least.max(1)..axis.len.min(most + 1)).chain([axis.len]).collect()
}

/// The call with so many indices of an axis: what fails stays in, the others come from the front.
fn shorten(
    trials: &Trials<'_>,
    whole: &Specimen,
    failure: &Failure,
    axis: &Axis,
    size: usize,
) -> Option<Specimen> {
    if size == axis.len {
        return Some(whole.clone());
    }
    // Without the wrong element a shorter call may pass for that reason alone.
    let focus = worst_index(whole, failure, axis).filter(|&k| k < axis.len).unwrap_or(0);
    let mut kept: Vec<usize> = (0..axis.len).filter(|&k| k != focus).take(size - 1).collect();
    kept.push(focus);
    kept.sort_unstable();
    whole.cut(axis, &kept, trials.oracles()).ok()
}

/// What the calls of these sizes do, without those that say nothing.
fn known_results<S>(
    trials: &mut Trials<'_>,
    sizes: Vec<S>,
    specimens: &[Specimen],
) -> Result<Vec<(S, bool)>> {
    let outcomes = trials.run(specimens)?;
    let known = sizes.into_iter().zip(outcomes).filter_map(|(size, outcome)| match outcome {
        TrialOutcome::Fails(_) => Some((size, true)),
        TrialOutcome::Passes { .. } => Some((size, false)),
        TrialOutcome::Invalid(_) => None,
    });
    Ok(known.collect())
}

/// The rule of one axis; `None` if all sizes fail or too few say anything.
fn of_axis(axis: &Axis, known: &[(usize, bool)]) -> Option<SizeRule> {
    let fails = format!("it is {}", condition(known)?);
    let (tried, failing) = (sizes(known, |_| true), sizes(known, |fails| fails));
    Some(SizeRule { axis: axis_name(axis), fails, tried, failing, ..SizeRule::default() })
}

/// Sizes that fail, or that pass, as `wanted` says.
fn sizes(known: &[(usize, bool)], wanted: impl Fn(bool) -> bool) -> Vec<usize> {
    known.iter().filter(|(_, fails)| wanted(*fails)).map(|(size, _)| *size).collect()
}

/// The axis as a person finds it in the inputs.
fn axis_name(axis: &Axis) -> String {
    let of_inputs = axis.inputs.iter().map(|place| format!("size {} of input {}", place.dim, place.tensor));
    let of_values = axis.values.iter().map(|(input, at)| format!("element {at} of input {input}"));
    of_inputs.chain(of_values).collect::<Vec<_>>().join(" and ")
}

/// What may hold of a size.
///
/// `MultipleOfOneOnly(a, b)` holds for multiples of `a` that are none of `b`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    AtLeast(usize),
    AtMost(usize),
    Multiple(usize),
    NoMultiple(usize),
    MultipleOfOneOnly(usize, usize),
    OneOf(Vec<usize>),
}

impl Condition {
    /// Whether the condition is true of a size.
    fn holds(&self, size: usize) -> bool {
        match self {
            Condition::AtLeast(least) => size >= *least,
            Condition::AtMost(most) => size <= *most,
            Condition::Multiple(by) => size.is_multiple_of(*by),
            Condition::NoMultiple(by) => !size.is_multiple_of(*by),
            Condition::MultipleOfOneOnly(by, and) => size.is_multiple_of(*by) && !size.is_multiple_of(*and),
            Condition::OneOf(sizes) => sizes.contains(&size),
        }
    }

    /// Those that may hold of sizes up to `most`, the simplest first.
    fn all(most: usize) -> impl Iterator<Item = Condition> {
        // Bounds are simpler than divisors, and one divisor is simpler than two.
        let bounds = (1..=most).map(Condition::AtLeast).chain((1..=most).map(Condition::AtMost));
        let divides = DIVISORS.flat_map(|by| [Condition::Multiple(by), Condition::NoMultiple(by)]);
        let other = |by| DIVISORS.filter(move |and| *and != by).map(move |and| (by, and));
        let one_only = DIVISORS.flat_map(other).map(|(by, and)| Condition::MultipleOfOneOnly(by, and));
        bounds.chain(divides).chain(one_only)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::AtLeast(least) => write!(f, "{least} or more"),
            Condition::AtMost(most) => write!(f, "{most} or less"),
            Condition::Multiple(by) => write!(f, "a multiple of {by}"),
            Condition::NoMultiple(by) => write!(f, "no multiple of {by}"),
            Condition::MultipleOfOneOnly(by, and) => write!(f, "a multiple of {by} and no multiple of {and}"),
            Condition::OneOf(sizes) => {
                f.write_str(&sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// The simplest condition that holds for just the sizes that fail; `None` if all fail or too few were tried.
fn condition(known: &[(usize, bool)]) -> Option<Condition> {
    if known.len() < MIN_SIZES || known.iter().all(|k| k.1) || !known.iter().any(|k| k.1) {
        return None;
    }
    let most = known.iter().map(|k| k.0).max()?;
    let holds = |rule: &Condition| known.iter().all(|&(size, fails)| rule.holds(size) == fails);
    // If no simple condition fits, the failing sizes themselves are the rule.
    Condition::all(most).find(holds).or_else(|| Some(Condition::OneOf(sizes(known, |fails| fails))))
}

/// The simplest two conditions, one for each size of a pair, of which either holds for just the pairs that fail.
fn find_either(known: &[((usize, usize), bool)]) -> Option<(Condition, Condition)> {
    if known.len() < MIN_SIZES * MIN_SIZES || known.iter().all(|k| k.1) || !known.iter().any(|k| k.1) {
        return None;
    }
    let most = known.iter().map(|((a, b), _)| *a.max(b)).max()?;
    let all: Vec<Condition> = Condition::all(most).collect();
    // A condition that holds for a pair that passes is none.
    let passing = |first: bool| {
        let of = |(pair, _): &((usize, usize), bool)| if first { pair.0 } else { pair.1 };
        known.iter().filter(|k| !k.1).map(of).collect::<Vec<usize>>()
    };
    let fit = |first: bool| {
        let passing = passing(first);
        let fit = move |rule: &&Condition| !passing.iter().any(|&size| rule.holds(size));
        all.iter().filter(fit).collect::<Vec<&Condition>>()
    };
    let (first, second) = (fit(true), fit(false));
    let pairs = first.iter().flat_map(|a| second.iter().map(move |b| (*a, *b)));
    let mut right =
        pairs.filter(|(a, b)| known.iter().all(|&((x, y), fails)| (a.holds(x) || b.holds(y)) == fails));
    right.next().map(|(a, b)| (a.clone(), b.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe_rule(fails: impl Fn(usize) -> bool) -> Option<String> {
        condition(&(1..=12).map(|size| (size, fails(size))).collect::<Vec<_>>()).map(|rule| rule.to_string())
    }

    #[test]
    fn sizes_that_fail_are_told_by_the_simplest_condition() {
        assert_eq!(describe_rule(|_| true), None, "every size fails");
        assert_eq!(describe_rule(|_| false), None);
        assert_eq!(describe_rule(|size| size >= 5).unwrap(), "5 or more");
        assert_eq!(describe_rule(|size| size < 3).unwrap(), "2 or less");
        assert_eq!(describe_rule(|size| size % 4 != 0).unwrap(), "no multiple of 4");
        assert_eq!(describe_rule(|size| size % 3 == 0).unwrap(), "a multiple of 3");
        assert_eq!(
            describe_rule(|size| size % 3 == 0 && size % 4 != 0).unwrap(),
            "a multiple of 3 and no multiple of 4"
        );
        assert_eq!(describe_rule(|size| [2, 3, 11].contains(&size)).unwrap(), "2, 3, 11");
        assert_eq!(condition(&[(1, true), (2, false)]), None, "two sizes tell nothing");
    }

    #[test]
    fn of_two_sizes_either_may_be_enough() {
        let pairs = || (1..=8).flat_map(|a| (1..=8).map(move |b| (a, b)));
        let told = |fails: &dyn Fn(usize, usize) -> bool| {
            let known: Vec<_> = pairs().map(|(a, b)| ((a, b), fails(a, b))).collect();
            find_either(&known).map(|(a, b)| format!("{a}; {b}"))
        };
        assert_eq!(told(&|a, b| a % 4 != 0 || b % 4 != 0).unwrap(), "no multiple of 4; no multiple of 4");
        assert_eq!(told(&|a, b| a > 5 || b % 3 == 0).unwrap(), "6 or more; a multiple of 3");
        assert_eq!(told(&|a, b| (a + b) % 2 == 0), None);
        assert_eq!(told(&|_, _| true), None);
    }
}
