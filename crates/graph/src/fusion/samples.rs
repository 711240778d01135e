//! Sample cases of fused operators: their bodies, built node by node.

use super::rule::Fusion;
use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::graph::{Builder, TensorType, ValueId};
use crate::op::{Append, DeclaredType, Fill, Foreign, Fused, Op, Rope, Sample, SampleInput};

/// A body in the making, with recipes for the values of its inputs. Its methods panic on a mistake: samples are source
/// code.
pub struct FusedSample {
    /// The name of the case.
    name: String,
    /// What the body is a case of.
    fusion: &'static Fusion,
    /// The body.
    builder: Builder,
    /// A type and a recipe for each input.
    inputs: Vec<SampleInput>,
    /// Count of values that nodes have given, which numbers their names.
    values: usize,
    /// Count of outputs, which numbers their names.
    outputs: usize,
}

/// A type of constant sizes.
pub fn constant_type(dtype: DType, shape: &[u64]) -> TensorType {
    TensorType::new(dtype, shape.iter().copied())
}

impl FusedSample {
    /// Nothing yet.
    pub fn new(name: &str, fusion: &'static Fusion) -> FusedSample {
        let builder = Builder::new("body");
        FusedSample { name: name.into(), fusion, builder, inputs: Vec::new(), values: 0, outputs: 0 }
    }

    /// The type of as many rows as the run has.
    pub fn rows(&self, dtype: DType, width: u64) -> TensorType {
        TensorType::new(dtype, [Dim::symbol(Symbol::N), Dim::from(width)])
    }

    /// The type of as many rows as are cached.
    pub fn cached_type(&self, dtype: DType, width: u64) -> TensorType {
        TensorType::new(dtype, [Dim::symbol(Symbol::P), Dim::from(width)])
    }

    /// Adds an input.
    pub fn input(&mut self, ty: TensorType, fill: Fill) -> ValueId {
        let name = format!("in{}", self.inputs.len());
        self.inputs.push(SampleInput { ty: ty.clone(), fill });
        self.builder.input(name, ty).expect("inputs of samples are valid")
    }

    /// Adds a node with one output.
    pub fn node(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.nodes(op, inputs, 1)[0]
    }

    /// Adds a node with several outputs.
    pub fn nodes(&mut self, op: impl Into<Op>, inputs: &[ValueId], outputs: usize) -> Vec<ValueId> {
        // Values are numbered over all nodes, so that no name comes twice.
        let names: Vec<String> = (self.values..).take(outputs).map(|at| format!("v{at}")).collect();
        self.values += outputs;
        let made = self.builder.node_multi(names[0].clone(), op, inputs, &names);
        made.expect("nodes of samples are valid")
    }

    /// Adds a node of an operator of others that takes all its places and gives one output of this type.
    pub fn foreign(&mut self, kind: &str, attributes: &str, inputs: &[ValueId], ty: &TensorType) -> ValueId {
        let attributes = serde_json::from_str(attributes).expect("attributes of samples are valid");
        let (taken, outputs) = (vec![true; inputs.len()], vec![DeclaredType::As(ty.clone())]);
        let op = Foreign::new(kind, attributes, taken, outputs).expect("operators of samples are valid");
        self.node(op, inputs)
    }

    /// Adds rows of keys, rotated by these angles, and of values, each behind those that are cached; gives both caches.
    pub fn rotated_and_appended(
        &mut self,
        rope: Rope,
        angles: ValueId,
        act: DType,
        width: u64,
    ) -> [ValueId; 2] {
        let (new, cache) = (self.rows(act, width), self.cached_type(act, width));
        let k = self.input(new.clone(), Fill::Normal(1.0));
        let k = self.node(rope, &[k, angles]);
        let keys = self.input(cache.clone(), Fill::Normal(1.0));
        let keys = self.node(Append {}, &[keys, k]);
        let values = self.input(cache, Fill::Normal(1.0));
        let v = self.input(new, Fill::Normal(1.0));
        [keys, self.node(Append {}, &[values, v])]
    }

    /// Makes a value an output.
    pub fn output(&mut self, value: ValueId) {
        self.builder.output(format!("out{}", self.outputs), value);
        self.outputs += 1;
    }

    /// The case with `n` rows after `p` cached ones.
    pub fn finish(self, n: u64, p: u64) -> Sample {
        let body = self.builder.finish().expect("bodies of samples are valid");
        let op = Fused::new(self.fusion, body).expect("bodies of samples can be fused");
        Sample { inputs: self.inputs, ..Sample::new(&self.name, op, n, p) }
    }
}
