//! The reproducer of a call of operators of others, or of a few of them as one model: the model or module, its inputs and the
//! exact result as arrays, and a short script that needs the runtime and NumPy only.

use super::contents::{Contents, Files, MODEL};
use super::nodes::{NodeInput, Nodes};
use super::{folder, readme};
use crate::reduce::Reduced;
use crate::report::{attributes_of, operators_of};
use crate::specimen::Specimen;
use crate::trial::{Failure, Wrong};
use serde_json::json;
use std::path::Path;
use tapml_exec::PlatformInfo;
use tapml_graph::{DType, Error, Result, Tensor};
use tapml_import::npy;
use tapml_migrate::verdict::{Allowed, SumTest};

/// The version of `case.json`.
/// This case has another form than that of kernels.
const SCHEMA: u32 = 1;

/// The script with places for what differs.
const SCRIPT: &str = include_str!("repro.py");
/// Compares element by element.
const ELEMENTS: &str = include_str!("elements.py");
/// Compares one sum, where no single element is wrong.
const SUM: &str = include_str!("sum.py");
/// Of a call that could not be run: whether it runs, and gives the shape that it should.
const RUNS: &str = "print(f\"it runs, and gives the shape {found.shape}\")";

/// A failing call of operators of others as files that need no TapML.
#[derive(Clone, Debug)]
pub struct RuntimeReproducer {
    /// Everything that is written.
    files: Files,
    /// Whether there is a script that runs it.
    script: bool,
}

/// A call as files that run without TapML.
#[derive(Clone, Debug, Default)]
pub struct ExportedProgram {
    /// `module.pt2`, and `model.onnx` for a runtime that takes ONNX models, of PyTorch's operators; nothing of others.
    pub files: Files,
    /// Lines of Python that read `feed`, arrays by name, and of operators of ONNX `model`, a path, and set `found` to the first
    /// result; empty where nobody knows them.
    pub lines: String,
}

/// Makes a program of a call, which is told as JSON, with its arrays as files in `inputs/` and `constants/`; `None` where PyTorch is
/// not installed or does not export it.
pub type WriteProgram<'a> = dyn Fn(&str, &Files) -> Option<ExportedProgram> + 'a;

impl RuntimeReproducer {
    /// The reproducer of a reduced call. Without lines that run it there is no script.
    ///
    /// # Errors
    /// An operator is neither PyTorch's nor one that an ONNX file holds.
    pub fn new(
        found: &Reduced,
        case: &str,
        on: &PlatformInfo,
        write: &WriteProgram<'_>,
    ) -> Result<RuntimeReproducer> {
        let mut files = Files::new();
        let nodes = Nodes::new(&found.smallest, wrong_output(&found.failure))?;
        let mut told = put(&mut files, "", &found.smallest, &found.failure)?;
        let lines = put_program(&mut files, "", &nodes, write);
        if let Some(simple) = &found.simplified {
            let simpler = put(&mut files, "simplified/", &simple.specimen, &simple.failure)?;
            // One script runs both sets of values.
            told.script &= simpler.script;
            if nodes.are_aten() {
                let nodes = Nodes::new(&simple.specimen, wrong_output(&simple.failure))?;
                told.script &= put_program(&mut files, "simplified/", &nodes, write).is_some();
            }
        }
        let lines = lines.filter(|lines| told.script && !lines.trim().is_empty());
        told.has_model = files.contains_key(MODEL);
        if let Some(lines) = &lines {
            files.insert("repro.py".into(), repro(lines, &nodes, found, on, &told).into_bytes());
        }
        let case_json = json!({
            "schema": SCHEMA, "case": case, "op": operators_of(&found.smallest.call), "attributes": attributes_of(&found.smallest.call),
            "found_on": on, "criterion": found.failure.criterion(), "output": told.output, "sum": told.sum.as_ref().map(|s| (s.power, s.limit)),
        });
        let text = serde_json::to_string_pretty(&case_json).map_err(|e| Error::bug(e.to_string()))?;
        files.insert(folder::MARKER.into(), text.into_bytes());
        let script = lines.is_some();
        let readme = readme::of_nodes(case, &nodes, on, found, Contents::new(&files, script));
        files.insert("README.md".into(), readme.into_bytes());
        Ok(RuntimeReproducer { files, script })
    }

    /// Adds a file, such as the report.
    pub fn with_file(mut self, name: &str, bytes: Vec<u8>) -> RuntimeReproducer {
        self.files.insert(name.into(), bytes);
        self
    }

    /// What runs the call: an ONNX model, an exported program, a script.
    pub fn contents(&self) -> Contents {
        Contents::new(&self.files, self.script)
    }

    /// Writes the folder, whole or not at all. One that is there already is replaced only if it is a reproducer and
    /// `overwrite` is set.
    pub fn write(&self, folder: &Path, overwrite: bool) -> Result<()> {
        folder::write_files(&self.files, folder, overwrite)
    }
}

/// Adds the program of PyTorch's operators, in which the constants then stand; gives the lines that run the nodes.
fn put_program(
    files: &mut Files,
    folder: &str,
    nodes: &Nodes<'_>,
    write: &WriteProgram<'_>,
) -> Option<String> {
    let own = |kind: &str| {
        let prefix = format!("{folder}{kind}/");
        let under = files.iter().filter(|(path, _)| path.starts_with(&prefix));
        under.map(|(path, bytes)| (path[folder.len()..].to_string(), bytes.clone())).collect::<Vec<_>>()
    };
    let arrays: Files = own("inputs").into_iter().chain(own("constants")).collect();
    let program = write(&nodes.json().to_string(), &arrays)?;
    // The constants are in the program then.
    if !program.files.is_empty() {
        files.retain(|path, _| !path.starts_with(&format!("{folder}constants/")));
    }
    files.extend(program.files.into_iter().map(|(path, bytes)| (format!("{folder}{path}"), bytes)));
    Some(program.lines)
}

/// What a script compares.
struct ComparedOutput {
    /// Whether every array has elements that NumPy knows.
    script: bool,
    /// The output that is compared.
    output: usize,
    /// Where no single element is wrong, the sum that is.
    sum: Option<SumTest>,
    /// Whether what runs is `model.onnx`.
    has_model: bool,
}

/// The output that is compared.
fn wrong_output(failure: &Failure) -> usize {
    match failure {
        Failure::Wrong(wrong) => wrong.judgement.worst.output,
        Failure::Error(_) => 0,
    }
}

/// Adds the files of one set of values.
fn put(files: &mut Files, folder: &str, specimen: &Specimen, failure: &Failure) -> Result<ComparedOutput> {
    let output = wrong_output(failure);
    let nodes = Nodes::new(specimen, output)?;
    let aten = nodes.are_aten();
    if !aten {
        files.insert(format!("{folder}{MODEL}"), nodes.model()?);
    }
    // NumPy has no `bf16`, in which the runtime would give this result.
    let has_numbers = specimen.call.output_types.get(output).is_none_or(|ty| ty.dtype != DType::BF16);
    let mut told = ComparedOutput { script: has_numbers, output, sum: None, has_model: !aten };
    // Constants stand in the model. An exported program is made of these files.
    for NodeInput { name, tensor, is_constant } in nodes.inputs().filter(|input| aten || !input.is_constant) {
        let kind = if is_constant { "constants" } else { "inputs" };
        // NumPy has no `bf16`: its numbers as `f32` are not what the model takes.
        told.script &= tensor.dtype() != DType::BF16;
        match npy::file_of(tensor) {
            Ok(bytes) => drop(files.insert(format!("{folder}{kind}/{name}.npy"), bytes)),
            Err(_) => told.script = false,
        }
    }
    // Arrays have the shape of the output, so that a script compares them as they are.
    let shape = shape_of(specimen, output)?;
    let mut floats = |name: &str, values: &[f64]| -> Result<()> {
        let array = npy::file_of(&Tensor::from_f64(DType::F64, shape.clone(), values)?)?;
        files.insert(format!("{folder}{name}.npy"), array);
        Ok(())
    };
    match failure {
        Failure::Wrong(wrong) => {
            let expected = Expected::for_output(wrong, output);
            floats("expected", &expected.values)?;
            floats("allowed", &expected.allowed)?;
            if let Some(sum) = expected.sum {
                floats("weights", &sum.weights)?;
                told.sum = Some(sum);
            }
        }
        Failure::Error(_) => {
            // Shape and survival are what is compared: values are not known.
            let elements = shape.iter().product();
            floats("expected", &vec![f64::NAN; elements])?;
            floats("allowed", &vec![f64::INFINITY; elements])?;
        }
    }
    Ok(told)
}

/// What a correct runtime may give.
struct Expected {
    /// The exact result, or what its type makes of it where that is infinite.
    values: Vec<f64>,
    /// How far each element may be off.
    allowed: Vec<f64>,
    /// The sum that decided, if no single element did.
    sum: Option<SumTest>,
}

impl Expected {
    /// Allowances are those of the verdict, so that the script decides as TapML does.
    fn for_output(wrong: &Wrong, output: usize) -> Expected {
        let (exact, observed) = (&wrong.exact[output], &wrong.observed[output]);
        let allowed = Allowed::new(exact, observed.dtype(), wrong.precision, None);
        // No single element is wrong.
        let together = wrong.judgement.element_ratio <= 1.0;
        let tests = SumTest::all(exact, observed.dtype(), &allowed);
        let sum = tests.into_iter().find(|test| together && test.criterion == wrong.judgement.criterion);
        // A value beyond the dtype's range is stored as infinity.
        let value = |(&exact, &rounded): (&f64, &f64)| {
            if rounded.is_finite() && sum.is_none() { exact } else { rounded }
        };
        let values = exact.values.iter().zip(&allowed.rounded).map(value).collect();
        let error =
            |i: usize| if allowed.allowed_at(i).is_nan() { f64::INFINITY } else { allowed.allowed_at(i) };
        // Indices are right or wrong: any other is allowed only where a rounding decides between them.
        let error = |i: usize| {
            if allowed.indices() { f64::from(u8::from(error(i) >= 1.0)) * f64::MAX } else { error(i) }
        };
        Expected { values, allowed: (0..exact.values.len()).map(error).collect(), sum }
    }
}

/// Sizes of an output.
fn shape_of(specimen: &Specimen, output: usize) -> Result<Vec<usize>> {
    let none = || Error::bug("a call without outputs");
    specimen.call.output_types.get(output).ok_or_else(none)?.sizes(&specimen.call.symbols)
}

/// The script: places are replaced by the title, the lines that run the call, and the comparison.
fn repro(
    lines: &str,
    nodes: &Nodes<'_>,
    found: &Reduced,
    on: &PlatformInfo,
    told: &ComparedOutput,
) -> String {
    // The title stands in a string of Python.
    let plain = |text: String| text.replace(['\\', '"'], "'");
    let title = plain(format!("{} {}", nodes.title(""), readme::describe_failure(&found.failure)));
    let compare = match (&found.failure, &told.sum) {
        (Failure::Error(_), _) => RUNS.to_string(),
        (Failure::Wrong(_), None) => ELEMENTS.to_string(),
        (Failure::Wrong(_), Some(sum)) => {
            SUM.replace("POWER", &sum.power.to_string()).replace("LIMIT", &format!("{:e}", sum.limit))
        }
    };
    let model = if told.has_model { ["model, ", "\"model.onnx\", "] } else { ["", ""] };
    let text = SCRIPT.replace("TITLE", &title).replace("FOUND_ON", &plain(on.device.clone()));
    let text = text.replace("MODEL_NAME", model[0]).replace("MODEL_FILE", model[1]);
    text.replace("LOAD", lines.trim_end()).replace("COMPARE", compare.trim_end())
}
