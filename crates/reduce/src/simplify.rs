//! Simpler values in a call that is as small as it gets: 0, 1, or few significant bits where they fail as well. They are
//! no longer those of the model, so they are kept apart from the real ones.
//!
//! A call with simple values is easier to compute by hand. It must fail as clearly as the real one.

use crate::specimen::Specimen;
use crate::trial::{Failure, TrialOutcome, Trials};
use tapml_graph::{Result, Tensor};

/// Significant bits of rounded values, fewest first.
/// Six bits are fewer than bf16 has.
const BITS: [i32; 3] = [1, 3, 6];
/// Elements up to which each is simplified for itself.
/// Each element takes a batch of runs.
const MOST_SINGLE: usize = 256;

/// A call with simpler values.
#[derive(Clone, Debug)]
pub struct Simplified {
    /// The call.
    pub specimen: Specimen,
    /// How it fails.
    pub failure: Failure,
    /// Elements that changed.
    pub changed: usize,
}

/// The call with simpler values; `None` if no value can be simpler.
///
/// # Errors
///
/// A platform that can run nothing any more.
pub fn simplify(trials: &mut Trials<'_>, call: &Specimen, failure: &Failure) -> Result<Option<Simplified>> {
    let (mut now, mut failure) = (call.clone(), failure.clone());
    for input in 0..now.call.inputs.len() {
        let tensor = &now.call.inputs[input];
        if !tensor.dtype().is_float() || trials.is_expired() {
            continue;
        }
        let values = tensor.to_f64();
        // All elements at once first, which often works for inputs that do not matter.
        let whole = forms().map(|form| values.iter().map(|&v| form(v)).collect()).collect();
        attempt(trials, &mut now, &mut failure, input, whole)?;
        for element in 0..values.len().min(MOST_SINGLE) {
            if trials.is_expired() {
                break;
            }
            let values = now.call.inputs[input].to_f64();
            let single = |form: &dyn Fn(f64) -> f64| {
                let mut values = values.clone();
                values[element] = form(values[element]);
                values
            };
            // Forms stop where one changes nothing: what follows is less simple than the value itself.
            let candidates = forms().map(|form| single(&form)).take_while(|c| *c != values).collect();
            // Each element starts from what the ones before became.
            attempt(trials, &mut now, &mut failure, input, candidates)?;
        }
    }
    let pairs = now.call.inputs.iter().zip(&call.call.inputs);
    let differ = |(a, b): (&Tensor, &Tensor)| {
        a.to_f64().iter().zip(b.to_f64()).filter(|(a, b)| a.to_bits() != b.to_bits()).count()
    };
    let changed = pairs.map(differ).sum();
    Ok((changed > 0).then_some(Simplified { specimen: now, failure, changed }))
}

/// What a value may become, simplest first.
fn forms() -> impl Iterator<Item = Box<dyn Fn(f64) -> f64>> {
    let constants = [0.0, 1.0].map(|c| Box::new(move |_| c) as Box<dyn Fn(f64) -> f64>);
    let rounded = BITS.map(|bits| Box::new(move |v| round(v, bits)) as Box<dyn Fn(f64) -> f64>);
    constants.into_iter().chain(rounded)
}

/// The value with so many significant bits.
fn round(value: f64, bits: i32) -> f64 {
    // These have no significant bits.
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    // The power of two that is the last bit kept.
    let step = (value.abs().log2().floor() as i32 + 1 - bits) as f64;
    (value / step.exp2()).round() * step.exp2()
}

/// Takes the first of these values of an input with which the call still fails.
fn attempt(
    trials: &mut Trials<'_>,
    now: &mut Specimen,
    failure: &mut Failure,
    input: usize,
    candidates: Vec<Vec<f64>>,
) -> Result<()> {
    let tensor = &now.call.inputs[input];
    let made = candidates.into_iter().map(|values| {
        Ok(now.with_input(input, Tensor::from_f64(tensor.dtype(), tensor.shape().to_vec(), &values)?))
    });
    let mut calls = made.collect::<Result<Vec<Specimen>>>()?;
    let outcomes = trials.run(&calls)?;
    for (i, outcome) in outcomes.into_iter().enumerate() {
        if let TrialOutcome::Fails(found) = outcome {
            (*now, *failure) = (calls.swap_remove(i), found);
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bits_are_kept() {
        assert_eq!([0.0, 1.0, -0.7, 5.0, 100.0].map(|v| round(v, 1)), [0.0, 1.0, -0.5, 4.0, 128.0]);
        assert_eq!(round(5.3, 3), 5.0);
        assert!(round(f64::NAN, 3).is_nan());
    }
}
