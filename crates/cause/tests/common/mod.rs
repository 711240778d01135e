//! Calls with exact results, wrong outputs of them, and what is said of these.
#![allow(dead_code, clippy::unwrap_used)]

pub mod kernels;

use tapml_cause::{Earlier, Evidence, Explanation, explain};
use tapml_exec::Call;
use tapml_graph::op::{OPS, Sample};
use tapml_graph::{Op, Tensor};
use tapml_migrate::terms;
use tapml_migrate::verdict::{AMPLITUDE, COPIES, Exact, Judgement, Precision, judge};
use tapml_reference::{Value, oracle, run_node};

/// A call, its exact outputs, and what a correct platform gives.
pub struct Case {
    pub name: String,
    pub call: Call,
    pub exact: Vec<Exact>,
    pub correct: Vec<Tensor>,
    pub precision: Precision,
}

impl Case {
    pub fn new(name: String, call: Call) -> Case {
        let inputs: Vec<Value<f64>> = call.inputs.iter().map(|t| Value::from_tensor(t).unwrap()).collect();
        let is_weight: Vec<bool> = call.weights.iter().map(Option::is_some).collect();
        let found = oracle(&call.op, &call.symbols, &inputs, &is_weight, AMPLITUDE, COPIES, 7).unwrap();
        let exact = Exact::of_outputs(&found);
        let dtypes: Vec<_> = call.output_types.iter().map(|t| t.dtype).collect();
        let correct = run_node(&call.op, &call.symbols, &call.inputs, &dtypes).unwrap();
        let precision = Precision { accumulate: tapml_graph::DType::F32, terms: terms(&call) };
        Case { name, exact, correct, precision, call }
    }

    /// The sample of this operator and name; vectors and what only a weight can be are weights.
    pub fn of_sample(sample: &Sample, seed: u64) -> Case {
        let types = sample.types();
        let inputs = sample.tensors(seed).unwrap();
        let outputs = sample.op.infer(&types).unwrap();
        let is_state = |i: usize| outputs[1..].contains(&types[i]);
        let symbolic = |i: usize| is_state(i) || types[i].shape.iter().any(|d| d.as_const().is_none());
        let call = Call {
            node: "call".into(),
            op: sample.op.clone(),
            symbols: sample.symbols.clone(),
            weights: (0..inputs.len()).map(|i| (!symbolic(i)).then(|| format!("w{i}"))).collect(),
            output_types: sample.op.infer(&types).unwrap(),
            input_types: types,
            inputs,
        };
        Case::new(format!("{}: {}", sample.op.name(), sample.name), call)
    }

    pub fn evidence<'a>(&'a self, observed: &'a [Vec<Tensor>], earlier: &'a [Earlier<'a>]) -> Evidence<'a> {
        Evidence {
            call: &self.call,
            exact: &self.exact,
            observed,
            precision: self.precision,
            earlier,
            findings: &[],
            after: None,
        }
    }

    /// Whether these outputs fail their verdict.
    pub fn fails(&self, outputs: &[Tensor]) -> bool {
        !self.judge(outputs).passes()
    }

    pub fn judge(&self, outputs: &[Tensor]) -> Judgement {
        judge(&self.exact, outputs, self.precision, None).unwrap()
    }

    pub fn explain(&self, outputs: Vec<Tensor>) -> Explanation {
        explain(&self.evidence(&[outputs], &[])).unwrap()
    }

    /// The outputs with the numbers of the first one changed.
    pub fn change_outputs(&self, change: impl FnOnce(&mut Vec<f64>, usize)) -> Vec<Tensor> {
        let mut outputs = self.correct.clone();
        let mut values = outputs[0].to_f64();
        change(&mut values, outputs[0].row_len().max(1));
        outputs[0] = Tensor::from_f64(outputs[0].dtype(), outputs[0].shape().to_vec(), &values).unwrap();
        outputs
    }
}

/// Every sample of every operator.
pub fn samples() -> Vec<Case> {
    let all = OPS.iter().flat_map(|info| (info.samples)());
    all.map(|sample| Case::of_sample(&sample, 3)).collect()
}

/// The inputs as f32.
pub fn args(case: &Case) -> (&Op, Vec<Vec<f32>>) {
    (&case.call.op, case.call.inputs.iter().map(|t| t.to_f32().into_owned()).collect())
}

/// An explanation in one line.
pub fn brief(said: &Explanation) -> String {
    let tested: Vec<String> =
        said.tested.iter().take(5).map(|t| format!("{} {:.3}", t.cause, t.fit)).collect();
    format!(
        "{} ({}): {} | {}",
        said.cause,
        if said.certain { "certain" } else { "-" },
        said.evidence,
        tested.join(", ")
    )
}
