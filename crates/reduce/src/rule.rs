//! With which sizes a call of an operator of others fails: each axis of the whole call is made shorter, the others stay.

use crate::axis::{Axis, axes};
use crate::search::worst_index;
use crate::specimen::Specimen;
use crate::trial::{Failure, Outcome, Trials};
use serde::{Deserialize, Serialize};
use tapml_graph::{Op, Result};

/// Sizes of an axis that are tried: all up to this one, and its own.
const MOST: usize = 16;
/// Sizes of which a rule must say something.
const FEW: usize = 4;
/// Sizes of vectors and tiles, by which sizes may have to divide.
const DIVISORS: std::ops::RangeInclusive<usize> = 2..=8;

/// What sizes of an axis do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeRule {
    /// The sizes of inputs that change together, such as `size 1 of input 0`.
    pub axis: String,
    /// When the call fails, such as `it is no multiple of 4`.
    pub fails: String,
    /// The sizes that were tried.
    pub tried: Vec<usize>,
    /// Those that fail.
    pub failing: Vec<usize>,
}

/// What is found along each axis of a failing call, as far as time allows; nothing where every size fails.
pub(crate) fn size_rules(
    trials: &mut Trials<'_>,
    whole: &Specimen,
    failure: &Failure,
) -> Result<Vec<SizeRule>> {
    let mut rules = Vec::new();
    if !matches!(whole.call.op, Op::Foreign(_)) {
        return Ok(rules);
    }
    for axis in axes(whole, trials.oracles())? {
        if trials.expired() {
            break;
        }
        let focus = worst_index(whole, failure, &axis).unwrap_or(0);
        let sizes: Vec<usize> = (axis.least.max(1)..axis.len.min(MOST + 1)).chain([axis.len]).collect();
        let cut = |&size: &usize| {
            // What fails stays in; the others come from the front.
            let mut kept: Vec<usize> = (0..axis.len).filter(|&k| k != focus).take(size - 1).collect();
            kept.push(focus);
            kept.sort_unstable();
            Some((size, whole.cut(&axis, &kept, trials.oracles()).ok()?))
        };
        let (sizes, specimens): (Vec<usize>, Vec<Specimen>) = sizes.iter().filter_map(cut).unzip();
        let outcomes = trials.run(&specimens)?;
        let known = sizes.into_iter().zip(outcomes).filter_map(|(size, outcome)| match outcome {
            Outcome::Fails(_) => Some((size, true)),
            Outcome::Passes { .. } => Some((size, false)),
            Outcome::Invalid(_) => None,
        });
        rules.extend(of_axis(&axis, &known.collect::<Vec<_>>()));
    }
    Ok(rules)
}

fn of_axis(axis: &Axis, known: &[(usize, bool)]) -> Option<SizeRule> {
    let fails = condition(known)?;
    let (tried, failing) = (sizes(known, |_| true), sizes(known, |fails| fails));
    Some(SizeRule { axis: named(axis), fails, tried, failing })
}

fn sizes(known: &[(usize, bool)], wanted: impl Fn(bool) -> bool) -> Vec<usize> {
    known.iter().filter(|(_, fails)| wanted(*fails)).map(|(size, _)| *size).collect()
}

/// The axis as a person finds it in the inputs.
fn named(axis: &Axis) -> String {
    let of_inputs = axis.inputs.iter().map(|place| format!("size {} of input {}", place.dim, place.tensor));
    let of_values = axis.values.iter().map(|(input, at)| format!("element {at} of input {input}"));
    of_inputs.chain(of_values).collect::<Vec<_>>().join(" and ")
}

/// The simplest condition that holds for just the sizes that fail; `None` if all fail or too few were tried.
fn condition(known: &[(usize, bool)]) -> Option<String> {
    let some = |wanted: bool| known.iter().any(|(_, fails)| *fails == wanted);
    if known.len() < FEW || !some(true) || !some(false) {
        return None;
    }
    let holds = |rule: &dyn Fn(usize) -> bool| known.iter().all(|&(size, fails)| rule(size) == fails);
    let (least, most) =
        (known.iter().filter(|k| k.1).map(|k| k.0).min()?, known.iter().filter(|k| k.1).map(|k| k.0).max()?);
    if holds(&|size| size >= least) {
        return Some(format!("it is {least} or more"));
    }
    if holds(&|size| size <= most) {
        return Some(format!("it is {most} or less"));
    }
    let multiple = |by: usize, is: bool| match is {
        true => format!("it is a multiple of {by}"),
        false => format!("it is no multiple of {by}"),
    };
    for by in DIVISORS {
        for is in [true, false] {
            if holds(&|size| size.is_multiple_of(by) == is) {
                return Some(multiple(by, is));
            }
        }
    }
    for by in DIVISORS {
        for and in DIVISORS.filter(|and| *and != by) {
            if holds(&|size| size.is_multiple_of(by) && !size.is_multiple_of(and)) {
                return Some(format!(
                    "{} and {}",
                    multiple(by, true),
                    &multiple(and, false)["it is ".len()..]
                ));
            }
        }
    }
    let failing: Vec<String> = sizes(known, |fails| fails).iter().map(ToString::to_string).collect();
    Some(format!("it is {}", failing.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(fails: impl Fn(usize) -> bool) -> Option<String> {
        condition(&(1..=12).map(|size| (size, fails(size))).collect::<Vec<_>>())
    }

    #[test]
    fn sizes_that_fail_are_told_by_the_simplest_condition() {
        assert_eq!(told(|_| true), None, "every size fails");
        assert_eq!(told(|_| false), None);
        assert_eq!(told(|size| size >= 5).unwrap(), "it is 5 or more");
        assert_eq!(told(|size| size < 3).unwrap(), "it is 2 or less");
        assert_eq!(told(|size| size % 4 != 0).unwrap(), "it is no multiple of 4");
        assert_eq!(told(|size| size % 3 == 0).unwrap(), "it is a multiple of 3");
        assert_eq!(
            told(|size| size % 3 == 0 && size % 4 != 0).unwrap(),
            "it is a multiple of 3 and no multiple of 4"
        );
        assert_eq!(told(|size| [2, 3, 11].contains(&size)).unwrap(), "it is 2, 3, 11");
        assert_eq!(condition(&[(1, true), (2, false)]), None, "two sizes tell nothing");
    }
}
