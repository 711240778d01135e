//! What a call of an operator of others fails with, besides sizes: each attribute with other values, the dtype of floats, inputs as
//! constants, and the number of axes. One of them changes at a time; all else is as in the recorded call.
//!
//! The changes start from the whole call, so that they hold for the model and not for a corner of it.

use crate::body::ForeignBody;
use crate::specimen::Specimen;
use crate::trial::{TrialOutcome, Trials};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tapml_graph::{DType, ErrorKind, Result, Tensor};
use tapml_migrate::attributes::{short, variants};

/// One property of a call, with which values of it the call fails and with which not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aspect {
    /// What it is, such as `` `strides` ``, `dtype` or `input 1`.
    pub name: String,
    /// Values with which it fails, that of the recorded call first.
    pub fails: Vec<String>,
    /// Values with which it is right.
    pub passes: Vec<String>,
    /// Values that the platform does not serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_served: Vec<String>,
}

/// A changed call, its operators, and the value that it has.
/// Types of its outputs are inferred when it is run.
struct Changed {
    /// For the report.
    value: String,
    /// With the changed inputs.
    specimen: Specimen,
    /// With the changed attributes.
    body: ForeignBody,
}

impl Changed {
    /// `None` for operators of TapML, which have no body.
    fn new(value: impl Into<String>, specimen: Specimen) -> Option<Changed> {
        let body = specimen.body()?;
        Some(Changed { value: value.into(), specimen, body })
    }
}

/// The properties on which the failure of a call depends, as far as time allows: those with a value that passes or is not served.
///
/// # Errors
///
/// A platform that can run nothing any more.
pub(crate) fn aspects(trials: &mut Trials<'_>, whole: &Specimen) -> Result<Vec<Aspect>> {
    let mut found = Vec::new();
    let Some(body) = whole.body() else { return Ok(found) };
    for (at, part) in body.parts.iter().enumerate() {
        let of_node = body.title(at).map(|title| format!(" of {title}")).unwrap_or_default();
        for (name, value) in part.op.attributes() {
            let own = (format!("`{name}`{of_node}"), short(value));
            // Values of an attribute are tried node by node, since nodes of one operator may differ in it.
            found.extend(try_changed(trials, own, with_values(whole, &body, at, name, value))?);
        }
    }
    let own = whole.call.inputs.iter().map(Tensor::dtype).find(|dtype| dtype.is_float());
    if let Some(own) = own {
        found.extend(try_changed(trials, ("dtype".into(), own.name().into()), with_dtypes(whole, own))?);
    }
    for (i, &constant) in whole.is_weight.iter().enumerate() {
        let own = kind_of_input(constant).to_string();
        let changed = with_kind(whole, i, !constant).into_iter().collect();
        found.extend(try_changed(trials, (format!("input {i}"), own), changed)?);
    }
    let axes = whole.call.inputs.first().map_or(0, |input| input.shape().len());
    found.extend(try_changed(trials, ("axes of the inputs".into(), axes.to_string()), with_axes(whole))?);
    Ok(found)
}

/// Runs the changed calls; `None` if each that ran fails.
fn try_changed(
    trials: &mut Trials<'_>,
    (name, own): (String, String),
    changed: Vec<Changed>,
) -> Result<Option<Aspect>> {
    // What was found so far is kept.
    if trials.is_expired() {
        return Ok(None);
    }
    let oracles = trials.oracles();
    let (values, specimens): (Vec<String>, Vec<Specimen>) = (changed.into_iter())
        // What the oracles refuse is no valid call, and says nothing about the platform.
        .filter_map(|one| Some((one.value, one.specimen.inferred_as(one.body, oracles).ok()?)))
        .unzip();
    let mut aspect = Aspect { name, fails: vec![own], ..Aspect::default() };
    for (value, outcome) in values.into_iter().zip(trials.run(&specimens)?) {
        match outcome {
            TrialOutcome::Fails(_) => aspect.fails.push(value),
            TrialOutcome::Passes { .. } => aspect.passes.push(value),
            TrialOutcome::Invalid(error) if error.kind() == ErrorKind::Unsupported => {
                aspect.not_served.push(value)
            }
            // It did not run for another reason, which says nothing about the value.
            TrialOutcome::Invalid(_) => {}
        }
    }
    // A property with which every value fails is none on which the failure depends.
    let tells = !aspect.passes.is_empty() || !aspect.not_served.is_empty();
    Ok(Some(aspect).filter(|_| tells))
}

/// The call without an attribute of one of its operators, and with other values of it.
fn with_values(whole: &Specimen, body: &ForeignBody, at: usize, name: &str, own: &Value) -> Vec<Changed> {
    let axes = whole.call.inputs.first().map_or(0, |input| input.shape().len());
    let others = variants(name, own, axes).into_iter().map(|variant| Some(variant.value));
    let changed = std::iter::once(None).chain(others).filter_map(|value| {
        let mut attributes = body.parts[at].op.attributes().clone();
        let text = value.as_ref().map_or_else(|| "absent".into(), short);
        match value {
            Some(value) => drop(attributes.insert(name.into(), value)),
            None => drop(attributes.remove(name)),
        }
        let mut body = body.clone();
        body.parts[at].set_attributes(attributes).ok()?;
        Some(Changed { value: text, specimen: whole.clone(), body })
    });
    changed.collect()
}

/// The call with all its floats of one dtype in another.
fn with_dtypes(whole: &Specimen, own: DType) -> Vec<Changed> {
    let cast = |dtype: DType| {
        let mut specimen = whole.clone();
        for input in specimen.call.inputs.iter_mut().filter(|input| input.dtype() == own) {
            // Values are rounded to the narrower type, and what comes out is judged by these.
            *input = Tensor::from_f64(dtype, input.shape().to_vec(), &input.to_f64()).ok()?;
        }
        Changed::new(dtype.name(), specimen)
    };
    [DType::F64, DType::F32, DType::F16, DType::BF16]
        .into_iter()
        .filter(|&d| d != own)
        .filter_map(cast)
        .collect()
}

/// A runtime may compute constants beforehand or lay them out otherwise.
fn kind_of_input(constant: bool) -> &'static str {
    if constant { "a constant" } else { "given as it runs" }
}

/// The call with one input as a constant of the model, or given as it runs.
fn with_kind(whole: &Specimen, input: usize, constant: bool) -> Option<Changed> {
    let mut specimen = whole.clone();
    specimen.is_weight[input] = constant;
    specimen.call.weights[input] = constant.then(|| format!("constant {input}"));
    Changed::new(kind_of_input(constant), specimen)
}

/// The call with one axis of size 1 more in front of every input that has as many as the first one, and with one less.
fn with_axes(whole: &Specimen) -> Vec<Changed> {
    let Some(axes) = whole.call.inputs.first().map(|input| input.shape().len()) else { return Vec::new() };
    let reshaped = |change: &dyn Fn(&[usize]) -> Option<Vec<usize>>, value: usize| {
        let mut specimen = whole.clone();
        for input in specimen.call.inputs.iter_mut().filter(|input| input.shape().len() == axes) {
            let shape = change(input.shape())?;
            *input = Tensor::new(input.dtype(), shape, input.bytes().clone()).ok()?;
        }
        Changed::new(value.to_string(), specimen)
    };
    let longer = reshaped(&|shape| Some([&[1], shape].concat()), axes + 1);
    // Only an axis of size 1 can go without changing the values.
    let shorter = match axes {
        0 => None,
        _ => reshaped(&|shape| (shape[0] == 1).then(|| shape[1..].to_vec()), axes - 1),
    };
    longer.into_iter().chain(shorter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_exec::Call;
    use tapml_graph::op::{DeclaredType, Foreign};
    use tapml_graph::{Op, Symbols};
    use tapml_migrate::{Oracles, tensor_type};

    fn softmax() -> Specimen {
        let attributes = serde_json::json!({"axis": 1}).as_object().unwrap().clone();
        let op =
            Foreign::new("onnx.Softmax@13", attributes, vec![true], vec![DeclaredType::Unknown]).unwrap();
        let input = Tensor::from_f32(vec![1, 2, 3], (0..6u8).map(f32::from).collect()).unwrap();
        let call = Call {
            node: "it".into(),
            op: Op::Foreign(op),
            symbols: Symbols::default(),
            input_types: vec![tensor_type(&input)],
            weights: vec![None],
            inputs: vec![input],
            output_types: Vec::new(),
        };
        Specimen::new(call).infer_types(&Oracles::new(0)).unwrap()
    }

    #[test]
    fn one_property_changes_at_a_time() {
        let whole = softmax();
        let values: Vec<String> =
            with_values(&whole, &whole.body().unwrap(), 0, "axis", &serde_json::json!(1))
                .into_iter()
                .map(|c| c.value)
                .collect();
        assert_eq!(values, ["absent", "0", "2"]);
        let dtypes: Vec<String> = with_dtypes(&whole, DType::F32).into_iter().map(|c| c.value).collect();
        assert_eq!(dtypes, ["f64", "f16", "bf16"]);
        let axes: Vec<(String, Vec<usize>)> = with_axes(&whole)
            .into_iter()
            .map(|c| (c.value, c.specimen.call.inputs[0].shape().to_vec()))
            .collect();
        assert_eq!(axes, [("4".into(), vec![1, 1, 2, 3]), ("2".into(), vec![2, 3])]);
        assert!(with_kind(&whole, 0, true).unwrap().specimen.is_weight[0]);
    }
}
