//! `NegativeLogLikelihoodLoss` and `SoftmaxCrossEntropyLoss`, both from version 12 on.
//!
//! The latter is the former of the logarithm of a softmax over the classes.

use super::softmax::log_probabilities;
use crate::array::{Array, axis_sizes};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, terms};
use crate::real::Real;
use tapml_graph::{Error, Result, Tensor};

/// The loss of `[batch, classes, …]` log-probabilities: `−weight[class]·x[class]` at each place, reduced.
///
/// Targets are `[batch, …]`. A target equal to `ignore_index` has the loss 0 and no weight. With `mean`, the sum is divided by
/// the sum of the weights of all targets, which gives NaN if every target is ignored.
///
/// # Errors
/// If shapes do not fit, a target is no class, or `reduction` is none of `none`, `sum` and `mean`.
fn loss<T: Real>(call: &Call<'_>, x: &Array<T>) -> Result<Tensor> {
    let target = call.input(1)?;
    let weights = call.optional_array::<T>(2)?;
    let ignored = call.int("ignore_index")?;
    let (classes, own) = (x.shape[1], [&x.shape[..1], &x.shape[2..]].concat());
    if target.shape() != own || weights.as_ref().is_some_and(|weights| weights.data.len() != classes) {
        return Err(Error::invalid(format!(
            "targets {:?} or weights do not fit {:?}",
            target.shape(),
            x.shape
        )));
    }
    // Places behind the classes: `x` is `[batch, classes, behind]`, targets are `[batch, behind]`.
    let [_, _, behind] = axis_sizes(&x.shape, 1);
    let mut weight_sum = T::zero();
    let mut losses = Vec::with_capacity(target.len());
    for (at, &class) in target.to_i64()?.iter().enumerate() {
        // Before the range is checked: it may be any number, such as −100.
        if ignored == Some(class) {
            losses.push(T::zero());
            continue;
        }
        let class = usize::try_from(class).ok().filter(|&class| class < classes);
        let class = class.ok_or_else(|| Error::invalid(format!("a target outside of {classes} classes")))?;
        let weight = weights.as_ref().map_or(T::one(), |weights| weights.data[class]);
        weight_sum += weight;
        losses.push(-weight * x.data[(at / behind * classes + class) * behind + at % behind]);
    }
    let sum = losses.iter().copied().sum::<T>();
    let result = match call.text_or("reduction", "mean")? {
        "none" => Array { shape: own, data: losses },
        "sum" => Array { shape: vec![], data: vec![sum] },
        "mean" => Array { shape: vec![], data: vec![sum / weight_sum] },
        other => {
            return Err(Error::invalid(format!(
                "attribute `reduction`: there is no `{}`",
                other.escape_debug()
            )));
        }
    };
    call.store(result, call.dtype(0)?)
}

/// The first input, which has at least the axes of the batch and of the classes.
fn scores<T: Real>(call: &Call<'_>) -> Result<Array<T>> {
    let x = call.array::<T>(0)?;
    match x.rank() {
        2.. => Ok(x),
        _ => Err(Error::invalid(format!("expected batch and classes, found {:?}", x.shape))),
    }
}

/// `NegativeLogLikelihoodLoss`.
pub fn negative_log_likelihood<T: Real>(call: &Call<'_>) -> Outputs {
    Ok(vec![Some(loss(call, &scores::<T>(call)?)?)])
}

/// `SoftmaxCrossEntropyLoss`, with the log-probabilities as a further output.
pub fn softmax_cross_entropy<T: Real>(call: &Call<'_>) -> Outputs {
    let x = log_probabilities(&scores::<T>(call)?);
    let loss = loss(call, &x)?;
    Ok(vec![Some(loss), Some(call.store(x, call.dtype(0)?)?)])
}

/// The classes, and all places unless nothing is reduced.
pub fn loss_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let reduced = sizes.op.attributes().get("reduction").and_then(serde_json::Value::as_str) != Some("none");
    let places = crate::facts::product(sizes.shape(1));
    terms(if reduced { places } else { 1 }.max(sizes.size(0, 1)))
}
