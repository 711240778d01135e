//! Values of calls that ran before.
//!
//! Earlier calls are those that the caller recorded; a hypothesis here does not know what ran in between.

use crate::output_view::Prediction;
use crate::trials::{Rank, Trials};
use crate::{Cause, Earlier};
use tapml_graph::Tensor;

/// Outputs that an earlier call left in the buffer, whole or where they are wrong.
/// Both what the platform gave and what it should have given are tried, where they are known.
pub(super) fn results(trials: &mut Trials<'_, '_>) {
    for earlier in trials.context.evidence.earlier {
        for (what, tensors) in [("gave", earlier.observed), ("should have given", earlier.recorded)] {
            if tensors.len() == trials.context.full.outs.len() {
                test(trials, earlier, what, tensors);
            }
        }
    }
}

/// Tests the results of one earlier call at the places that are wrong.
fn test(trials: &mut Trials<'_, '_>, earlier: &Earlier<'_>, what: &str, tensors: &[Tensor]) {
    let view = &trials.context.full;
    let mut prediction: Prediction = view.exact();
    for ((out, values), tensor) in view.outs.iter().zip(&mut prediction).zip(tensors) {
        let old = tensor.to_f64();
        // What a longer or shorter call left lies at the same place of the buffer.
        for i in out.wrong().collect::<Vec<_>>() {
            if let Some(&old) = old.get(i) {
                values[i] = old;
            }
        }
    }
    // Bit by bit, and not the exact result, which an equal call gives as well.
    let whole = view.outs.iter().zip(tensors).all(|(out, tensor)| {
        let old = tensor.to_f64();
        old == out.observed && old != out.exact
    });
    // Nothing but the call before could have given these bits, since its inputs were made up.
    if whole && earlier.made {
        let note =
            format!("the results are, to the last bit, those that the earlier call {} {what}", earlier.name);
        trials.full(Cause::StaleData, Rank::Named, note, &prediction);
        return;
    }
    let note = format!("the wrong elements are those that the earlier call {} {what}", earlier.name);
    trials.full(Cause::StaleData, Rank::Fitted, note, &prediction);
}

/// What the call gives with one input of an earlier call.
/// Only inputs of the same type and shape can lie at the same place.
pub(super) fn inputs(trials: &mut Trials<'_, '_>) {
    for earlier in trials.context.evidence.earlier {
        let call = trials.context.evidence.call;
        for (i, (own, old)) in call.inputs.iter().zip(&earlier.call.inputs).enumerate() {
            let is_weight = call.weights[i].is_some();
            let same = own.dtype() == old.dtype() && own.shape() == old.shape();
            // An input that is the same in both calls says nothing.
            if !same || own.bytes()[..] == old.bytes()[..] {
                continue;
            }
            let Ok(value) = tapml_reference::Value::from_tensor(old) else { continue };
            let prediction = trials.with_input(i, trials.context.cut.take_rows(i, &value));
            let (cause, what) = match (is_weight, is_state(call, i)) {
                (true, _) => (Cause::StaleData, "the weight"),
                (_, true) => (Cause::WrongLayerState, "the state"),
                _ => (Cause::StaleData, "the value"),
            };
            let note = format!("input {i} holds {what} of the earlier call {}", earlier.name);
            trials.cut(cause, Rank::Placed, note, prediction);
        }
    }
}

/// Whether input `i` is as a state before the step: its rows are not those of the step, and it is no weight.
/// This is a guess by shapes: a call does not say which of its inputs are states.
pub(super) fn is_state(call: &tapml_exec::Call, i: usize) -> bool {
    let own = call.input_types.get(i).and_then(|t| t.shape.first());
    let fixed = own.is_some_and(|d| d.as_const().is_some());
    let cached = own.is_some_and(|d| *d == tapml_graph::Dim::symbol(tapml_graph::Symbol::P));
    call.weights[i].is_none()
        && call.input_types[i].shape.len() == 2
        && (cached || fixed)
        && !call.op.row_wise()
}
