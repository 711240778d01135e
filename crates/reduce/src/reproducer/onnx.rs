//! The reproducer of a call of an ONNX operator: a model of its one node, its inputs and the exact result as arrays, and a short
//! script that needs the runtime and NumPy only.

use super::{folder, readme};
use crate::reduce::Reduced;
use crate::report::attributes;
use crate::specimen::Specimen;
use crate::trial::{Failure, Wrong};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use tapml_exec::PlatformInfo;
use tapml_graph::op::{Declared, Foreign};
use tapml_graph::{DType, Error, Op, Result, Tensor, TensorType};
use tapml_import::npy;
use tapml_import::onnx::{NewModel, NewNode};
use tapml_migrate::verdict::{Allowed, SumTest};

/// The version of `case.json`.
const SCHEMA: u32 = 1;

const SCRIPT: &str = include_str!("repro.py");
const ELEMENTS: &str = include_str!("elements.py");
const SUM: &str = include_str!("sum.py");

/// A failing call of an operator of others as files that need no TapML.
#[derive(Clone, Debug)]
pub struct OnnxReproducer {
    /// By path in the folder.
    files: BTreeMap<String, Vec<u8>>,
    script: bool,
}

impl OnnxReproducer {
    /// The reproducer of a reduced call. `load` are the lines of Python that run the model on the runtime: they read `model`, a
    /// path, and `feed`, arrays by name, and set `found` to the first result; without them there is no script.
    ///
    /// # Errors
    /// The operator is none that an ONNX file holds.
    pub fn new(found: &Reduced, case: &str, on: &PlatformInfo, load: Option<&str>) -> Result<OnnxReproducer> {
        let Op::Foreign(op) = &found.smallest.call.op else {
            return Err(Error::bug(format!("`{}` is no operator of others", found.smallest.call.op.name())));
        };
        let mut files = BTreeMap::new();
        let mut told = put(&mut files, "", &found.smallest, &found.failure)?;
        if let Some(simple) = &found.simplified {
            let simpler = put(&mut files, "simplified/", &simple.specimen, &simple.failure)?;
            told.script = told.script && simpler.script;
        }
        let script = load.filter(|_| told.script);
        if let Some(load) = script {
            files.insert("repro.py".into(), repro(load, op, found, on, &told).into_bytes());
        }
        let case_json = json!({
            "schema": SCHEMA, "case": case, "op": op.kind(), "attributes": attributes(&found.smallest.call.op),
            "found_on": on, "criterion": found.failure.criterion(), "output": told.output, "sum": told.sum.as_ref().map(|s| (s.power, s.limit)),
        });
        let text = serde_json::to_string_pretty(&case_json).map_err(|e| Error::bug(e.to_string()))?;
        files.insert(folder::MARKER.into(), text.into_bytes());
        files
            .insert("README.md".into(), readme::of_model(case, op, on, found, script.is_some()).into_bytes());
        Ok(OnnxReproducer { files, script: script.is_some() })
    }

    /// Adds a file, such as the report.
    pub fn with_file(mut self, name: &str, bytes: Vec<u8>) -> OnnxReproducer {
        self.files.insert(name.into(), bytes);
        self
    }

    /// Whether there is a script.
    pub fn has_script(&self) -> bool {
        self.script
    }

    /// Writes the folder, whole or not at all. One that is there already is replaced only if it is a reproducer and
    /// `overwrite` is set.
    pub fn write(&self, folder: &Path, overwrite: bool) -> Result<()> {
        folder::write_files(&self.files, folder, overwrite)
    }
}

/// What a script compares.
struct Told {
    /// Whether every array has elements that NumPy knows.
    script: bool,
    /// The output that is compared.
    output: usize,
    /// Where no single element is wrong, the sum that is.
    sum: Option<SumTest>,
}

/// Adds the files of one set of values.
fn put(
    files: &mut BTreeMap<String, Vec<u8>>,
    folder: &str,
    specimen: &Specimen,
    failure: &Failure,
) -> Result<Told> {
    let output = match failure {
        Failure::Wrong(wrong) => wrong.judgement.worst.output,
        Failure::Error(_) => 0,
    };
    files.insert(format!("{folder}model.onnx"), model(specimen, output)?);
    let mut told = Told { script: true, output, sum: None };
    for (name, tensor) in inputs(specimen) {
        // NumPy has no `bf16`: its numbers as `f32` are not what the model takes.
        told.script &= tensor.dtype() != DType::BF16;
        match npy::file_of(tensor) {
            Ok(bytes) => drop(files.insert(format!("{folder}inputs/{name}.npy"), bytes)),
            Err(_) => told.script = false,
        }
    }
    let shape = shape_of(specimen, output)?;
    let mut floats = |name: &str, values: &[f64]| -> Result<()> {
        let array = npy::file_of(&Tensor::from_f64(DType::F64, shape.clone(), values)?)?;
        files.insert(format!("{folder}{name}.npy"), array);
        Ok(())
    };
    match failure {
        Failure::Wrong(wrong) => {
            let expected = Expected::of(wrong, output);
            floats("expected", &expected.values)?;
            floats("allowed", &expected.allowed)?;
            if let Some(sum) = expected.sum {
                floats("weights", &sum.weights)?;
                told.sum = Some(sum);
            }
        }
        Failure::Error(_) => {
            // Shape and survival are what is compared.
            let elements = shape.iter().product();
            floats("expected", &vec![f64::NAN; elements])?;
            floats("allowed", &vec![f64::INFINITY; elements])?;
        }
    }
    Ok(told)
}

/// What a correct runtime may give.
struct Expected {
    values: Vec<f64>,
    allowed: Vec<f64>,
    sum: Option<SumTest>,
}

impl Expected {
    fn of(wrong: &Wrong, output: usize) -> Expected {
        let (exact, observed) = (&wrong.exact[output], &wrong.observed[output]);
        let allowed = Allowed::new(exact, observed.dtype(), wrong.precision, None);
        let together = wrong.judgement.element_ratio <= 1.0;
        let tests = SumTest::all(exact, observed.dtype(), &allowed);
        let sum = tests.into_iter().find(|test| together && test.criterion == wrong.judgement.criterion);
        // A value beyond the dtype's range is stored as infinity.
        let value = |(&exact, &rounded): (&f64, &f64)| match rounded.is_finite() && sum.is_none() {
            true => exact,
            false => rounded,
        };
        let values = exact.values.iter().zip(&allowed.rounded).map(value).collect();
        let error = |i: usize| if allowed.at(i).is_nan() { f64::INFINITY } else { allowed.at(i) };
        // Indices are right or wrong: any other is allowed only where a rounding decides between them.
        let error = |i: usize| match allowed.indices() {
            true => f64::from(u8::from(error(i) >= 1.0)) * f64::MAX,
            false => error(i),
        };
        Expected { values, allowed: (0..exact.values.len()).map(error).collect(), sum }
    }
}

/// The inputs that are no constants, with their names in the model, whose order is that of the names.
fn inputs(specimen: &Specimen) -> impl Iterator<Item = (String, &Tensor)> {
    names(specimen)
        .into_iter()
        .zip(&specimen.call.inputs)
        .zip(&specimen.is_weight)
        .filter_map(|((name, tensor), constant)| (!constant).then_some((name, tensor)))
}

fn names(specimen: &Specimen) -> Vec<String> {
    let width = specimen.call.inputs.len().saturating_sub(1).to_string().len();
    (0..specimen.call.inputs.len()).map(|i| format!("x{i:0width$}")).collect()
}

/// Sizes of an output.
fn shape_of(specimen: &Specimen, output: usize) -> Result<Vec<usize>> {
    let none = || Error::bug("a call without outputs");
    specimen.call.output_types.get(output).ok_or_else(none)?.sizes(&specimen.call.symbols)
}

/// The model of a call; `first` is the result that comes first.
fn model(specimen: &Specimen, first: usize) -> Result<Vec<u8>> {
    let call = &specimen.call;
    let Op::Foreign(op) = &call.op else { return Err(Error::bug("an operator of TapML's own")) };
    let names = names(specimen);
    let given = names.iter().zip(&call.inputs).zip(&specimen.is_weight);
    let (constants, inputs): (Vec<_>, Vec<_>) = given.partition(|(_, constant)| **constant);
    let absent = |name: Option<String>| name.unwrap_or_default();
    let outputs: Vec<String> = (0..).zip(op.outputs()).map(|(i, place)| output_name(i, place)).collect();
    let asked = outputs.iter().filter(|name| !name.is_empty()).cloned();
    let mut results: Vec<(String, TensorType)> = asked.zip(call.output_types.iter().cloned()).collect();
    let last = results.len().saturating_sub(1);
    results.swap(0, first.min(last));
    let new = NewModel {
        nodes: vec![NewNode {
            name: &call.node,
            op,
            inputs: op.placed(names.iter().cloned()).into_iter().map(absent).collect(),
            outputs,
        }],
        inputs: inputs.into_iter().map(|((n, t), _)| (n.clone(), tapml_migrate::tensor_type(t))).collect(),
        constants: constants.into_iter().map(|((n, t), _)| (n.clone(), t.clone())).collect(),
        outputs: results,
    };
    new.encode()
}

fn output_name(place: usize, declared: &Declared) -> String {
    if declared.is_asked() { format!("y{place}") } else { String::new() }
}

fn repro(load: &str, op: &Foreign, found: &Reduced, on: &PlatformInfo, told: &Told) -> String {
    let plain = |text: String| text.replace(['\\', '"'], "'");
    let title = plain(format!("{} {}", op.kind(), readme::what(&found.failure)));
    let compare = match &told.sum {
        None => ELEMENTS.to_string(),
        Some(sum) => {
            SUM.replace("POWER", &sum.power.to_string()).replace("LIMIT", &format!("{:e}", sum.limit))
        }
    };
    let text = SCRIPT.replace("TITLE", &title).replace("FOUND_ON", &plain(on.device.clone()));
    text.replace("LOAD", load.trim_end()).replace("COMPARE", compare.trim_end())
}
