//! What a verdict has to know of an operator: whether it rounds, and how many terms its longest sum has.

use tapml_graph::op::Foreign;
use tapml_graph::{DType, TensorType};

/// What a verdict has to know of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallFacts {
    /// Whether the operator only moves, compares or chooses data, so that no rounding happens.
    pub exact: bool,
    /// Terms of its longest sum; 1 if it adds nothing up.
    pub terms: usize,
}

/// The operator and the sizes of its inputs.
pub struct InputSizes<'a> {
    /// The operator.
    pub op: &'a Foreign,
    /// Dtype and constant shape of each input; `None` where an optional one is absent.
    inputs: Vec<Option<(DType, Vec<usize>)>>,
}

impl<'a> InputSizes<'a> {
    /// `None` if a size is not constant.
    pub fn new(op: &'a Foreign, inputs: &[Option<TensorType>]) -> Option<InputSizes<'a>> {
        let constant = |ty: &TensorType| {
            let size = |dim: &tapml_graph::Dim| usize::try_from(dim.as_const()?).ok();
            Some((ty.dtype, ty.shape.iter().map(size).collect::<Option<Vec<usize>>>()?))
        };
        // The outer option says whether the sizes are known, the inner one whether the input is there.
        let inputs = inputs.iter().map(|ty| ty.as_ref().map_or(Some(None), |ty| constant(ty).map(Some)));
        Some(InputSizes { op, inputs: inputs.collect::<Option<_>>()? })
    }

    /// The shape of an input; no axes if it is absent.
    pub fn shape(&self, place: usize) -> &[usize] {
        self.inputs.get(place).and_then(Option::as_ref).map_or(&[], |(_, shape)| shape)
    }

    /// Count of places of inputs.
    pub fn places(&self) -> usize {
        self.inputs.len()
    }

    /// Whether an input is there.
    pub fn has(&self, place: usize) -> bool {
        self.inputs.get(place).is_some_and(Option::is_some)
    }

    /// The dtype of an input, if it is there.
    pub fn dtype(&self, place: usize) -> Option<DType> {
        self.inputs.get(place)?.as_ref().map(|(dtype, _)| *dtype)
    }

    /// The size of an axis, counted from the end if negative; 1 if there is none.
    pub fn size(&self, place: usize, axis: i64) -> usize {
        let shape = self.shape(place);
        crate::array::axis(axis, shape.len()).map_or(1, |axis| shape[axis])
    }

    /// The product of an input's sizes from an axis on; 1 if there are none.
    pub fn volume_from(&self, place: usize, first: usize) -> usize {
        product(self.shape(place).get(first..).unwrap_or_default())
    }

    /// An attribute that is an integer.
    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.op.attributes().get(name).and_then(serde_json::Value::as_i64).unwrap_or(default)
    }

    /// An attribute that is a list of integers.
    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        let value = self.op.attributes().get(name)?;
        // Both forms of a list; see `Foreign`.
        value.get("ints").unwrap_or(value).as_array()?.iter().map(serde_json::Value::as_i64).collect()
    }
}

/// The product of sizes, which saturates.
pub fn product(sizes: &[usize]) -> usize {
    sizes.iter().fold(1, |product, &size| product.saturating_mul(size))
}

/// Facts of an operator that moves or chooses.
pub fn exact(_: &InputSizes<'_>) -> CallFacts {
    CallFacts { exact: true, terms: 1 }
}

/// Facts of an operator that computes each element from a few.
pub fn elementwise_facts(sizes: &InputSizes<'_>) -> CallFacts {
    // Integers wrap and round nothing.
    let rounds = (0..sizes.inputs.len()).any(|place| sizes.dtype(place).is_some_and(DType::is_float));
    CallFacts { exact: !rounds, terms: 1 }
}

/// Facts of an operator with sums of so many terms.
pub fn terms(count: usize) -> CallFacts {
    CallFacts { exact: false, terms: count.max(1) }
}

/// Facts of an operator with sums over the last axis of its first input, or that of the attribute `axis`.
pub fn last_axis(sizes: &InputSizes<'_>) -> CallFacts {
    terms(sizes.size(0, sizes.int("axis", -1)))
}

/// Facts of an operator that rounds and adds up nothing that is not exact.
pub fn rounding_facts(_: &InputSizes<'_>) -> CallFacts {
    terms(1)
}
