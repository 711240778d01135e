//! `Einsum`: sums of products named by letters, as `numpy.einsum` reads them.
//!
//! Each label is an index. A label of the result runs over the elements of the result, any other is summed over. An operand is
//! read with one step for each label, so that diagonals, transposes and broadcasts need no code of their own.

use crate::array::{Array, StridedWalk, strides, volume};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, terms};
use crate::real::Real;
use tapml_graph::{Error, Result};

/// Labels of axes: letters, and numbers from 256 for the axes that `...` stands for, the last one first.
type Labels = Vec<u32>;

/// An error that shows at most 80 characters of the equation.
fn wrong(equation: &str, why: &str) -> Error {
    let equation: String = equation.chars().take(80).collect();
    Error::invalid(format!("attribute `equation` `{}`: {why}", equation.escape_debug()))
}

/// The labels of each operand and of the result.
///
/// Without `->`, the result has the axes of `...` and then, in alphabetical order, the letters that stand there once.
///
/// # Errors
/// If there are more or fewer operands than `ranks`, if labels do not fit the axes, or for any other character.
fn parse(equation: &str, ranks: &[usize]) -> Result<(Vec<Labels>, Labels)> {
    let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match text.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (text.as_str(), None),
    };
    let operands: Vec<&str> = left.split(',').collect();
    if operands.len() != ranks.len() {
        return Err(wrong(equation, &format!("{} operands for {} inputs", operands.len(), ranks.len())));
    }
    let letters = |text: &str| -> Result<Labels> {
        if text.chars().all(|c| c.is_ascii_alphabetic()) {
            Ok(text.chars().map(u32::from).collect())
        } else {
            Err(wrong(equation, "expected letters, `,`, `...` and `->`"))
        }
    };
    // Axes of `...` are counted from the last, so that they broadcast.
    let spread = |count: usize| (0..count as u32).rev().map(|at| 256 + at);
    // The result has as many axes for `...` as the operand with most of them.
    let mut widest = 0;
    let mut labels = Vec::new();
    for (text, &rank) in operands.iter().zip(ranks) {
        let own: Labels = match text.split_once("...") {
            None => letters(text)?,
            Some((before, behind)) => {
                let (before, behind) = (letters(before)?, letters(behind)?);
                let count = rank.checked_sub(before.len() + behind.len());
                let count =
                    count.ok_or_else(|| wrong(equation, &format!("an operand has only {rank} axes")))?;
                widest = widest.max(count);
                before.into_iter().chain(spread(count)).chain(behind).collect()
            }
        };
        if own.len() != rank {
            return Err(wrong(equation, &format!("{} labels for an operand of {rank} axes", own.len())));
        }
        labels.push(own);
    }
    let result = match right {
        Some(right) => match right.split_once("...") {
            None => letters(right)?,
            Some((before, behind)) => {
                letters(before)?.into_iter().chain(spread(widest)).chain(letters(behind)?).collect()
            }
        },
        None => {
            let mut once: Labels = labels.iter().flatten().copied().filter(|&label| label < 256).collect();
            once.sort_unstable();
            // A letter that stands twice, in one operand or in two, is summed over.
            let all = once.clone();
            once.retain(|label| all.iter().filter(|other| *other == label).count() == 1);
            spread(widest).chain(once).collect()
        }
    };
    for (at, label) in result.iter().enumerate() {
        if result[..at].contains(label) || !labels.iter().flatten().any(|own| own == label) {
            return Err(wrong(
                equation,
                "each label of the result has to stand there once and in an operand",
            ));
        }
    }
    Ok((labels, result))
}

/// The size of each label: those of the result first, then those that are summed over.
///
/// # Errors
/// If a label has two sizes other than 1.
fn extents(
    equation: &str,
    shapes: &[&[usize]],
    labels: &[Labels],
    result: &[u32],
) -> Result<Vec<(u32, usize)>> {
    let mut extents: Vec<(u32, usize)> = result.iter().map(|&label| (label, 1)).collect();
    // A size of 1 broadcasts to any other.
    for (&label, &size) in labels.iter().flatten().zip(shapes.iter().copied().flatten()) {
        match extents.iter_mut().find(|(own, _)| *own == label) {
            None => extents.push((label, size)),
            Some((_, own)) if *own == 1 => *own = size,
            Some((_, own)) if size == 1 || size == *own => {}
            Some((_, own)) => {
                return Err(wrong(equation, &format!("one label has the sizes {own} and {size}")));
            }
        }
    }
    Ok(extents)
}

/// `Einsum`: for each element of the result the sum of products over all labels that it has not.
///
/// # Errors
/// If the equation does not fit the inputs, or there are more than 2³¹ products in all.
pub fn einsum<T: Real>(call: &Call<'_>) -> Outputs {
    let equation =
        call.text("equation")?.ok_or_else(|| Error::invalid("the attribute `equation` is missing"))?;
    let arrays = (0..call.places()).map(|place| call.array::<T>(place)).collect::<Result<Vec<Array<T>>>>()?;
    let shapes: Vec<&[usize]> = arrays.iter().map(|array| array.shape.as_slice()).collect();
    let ranks: Vec<usize> = shapes.iter().map(|shape| shape.len()).collect();
    let (labels, result) = parse(equation, &ranks)?;
    let extents = extents(equation, &shapes, &labels, &result)?;
    let sizes: Vec<usize> = extents.iter().map(|&(_, size)| size).collect();
    let (kept, summed) = sizes.split_at(result.len());
    // Products are bounded as elements are: a short equation could ask for any number of them.
    volume(&sizes).map_err(|_| wrong(equation, "more than 2^31 products"))?;
    // The step of each operand along each label; an axis of size 1 is repeated.
    let steps = |(array, labels): (&Array<T>, &Labels)| -> Vec<usize> {
        let own = strides(&array.shape);
        let step = |&(label, _): &(u32, usize)| {
            let axes =
                labels.iter().enumerate().filter(|&(axis, &own)| own == label && array.shape[axis] != 1);
            // A letter that stands twice in one operand walks its diagonal: the steps of both axes add up.
            axes.map(|(axis, _)| own[axis]).sum()
        };
        extents.iter().map(step).collect()
    };
    let steps: Vec<Vec<usize>> = arrays.iter().zip(&labels).map(steps).collect();
    // Operands are walked in step with the result; sums begin at each operand's own place.
    let mut outer: Vec<StridedWalk> =
        steps.iter().map(|steps| StridedWalk::new(kept, &steps[..kept.len()])).collect();
    let inner: Vec<Vec<usize>> =
        steps.iter().map(|steps| StridedWalk::new(summed, &steps[kept.len()..]).collect()).collect();
    let count: usize = summed.iter().product();
    let mut y = Array::<T>::zeros(kept.to_vec())?;
    for y in &mut y.data {
        let first: Vec<usize> = outer.iter_mut().filter_map(StridedWalk::next).collect();
        // Factors are multiplied in the order of the operands.
        for at in 0..count {
            let factors = arrays.iter().zip(&first).zip(&inner);
            *y += factors
                .fold(T::one(), |product, ((array, first), inner)| product * array.data[first + inner[at]]);
        }
    }
    call.like_first(y)
}

/// The product of the sizes that are summed over.
pub fn einsum_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let equation =
        sizes.op.attributes().get("equation").and_then(serde_json::Value::as_str).unwrap_or_default();
    let shapes: Vec<&[usize]> = (0..sizes.op.inputs().len()).map(|place| sizes.shape(place)).collect();
    let ranks: Vec<usize> = shapes.iter().map(|shape| shape.len()).collect();
    let summed = parse(equation, &ranks).and_then(|(labels, result)| {
        let extents = extents(equation, &shapes, &labels, &result)?;
        Ok(extents[result.len()..].iter().fold(1usize, |product, &(_, size)| product.saturating_mul(size)))
    });
    terms(summed.unwrap_or(1))
}
