//! Sample cases of operators: concrete types and a recipe for values, reproducible on every machine.

use super::fill::{Fill, Random, SampleInput};
use super::{Op, Sample};
use crate::dim::Symbols;
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Builder, Graph, TensorType};
use crate::packing::Packing;
use crate::tensor::Tensor;

impl Sample {
    /// A case with `n` rows after `p` cached ones.
    pub fn new(name: &str, op: impl Into<Op>, n: u64, p: u64) -> Sample {
        Sample { name: name.into(), op: op.into(), symbols: Symbols::np(n, p), inputs: Vec::new() }
    }

    /// Adds an input; `shape` is text such as `"n,320"`. Panics on bad text: samples are source code.
    pub fn input(mut self, dtype: DType, shape: &str, fill: Fill) -> Sample {
        let shape = shape.split(',').map(|d| d.parse().expect("sample shapes are valid")).collect();
        self.inputs.push(SampleInput { ty: TensorType { dtype, shape }, fill });
        self
    }

    /// Adds a packed weight of `rows`, such as `"4,32"`, of `k` elements each, with random codes, and scales that make its
    /// numbers as large as those of usual weights. Panics on bad text as [`Sample::input`] does.
    pub(super) fn with_packed(self, packing: Packing, rows: &str, k: u32) -> Sample {
        self.input(DType::Packed(packing), &format!("{rows},{k}"), Fill::Codes)
    }

    /// Types of the inputs.
    pub fn types(&self) -> Vec<TensorType> {
        self.inputs.iter().map(|i| i.ty.clone()).collect()
    }

    /// The graph of this one call: inputs `in0`, `in1`, …, node `call`, outputs `out0`, `out1`, ….
    pub fn graph(&self) -> Result<Graph> {
        let mut b = Builder::new(&self.name);
        let mut inputs = Vec::new();
        for (i, input) in self.inputs.iter().enumerate() {
            inputs.push(b.input(format!("in{i}"), input.ty.clone())?);
        }
        let count = self.op.infer(&self.types())?.len();
        let names: Vec<String> = (0..count).map(|i| format!("out{i}")).collect();
        let outputs = b.node_multi("call", self.op.clone(), &inputs, &names)?;
        for (name, value) in names.iter().zip(outputs) {
            b.output(name, value);
        }
        b.finish()
    }

    /// The input values made from this seed.
    pub fn tensors(&self, seed: u64) -> Result<Vec<Tensor>> {
        let mut random = Random::new(seed);
        self.inputs.iter().map(|input| random.tensor(input, &self.symbols)).collect()
    }
}

/// Samples of an element-wise operator of this many inputs.
pub(super) fn elementwise(op: &Op, inputs: usize) -> Vec<Sample> {
    let case = |name: &str, n, k: usize, fill, dtype| {
        let empty = Sample::new(name, op.clone(), n, 0);
        (0..inputs).fold(empty, |sample, _| sample.input(dtype, &format!("n,{k}"), fill))
    };
    vec![
        case("prefill", 9, 320, Fill::Normal(1.0), DType::F32),
        case("decode", 1, 896, Fill::Normal(3.0), DType::F32),
        case("odd size, large values", 3, 33, Fill::Spiky(30.0), DType::F32),
        case("huge values", 2, 65, Fill::Spiky(1e5), DType::F32),
        case("f16", 2, 100, Fill::Normal(1.0), DType::F16),
    ]
}
