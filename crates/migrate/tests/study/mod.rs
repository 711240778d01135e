//! The study behind the verdict's constants: kernels of three operators written out by hand, right and wrong ones, on the
//! activations of a real model, and what the verdict says of each.
#![allow(clippy::unwrap_used)]

mod kernels;

use kernels::{Attend, Rms, attention, linear, rms_norm};
use std::collections::HashMap;
use std::path::Path;
use tapml_graph::{DType, Node, Op, Symbols, Tensor};
use tapml_import::Checkpoint;
use tapml_migrate::verdict::{AMPLITUDE, COPIES, Exact, Judgement, Precision, judge};
use tapml_reference::{Value, WeightCache, empty_states, oracle, run_graph};

/// The first 29 tokens of "The old lighthouse keeper climbed the stairs every evening to light the lamp, and the …".
const IDS: [u32; 29] = [
    0, 355, 628, 910, 2331, 1155, 271, 3447, 1324, 265, 3524, 654, 1243, 283, 910, 265, 293, 1199, 14, 280,
    265, 2458, 85, 1100, 450, 351, 2006, 1734, 751,
];

/// One kernel in one storage dtype, judged on the calls of every studied layer.
pub struct Row {
    pub op: &'static str,
    pub kernel: String,
    pub dtype: DType,
    /// Whether it is a correct kernel.
    pub correct: bool,
    /// Judgement of the call with the largest ratio, and of the one with the smallest.
    pub most: Judgement,
    pub least: f64,
}

impl Row {
    /// Whether a suite with these calls catches the kernel.
    pub fn is_caught(&self) -> bool {
        !self.most.passes()
    }
}

/// An operator call with inputs as the model computes them in f32; weights come last.
struct Sample {
    op: Op,
    inputs: Vec<Tensor>,
    weights: usize,
}

/// Calls of one layer: a norm, the longest linear, attention.
struct Layer {
    norm: Sample,
    linear: Sample,
    attention: Sample,
}

/// Every kernel of the study in every storage dtype, judged on the first and the last layer of the model in `folder`.
pub fn run(folder: &Path) -> Vec<Row> {
    let layers = layers(folder);
    let mut rows = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let norms: Vec<_> = layers.iter().map(|l| Case::new(&l.norm, dtype)).collect();
        let linears: Vec<_> = layers.iter().map(|l| Case::new(&l.linear, dtype)).collect();
        let attentions: Vec<_> = layers.iter().map(|l| Case::new(&l.attention, dtype)).collect();
        for (name, kernel) in Rms::all() {
            rows.push(row(&norms, name, kernel.correct(), kernel.chain(), |case| {
                rms_norm(case.args(), &kernel)
            }));
        }
        for (order, fault) in kernels::linears() {
            let chain = order.chain(linears[0].inputs[0].shape()[1]);
            let name = format!("{order:?}, {fault:?}");
            rows.push(row(&linears, &name, fault.correct(), chain, |case| linear(case.args(), order, fault)));
        }
        for (name, kernel) in Attend::all() {
            rows.push(row(&attentions, name, kernel.correct(), 64, |case| attention(case.args(), &kernel)));
        }
    }
    rows
}

/// A call in one storage dtype with its exact result.
pub struct Case {
    op: Op,
    inputs: Vec<Tensor>,
    exact: Vec<Exact>,
    dtype: DType,
}

impl Case {
    fn new(sample: &Sample, dtype: DType) -> Case {
        let activations = sample.inputs.len() - sample.weights;
        let stored = |(i, t): (usize, &Tensor)| {
            if i < activations {
                Tensor::from_f32_as(dtype, t.shape().to_vec(), t.to_f32().into_owned()).unwrap()
            } else {
                t.clone()
            }
        };
        let inputs: Vec<Tensor> = sample.inputs.iter().enumerate().map(stored).collect();
        let values: Vec<Value<f64>> = inputs.iter().map(|t| Value::from_tensor(t).unwrap()).collect();
        let is_weight: Vec<bool> = (0..inputs.len()).map(|i| i >= activations).collect();
        let symbols = Symbols::np(IDS.len() as u64, 0);
        let found = oracle(&sample.op, &symbols, &values, &is_weight, AMPLITUDE, COPIES, 1).unwrap();
        let exact = Exact::of_outputs(&found);
        Case { op: sample.op.clone(), exact, inputs, dtype }
    }

    fn args(&self) -> (&Op, Vec<Vec<f32>>) {
        (&self.op, self.inputs.iter().map(|t| t.to_f32().into_owned()).collect())
    }
}

fn row(cases: &[Case], kernel: &str, correct: bool, terms: usize, run: impl Fn(&Case) -> Vec<f32>) -> Row {
    let precision = Precision { accumulate: DType::F32, terms };
    let judged = cases.iter().map(|case| {
        let shape = vec![IDS.len(), case.exact[0].row_len];
        let output = Tensor::from_f32_as(case.dtype, shape, run(case)).unwrap();
        judge(&case.exact, &[output], precision, None).unwrap()
    });
    let mut judged: Vec<Judgement> = judged.collect();
    judged.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let least = judged[0].ratio;
    Row {
        op: cases[0].op.name(),
        kernel: kernel.into(),
        dtype: cases[0].dtype,
        correct,
        most: judged.pop().unwrap(),
        least,
    }
}

fn layers(folder: &Path) -> Vec<Layer> {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let model = checkpoint.model();
    let cache = WeightCache::<f32>::new();
    let ids = Value::from_tensor(&Tensor::from_u32(vec![IDS.len()], IDS.to_vec()).unwrap()).unwrap();
    let name = model.graph().inputs().next().unwrap().1.name.clone();
    let mut seen: Vec<Sample> = Vec::new();
    let mut observer = |node: &Node, inputs: &[Value<f32>], _: &[Value<f32>]| {
        let weights =
            node.inputs.iter().filter(|&&v| model.weight(&model.graph().value(v).name).is_ok()).count();
        let dtype = |v: &Value<f32>| if matches!(v, Value::Float(_)) { DType::F32 } else { DType::U32 };
        let inputs = inputs.iter().map(|v| v.to_tensor(dtype(v))).collect::<Result<_, _>>()?;
        seen.push(Sample { op: node.op.clone(), inputs, weights });
        Ok(())
    };
    let symbols = Symbols::np(IDS.len() as u64, 0);
    let weights = |name: &str| cache.get_weight(model, name);
    let states = empty_states(model.graph()).unwrap();
    let inputs = HashMap::from([(name, ids)]);
    run_graph(model.graph(), &symbols, &inputs, &weights, states, Some(&mut observer)).unwrap();
    let widest =
        seen.iter().filter(|s| matches!(s.op, Op::Linear(_))).map(|s| s.inputs[0].shape()[1]).max().unwrap();
    let mut norms = take(&mut seen, |s| matches!(s.op, Op::RmsNorm(_)));
    let mut linears = take(&mut seen, |s| matches!(s.op, Op::Linear(_)) && s.inputs[0].shape()[1] == widest);
    let mut attentions = take(&mut seen, |s| matches!(s.op, Op::Attention(_)));
    let first = Layer { norm: norms.remove(0), linear: linears.remove(0), attention: attentions.remove(0) };
    let last = Layer {
        norm: norms.pop().unwrap(),
        linear: linears.pop().unwrap(),
        attention: attentions.pop().unwrap(),
    };
    vec![first, last]
}

fn take(seen: &mut Vec<Sample>, wanted: impl Fn(&Sample) -> bool) -> Vec<Sample> {
    let (yes, no) = seen.drain(..).partition(|s| wanted(s));
    *seen = no;
    yes
}
