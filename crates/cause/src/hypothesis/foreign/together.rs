//! What a runtime may do to a node that it runs with others as one model, and does not do to the node alone: fusion leaves it out,
//! takes a cheaper function for it, or hands it another of the values at hand.
//!
//! These are tried only in regions. Conditions are empty where the fault does not depend on what the node is like.

use super::subject::{Assumed, ForeignSubject, like, undeclared_outputs};
use crate::Cause;
use crate::trials::{Rank, Trials};
use serde_json::{Map, Value, json};
use tapml_graph::op::Foreign;

/// The same node left out, of another function, and with other operands.
pub(in crate::hypothesis) fn try_fused(trials: &mut Trials<'_, '_>) {
    let Some(subject) = ForeignSubject::from_trials(trials) else { return };
    try_skipped(trials, &subject);
    other_functions(trials, &subject);
    counted_twice(trials, &subject);
    try_substituted(trials, &subject);
}

/// The node hands on one of its inputs.
/// Inputs of one element are parameters rather than data.
fn try_skipped(trials: &mut Trials<'_, '_>, subject: &ForeignSubject) {
    if subject.op.outputs().len() != 1 {
        return;
    }
    for (index, input) in subject.inputs.iter().enumerate().filter(|(_, input)| input.len() > 1) {
        let assumed = Assumed {
            cause: Cause::MissingTerm,
            rank: Rank::Named,
            note: format!("the node is left out: {} is handed on", subject.name(index)),
            rule: String::new(),
        };
        subject.test_outputs(trials, assumed, std::slice::from_ref(input));
    }
}

/// A function that may stand for another one.
///
/// Names are without domain; the attributes are those of the other function.
struct Stand {
    /// What the graph has.
    own: &'static str,
    /// What is computed.
    other: &'static str,
    /// Attributes that it is computed with.
    attributes: fn() -> Value,
}

/// One row of the table.
const fn stand(own: &'static str, other: &'static str, attributes: fn() -> Value) -> Stand {
    Stand { own, other, attributes }
}

/// Cheap approximations and related activations that fused kernels have.
const STANDS: &[Stand] = &[
    stand("Sigmoid", "HardSigmoid", || json!({"alpha": 1.0 / 6.0, "beta": 0.5})),
    stand("Sigmoid", "HardSigmoid", || json!({"alpha": 0.2, "beta": 0.5})),
    stand("Sigmoid", "Tanh", || json!({})),
    stand("HardSigmoid", "Sigmoid", || json!({})),
    stand("HardSwish", "Relu", || json!({})),
    stand("Erf", "Tanh", || json!({})),
    stand("Tanh", "Erf", || json!({})),
    stand("Relu", "Sigmoid", || json!({})),
    stand("LeakyRelu", "Relu", || json!({})),
    stand("PRelu", "Relu", || json!({})),
    stand("Elu", "Relu", || json!({})),
    stand("Clip", "Relu", || json!({})),
    stand("sigmoid.default", "hardsigmoid.default", || json!({})),
    stand("sigmoid.default", "tanh.default", || json!({})),
    stand("hardsigmoid.default", "sigmoid.default", || json!({})),
    stand("silu.default", "hardswish.default", || json!({})),
    stand("hardswish.default", "silu.default", || json!({})),
    stand("hardswish.default", "relu.default", || json!({})),
    stand("erf.default", "tanh.default", || json!({})),
    stand("tanh.default", "erf.default", || json!({})),
    stand("gelu.default", "relu.default", || json!({})),
    stand("relu.default", "sigmoid.default", || json!({})),
    stand("leaky_relu.default", "relu.default", || json!({})),
    stand("elu.default", "relu.default", || json!({})),
    stand("clamp.default", "relu.default", || json!({})),
];

/// The other function in the same domain and version, with the first input alone.
fn other_functions(trials: &mut Trials<'_, '_>, subject: &ForeignSubject) {
    let version = subject.op.version().map(|version| format!("@{version}")).unwrap_or_default();
    for stand in STANDS.iter().filter(|stand| stand.own == subject.op.name()) {
        let attributes: Map<String, Value> = match (stand.attributes)() {
            Value::Object(attributes) => attributes,
            _ => Map::new(),
        };
        let assumed = Assumed {
            cause: Cause::WrongFormula,
            rank: Rank::Named,
            note: format!("`{}` is computed in its place, with {}", stand.other, json!(attributes)),
            rule: String::new(),
        };
        let kind = format!("{}.{}{version}", subject.op.domain(), stand.other);
        let op = Foreign::new(&kind, attributes, vec![true], undeclared_outputs(&subject.op));
        if let Ok(op) = op {
            subject.test(trials, assumed, &op, &subject.inputs[..1], &subject.constants[..1]);
        }
    }
}

/// An input of floats added or multiplied in where the fusion had done so already.
fn counted_twice(trials: &mut Trials<'_, '_>, subject: &ForeignSubject) {
    for (index, input) in subject.inputs.iter().enumerate().filter(|(_, input)| input.dtype().is_float()) {
        // Twice an addend is the addend added twice; twice a factor doubles the result.
        let doubled: Vec<f64> = input.to_f64().into_iter().map(|v| 2.0 * v).collect();
        let Some(doubled) = like(input, &doubled) else { continue };
        let name = subject.name(index);
        let assumed = Assumed {
            cause: Cause::WrongScale,
            rank: Rank::Placed,
            note: format!("{name} counts twice"),
            rule: format!("{name} is not 0"),
        };
        subject.test_input(trials, assumed, index, doubled);
    }
}

/// One operand taken for another of the same type.
fn try_substituted(trials: &mut Trials<'_, '_>, subject: &ForeignSubject) {
    let inputs = &subject.inputs;
    for at in 0..inputs.len() {
        for from in (0..inputs.len()).filter(|&from| from != at) {
            // Another type or shape would be refused, or be another model.
            let alike =
                (inputs[at].dtype(), inputs[at].shape()) == (inputs[from].dtype(), inputs[from].shape());
            if !alike {
                continue;
            }
            let (lost, taken) = (subject.name(at), subject.name(from));
            let assumed = Assumed {
                cause: Cause::InputIgnored,
                rank: Rank::Named,
                note: format!("{lost} is ignored: {taken} is taken in its place"),
                rule: format!("{lost} and {taken} differ"),
            };
            subject.test_input(trials, assumed, at, inputs[from].clone());
        }
    }
}
