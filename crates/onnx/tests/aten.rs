//! Operators of PyTorch by their definitions, against what PyTorch gives in f64 for the same inputs (`tools/goldens/aten.py`).
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{DType, ErrorKind, Result, Tensor};

/// What rounding in f64 may move a result by, of the largest magnitude among its elements.
const NOISE: f64 = 1e-13;
/// The same in f32.
const NOISE_F32: f64 = 5e-6;

/// Operators without a definition.
const UNDEFINED: [&str; 1] = ["aten.lstm.input"];

#[derive(Deserialize)]
struct Case {
    op: String,
    attributes: Map<String, Value>,
    inputs: Vec<Option<Array>>,
    /// Nothing where a result has no elements.
    outputs: Vec<Option<Array>>,
}

#[derive(Deserialize)]
struct Array {
    dtype: String,
    shape: Vec<usize>,
    data: Numbers,
}

/// The numbers of an array.
#[derive(Deserialize)]
#[serde(untagged)]
enum Numbers {
    Own(Vec<Value>),
    /// Those of an array before, by its place among the arrays with numbers of their own.
    Same(usize),
}

/// The calls of the file, each array with its numbers.
fn read_cases() -> Vec<Case> {
    let packed = flate2::read::GzDecoder::new(&include_bytes!("aten.json.gz")[..]);
    let mut cases: Vec<Case> = serde_json::from_reader(std::io::BufReader::new(packed)).unwrap();
    let mut known: Vec<Vec<Value>> = Vec::new();
    for array in cases.iter_mut().flat_map(|case| case.inputs.iter_mut().chain(&mut case.outputs)).flatten() {
        match &array.data {
            Numbers::Own(numbers) => known.push(numbers.clone()),
            Numbers::Same(place) => array.data = Numbers::Own(known[*place].clone()),
        }
    }
    cases
}

impl Array {
    fn values(&self) -> Vec<f64> {
        let number = |value: &Value| match value {
            Value::Bool(flag) => f64::from(u8::from(*flag)),
            Value::Object(word) => word["float"].as_str().unwrap().parse().unwrap(),
            value => value.as_f64().unwrap(),
        };
        let Numbers::Own(numbers) = &self.data else { panic!("the numbers of another array") };
        numbers.iter().map(number).collect()
    }

    /// An input.
    fn tensor(&self, float: DType) -> Tensor {
        let dtype = DType::parse(&self.dtype).unwrap();
        let (dtype, values) = if dtype.is_float() {
            // Inputs are values of f32, and the file has the shortest text of each.
            (float, self.values().into_iter().map(|value| f64::from(value as f32)).collect())
        } else {
            (dtype, self.values())
        };
        Tensor::from_f64(dtype, self.shape.clone(), &values).unwrap()
    }
}

impl Case {
    /// Whether there is no definition for such arguments.
    fn is_undefined(&self) -> bool {
        let clips = self.op == "aten.avg_pool2d.default" && self.attributes.contains_key("ceil_mode");
        clips || UNDEFINED.contains(&self.op.as_str())
    }

    fn run(&self, float: DType, wide: bool) -> Result<Vec<Option<Tensor>>> {
        let places = self.inputs.iter().map(Option::is_some).collect();
        let asked = |output: &Option<Array>| {
            if output.is_some() { DeclaredType::Unknown } else { DeclaredType::Absent }
        };
        let outputs = self.outputs.iter().map(asked).collect();
        let op = Foreign::new(&self.op, self.attributes.clone(), places, outputs)?;
        let inputs: Vec<Option<Tensor>> =
            self.inputs.iter().map(|input| input.as_ref().map(|array| array.tensor(float))).collect();
        tapml_onnx::evaluate(&op, &inputs, wide)
    }

    /// The worst error in proportion to the largest magnitude, over all outputs.
    fn error(&self, found: &[Option<Tensor>]) -> f64 {
        let mut worst = 0f64;
        for (found, exact) in found.iter().zip(&self.outputs) {
            let Some(exact) = exact else { continue };
            let found = found.as_ref().unwrap();
            assert_eq!(found.shape(), exact.shape, "{}", self.op);
            let is_float = DType::parse(&exact.dtype).unwrap().is_float();
            assert_eq!(found.dtype().is_float(), is_float, "{}", self.op);
            let exact = exact.values();
            let most = exact.iter().filter(|v| v.is_finite()).fold(0f64, |most, v| most.max(v.abs()));
            for (y, e) in found.to_f64().into_iter().zip(exact) {
                let error = if y == e || (y.is_nan() && e.is_nan()) { 0.0 } else { (y - e).abs() / most };
                worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
            }
        }
        worst
    }
}

#[test]
fn definitions_give_what_pytorch_gives() {
    let cases = read_cases();
    let mut wrong = Vec::new();
    let (mut right, mut reached) = (0, BTreeSet::new());
    for case in &cases {
        let label = format!("{} {}", case.op, Value::Object(case.attributes.clone()));
        for (float, wide, noise) in [(DType::F64, true, NOISE), (DType::F32, false, NOISE_F32)] {
            match case.run(float, wide) {
                Ok(found) => {
                    let error = case.error(&found);
                    if error > noise {
                        wrong.push(format!("{label}: {error:e} of the largest, in {float}"));
                    }
                    reached.insert(case.op["aten.".len()..].to_string());
                    right += 1;
                }
                Err(e) if e.kind() == ErrorKind::Unsupported && case.is_undefined() => {}
                Err(e) => wrong.push(format!("{label}: {e}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(right >= 2 * 220, "{right}");
    let missing: Vec<&str> = tapml_graph::aten::names().filter(|name| !reached.contains(*name)).collect();
    assert!(missing.is_empty(), "without a sample: {missing:?}");
}
