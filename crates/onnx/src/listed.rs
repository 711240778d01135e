//! Evaluations of the operators that stand in the list.

use crate::array::volume;
use crate::call::{CONVERT, Call, Evaluate, NEWEST, Outputs};
use crate::facts::{CallFacts, InputSizes};
use crate::integers::OpenOutputs;
use crate::list::{EvaluationKind, OperatorRow, RANDOM, ROWS};
use tapml_graph::op::Foreign;
use tapml_graph::{Context, Error, Tensor, TensorType};

/// Who may know an operator that TapML does not.
const OTHERS: &str = "name a runtime that knows it, such as `--source ort` to run the model and `--oracle reference` to judge it";

/// The row that serves an operator in its version.
pub fn find(op: &Foreign) -> Option<&'static OperatorRow> {
    let version = op.version().unwrap_or(NEWEST);
    let row = |row: &&OperatorRow| row.domain == op.domain() && row.name == op.name();
    ROWS.iter().filter(row).find(|row| row.since <= version && version <= row.until)
}

/// As [`crate::evaluate`]; `within` evaluates the operators of graphs within.
pub fn evaluate(op: &Foreign, inputs: &[Option<Tensor>], wide: bool, within: Evaluate) -> Outputs {
    let row = find(op).ok_or_else(|| {
        if op.domain() == "onnx" && RANDOM.contains(&op.name()) {
            let text = format!("`{}` has no evaluation: it draws random numbers", op.kind());
            return Error::unsupported(text);
        }
        no_evaluation(op)
    })?;
    let call = Call::new(op, inputs, wide, within);
    let run = || {
        // Inputs are bounded as results are: [`limit_elements`] speaks of both.
        for (place, tensor) in inputs.iter().enumerate() {
            let volume = tensor.as_ref().map_or(Ok(0), |tensor| volume(tensor.shape()));
            volume.context(|| format!("input {place}"))?;
        }
        // `check_attributes` comes after the function, because only then it is known what was read.
        let outputs = match row.run {
            EvaluationKind::Float { single, double } => {
                if call.is_double() {
                    double(&call)?
                } else {
                    single(&call)?
                }
            }
            EvaluationKind::Any(function) => function(&call)?,
        };
        call.check_attributes()?;
        call.place(outputs)
    };
    run().context(|| format!("`{}`", op.kind()))
}

/// The error of an operator that no row serves. It tells which versions are served, if any are.
fn no_evaluation(op: &Foreign) -> Error {
    let known = ROWS.iter().filter(|row| row.domain == op.domain() && row.name == op.name());
    let served: Vec<String> = known.map(served_versions).collect();
    let text = format!("`{}` has no evaluation", op.kind());
    if served.is_empty() {
        return Error::unsupported(text).with_hint(OTHERS);
    }
    let text = format!("{text}, `{}` has in versions {}", op.name(), served.join(" and "));
    Error::unsupported(text).with_hint(format!("{CONVERT}, or {OTHERS}"))
}

/// The versions of a row in words: `7 to 12`, `13 and later`.
fn served_versions(row: &OperatorRow) -> String {
    match row.until {
        NEWEST => format!("{} and later", row.since),
        until => format!("{} to {until}", row.since),
    }
}

/// As [`crate::facts`].
pub fn facts(op: &Foreign, inputs: &[Option<TensorType>]) -> Option<CallFacts> {
    let row = find(op)?;
    InputSizes::new(op, inputs).map(|sizes| (row.facts)(&sizes))
}

/// As [`crate::integers`](crate::integers()); `within` evaluates the operators of graphs within.
pub fn integers(op: &Foreign, inputs: &[Option<Tensor>], within: Evaluate) -> OpenOutputs {
    let Some(open) = find(op).and_then(|row| row.integers) else { return Ok(Vec::new()) };
    open(&Call::new(op, inputs, true, within)).context(|| format!("`{}`", op.kind()))
}
