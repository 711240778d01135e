//! What a graph consists of, in numbers: operator kinds, parameters, memory by dtype, memory of states.

use crate::dim::Symbols;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Graph, State};
use crate::tensor::byte_len;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How often an operator occurs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpCount {
    /// The operator's name.
    pub op: String,
    /// Number of nodes.
    pub nodes: usize,
}

/// The weights of one dtype.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightCount {
    /// Their dtype.
    pub dtype: DType,
    /// Number of weights.
    pub tensors: usize,
    /// Number of elements.
    pub parameters: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A named value of the graph's signature, with its type as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryPort {
    /// Name.
    pub name: String,
    /// Type, such as `f32[n,320]`.
    #[serde(rename = "type")]
    pub ty: String,
}

/// What a graph consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The graph's name.
    pub graph: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Operator kinds in the order of their first node.
    pub ops: Vec<OpCount>,
    /// Number of elements of all weights.
    pub parameters: u64,
    /// Bytes of all weights.
    pub weight_bytes: u64,
    /// Weights by dtype, in the order of [`DType::ALL`], packed ones last.
    pub weights: Vec<WeightCount>,
    /// Number of states.
    pub states: usize,
    /// Bytes that all growing states together gain with each token.
    pub state_bytes_per_token: u64,
    /// Bytes of all states of constant size.
    pub state_bytes_fixed: u64,
    /// The inputs.
    pub inputs: Vec<SummaryPort>,
    /// The results.
    pub outputs: Vec<SummaryPort>,
}

impl Graph {
    /// Counts what the graph consists of. Fails if a count does not fit 64 bits, or if the size of a state is neither
    /// constant nor one row per cached token.
    pub fn summary(&self) -> Result<Summary> {
        let kinds = self.op_kinds().into_iter();
        let ops = kinds.map(|(op, nodes)| OpCount { op: op.to_string(), nodes }).collect();
        let weights = self.weight_counts()?;
        let port =
            |name: &str, value| SummaryPort { name: name.to_string(), ty: self.value(value).ty.to_string() };
        let (mut per_token, mut fixed) = (0, 0);
        for state in self.states() {
            let sum = if state.grows(self) { &mut per_token } else { &mut fixed };
            *sum = add(*sum, self.state_bytes(state)?)?;
        }
        Ok(Summary {
            graph: self.name().to_string(),
            nodes: self.nodes().len(),
            ops,
            parameters: weights.iter().try_fold(0, |sum, w| add(sum, w.parameters))?,
            weight_bytes: weights.iter().try_fold(0, |sum, w| add(sum, w.bytes))?,
            weights,
            states: self.states().len(),
            state_bytes_per_token: per_token,
            state_bytes_fixed: fixed,
            inputs: self.inputs().map(|(id, v)| port(&v.name, id)).collect(),
            outputs: self.outputs().iter().map(|o| port(&o.name, o.value)).collect(),
        })
    }

    /// The weights by dtype.
    fn weight_counts(&self) -> Result<Vec<WeightCount>> {
        // The order of dtypes is that of the result.
        let mut counts: BTreeMap<DType, WeightCount> = BTreeMap::new();
        for (_, value) in self.weights() {
            let (dtype, sizes) = (value.ty.dtype, value.ty.sizes(&Symbols::new())?);
            let bytes = byte_len(dtype, &sizes).ok_or_else(too_large)? as u64;
            let elements = sizes.iter().try_fold(1u64, |all, &size| all.checked_mul(size as u64));
            let none = || WeightCount { dtype, tensors: 0, parameters: 0, bytes: 0 };
            let count = counts.entry(dtype).or_insert_with(none);
            count.tensors += 1;
            count.parameters = add(count.parameters, elements.ok_or_else(too_large)?)?;
            count.bytes = add(count.bytes, bytes)?;
        }
        Ok(counts.into_values().collect())
    }

    /// Bytes of one row of a growing state, or of the whole of another.
    fn state_bytes(&self, state: &State) -> Result<u64> {
        let ty = &self.value(state.input).ty;
        let sizes = if state.grows(self) { ty.shape.get(1..) } else { Some(&ty.shape[..]) };
        let mut bytes = ty.dtype.size() as u64;
        for size in sizes.into_iter().flatten() {
            let size = size.as_const().ok_or_else(|| {
                Error::unsupported(format!("state `{}` has a size that is not constant: {ty}", state.name))
            })?;
            bytes = bytes.checked_mul(size).ok_or_else(too_large)?;
        }
        Ok(bytes)
    }
}

/// The sum.
///
/// # Errors
/// If it does not fit 64 bits: sizes in a file may be anything.
fn add(a: u64, b: u64) -> Result<u64> {
    a.checked_add(b).ok_or_else(too_large)
}

fn too_large() -> Error {
    Error::invalid("the sizes of the graph do not fit 64 bits")
}
